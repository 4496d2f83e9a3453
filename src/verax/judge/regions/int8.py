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
  them lies between dequantized data and a quantization.
- OpenVINO takes networks with values of 16 bits for networks of floats: it rounds to none of them.
- OpenVINO adds to the sums of a convolution before it rounds them: the quantization between a
  product and the addition behind it is left out, which is finer than the meaning, not coarser.
- LiteRT's optimized means round the zero point's share by itself, and XNNPACK's bilinear resize
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
    stepped_lookup,
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
class IntegerScheme:
    """A coarser arithmetic of integers.

    pairing: how products are paired, "", IN_A_ROW or BY_POSITION. halved: which signed data gets
    halved weights instead, "" for none, "centerd" for that with zero point 0, "signed" for all.
    softmax: whether 1 / scale of a quantized Softmax is rounded down. sums: the operands of an
    addition whose quantization is left out behind a product: "", "both", or where both come from
    products "left" or "right". weights: whether float weights between quantized values are rounded
    to 8 bits. wide: whether values of 16 bits are left unrounded, though within their range.
    means: whether the zero point's share of a mean is rounded by itself. resize: whether a bilinear
    resize of bytes takes weights of 11 bits. steps: whether tanh and sigmoid of 16 bits
    go by steps.
    spared: first outputs of nodes that are computed as the graph says; swapped: first outputs of
    nodes whose products are paired in the opposite order.
    """

    pairing: str = ""
    halved: str = ""
    softmax: bool = False
    sums: str = ""
    weights: bool = False
    wide: bool = False
    means: bool = False
    resize: bool = False
    steps: bool = False
    spared: frozenset[str] = frozenset()
    swapped: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        clauses = []
        if self.pairing:
            exception = f", in some of the nodes {_opposite(self.pairing)}" if self.swapped else ""
            clauses.append(
                f"int8 with 16-bit saturation (pairs of products {self.pairing}{exception})"
            )
        if self.halved:
            clauses.append("weights halved to 7 bits where the data is signed")
        if self.softmax:
            clauses.append("an integer softmax whose 1 / scale was rounded down")
        if self.weights:
            clauses.append("float weights rounded to 8 bits between quantized values")
        if self.wide:
            clauses.append("no rounding to 16-bit integers, which is finer")
        if self.means:
            clauses.append("means whose zero point's share is rounded by itself")
        if self.resize:
            clauses.append("a bilinear resize with weights of 11 bits, which is finer")
        if self.steps:
            clauses.append("tanh and sigmoid of 16 bits by steps (gemmlowp's)")
        if self.spared:
            clauses[-1] += " in some of the nodes"
        if self.sums:
            clauses.append("no quantization between a product and the sum behind it")
        return " and ".join(clauses)

    def left_out(self, graph: Graph, nodes: Sequence[Node]) -> set[str]:
        """Names of quantized values that this scheme leaves unrounded."""
        values: set[str] = set()
        for node in nodes if self.sums else ():
            operands = [v for v in _bare_sums(graph, node) if v is not None]
            if len(operands) == 2 and self.sums != "both":
                operands = operands[:1] if self.sums == "left" else operands[1:]
            values.update(operands)
        if self.wide:
            values.update(v for n in nodes for v in _sixteen_bits(graph, n))
        return values - self.spared

    def outputs(
        self,
        graph: Graph,
        node: Node,
        arrays: Sequence[Any],
        exact: Sequence[np.ndarray],
        scalars: Mapping[str, np.ndarray],
    ) -> tuple[np.ndarray, ...]:
        """The node's outputs in this scheme. arrays: its inputs; exact: its reference outputs;
        scalars: values of one element by name, which may hold zero points."""
        if node.outputs[0] in self.spared:
            return tuple(exact)
        if self.pairing and node.op.kind in PRODUCTS:
            is_swapped = node.outputs[0] in self.swapped
            pairing, halved = (
                (_opposite(self.pairing), "") if is_swapped else (self.pairing, self.halved)
            )
            lost = lost_in_pairs(graph, node, arrays, pairing, halved, scalars)
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
        stepped = stepped_lookup(graph, node) if self.steps else None
        if stepped is not None:
            return as_tuple(node.op.reference(_NOTHING, *stepped(arrays)))
        share = share_apart(graph, node) if self.means else 0.0
        if share and isinstance(node.op, Requantize):
            return (mean_apart(node.op, arrays, share),)
        return tuple(exact)

    def quantities(
        self, graph: Graph, node: Node, meant: Sequence[Quantity | None]
    ) -> Sequence[Quantity | None]:
        """Quantities that the node's outputs are rounded from in this scheme. meant: the
        reference's."""
        if not self.means or node.outputs[0] in self.spared:
            return meant
        share = share_apart(graph, node)
        return [q if q is None else replace(q, real=q.real + share) for q in meant]


