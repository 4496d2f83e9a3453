"""Scales and shifts of channels become part of the weights before or behind them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from verax.compiler.passes.affine import AffineMap, affine_of, rounded
from verax.compiler.passes.base import until_done
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import DType
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import Transpose
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.activation import Clip, LeakyRelu, PRelu, Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.global_pooling import GlobalAveragePool, GlobalMaxPool
from verax.ops.windows.pooling import AveragePool, MaxPool
from verax.records.trace import Trace

LINEAR = Conv | ConvTranspose | Gemm | MatMul


def fold_scales(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Fold BatchNormalization, and Mul, Div, Add and Sub by constants, into weights.

    Given:  %c = Conv()(%x, %w); %r = Relu()(%c); %y = Mul()(%r, %s); %z = Tanh()(%y)
    Result: %c = Conv()(%x, %w s); %r = Relu()(%c); %z = Tanh()(%r)   where no %s is negative

    Numeric effect: each weight is multiplied in float64 and rounded once, so a result moves by no
    more than the rounding of the products and sums that it replaces. A scale passes an operator
    only under the conditions in `affine`: a negative one never passes a Relu or a maximum. A shift
    becomes part of a bias only where that grows for no channel: sums begin with the bias, and every
    addition to a larger one rounds more coarsely; else it stays, as an Add. Nothing is folded where
    a folded number would overflow or lose digits.
    """
    return until_done(_round, graph, limit)


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "fold_scales"
        input %x: float32[3, 1, 5, 7]
        const %w: float32[2, 1, 2, 2] = [1.0, -0.5, 0.25, 2.0, 0.75, 1.5, -1.0, 0.5]
        const %s: float32[2, 1, 1] = [2.5, 0.3]
        %c: float32[3, 2, 4, 6] = Conv()(%x, %w)
        %r: float32[3, 2, 4, 6] = Relu()(%c)
        %y: float32[3, 2, 4, 6] = Mul()(%r, %s)
        %z: float32[3, 2, 4, 6] = Tanh()(%y)
        output %z
        """
    )


Edit = tuple[Operator, tuple[str | np.ndarray | None, ...]]
"""A node in place of another: its operator, and inputs, values of the old graph or constants."""


@dataclass
class FoldPlan:
    """What becomes of nodes when one map is folded. edits: first output -> what takes the node's
    place; gone: maps that are bypassed; changed: values that hold other numbers afterwards."""

    edits: dict[str, Edit] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


def _round(graph: Graph, limit: int | None) -> tuple[Graph, Trace]:
    """Fold every map whose nodes no other map of this round touches."""
    total, notes = FoldPlan(), list[Node]()
    for node in graph.nodes:
        if limit is not None and len(notes) >= limit:
            break
        input_and_affine = affine_of(graph, node)
        if input_and_affine is None or not input_and_affine[1].is_finite:
            continue
        plan = _plan(graph, node, *input_and_affine)
        if plan is None or {*plan.edits, *plan.gone} & {*total.edits, *total.gone}:
            continue
        total.edits |= plan.edits
        total.gone |= plan.gone
        total.changed |= plan.changed
        notes.append(node)
    return _applied(graph, total, notes)


def _plan(graph: Graph, node: Node, x: str, affine: AffineMap) -> FoldPlan | None:
    """How to fold one map: whole into what is before it, its scale alone, or into what reads it."""
    value, plan = node.outputs[0], FoldPlan()
    if _Backward(graph, plan).push(x, affine):
        plan.gone[value] = x
        return plan
    plan = FoldPlan()
    if _forward(graph, plan, node, affine):
        plan.gone[value] = x
        return plan
    plan, shift = FoldPlan(), rounded(affine.shift)
    if affine.is_scale or (affine.scale == 1).all() or shift is None:
        return None
    if not _Backward(graph, plan).push(x, affine.scale_only()):
        return None
    if affine.axis is not None:
        shift = shift.reshape(-1, *(1,) * (graph.types[value].rank - 1 - affine.axis))
    plan.edits[value] = Add(), (x, shift)
    return plan


def _applied(graph: Graph, plan: FoldPlan, notes: list[Node]) -> tuple[Graph, Trace]:
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        value = node.outputs[0]
        if value in plan.gone:
            rewriter.values[value] = rewriter.values[plan.gone[value]]
        elif value in plan.edits:
            op, operands = plan.edits[value]
            inputs = [
                rewriter.constant(v) if isinstance(v, np.ndarray) else rewriter.map(v)
                for v in operands
            ]
            rewriter.values[value] = rewriter.add(op, inputs, node.name)
        else:
            rewriter.keep(node)
    for node in notes:
        rewriter.record(node, "fold_scales")
    new, trace = rewriter.finish()
    values = {v: to for v, to in trace.values.items() if v not in plan.changed}
    return new, dataclasses.replace(trace, values=values)


class _Backward:
    """Carries a map from where it is applied back to the weights that make its operand."""

    def __init__(self, graph: Graph, plan: FoldPlan) -> None:
        self.graph, self.plan = graph, plan

    def push(self, value: str, affine: AffineMap) -> bool:
        """True if the nodes that make `value` can be changed so that it holds value scale + shift;
        their edits are then in the plan."""
        graph = self.graph
        node = graph.producers.get(value)
        if (
            node is None
            or len(node.outputs) != 1
            or value in graph.outputs
            or value in graph.updates.values()
            or len(graph.consumers.get(value, ())) != 1
            or graph.types[value].dtype is not DType.float32
            or value in self.plan.changed
        ):
            return False
        self.plan.changed.add(value)
        if isinstance(node.op, LINEAR):
            edit = folded_behind(graph, node, affine)
            if edit is not None:
                self.plan.edits[value] = edit
            return edit is not None
        inner = affine_of(graph, node)
        if inner is not None:
            composed = affine.after(inner[1])
            self.plan.gone[value] = inner[0]
            return composed is not None and composed.is_finite and self.push(inner[0], composed)
        return self._passes(node, affine)

    def _passes(self, node: Node, affine: AffineMap) -> bool:
        """Whether the map may be applied to the operands instead (the formulas of `affine`)."""
        op, first = node.op, node.inputs[0]
        assert first is not None
        channels = affine.axis in (None, 1)
        if isinstance(op, Relu | LeakyRelu | PRelu):
            slopes_fit = not isinstance(op, PRelu) or node.inputs[1] in self.graph.constants
            fits = slopes_fit and affine.keeps_order and affine.is_scale
            return fits and self.push(first, affine)
        if isinstance(op, MaxPool | GlobalMaxPool):
            return channels and affine.keeps_order and self.push(first, affine)
        if isinstance(op, GlobalAveragePool):
            return channels and self.push(first, affine)
        if isinstance(op, AveragePool):
            counts = op.count_include_pad and not affine.is_scale
            return channels and not counts and self.push(first, affine)
        if isinstance(op, Clip):
            return self._clip(node, affine)
        if isinstance(op, Transpose):
            rank = self.graph.types[first].rank
            order = op.perm or tuple(range(rank))[::-1]
            axis = None if affine.axis is None else order[affine.axis]
            return self.push(first, affine.along(axis))
        if isinstance(op, Concat):
            return self._concat(node, op, affine)
        if isinstance(op, Add):
            return self._add(node, affine)
        if isinstance(op, Pad):
            zeros = affine.is_scale and self._pads_zeros(node, affine.axis)
            return zeros and self.push(first, affine)
        return False

    def _clip(self, node: Node, affine: AffineMap) -> bool:
        if affine.axis is not None or not affine.scale > 0:
            return False
        bounds: list[np.ndarray | None] = []
        for value in node.inputs[1:]:
            if value is None:
                bounds.append(None)
                continue
            bound = self.graph.constants.get(value)
            scaled = None if bound is None else bound.astype(np.float64) * affine.scale
            new_bound = None if scaled is None else rounded(scaled + affine.shift)
            if new_bound is None:
                return False
            bounds.append(np.asarray(new_bound))
        self.plan.edits[node.outputs[0]] = node.op, (node.inputs[0], *bounds)
        return self.push(node.inputs[0] or "", affine)

    def _concat(self, node: Node, op: Concat, affine: AffineMap) -> bool:
        rank = self.graph.types[node.outputs[0]].rank
        begin = 0
        for value in node.inputs:
            assert value is not None
            size = self.graph.types[value].dims[op.axis % rank]
            if not isinstance(size, int):
                return False
            own = (
                affine.of_channels(begin, begin + size) if op.axis % rank == affine.axis else affine
            )
            if not self.push(value, own):
                return False
            begin += size
        return True

    def _add(self, node: Node, affine: AffineMap) -> bool:
        first, second = node.inputs
        assert first is not None and second is not None
        dims = self.graph.types[node.outputs[0]].dims
        if first == second or any(self.graph.types[v].dims != dims for v in (first, second)):
            return False
        return self.push(first, affine) and self.push(second, affine.scale_only())

    def _pads_zeros(self, node: Node, axis: int | None) -> bool:
        """Whether zeros come around, and neither come nor go along `axis`, where each element has
        a number of its own."""
        op, widths = node.op, self.graph.constants.get(node.inputs[1] or "")
        assert isinstance(op, Pad)
        if axis is not None:
            if widths is None or len(node.inputs) > 3:
                return False
            if widths.reshape(2, -1)[:, axis].any():
                return False
        fill = node.inputs[2] if len(node.inputs) > 2 else None
        constant = None if fill is None else self.graph.constants.get(fill)
        return op.mode == "constant" and (fill is None or (constant is not None
                                                           and not constant.any()))  # fmt: skip


def folded_behind(graph: Graph, node: Node, affine: AffineMap) -> Edit | None:
    """A product with constant weights whose result is then mapped: its weights and bias."""
    op = node.op
    weights = graph.constants.get(node.inputs[1] or "")
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if weights is None or weights.dtype != np.float32 or (bias and bias not in graph.constants):
        return None
    if isinstance(op, Gemm) and (op.alpha != 1 or op.beta != 1):
        return None
    if isinstance(op, MatMul) and (weights.ndim != 2 or not affine.is_scale):
        return None
    axis = graph.types[node.outputs[0]].rank - 1 if isinstance(op, MatMul) else 1
    if affine.axis not in (None, axis):
        return None
    count = _outputs(op, weights)
    scale, shift = (np.broadcast_to(a, (count,)) for a in (affine.scale, affine.shift))
    new_weights = _scaled_weights(weights, _by_output(op, weights, scale))
    before = _bias(graph, bias, count)
    if new_weights is None or before is None:
        return None
    return _with_bias(op, node, new_weights, before * scale, shift, bool(bias))


def _scaled_weights(weights: np.ndarray, factors: np.ndarray) -> np.ndarray | None:
    """As `rounded`; where nothing is scaled (a bias of zeros is added) no copy is made."""
    if (factors == 1).all():
        return weights if np.isfinite(weights).all() else None
    return rounded(weights.astype(np.float64) * factors)


def _outputs(op: Operator, weights: np.ndarray) -> int:
    """Channels of a product's result."""
    if isinstance(op, Conv):
        return weights.shape[0]
    if isinstance(op, ConvTranspose):
        return weights.shape[1] * op.groups
    return weights.shape[0 if isinstance(op, Gemm) and op.trans_b else 1]


