"""What processors and runtimes are known to do to 8-bit integers, other than the meaning.

- Processors without an instruction for dot products of bytes add pairs of products in 16 bits and
  saturate there: unsigned data times signed weights of the full range loses whole quanta (ONNX
  Runtime, issue 14642; oneDNN and with it OpenVINO). Signed data is shifted by 128 first. Which
  products make a pair depends on the order of the terms: all of a window one after the other,
  channels last, or channels by two at each position of the kernel.
- Where oneDNN computes with signed data there, it halves the weights (to even), so that no pair can
  saturate: they keep seven bits.
- ONNX Runtime's integer Softmax multiplies with 1 / scale of its result rounded down to a whole
  number: 254 in place of 254.9999 makes every probability 0.4 % too small.

- ONNX Runtime rounds float weights to 8 bits itself (one scale for all of them) where a product of
  them lies between dequantised data and a quantisation.
- OpenVINO takes networks with values of 16 bits for networks of floats: it rounds to none of them.
- OpenVINO adds to the sums of a convolution before it rounds them: the quantisation between a
  product and the addition behind it is left out, which is finer than the meaning, not coarser.
- LiteRT's optimised means round the zero point's share by itself, and XNNPACK's bilinear resize
  takes weights of 11 bits; its tanh and sigmoid of 16 bits may go by steps
  (`int8_kernels`).

Each is a `Way`: a node is computed again so, exactly, and what a subject gave has to be that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, as_tuple
from verax.judge.decide.precision import asymmetric_uint8
from verax.judge.regions.int8_kernels import (
    finely_resized,
    mean_apart,
    share_apart,
    stepped_table,
)
from verax.judge.regions.int8_products import (
    BY_POSITION,
    IN_A_ROW,
    PRODUCTS,
    factors_known,
    lost_in_pairs,
)
from verax.numerics.error_model import Quantity
from verax.ops.images.resize_integer import ResizeInteger
from verax.ops.quantized.requantization import Requantize

ALL_MIXTURES, PASSES = 64, 3
"""Mixtures up to which every one is tried; passes over the nodes where there are more."""
_NOTHING = Evaluation((), ())


@dataclass(frozen=True)
class Way:
    """A coarser arithmetic of integers.

    pairs: how products are paired, "", IN_A_ROW or BY_POSITION. halved: which signed data gets
    halved weights instead, "" for none, "centred" for that with zero point 0, "signed" for all.
    softmax: whether 1 / scale of a quantised Softmax is rounded down. sums: the operands of an
    addition whose quantisation is left out behind a product: "", "both", or where both come from
    products "left" or "right". weights: whether float weights between quantised values are rounded
    to 8 bits. wide: whether values of 16 bits are left unrounded, though within their range.
    means: whether the zero point's share of a mean is rounded by itself. resize: whether a bilinear
    resize of bytes takes weights of 11 bits. steps: whether tanh and sigmoid of 16 bits
    go by steps.
    spared: first outputs of nodes that are computed as the graph says; turned: of those whose
    products are paired the other way.
    """

    pairs: str = ""
    halved: str = ""
    softmax: bool = False
    sums: str = ""
    weights: bool = False
    wide: bool = False
    means: bool = False
    resize: bool = False
    steps: bool = False
    spared: frozenset[str] = frozenset()
    turned: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        words = []
        if self.pairs:
            other = f", in some of the nodes {_other(self.pairs)}" if self.turned else ""
            words.append(f"int8 with 16-bit saturation (pairs of products {self.pairs}{other})")
        if self.halved:
            words.append("weights halved to 7 bits where the data is signed")
        if self.softmax:
            words.append("an integer softmax whose 1 / scale was rounded down")
        if self.weights:
            words.append("float weights rounded to 8 bits between quantised values")
        if self.wide:
            words.append("no rounding to 16-bit integers, which is finer")
        if self.means:
            words.append("means whose zero point's share is rounded by itself")
        if self.resize:
            words.append("a bilinear resize with weights of 11 bits, which is finer")
        if self.steps:
            words.append("tanh and sigmoid of 16 bits by steps (gemmlowp's)")
        if self.spared:
            words[-1] += " in some of the nodes"
        if self.sums:
            words.append("no quantisation between a product and the sum behind it")
        return " and ".join(words)

    def left_out(self, graph: Graph, nodes: Sequence[Node]) -> set[str]:
        """Quantised values that are not rounded."""
        found: set[str] = set()
        for node in nodes if self.sums else ():
            chosen = [v for v in _bare_sums(graph, node) if v is not None]
            if len(chosen) == 2 and self.sums != "both":
                chosen = chosen[:1] if self.sums == "left" else chosen[1:]
            found.update(chosen)
        if self.wide:
            found.update(v for n in nodes for v in _sixteen_bits(graph, n))
        return found - self.spared

    def outputs(
        self,
        graph: Graph,
        node: Node,
        arrays: Sequence[Any],
        exact: Sequence[np.ndarray],
        scalars: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, ...]:
        """What the node gives so. arrays: its inputs; exact: its outputs by the meaning; scalars:
        values of one element by name, where zero points may be."""
        if node.outputs[0] in self.spared:
            return tuple(exact)
        if self.pairs and node.op.kind in PRODUCTS:
            turned = node.outputs[0] in self.turned
            pairs, halved = (_other(self.pairs), "") if turned else (self.pairs, self.halved)
            lost = lost_in_pairs(graph, node, arrays, pairs, halved, scalars)
            if lost is not None:
                return (exact[0] + lost.astype(exact[0].dtype),)
        if self.weights and _has_bare_weights(graph, node):
            change = asymmetric_uint8(np.asarray(arrays[1], np.float64)) - arrays[1]
            return (exact[0] + as_tuple(node.op.reference(_NOTHING, arrays[0], change))[0],)
        if self.softmax and node.op.kind == "Softmax":
            factor = _softmax_factor(graph, node)
            if factor is not None:
                return (exact[0] * factor,)
        if self.resize and isinstance(node.op, ResizeInteger) and arrays[0].dtype == np.int8:
            return (finely_resized(node.op, arrays[0]),)
        table = stepped_table(graph, node) if self.steps else None
        if table is not None:
            return as_tuple(node.op.reference(_NOTHING, table, *arrays[1:]))
        share = share_apart(graph, node) if self.means else 0.0
        if share and isinstance(node.op, Requantize):
            return (mean_apart(node.op, arrays, share),)
        return tuple(exact)

    def quantities(
        self, graph: Graph, node: Node, meant: Sequence[Quantity | None]
    ) -> Sequence[Quantity | None]:
        """What the node's outputs are rounded from so. meant: by the meaning."""
        if not self.means or node.outputs[0] in self.spared:
            return meant
        share = share_apart(graph, node)
        return [q if q is None else replace(q, real=q.real + share) for q in meant]


