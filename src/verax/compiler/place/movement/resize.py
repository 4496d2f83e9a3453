"""Resize by the operator's own tables: one pass per axis, or one gather for nearest; between
integers one loop with exact sums."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np

from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.formulas import has_open_sizes
from verax.compiler.place.movement.resize_positions import OpenTable, open_table
from verax.compiler.place.movement.weighted import weighted_sum
from verax.compiler.place.storage import LANES, Physical, Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout
from verax.ir.dim import DimLike, same
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, Input, TracingArith, converted
from verax.ops.images.resize import WHOLE, Resize
from verax.ops.images.resize_integer import BITS, ResizeInteger
from verax.ops.images.resize_tables import AxisTable, axis_table

Tables = list[tuple[int, AxisTable | OpenTable]]
WIDE = frozenset({DType.float64, *(DType(f"{s}int{n}") for s in ("", "u") for n in (8, 16, 32))})
"""What is interpolated in float64; integers are then rounded to nearest even and saturated."""
M = TracingArith()


@dataclasses.dataclass(frozen=True)
class _Outside:
    """What positions show that lie outside of some axis."""

    tables: Tables
    value: float

    def with_outside(
        self,
        result: Expr,
        lowering: Lowering,
        inputs: list[Access],
        arguments: list[Placed | Pointer],
    ) -> Expr:
        """`result`, or the value outside; inputs and arguments get a table for each such axis."""
        rank = len(inputs[0].strides)
        for axis, table in self.tables:
            if isinstance(table, AxisTable) and table.outside.any():
                inputs.append(_along("bool", axis, 1, rank))
                arguments.append(lowering.weights.constant(table.outside))
                is_outside = Input(len(inputs) - 1, "bool")
                result = M.select(is_outside, M.const(self.value, result.dtype), result)
        return result


def _computed_in(graph: Graph, node: Node) -> str | None:
    """The type of weights and of their products; None where no loop multiplies them."""
    dtype = graph.types[node.inputs[0] or ""].dtype
    if dtype is DType.float32 or getattr(node.op, "mode", "") == "nearest":  # which has none
        return "float32"
    return "float64" if dtype in WIDE else None


def _tables(graph: Graph, node: Node) -> Tables | None:
    """The axes that change, when roi, scales and sizes are constants."""
    op = node.op
    assert isinstance(op, Resize)
    computed = _computed_in(graph, node)
    if computed is None:
        return None
    open_tables = _open_tables(graph, node, op, computed) if has_open_sizes(graph, node) else None
    if open_tables is not None:
        return open_tables
    constants = [None if v is None else graph.constants.get(v) for v in node.inputs[1:]]
    if any(v is not None and g is None for v, g in zip(node.inputs[1:], constants)):
        return None
    roi, scales, sizes = (constants + [None] * 3)[:3]
    x = graph.types[node.inputs[0] or ""]
    axis_tables: Tables = [*op.tables(tuple(map(int, x.shape)), roi, scales, sizes, computed)]
    shows_outside = any(isinstance(t, AxisTable) and t.outside.any() for _, t in axis_tables)
    return None if shows_outside and x.dtype not in (DType.float32, DType.float64) else axis_tables


def _open_tables(graph: Graph, node: Node, op: Resize, computed: str) -> Tables | None:
    """The same where sizes are open; None where they have to be known. What sizes are asked for
    does not matter: they are those of the output."""
    x, y = graph.types[node.inputs[0] or ""], graph.types[node.outputs[0]]
    scales_value = node.inputs[2] if len(node.inputs) > 2 else None
    scales: np.ndarray | None = None
    if scales_value is not None and graph.types[scales_value].size != 0:
        if scales_value not in graph.constants:
            return None
        scales = graph.constants[scales_value].ravel()
    elif op.keep_aspect_ratio_policy != "stretch":
        return None
    axes = [a % x.rank for a in (range(x.rank) if op.axes is None else op.axes)]
    axis_tables: Tables = []
    for i, axis in sorted(enumerate(axes), key=lambda item: -item[1]):
        old, new = x.dims[axis], y.dims[axis]
        scale = None if scales is None else Fraction(float(scales[i]))
        if scale == 1 or (scale is None and (same(old, new) or old == new)):
            continue  # position i shows element i
        if old == new:
            return None  # it may or may not
        table: AxisTable | OpenTable | None
        if isinstance(old, int) and isinstance(new, int):
            ratio = Fraction(new, old) if scale is None else scale
            if op.coordinate_transformation_mode == "tf_crop_and_resize":
                return None
            table = axis_table(op.interpolation, old, new, ratio, WHOLE, computed)
        else:
            table = open_table(op, old, new, scale, computed)
        if table is None:
            return None
        axis_tables.append((axis, table))
    return axis_tables


def _placed(
    lowering: Lowering, table: AxisTable | OpenTable, label: str
) -> tuple[list[Pointer], list[Pointer]]:
    """Positions (int32) of every tap, and weights."""
    if isinstance(table, OpenTable):
        return table.emit_calls(lowering, label)
    constant = lowering.weights.constant
    taps = range(table.positions.shape[1])
    positions = [constant(table.positions[:, t].astype(np.int32)).pointer for t in taps]
    if table.weights is None:
        return positions, []
    return positions, [constant(table.weights[:, t].copy()).pointer for t in taps]


def plan_resize(planning: Planning, node: Node) -> Alternatives:
    """In blocks when the input comes so and only spatial axes change, else in rows. The detail is
    the tables."""
    tables = _tables(planning.graph, node)
    if tables is None:
        return NoKernel(
            "resizing takes constant sizes, no bool between pixels, no integers outside"
        )
    refused = planning.refused_types(planning.graph.input_types(node)[:1], LoopSpec)
    if refused is not None:
        return refused
    rows = Choice("resize", detail=tables)
    if any(axis < 2 for axis, _ in tables):
        return (rows,)
    blocked = (0, Layout.blocked, ())
    blocks = dataclasses.replace(
        rows, inputs=(blocked,), output=Layout.blocked, blocked_inputs=(0,)
    )
    return blocks, rows


@plans(Resize, plan=plan_resize)
def place_resize(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Tables, source, output."""
    node, tables = group.root, choice.detail
    layout = choice.layout_of(0) or Layout.plain
    source = lowering.values.read(node.inputs[0] or "", layout)
    target = lowering.values.write(node.outputs[0], layout)
    assert isinstance(node.op, Resize)
    outside = _Outside(tables, float(node.op.extrapolation_value))
    if node.op.mode == "nearest" or not tables:
        _nearest(lowering, source, target, outside, group.label)
        return
    for i, (axis, table) in enumerate(tables):
        last = i == len(tables) - 1
        after = _resized(source.physical, target.physical, axis, _computed(table))
        step = target if last else lowering.values.allocate(after)
        step_outside = outside if last else _Outside([], 0.0)
        _weighted(lowering, source, step, axis, table, step_outside, f"{group.label}: axis {axis}")
        source = step