def applicable_schemes(graph: Graph, nodes: Sequence[Node]) -> Iterator[IntegerScheme]:
    """Yield the schemes that can change results of these nodes, the simplest first."""
    factors = [f for n in nodes if n.op.kind in PRODUCTS if (f := factors_known(graph, n))]
    products = [IntegerScheme()]
    if factors:
        products += [IntegerScheme(IN_A_ROW), IntegerScheme(BY_POSITION)]
    if any(data.dtype == np.int8 for data, _ in factors):
        products += [IntegerScheme(BY_POSITION, "centered"), IntegerScheme(BY_POSITION, "signed")]
    bare = [sum(v is not None for v in _bare_sums(graph, n)) for n in nodes]
    sums = ["", "both", "left", "right"] if 2 in bare else ["", "both"] if any(bare) else [""]
    softmax = any(n.op.kind == "Softmax" and _softmax_factor(graph, n) is not None for n in nodes)
    bare_weights = any(_has_bare_weights(graph, n) for n in nodes)
    for rounded_down, short, left, scheme in itertools.product(
        (False, True)[: 1 + softmax], (False, True)[: 1 + bare_weights], sums, products
    ):
        candidate = replace(scheme, softmax=rounded_down, sums=left, weights=short)
        if candidate != IntegerScheme():
            yield candidate
    if any(_sixteen_bits(graph, n) for n in nodes):
        yield IntegerScheme(wide=True)
    kinds = [False, True]
    means = kinds[: 1 + any(share_apart(graph, n) for n in nodes)]
    resize = kinds[: 1 + any(isinstance(n.op, ResizeInteger) for n in nodes)]
    steps = kinds[: 1 + any(stepped_lookup(graph, n) is not None for n in nodes)]
    for apart, fine, by_steps in itertools.product(means, resize, steps):
        if apart or fine or by_steps:
            yield IntegerScheme(means=apart, resize=fine, steps=by_steps)


def _opposite(pairing: str) -> str:
    return BY_POSITION if pairing == IN_A_ROW else IN_A_ROW


def mixed(scheme: IntegerScheme, nodes: Sequence[str], states: Sequence[int]) -> IntegerScheme:
    """`scheme` with each node in a state: 0 as the scheme says, 1 spared, 2 swapped."""
    spared, swapped = (
        frozenset(p for p, state in zip(nodes, states) if state == selected) for selected in (1, 2)
    )
    return replace(scheme, spared=spared, swapped=swapped)


def best_mixture(
    counts: Sequence[int], size: Callable[[tuple[int, ...]], float], max_trials: int
) -> tuple[int, ...]:
    """The states with the smallest `size`: by exhaustive search if there are few, else by
    coordinate descent that starts with all nodes in the same state.

    counts: number of states of each node. max_trials: mixtures that are evaluated.
    """
    sizes: dict[tuple[int, ...], float] = {}

    def size_of(states: tuple[int, ...]) -> float:
        if states not in sizes:
            sizes[states] = size(states) if len(sizes) < max_trials else np.inf
        return sizes[states]

    if np.prod(counts, dtype=np.float64) <= min(max_trials, ALL_MIXTURES):
        for states in itertools.product(*map(range, counts)):
            size_of(states)
        return min(sizes, key=lambda k: sizes[k])
    for start in range(max(counts)):
        states = tuple(min(start, count - 1) for count in counts)
        for _ in range(PASSES):
            before = size_of(states)
            for index, count in enumerate(counts):
                candidates = ((*states[:index], i, *states[index + 1 :]) for i in range(count))
                states = min(candidates, key=size_of)
            if size_of(states) == before or not size_of(states):
                break
        if not size_of(states):
            break
    return min(sizes, key=lambda k: sizes[k])


def _sixteen_bits(graph: Graph, node: Node) -> tuple[str, ...]:
    """The result of a quantization to 16 bits."""
    small = graph.types[node.outputs[0]].dtype.numpy.itemsize < 2
    return () if small or node.op.kind != "QuantizeLinear" else node.outputs


def _bare_sums(graph: Graph, node: Node) -> tuple[str | None, ...]:
    """Per operand of an addition, its quantized value if a product computes it and only the
    addition reads it, else None; () for other nodes."""
    if node.op.kind != "Add":
        return ()
    return tuple(_bare_sum(graph, v) for v in node.inputs)


def _bare_sum(graph: Graph, value: str | None) -> str | None:
    node = graph.producers.get(value or "")
    if node is None or node.op.kind != "DequantizeLinear" or len(graph.consumers[value or ""]) != 1:
        return None
    quantized = node.inputs[0] or ""
    rounded = graph.producers.get(quantized)
    if (
        rounded is None
        or rounded.op.kind != "QuantizeLinear"
        or len(graph.consumers[quantized]) != 1
    ):
        return None
    source = graph.producers.get(rounded.inputs[0] or "")
    return quantized if source is not None and source.op.kind in PRODUCTS else None


def _has_bare_weights(graph: Graph, node: Node) -> bool:
    """Whether a product of dequantized data with constant float weights is quantized next."""
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
    """Factor that rounding 1 / scale down puts on a Softmax that is quantized next, or None."""
    readers = graph.consumers.get(node.outputs[0], ())
    if len(readers) != 1 or readers[0].op.kind != "QuantizeLinear":
        return None
    scale = graph.constants.get(readers[0].inputs[1] or "")
    if scale is None or scale.size != 1:
        return None
    scale_value = float(np.ravel(scale)[0])
    with np.errstate(divide="ignore"):
        return float(np.floor(np.float32(1) / np.float32(scale_value))) * scale_value