def ways(graph: Graph, nodes: Sequence[Node]) -> Iterator[Way]:
    """Those that could matter to these nodes, the simplest first."""
    known = [f for n in nodes if n.op.kind in PRODUCTS if (f := factors_known(graph, n))]
    products = [Way()]
    if known:
        products += [Way(IN_A_ROW), Way(BY_POSITION)]
    if any(data.dtype == np.int8 for data, _ in known):
        products += [Way(BY_POSITION, "centred"), Way(BY_POSITION, "signed")]
    bare = [sum(v is not None for v in _bare_sums(graph, n)) for n in nodes]
    sums = ["", "both", "left", "right"] if 2 in bare else ["", "both"] if any(bare) else [""]
    softmax = any(n.op.kind == "Softmax" and _softmax_factor(graph, n) is not None for n in nodes)
    bare_weights = any(_has_bare_weights(graph, n) for n in nodes)
    for rounded_down, short, left, way in itertools.product(
        (False, True)[: 1 + softmax], (False, True)[: 1 + bare_weights], sums, products
    ):
        found = replace(way, softmax=rounded_down, sums=left, weights=short)
        if found != Way():
            yield found
    if any(_sixteen_bits(graph, n) for n in nodes):
        yield Way(wide=True)
    kinds = [False, True]
    means = kinds[: 1 + any(share_apart(graph, n) for n in nodes)]
    resize = kinds[: 1 + any(isinstance(n.op, ResizeInteger) for n in nodes)]
    steps = kinds[: 1 + any(stepped_table(graph, n) is not None for n in nodes)]
    for apart, fine, by_steps in itertools.product(means, resize, steps):
        if apart or fine or by_steps:
            yield Way(means=apart, resize=fine, steps=by_steps)


