"""Reductions, global pools, softmax and normalizations: rows reduced in stages by one kernel.

Each states here which expressions its stages evaluate; where the operator has `element` and
`final` they are traced from it. Bits are held to the operators' `canonical` by tests.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.pairwise import PairwiseSpec
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.kernels.reduce.spec import elements_of_stage
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.copies import broadcast_strides
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES, Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.numerics.expr import Expr, Input, RunTime, TracingArith, compose, converted, trace
from verax.numerics.formats import FLOATS
from verax.ops.sums.layer_normalization import (
    MVN_EPSILON,
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from verax.ops.sums.moments import (
    NEAR,
    guarded_inverse_of,
    inverse_of,
    mean_of,
    near_of,
    variance_of,
    wide_mean,
)
from verax.ops.sums.normalization import InstanceNormalization
from verax.ops.sums.reduction import ReduceLogSumExp, Reduction
from verax.ops.sums.response_normalization import LpNormalization
from verax.ops.sums.softmax import AlongAxis, Softmax
from verax.ops.windows.global_pooling import GlobalLpPool

F32, F64 = "float32", "float64"
M = TracingArith()


def one_float(types: Iterable[TensorType | None]) -> str:
    """float32 or float64, where all these types have it; else ""."""
    (first, *remaining) = {str(t.dtype) for t in types if t is not None}
    return "" if remaining or first not in (F32, F64) else first


def _line_float(graph: Graph, node: Node) -> str:
    """`one_float` of the first input and the outputs."""
    return one_float([*graph.input_types(node)[:1], *graph.output_types(node)])


# --- one stage, one result per row


@dataclasses.dataclass(frozen=True)
class _Rows:
    """How the node reduces elements of `dtype`: the axes (sorted), the stages, and the result."""

    dtype: str
    axes: tuple[int, ...]
    stages: tuple[Stage, ...]
    result: Expr


def _reduced_rows(graph: Graph, node: Node) -> _Rows | None:
    """How a reduction or a global pool goes about it, None when it has no kernel."""
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    dtype = str(graph.types[node.inputs[0] or ""].dtype)
    if 0 in shape or str(graph.types[node.outputs[0]].dtype) != dtype:
        return None
    if isinstance(op, Reduction):
        axes_input = node.inputs[1] if len(node.inputs) > 1 else None
        if axes_input is not None and axes_input not in graph.constants:
            return None
        axes = op.reduced_axes(
            len(shape), None if axes_input is None else graph.constants[axes_input]
        )
        return _reduction(op, dtype, axes, math.prod(shape[a] for a in axes))
    if len(shape) < 3:
        return None
    if op.kind == "GlobalMaxPool" and dtype in (F32, F64):
        return _Rows(dtype, tuple(range(2, len(shape))), (_largest(dtype),), Input(1, dtype))
    if dtype not in (F32, F64):
        return None
    # In a ReduceSpec with one input, Input(1) is the result of stage 0.
    x, total = Input(0, dtype), Input(1, dtype)
    if isinstance(op, GlobalLpPool) and op.p <= 2:
        square = op.p == 2
        stage = Stage("sum", M.mul(x, x) if square else M.abs(x), M.sqrt(total) if square else None)
    elif op.kind == "GlobalAveragePool":
        stage = Stage("sum", x, M.div(total, M.like(math.prod(shape[2:]), total)))
    else:
        return None
    return _Rows(dtype, tuple(range(2, len(shape))), (stage,), total)


def _largest(dtype: str) -> Stage:
    return Stage("max", Input(0, dtype))


def _reduction(op: Reduction, dtype: str, axes: tuple[int, ...], count: int) -> _Rows | None:
    """Halves are reduced in float32 and rounded once; integers in their own type, bool as one."""
    work = {"float16": F32, "bfloat16": F32, "bool": "uint8"}.get(dtype, dtype)
    if work == F64 and op.added_as_numpy:
        return None
    if work not in FLOATS and (op.kind not in IN_INTEGERS or not _fits(op, count, work)):
        return None
    x, first, second = converted(Input(0, dtype), work), Input(1, work), Input(2, work)
    if isinstance(op, ReduceLogSumExp):
        infinite = M.eq(M.abs(first), M.like(math.inf, first))
        top = Stage("max", x, M.select(infinite, M.like(0.0, first), first))
        e = Stage("sum", M.exp(M.sub(x, first)), M.add(M.log(second), first))
        return _Rows(dtype, axes, (top, e), converted(second, dtype))
    element = compose(trace(op.element, [work]), {0: x})
    finish = trace(lambda m, total: op.final(m, total, count), [work])
    stage = Stage(op.combine, element, compose(finish, {0: first}))
    return _Rows(dtype, axes, (stage,), converted(first, dtype))


def _pairwise(graph: Graph, node: Node) -> PairwiseSpec | None:
    """A sum of float64 in NumPy's order; None for what else there is."""
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    types = (graph.types[node.inputs[0] or ""], graph.types[node.outputs[0]])
    if not isinstance(op, Reduction) or not op.added_as_numpy:
        return None
    if 0 in shape or any(str(t.dtype) != F64 for t in types):
        return None
    axes_input = node.inputs[1] if len(node.inputs) > 1 else None
    if axes_input is not None and axes_input not in graph.constants:
        return None
    axes = op.reduced_axes(len(shape), None if axes_input is None else graph.constants[axes_input])
    long = [a for a, n in enumerate(shape) if n > 1]
    count = math.prod(shape[a] for a in axes)
    return PairwiseSpec(
        tuple(shape[a] for a in long),
        tuple(i for i, a in enumerate(long) if a in axes),
        trace(op.element, [F64]),
        trace(lambda m, total: op.final(m, total, count), [F64]),
    )


