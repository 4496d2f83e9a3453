"""Judges one node piece by piece, where all of it at once would take too much memory.

A piece is a range of an axis along which the operator computes each index by itself: the batch of a
convolution or a pool, its channels where they do not mix, any axis of an elementwise operator.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.sums.linear import MatMul
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalPool
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool
from verax.records.verdict import Finding, Kind
from verax.reference.sizes import inferred_outputs

SEVERITY = (Kind.identical, Kind.rounding, Kind.precision, Kind.undecided, Kind.mistake)


@dataclass(frozen=True)
class Cut:
    """Cut of a node along `axis` of its output and, for every input that has one, along an axis of
    that input (None: each piece takes all of it)."""

    axis: int
    inputs: tuple[int | None, ...]
    length: int


def cuts(node: Node, inputs: Sequence[np.ndarray | None], output: np.ndarray) -> Iterator[Cut]:
    """Yield the possible cuts of a node, the longest axis first."""
    candidates = [c for c in _cuts(node, inputs, output) if c.length > 1]
    yield from sorted(candidates, key=lambda c: -c.length)


def _cuts(node: Node, inputs: Sequence[np.ndarray | None], output: np.ndarray) -> Iterator[Cut]:
    op, uncut = node.op, (None,) * (len(inputs) - 1)
    if len(node.outputs) != 1:
        return
    if isinstance(op, Elementwise):
        for axis in range(output.ndim):
            yield Cut(
                axis,
                tuple(_broadcast_axis(x, axis, output) for x in inputs),
                output.shape[axis],
            )
        return
    batch = (Conv, ConvTranspose, MaxPool, AveragePool, LpPool, GlobalPool, BatchNormalization)
    if isinstance(op, batch):
        yield Cut(0, (0, *uncut), output.shape[0])
    if isinstance(op, MaxPool | AveragePool | LpPool | GlobalPool):
        yield Cut(1, (1, *uncut), output.shape[1])
    if isinstance(op, Conv) and op.groups == 1:
        yield Cut(1, (None, 0, *((0,) * (len(inputs) - 2))), output.shape[1])
    weights = inputs[1] if len(inputs) > 1 else None
    if isinstance(op, MatMul) and output.ndim >= 2 and weights is not None and weights.ndim == 2:
        yield Cut(0, (0, None), output.shape[0])
        yield Cut(output.ndim - 1, (None, 1), output.shape[-1])


def _broadcast_axis(x: np.ndarray | None, axis: int, output: np.ndarray) -> int | None:
    """The axis of an input that is `axis` of the output it broadcasts to, if it has one."""
    if x is None:
        return None
    own = axis - (output.ndim - x.ndim)
    return own if own >= 0 and x.shape[own] == output.shape[axis] else None


def check_in_pieces(
    node: Node,
    inputs: Sequence[np.ndarray | None],
    actual: np.ndarray,
    cut: Cut,
    count: int,
) -> Finding | None:
    """Judge the only output of a node in `count` pieces; None when a piece has no type.

    The finding is that of the worst piece, with the elements and the errors of all.
    """
    bounds = np.linspace(0, cut.length, count + 1).astype(int)
    judged: list[tuple[int, Finding]] = []
    for first, last in itertools.pairwise(bounds):
        piece_inputs = [
            x if x is None or axis is None else _stretch(x, axis, first, last)
            for x, axis in zip(inputs, cut.inputs, strict=True)
        ]
        types = tuple(None if x is None else TensorType.of(x) for x in piece_inputs)
        outputs = inferred_outputs(node.op, types, piece_inputs, node.name)
        if outputs is None:
            return None
        piece = _stretch(actual, cut.axis, first, last)
        (finding,) = check_node(node, piece_inputs, [piece], outputs)
        judged.append((int(first), finding))
    first, worst = max(judged, key=lambda f: (SEVERITY.index(f[1].kind), f[1].statistic))
    findings = [f for _, f in judged]
    total = sum(f.elements for f in findings)
    return dataclasses.replace(
        worst,
        reason=f"{worst.reason} (judged in {count} pieces along axis {cut.axis}, the figures are "
        "those of the worst)",
        elements=total,
        sigma=_pooled_rms([(f.sigma, f.elements) for f in findings]),
        error=_pooled_rms([(f.error, f.elements) for f in findings]),
        visible=min(f.visible for f in findings),
        worst=tuple(
            dataclasses.replace(
                p, index=tuple(i + first * (a == cut.axis) for a, i in enumerate(p.index))
            )
            for p in worst.worst
        ),
    )


def _stretch(x: np.ndarray, axis: int, first: int, last: int) -> np.ndarray:
    return x[(slice(None),) * axis + (slice(first, last),)]


def _pooled_rms(sizes: Sequence[tuple[float, int]]) -> float:
    """Root mean square of all elements, from that of each part and its number of elements."""
    total = sum(n for _, n in sizes)
    return float(np.sqrt(sum(r * r * n for r, n in sizes) / max(1, total)))