def _computed(table: AxisTable | OpenTable) -> str:
    """The type of its weights."""
    if isinstance(table, OpenTable):
        return table.computed
    assert table.weights is not None
    return str(table.weights.dtype.name)


def _resized(physical: Physical, target: Physical, axis: int, computed: str) -> Physical:
    dims: list[DimLike] = list(physical.shape)
    dims[axis] = target.shape[axis]
    dtype = DType(computed)
    return Physical(TensorType(dtype, tuple(dims)), physical.layout)


def _memory_dims(physical: Physical) -> tuple[tuple[Size, ...], tuple[Size, ...]]:
    """Dims and strides of a tensor as its memory has them, borders left out."""
    if physical.layout is Layout.blocked:
        return (physical.shape[0], physical.blocks, *physical.spatial, LANES), physical.strides
    return physical.shape, physical.strides


def _nearest(
    lowering: Lowering, source: Placed, target: Placed, outside: _Outside, label: str
) -> None:
    """Every element through one table per axis."""
    dims, written = _memory_dims(target.physical)
    steps = list(_memory_dims(source.physical)[1])
    dtype = str(source.physical.type.dtype)
    inputs: list[Access] = []
    arguments: list[Placed | Pointer] = []
    lookups = []
    for axis, table in outside.tables:
        inputs.append(_along("int32", axis, 1, len(dims)))
        arguments += _placed(lowering, table, f"{label}: axis {axis}")[0]
        lookups.append(
            Lookup(len(inputs) - 1, source.physical.shape[axis], steps[axis], checked=False)
        )
        steps[axis] = 0
    inputs.append(Access(dtype, tuple(steps), 0, tuple(lookups)))
    arguments.append(source)
    result = outside.with_outside(Input(len(inputs) - 1, dtype), lowering, inputs, arguments)
    spec = LoopSpec(dims, tuple(inputs), (Access(dtype, written),), (result,))
    lowering.calls.call(spec, [*arguments, target], label)