IN_INTEGERS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
    "ReduceSumSquare",
)  # fmt: skip
"""Reductions that are promised in the arithmetic of integers; others go through float64."""


def _fits(op: Reduction, count: int, dtype: str) -> bool:
    """Whether a mean's divisor is an integer of this type."""
    return op.kind != "ReduceMean" or count <= np.iinfo(dtype).max


PAIRWISE, IN_BLOCKS, IN_ROWS = "pairwise sum", "reduction in blocks", "reduction"


def plan_reduction(planning: Planning, node: Node) -> Alternatives:
    """In blocks when the input comes so and the reduction is over all spatial axes, kept as 1; else
    in rows. Sums of float64 are added in pairs, as NumPy does. The detail is what is evaluated."""
    graph = planning.graph
    pairwise = _pairwise(graph, node)
    if pairwise is not None:
        return (Choice(PAIRWISE, detail=pairwise),)
    rows = _reduced_rows(graph, node)
    if rows is None:
        return NoKernel("the axes are computed, or the element type is not reduced in its own")
    refused = planning.refused_types(planning.graph.input_types(node)[:1], ReduceSpec)
    if refused is not None:
        return refused
    output, rank = graph.types[node.outputs[0]], graph.types[node.inputs[0] or ""].rank
    in_rows = Choice(IN_ROWS, detail=rows)
    if rows.axes != tuple(range(2, rank)) or output.rank != rank or not can_block(output):
        return (in_rows,)
    data = (0, Layout.blocked, ())
    in_blocks = Choice(IN_BLOCKS, (data,), output=Layout.blocked, blocked_inputs=(0,), detail=rows)
    return in_blocks, in_rows