def _by_output(op: Operator, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """values [channels of the result], broadcast over the weights that make each."""
    lanes = (1,) * (weights.ndim - 2)
    if isinstance(op, Conv):
        return values.reshape(-1, 1, *lanes)
    if isinstance(op, ConvTranspose):  # [inputs, outputs of a group, *kernel]
        by_input = np.repeat(values.reshape(op.groups, -1), weights.shape[0] // op.groups, 0)
        return by_input.reshape(*weights.shape[:2], *lanes)
    return values[:, None] if isinstance(op, Gemm) and op.trans_b else values[None]


def _bias(graph: Graph, bias: str | None, count: int) -> np.ndarray | None:
    """A bias as float64 [count], zeros where there is none; None for one of another shape."""
    before = graph.constants[bias].astype(np.float64) if bias else np.zeros(count)
    return np.broadcast_to(before.reshape(-1), (count,)) if before.size in (1, count) else None


def _with_bias(
    op: Operator,
    node: Node,
    weights: np.ndarray,
    bias: np.ndarray,
    shift: np.ndarray,
    has_bias: bool,
) -> Edit | None:
    """The product on other weights, with bias + shift if that is nowhere larger than the bias."""
    after = rounded(bias + shift)
    if after is None or bool((shift.any() and np.abs(after) > np.abs(bias)).any()):
        return None
    more = (after,) if has_bias else ()
    return op, (node.inputs[0], weights, *more)


def _forward(graph: Graph, plan: FoldPlan, node: Node, affine: AffineMap) -> bool:
    """True if one convolution or product alone reads the map and its weights can absorb it."""
    value = node.outputs[0]
    readers = graph.consumers.get(value, ())
    if len(readers) != 1 or value in graph.outputs or value in graph.updates.values():
        return False
    (reader,) = readers
    if reader.inputs[0] != value or value in reader.inputs[1:]:
        return False
    edit = folded_before(graph, reader, affine)
    if edit is None:
        return False
    plan.edits[reader.outputs[0]] = edit
    plan.changed.add(value)
    return True


def folded_before(graph: Graph, node: Node, affine: AffineMap) -> Edit | None:
    """A product with constant weights whose operand was mapped before: its weights and bias."""
    op = node.op
    weights = graph.constants.get(node.inputs[1] or "") if len(node.inputs) > 1 else None
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if not isinstance(op, Conv | Gemm | MatMul) or weights is None or weights.dtype != np.float32:
        return None
    if bias and bias not in graph.constants:
        return None
    wide = weights.astype(np.float64)
    if isinstance(op, Conv):
        padded = isinstance(op.pads, str) or any(p for pair in op.pads for p in pair)
        if affine.axis not in (None, 1) or (padded and not affine.is_scale):
            return None
        channels = wide.shape[1] * op.groups
        scale, shift = (np.broadcast_to(a, (channels,)) for a in (affine.scale, affine.shift))
        outputs = wide.shape[0]
        lanes = (outputs, wide.shape[1], *(1,) * (wide.ndim - 2))
        own_scale, own_shift = (
            np.repeat(a.reshape(op.groups, -1), outputs // op.groups, 0).reshape(lanes)
            for a in (scale, shift)
        )
        added = (wide * own_shift).reshape(outputs, -1).sum(1)
        new_weights = rounded(wide * own_scale)
    else:
        rank = graph.types[node.inputs[0] or ""].rank
        if wide.ndim != 2 or affine.axis not in (None, rank - 1):
            return None
        if isinstance(op, Gemm) and (op.trans_a or op.alpha != 1 or op.beta != 1):
            return None
        by_input = wide.T if isinstance(op, Gemm) and op.trans_b else wide  # [in, out]
        scale, shift = (
            np.broadcast_to(a, by_input.shape[:1]) for a in (affine.scale, affine.shift)
        )
        added = (by_input * shift[:, None]).sum(0)
        scaled = by_input * scale[:, None]
        new_weights = rounded(scaled.T if isinstance(op, Gemm) and op.trans_b else scaled)
    before = _bias(graph, bias, len(added))
    if new_weights is None or before is None:
        return None
    return _with_bias(op, node, new_weights, before, added, bool(bias))