def _other(pairs: str) -> str:
    return BY_POSITION if pairs == IN_A_ROW else IN_A_ROW


def mixed(way: Way, parts: Sequence[str], states: Sequence[int]) -> Way:
    """The way with each part in a state: 0 as the way says, 1 spared, 2 turned."""
    spared, turned = (
        frozenset(p for p, state in zip(parts, states) if state == wanted) for wanted in (1, 2)
    )
    return replace(way, spared=spared, turned=turned)


def best_mixture(
    counts: Sequence[int], size: Callable[[tuple[int, ...]], float], most: int
) -> tuple[int, ...]:
    """The states of least `size`: of all there are if these are few, else what is reached by
    changing one at a time, begun with all parts in the same state.

    counts: states of each part. most: mixtures that are tried.
    """
    known: dict[tuple[int, ...], float] = {}

    def tried(states: tuple[int, ...]) -> float:
        if states not in known:
            known[states] = size(states) if len(known) < most else np.inf
        return known[states]

    if np.prod(counts, dtype=np.float64) <= min(most, ALL_MIXTURES):
        for states in itertools.product(*map(range, counts)):
            tried(states)
        return min(known, key=lambda k: known[k])
    for start in range(max(counts)):
        states = tuple(min(start, count - 1) for count in counts)
        for _ in range(PASSES):
            before = tried(states)
            for part, count in enumerate(counts):
                others = ((*states[:part], i, *states[part + 1 :]) for i in range(count))
                states = min(others, key=tried)
            if tried(states) == before or not tried(states):
                break
        if not tried(states):
            break
    return min(known, key=lambda k: known[k])


def _sixteen_bits(graph: Graph, node: Node) -> tuple[str, ...]:
    """The result of a quantisation to 16 bits."""
    small = graph.types[node.outputs[0]].dtype.numpy.itemsize < 2
    return () if small or node.op.kind != "QuantizeLinear" else node.outputs


def _bare_sums(graph: Graph, node: Node) -> tuple[str | None, ...]:
    """For each operand of an addition, its quantised value if that comes straight from a product
    and is read by nobody else."""
    if node.op.kind != "Add":
        return ()
    return tuple(_bare_sum(graph, v) for v in node.inputs)


def _bare_sum(graph: Graph, value: str | None) -> str | None:
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != "DequantizeLinear" or len(graph.consumers[value or ""]) != 1:
        return None
    whole = node.inputs[0] or ""
    rounded = graph.producers.get(whole)
    if rounded is None or rounded.op.kind != "QuantizeLinear" or len(graph.consumers[whole]) != 1:
        return None
    source = graph.producers.get(rounded.inputs[0] or "")
    return whole if source is not None and source.op.kind in PRODUCTS else None


def _has_bare_weights(graph: Graph, node: Node) -> bool:
    """Whether a product of dequantised data with constant float weights is quantised next."""
    if node.op.kind not in ("Conv", "ConvTranspose", "MatMul") or len(node.inputs) < 2:
        return False
    source = graph.producers.get(node.inputs[0] or "")
    readers = graph.consumers.get(node.outputs[0], ())
    return (
        source is not None
        and source.op.kind == "DequantizeLinear"
        and node.inputs[1] in graph.constants
        and len(readers) == 1
        and readers[0].op.kind == "QuantizeLinear"
    )


def _softmax_factor(graph: Graph, node: Node) -> float | None:
    """What rounding 1 / scale down makes of a Softmax that is quantised next."""
    readers = graph.consumers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op.kind != "QuantizeLinear":
        return None
    scale = graph.constants.get(readers[0].inputs[1] or "")
    if scale is None or scale.size != 1:
        return None
    whole = float(np.ravel(scale)[0])
    with np.errstate(divide="ignore"):
        return float(np.floor(np.float32(1) / np.float32(whole))) * whole