@plans(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceSumSquare", "ReduceLogSumExp", "GlobalAveragePool", "GlobalMaxPool",
    "GlobalLpPool", plan=plan_reduction,
)  # fmt: skip
def place_reduction(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, output."""
    node = group.root
    if choice.kernel == PAIRWISE:
        pairwise = choice.detail
        x, y = (
            lowering.values.read_contiguous(node.inputs[0] or ""),
            lowering.values.write_contiguous(node.outputs[0]),
        )
        table, scratch = (
            lowering.weights.constant(pairwise.table),
            lowering.values.scratch(pairwise.scratch_bytes),
        )
        lowering.calls.call(pairwise, [x, table, scratch, y], group.label)
        return
    rows = choice.detail
    value, dtype = node.inputs[0] or "", rows.dtype
    if choice.kernel == IN_BLOCKS:
        x = lowering.values.read(value, Layout.blocked)
        y = lowering.values.write(node.outputs[0], Layout.blocked)
        batch, block, *space, lane = x.physical.strides
        to = y.physical.strides
        spec = ReduceSpec(
            (x.physical.shape[0], x.physical.blocks, LANES),
            x.physical.spatial,
            (Access(dtype, (batch, block, lane, *space)),),
            rows.stages,
            ((Access(dtype, (to[0], to[1], to[-1])), rows.result),),
        )
    else:
        x, y = lowering.values.read(value), lowering.values.write(node.outputs[0])
        shape, strides = x.physical.shape, x.physical.strides
        kept_axes = [a for a in range(len(shape)) if a not in rows.axes]
        spec = ReduceSpec(
            tuple(shape[a] for a in kept_axes),
            tuple(shape[a] for a in rows.axes),
            (Access(dtype, tuple(strides[a] for a in (*kept_axes, *rows.axes))),),
            rows.stages,
            ((Access(dtype, _row_strides(y.physical, kept_axes, len(shape))), rows.result),),
        )
    lowering.calls.call(spec, [x, y], group.label)


def _row_strides(physical: Physical, kept_axes: Sequence[int], rank: int) -> tuple[int, ...]:
    if len(physical.shape) == rank:
        return tuple(physical.strides[a] for a in kept_axes)
    return physical.strides


# --- an element out for every element in


def _emit_lines(
    lowering: Lowering,
    group: Group,
    axes: Sequence[int],
    stages: Sequence[Stage],
    result: Expr,
    extra: Sequence[tuple[Placed, tuple[int, ...]]] = (),
    per_row: Sequence[Expr] = (),
) -> None:
    """Reduce over `axes` (sorted) and write `result` per element.

    extra: further inputs with strides per axis of the first. per_row: what the node's further
    outputs, in which `axes` are kept as 1, hold.
    """
    node = group.root
    x, y = lowering.values.read(node.inputs[0] or ""), lowering.values.write(node.outputs[0])
    shape = x.physical.shape
    order = [*(a for a in range(len(shape)) if a not in axes), *axes]

    dtype = str(x.physical.type.dtype)

    def access(strides: Sequence[int]) -> Access:
        return Access(dtype, tuple(strides[a] for a in order))

    kept_axes = order[: len(shape) - len(axes)]
    rows = [lowering.values.write_contiguous(value) for value in node.outputs[1:]]
    spec = ReduceSpec(
        tuple(shape[a] for a in kept_axes),
        tuple(shape[a] for a in axes),
        (access(x.physical.strides), *(access(s) for _, s in extra)),
        tuple(stages),
        tuple(
            (Access(dtype, tuple(r.physical.strides[a] for a in kept_axes)), e)
            for r, e in zip(rows, per_row, strict=True)
        ),
        ((access(y.physical.strides), result),),
    )
    arguments = [x, *(p for p, _ in extra), *rows, y]
    lowering.calls.call(spec, arguments, group.label)


def plan_softmax(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    graph, op, shape = planning.graph, node.op, planning.graph.types[node.inputs[0] or ""].shape
    assert isinstance(op, AlongAxis)
    if not _line_float(graph, node) or not op.axes(len(shape)) or 0 in shape:
        return NoKernel("softmax takes float32 or float64")
    return planning.refused(node, ReduceSpec) or (Choice("softmax"),)


@plans("Softmax", "LogSoftmax", plan=plan_softmax)
def place_softmax(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, output."""
    graph, node = lowering.graph, group.root
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    assert isinstance(op, AlongAxis)
    axes = op.axes(len(shape))
    dtype = _line_float(graph, node)
    x, top, total = (Input(i, dtype) for i in range(3))
    shift, divisor = (op.shift(M, top), op.divisor(M, total)) if isinstance(op, Softmax) else (
        (top, total)
    )  # fmt: skip
    below = M.sub(x, shift)
    e = M.exp(below)
    result = M.div(e, divisor) if isinstance(op, Softmax) else M.sub(below, M.log(divisor))
    _emit_lines(lowering, group, axes, (Stage("max", x), Stage("sum", e)), result)


def plan_normalization(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    graph, op, shape = planning.graph, node.op, planning.graph.types[node.inputs[0] or ""].shape
    dtype = one_float([*graph.input_types(node), *graph.output_types(node)])
    if not dtype or 0 in shape:
        return NoKernel("normalizations take float32 or float64, throughout")
    if isinstance(op, LayerNormalization) and not op.keeps_type(dtype):
        return NoKernel(f"statistics in {op.stash_type}")
    if not _normalized_axes(op, len(shape)):
        return NoKernel("there is no axis to normalize over")
    return planning.refused(node, ReduceSpec) or (Choice("normalization"),)


def _normalized_axes(op: Operator, rank: int) -> tuple[int, ...]:
    """The axes over which a normalization takes its statistics."""
    if isinstance(op, InstanceNormalization):
        return tuple(range(2, rank))
    assert isinstance(op, LayerNormalization | RMSNormalization)
    return tuple(range(op.axis % rank, rank))


@plans("LayerNormalization", "RMSNormalization", plan=plan_normalization)
def place_normalization(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, scale, bias if there is one, output."""
    graph, node = lowering.graph, group.root
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    dtype = one_float([*graph.input_types(node), *graph.output_types(node)])
    axes = _normalized_axes(op, len(shape))
    extra = []
    for value in node.inputs[1:]:
        if value is not None:
            extra.append(_along(lowering, value, shape, channels=axes[0] == 2 and _per_channel(op)))
    count = math.prod(shape[a] for a in axes)
    epsilon = float(op.attributes()["epsilon"])
    inputs = 1 + len(extra)
    x, scale = Input(0, dtype), Input(1, dtype)

    if op.kind == "RMSNormalization":
        inverse: Expr = Input(inputs, dtype)
        finish = inverse_of(M, wide_mean(M, inverse, elements_value(count)), epsilon)
        stages: tuple[Stage, ...] = (Stage("squares", x, narrow(finish, dtype)),)
        statistics: tuple[Expr, ...] = ()
        result = M.mul(M.mul(x, inverse), scale)
    else:
        moment_stages = moments(
            dtype, count, lambda variance: inverse_of(M, variance, epsilon), inputs
        )
        stages, inverse = moment_stages.stages, narrow(moment_stages.last, dtype)
        unit = moment_stages.normalized
        result = M.fma(unit, scale, Input(2, dtype)) if len(extra) > 1 else M.mul(unit, scale)
        statistics = (
            (mean_of(M, moment_stages.near, moment_stages.mean_error), inverse)
            if len(node.outputs) > 1
            else ()
        )
    _emit_lines(lowering, group, axes, stages, result, extra, statistics)


@dataclasses.dataclass(frozen=True)
class MomentStages:
    """Stages as `ops.sums.moments.promised_moments` has them, and what they give: a number near the
    mean, and in float64 what that lacks and what was made of the variance."""

    stages: tuple[Stage, ...]
    x: Expr
    near: Expr
    mean_error: Expr
    last: Expr

    @property
    def shift(self) -> Expr:
        """rest * last, in the type of x."""
        return narrow(M.mul(self.mean_error, self.last), self.x.dtype)

    @property
    def normalized(self) -> Expr:
        """(x - mean) * inverse, which is the last stage's."""
        return standardised(self.x, self.near, narrow(self.last, self.x.dtype), self.shift)


def moments(
    dtype: str, count: Size, finish: Callable[[Expr], Expr], inputs: int = 1
) -> MomentStages:
    """Over input 0 of `inputs`, which has rows of `count` elements. finish: of the variance."""
    x, total = Input(0, dtype), Input(inputs, dtype)
    near, deviations, mean_error = total, Input(inputs + 1, dtype), Input(inputs + 1, F64)
    squares, last = Input(inputs + 2, dtype), Input(inputs + 2, F64)
    deviation = M.sub(x, near)
    variance = variance_of(M, wide_mean(M, squares, elements_value(count)), mean_error)
    stages = (
        Stage("sum", x, near_of(M, total, elements_value(elements_of_stage(count, NEAR))), NEAR),
        Stage("sum", deviation, wide_mean(M, deviations, elements_value(count))),
        Stage("squares", deviation, finish(variance)),
    )
    return MomentStages(stages, x, near, mean_error, last)


def elements_value(count: Size) -> int | Expr:
    """A number of elements, or what reads it when the kernel runs."""
    return count if isinstance(count, int) else RunTime(count, F64)


def narrow(value: Expr, dtype: str) -> Expr:
    """A float64 in `dtype`."""
    return value if dtype == F64 else M.convert(value, dtype)


def standardised(x: Expr, near: Expr, inverse: Expr, shift: Expr) -> Expr:
    """(x - mean) * inverse, where shift is what near lacks of the mean, times inverse."""
    return M.fma(M.sub(x, near), inverse, M.neg(shift))


def plan_mean_variance(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    assert isinstance(node.op, MeanVarianceNormalization)
    empty = 0 in planning.graph.types[node.inputs[0] or ""].shape
    if not _line_float(planning.graph, node) or empty or not node.op.axes:
        return NoKernel("normalizations take float32 or float64, and an axis at least")
    return planning.refused(node, ReduceSpec) or (Choice("mean-variance normalization"),)


@plans("MeanVarianceNormalization", plan=plan_mean_variance)
def place_mean_variance(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, output."""
    graph, node = lowering.graph, group.root
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    assert isinstance(op, MeanVarianceNormalization)
    axes = tuple(sorted({a % len(shape) for a in op.axes}))
    dtype = _line_float(graph, node)
    count = math.prod(shape[a] for a in axes)

    moment_stages = moments(dtype, count, lambda v: guarded_inverse_of(M, v, MVN_EPSILON))
    centered = M.sub(
        M.sub(moment_stages.x, moment_stages.near), narrow(moment_stages.mean_error, dtype)
    )
    result = M.mul(centered, narrow(moment_stages.last, dtype))
    _emit_lines(lowering, group, axes, moment_stages.stages, result)


def plan_lp_normalization(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    empty = 0 in planning.graph.types[node.inputs[0] or ""].shape
    if not _line_float(planning.graph, node) or empty:
        return NoKernel("normalizations take float32 or float64")
    return planning.refused(node, ReduceSpec) or (Choice("Lp normalization"),)


@plans("LpNormalization", plan=plan_lp_normalization)
def place_lp_normalization(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, output."""
    graph, node = lowering.graph, group.root
    op, shape = node.op, graph.types[node.inputs[0] or ""].shape
    assert isinstance(op, LpNormalization)
    dtype = _line_float(graph, node)
    x, total = Input(0, dtype), Input(1, dtype)
    zero, one = M.const(0.0, dtype), M.const(1.0, dtype)
    guarded = M.add(total, M.like(op.epsilon, total))
    norm = M.max(M.sqrt(guarded) if op.p == 2 else guarded, M.like(op.floor, total))
    element = M.mul(x, x) if op.p == 2 else M.abs(x)
    is_zero = M.eq(total, zero)
    result = M.select(is_zero, zero, M.div(x, M.select(is_zero, one, total)))
    axes = (op.axis % len(shape),)
    _emit_lines(lowering, group, axes, (Stage("sum", element, norm),), result)


def _per_channel(op: object) -> bool:
    return isinstance(op, InstanceNormalization)


def _along(
    lowering: Lowering, value: str, shape: tuple[int, ...], channels: bool
) -> tuple[Placed, tuple[int, ...]]:
    """A scale or bias and its strides per axis of the input: per channel, or broadcast."""
    placed = lowering.values.read(value)
    physical = placed.physical
    if channels:
        return placed, (0, physical.strides[0], *(0,) * (len(shape) - 2))
    return placed, broadcast_strides(physical.shape, physical.strides, shape)
