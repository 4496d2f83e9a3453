"""Two linear maps in a row become one where that is less work and rounds no worse."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from verax.compiler.passes.affine import affine_of, rounded
from verax.compiler.passes.base import until_done
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.records.trace import Trace

COHERENT = 2.0
"""How much larger than the sum of the squares of its paths the square of a merged weight may be, on
the average of a channel: 1 for paths of random signs, their number where they all agree."""
LONGER = 4.0
"""How much larger the variance of a merged sum may be where all its products agree."""


def merge_linear(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Multiply the weights of two products, or convolutions of which one is 1x1, into one.

    Given:  %h = Conv()(%x, %w1); %y = Conv()(%h, %w2)   with %w2 of kernel 1x1
    Result: %y = Conv()(%x, %w2 %w1)

    Between them may stand an Add of a constant per channel. The 1x1 convolution has no padding, and
    strides of 1 where it comes first; a bias before a padded convolution would not be the same at
    the border, and stays. Groups stay. Nothing is merged unless multiplications are saved.

    Numeric effect: weights are multiplied in float64 and rounded once. A merged weight is the sum
    of its paths W1 W2 through the values between. Every one is at most the sum of |W1| |W2|, so the
    bound holds for any weights. The scatter of the errors stays as well where (1) paths do not all
    agree: per channel, the sum of the squares of the merged weights is at most 2 times the sum of
    the squares of all paths; (2) the merged sum of n products is not much longer than the two
    before: n <= 4 (n2 + n1 / n2); (3) the square of a merged bias is at most 1 + n1 / 3 times the
    sum of the squares of its paths, as a sum of n1 products that cancels a bias errs by as much.
    Else the mean over the values between, whose errors are independent, was the better way, and it
    is kept.
    """
    return until_done(_round, graph, limit)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "merge_linear"
        input %x: float32[2, 2, 5, 7]
        const %w1: float32[3, 2, 1, 2] = [1, -0.5, 0.3, 2, 0.7, 1.5, -1, 0.5, -2, 0.9, 0.4, 1.1]
        const %w2: float32[1, 3, 1, 1] = [0.6, -1.2, 0.8]
        %h: float32[2, 3, 5, 6] = Conv()(%x, %w1)
        %y: float32[2, 1, 5, 6] = Conv()(%h, %w2)
        output %y
        """
    )


@dataclass(frozen=True)
class Linear:
    """A product with constant weights. weights: float64 [outputs, inputs, *kernel], a kernel of no
    axes for a matrix; bias: float64 [outputs] or None; terms: products in each sum."""

    node: Node
    x: str
    weights: np.ndarray
    bias: np.ndarray | None

    @property
    def terms(self) -> int:
        return math.prod(self.weights.shape[1:])

    @property
    def is_pointwise(self) -> bool:
        """Whether each place of the result depends on one place of x."""
        op = self.node.op
        return not isinstance(op, Conv) or (math.prod(self.weights.shape[2:]) == 1
                                            and not _is_padded(op))  # fmt: skip


@dataclass(frozen=True)
class Merged:
    """What takes the second node's place: op(x, weights, bias if any) + shift if any."""

    op: Operator
    x: str
    weights: np.ndarray
    bias: np.ndarray | None
    shift: np.ndarray | None


def _round(graph: Graph, limit: int | None) -> tuple[Graph, Trace]:
    """Merge every pair that shares no node with another."""
    merged_pairs: dict[str, Merged] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        if limit is not None and len(merged_pairs) >= limit:
            break
        pair = _pair(graph, node)
        if pair is not None and not gone & {*pair[1], node.inputs[0]}:
            merged_pairs[node.outputs[0]] = pair[0]
            gone |= {*pair[1], node.outputs[0]}
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0]
        if value in merged_pairs:
            rewriter.replace(node, _written(rewriter, node, merged_pairs[value]), "merge_linear")
        elif value not in gone:
            rewriter.keep(node)
    return rewriter.finish()


def _written(rewriter: Rewriter, node: Node, merged: Merged) -> str:
    more = [] if merged.bias is None else [rewriter.constant(merged.bias)]
    inputs = [rewriter.map(merged.x), rewriter.constant(merged.weights), *more]
    names = rewriter.names(node)
    if merged.shift is None:
        return rewriter.add(merged.op, inputs, node.name, names)
    inner = rewriter.new.fresh(f"{names[0]}.product")  # PyTorch's nodes are called as their values
    product = rewriter.add(merged.op, inputs, node.name, [inner])
    return rewriter.add(Add(), [product, rewriter.constant(merged.shift)], outputs=names)


def _pair(graph: Graph, node: Node) -> tuple[Merged, list[str]] | None:
    """A node merged with the one before it, and the values that are gone then."""
    second = linear_of(graph, node)
    if second is None or not _is_private(graph, second.x):
        return None
    between, gone, shift = second.x, [second.x], None
    added = graph.producers[between]
    if isinstance(added.op, Add):
        mapped = affine_of(graph, added)
        if mapped is None or not (mapped[1].scale == 1).all():
            return None
        channels = 1 if isinstance(node.op, Conv) else graph.types[between].rank - 1
        if mapped[1].axis not in (None, channels):
            return None
        between, shift = mapped[0], mapped[1].shift
        gone.append(between)
    first = linear_of(graph, graph.producers[between]) if _is_private(graph, between) else None
    if first is None or isinstance(first.node.op, Conv) != isinstance(node.op, Conv):
        return None
    if shift is not None:
        bias = np.broadcast_to(shift, first.weights.shape[:1])
        first = dataclasses.replace(first, bias=bias if first.bias is None else first.bias + bias)
    merged = _merged(graph, first, second)
    return None if merged is None else (merged, gone)