def _weighted(
    lowering: Lowering,
    source: Placed,
    target: Placed,
    axis: int,
    table: AxisTable | OpenTable,
    outside: _Outside,
    label: str,
) -> None:
    """One axis. Integers are rounded at the end."""
    dims, written = _memory_dims(target.physical)
    steps = list(_memory_dims(source.physical)[1])
    stride, steps[axis] = steps[axis], 0
    source_dtype, stored = str(source.physical.type.dtype), str(target.physical.type.dtype)
    computed = _computed(table)
    inputs: list[Access] = []
    arguments: list[Placed | Pointer] = []
    terms: list[tuple[Expr, Expr]] = []
    for positions, weights in zip(*_placed(lowering, table, label), strict=True):
        at = len(inputs)
        look = Lookup(at, source.physical.shape[axis], stride, checked=False)
        inputs += [
            _along("int32", axis, 1, len(dims)),
            _along(computed, axis, 1, len(dims)),
            Access(source_dtype, tuple(steps), 0, (look,)),
        ]
        arguments += [positions, weights, source]
        terms.append((converted(Input(at + 2, source_dtype), computed), Input(at + 1, computed)))
    result = weighted_sum(terms)
    if stored != computed:
        ends = np.iinfo(stored)
        low, high = (M.const(float(v), computed) for v in (ends.min, ends.max))
        result = M.convert(M.min(M.max(M.rint(result), low), high), stored)
    result = outside.with_outside(result, lowering, inputs, arguments)
    spec = LoopSpec(dims, tuple(inputs), (Access(stored, written),), (result,))
    lowering.calls.call(spec, [*arguments, target], label)


def _along(dtype: str, axis: int, stride: int, rank: int) -> Access:
    """A table with one entry per position of `axis`."""
    return Access(dtype, tuple(stride if a == axis else 0 for a in range(rank)))


def plan_resize_integer(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: tables (axis, (low, high, weight)) and the type of sums."""
    op, type_ = node.op, planning.graph.types[node.inputs[0] or ""]
    assert isinstance(op, ResizeInteger)
    axes = [a % type_.rank for a in op.axes]
    tables = [(a, op.table(i, type_.shape[a])) for i, a in enumerate(axes)]
    largest = float(np.iinfo(str(type_.dtype)).max + 1)
    for axis, (low, high, weight) in tables:
        if max(low.max(), high.max()) >= type_.shape[axis]:
            return NoKernel("a neighbor lies outside")
        largest *= float(np.max(np.abs((1 << BITS) - weight) + np.abs(weight)))
    if len(axes) > 2 or largest >= 2.0**62:
        return NoKernel("it takes one or two axes, and sums within int64")
    wide = "int32" if largest < 2.0**30 else "int64"
    return planning.refused(node, LoopSpec) or (Choice("resize", detail=(tables, wide)),)


@plans(ResizeInteger, plan=plan_resize_integer)
def place_resize_integer(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Per axis both neighbors and the weight; the source once per corner; output."""
    node = group.root
    axis_tables, wide = choice.detail
    axes, tables = zip(*axis_tables) if axis_tables else ((), ())
    x, y = lowering.values.read(node.inputs[0] or ""), lowering.values.write(node.outputs[0])
    rank, dtype = len(x.physical.shape), str(x.physical.type.dtype)
    steps = [0 if a in axes else s for a, s in enumerate(x.physical.strides)]
    inputs: list[Access] = []
    arguments: list[Placed] = []
    for axis, (low, high, weight) in zip(axes, tables, strict=True):
        for table, kind in ((low, "int32"), (high, "int32"), (weight, wide)):
            inputs.append(_along(kind, axis, 1, rank))
            arguments.append(lowering.weights.constant(table.astype(kind)))
    terms: list[Expr] = []
    for corner in itertools.product((0, 1), repeat=len(axes)):
        lookups = tuple(
            Lookup(3 * i + side, x.physical.shape[a], x.physical.strides[a], checked=False)
            for i, (a, side) in enumerate(zip(axes, corner, strict=True))
        )
        inputs.append(Access(dtype, tuple(steps), 0, lookups))
        arguments.append(x)
        terms.append(M.convert(Input(len(inputs) - 1, dtype), wide))
    for i in reversed(range(len(axes))):  # the last axis tells neighboring corners apart
        above = Input(3 * i + 2, wide)
        below = M.sub(M.const(1 << BITS, wide), above)
        neighbors = zip(terms[::2], terms[1::2], strict=True)
        terms = [M.add(M.mul(a, below), M.mul(b, above)) for a, b in neighbors]
    bits = BITS * len(axes)
    (total,) = terms
    size = M.add(M.abs(total), M.const(1 << bits >> 1, wide))
    size = M.shift_right(size, M.const(bits, wide))
    result = M.select(M.lt(total, M.const(0, wide)), M.neg(size), size)
    spec = LoopSpec(
        y.physical.shape, tuple(inputs), (Access(dtype, y.physical.strides),),
        (M.convert(result, dtype),),
    )  # fmt: skip
    lowering.calls.call(spec, [*arguments, y], group.label)