def _is_private(graph: Graph, value: str) -> bool:
    """Whether the value is made here and read once, here."""
    return (
        value in graph.producers
        and value not in graph.outputs
        and len(graph.consumers.get(value, ())) == 1
    )


def linear_of(graph: Graph, node: Node) -> Linear | None:
    """A float32 MatMul, Gemm or Conv with constant weights, as `Linear`; None for others."""
    op = node.op
    if not isinstance(op, MatMul | Gemm | Conv) or not graph.types[node.outputs[0]].is_static:
        return None
    x, weights = node.inputs[0], graph.constants.get(node.inputs[1] or "")
    if x is None or x in graph.constants or graph.types[x].dtype is not DType.float32:
        return None
    if weights is None or (isinstance(op, Conv) and op.groups != 1):
        return None
    if isinstance(op, Gemm) and (op.trans_a or op.alpha != 1 or op.beta != 1):
        return None
    if isinstance(op, MatMul) and (weights.ndim != 2 or graph.types[x].rank < 2):
        return None
    is_in_out = not isinstance(op, Conv) and not (isinstance(op, Gemm) and op.trans_b)
    wide = weights.astype(np.float64)
    wide = wide.T if is_in_out else wide
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return Linear(node, x, wide, None)
    bias, count = graph.constants.get(value), wide.shape[0]
    if bias is None or bias.size not in (1, count) or bias.shape[-1:] not in ((), (1,), (count,)):
        return None
    bias = np.broadcast_to(bias.reshape(-1).astype(np.float64), (count,))
    return Linear(node, x, wide, bias)


def _merged(graph: Graph, first: Linear, second: Linear) -> Merged | None:
    before, after = first.node.op, second.node.op
    if second.is_pointwise:
        if isinstance(after, Conv) and any(s != 1 for s in _strides(after, second)):
            return None
        op: Operator = before
        paths = "hi...,oh->oi...", _flat(second.weights)
        weights = np.einsum(paths[0], first.weights, paths[1])
        squares = np.einsum(paths[0], first.weights**2, paths[1] ** 2)
    elif first.is_pointwise and not any(s != 1 for s in _strides(before, first)):
        assert isinstance(after, Conv)
        if first.bias is not None and _is_padded(after):
            return None
        op = after
        weights = np.einsum("oh...,hi->oi...", second.weights, _flat(first.weights))
        squares = np.einsum("oh...,hi->oi...", second.weights**2, _flat(first.weights) ** 2)
    else:
        return None
    terms = math.prod(weights.shape[1:])
    if _work(graph, second, weights) >= _work(graph, first) + _work(graph, second):
        return None
    if terms > LONGER * (second.terms + first.terms / second.terms):
        return None
    lanes = tuple(range(1, weights.ndim))
    if ((weights**2).sum(lanes) > COHERENT * squares.sum(lanes)).any():
        return None
    stored = rounded(weights)
    return None if stored is None else _with_bias(graph, first, second, op, stored)


def _with_bias(
    graph: Graph, first: Linear, second: Linear, op: Operator, weights: np.ndarray
) -> Merged | None:
    """The merged product. A bias of the first map is added behind, where it is rounded once: the
    sum would round as coarsely as it is large."""
    dense = not isinstance(op, Conv)
    stored = weights.T if dense else weights
    bias = None if second.bias is None else rounded(second.bias)
    if first.bias is None:
        if dense:
            op = MatMul() if bias is None else Gemm()
        return Merged(op, first.x, stored, bias, None)
    sums = second.weights.reshape(*second.weights.shape[:2], -1).sum(2)
    squared = (second.weights**2).reshape(*second.weights.shape[:2], -1).sum(2)
    own = np.zeros(len(weights)) if second.bias is None else second.bias
    shift = sums @ first.bias + own
    if (shift**2 > (1 + first.terms / 3) * (squared @ first.bias**2 + own**2)).any():
        return None
    added = rounded(shift)
    if added is None:
        return None
    lanes = graph.types[second.node.outputs[0]].rank - 2
    added = added if dense else added.reshape(-1, *(1,) * lanes)
    return Merged(MatMul() if dense else op, first.x, stored, None, added)


def _flat(weights: np.ndarray) -> np.ndarray:
    """Weights of a kernel of one place as [outputs, inputs]."""
    return weights.reshape(weights.shape[:2])


def _is_padded(op: Conv) -> bool:
    return isinstance(op.pads, str) or any(p for pair in op.pads for p in pair)


def _strides(op: Operator, linear: Linear) -> tuple[int, ...]:
    return (op.strides or (1,)) if isinstance(op, Conv) else (1,)


def _work(graph: Graph, linear: Linear, weights: np.ndarray | None = None) -> int:
    """Multiplications of a map, or of one of other weights in its place."""
    dims = graph.types[linear.node.outputs[0]].shape
    used = linear.weights if weights is None else weights
    return math.prod(dims) * math.prod(used.shape[1:])
