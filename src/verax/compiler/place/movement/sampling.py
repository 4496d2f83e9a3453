"""GridSample: tables of positions and weights computed from the grid, then one loop that reads
through them. AffineGrid: one loop over tables of positions.

Per spatial axis and tap a table says where to read (within the axis, whatever the grid says), the
weight, and, where outside shows zeros, whether the position lies inside.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.weighted import weighted_sum
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, Input, TracingArith, converted
from verax.ops.images.sampling import AffineGrid, GridSample

F32, F64 = "float32", "float64"
M = TracingArith()
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}
"""Positions that are read along an axis."""
MOST_READS = 64
"""Combinations of taps, each of them read by code of its own."""


@dataclasses.dataclass(frozen=True)
class _Tap:
    """Expressions over a coordinate of the grid."""

    position: Expr
    inside: Expr | None
    weight: Expr


def _constant(value: float, like: Expr) -> Expr:
    """A constant of the type of another number."""
    return M.const(value, like.dtype)


def _taps(op: GridSample, size: int, grid: str, dtype: str) -> list[_Tap]:
    """As `GridSample._axis_taps`, operation for operation, of a grid of one type in another."""
    coordinate = converted(Input(0, grid), dtype)
    g = M.select(M.is_nan(coordinate), _constant(-1, coordinate), coordinate)
    one = _constant(1, g)
    if op.align_corners:
        x = M.mul(M.div(M.add(g, one), _constant(2, g)), _constant(size - 1, g))
    else:
        x = M.div(M.sub(M.mul(M.add(g, one), _constant(size, g)), one), _constant(2, g))
    unit = M.add(M.sub(x, x), one)
    if op.mode == "nearest":
        return [_placed(op, M.rint(x), unit, size)]
    if op.mode == "linear" and op.padding_mode == "border":
        x = M.min(M.max(x, _constant(0, g)), _constant(size - 1, g))
    elif op.mode == "linear" and op.padding_mode == "reflection":
        x = _reflected(op, x, size)
    base = M.floor(x)
    t = M.sub(x, base)
    complement = M.sub(unit, t)
    if op.mode == "linear":
        first, weights = 0, [complement, t]
    else:
        first = -1
        weights = [_cubic(d) for d in (M.add(t, unit), t, complement, M.add(complement, unit))]
    return [
        _placed(op, M.add(base, _constant(k, g)), w, size)
        for k, w in enumerate(weights, start=first)
    ]


def _placed(op: GridSample, x: Expr, weight: Expr, size: int) -> _Tap:
    """A whole coordinate as a position within the axis. A NaN is the first one, or outside."""
    if op.mode != "linear" and op.padding_mode == "reflection":
        x = M.rint(_reflected(op, x, size))
    last = _constant(size - 1, x)
    inside = None
    if op.padding_mode == "zeros":
        inside = M.and_(M.ge(x, _constant(0, x)), M.le(x, last))
    within = M.convert(M.min(M.max(x, _constant(0, x)), last), "int32")
    return _Tap(within, inside, weight)


def _reflected(op: GridSample, x: Expr, size: int) -> Expr:
    """As `GridSample._reflected`."""
    if size == 1:
        return M.mul(x, _constant(0, x))
    double = 2 * (size - 1) if op.align_corners else 2 * size
    half = _constant(0.0 if op.align_corners else 0.5, x)
    distance = M.abs(M.add(x, half))
    times = M.floor(M.div(distance, _constant(double, x)))
    within = M.sub(distance, M.mul(times, _constant(double, x)))
    beyond = M.gt(within, _constant(double // 2, x))
    folded = M.sub(M.select(beyond, M.sub(_constant(double, x), within), within), half)
    return M.min(M.max(folded, _constant(0, x)), _constant(size - 1, x))


def _cubic(d: Expr) -> Expr:
    """Keys' kernel with a = -0.75, as the operator has it."""
    a = -0.75
    inner = M.sub(M.mul(_constant(a + 2, d), d), _constant(a + 3, d))
    inner = M.add(M.mul(M.mul(inner, d), d), _constant(1, d))
    outer = M.sub(M.mul(_constant(a, d), d), _constant(5 * a, d))
    outer = M.sub(M.mul(M.add(M.mul(outer, d), _constant(8 * a, d)), d), _constant(4 * a, d))
    return M.select(M.le(d, _constant(1, d)), inner, outer)


def plan_grid_sample(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, types = node.op, [planning.graph.types[v or ""] for v in node.inputs]
    assert isinstance(op, GridSample)
    if not {str(t.dtype) for t in types} <= {F32, F64}:
        return NoKernel("it takes float32 or float64")
    sizes = types[0].shape[2:]
    if TAPS[op.mode] ** len(sizes) > MOST_READS or max(sizes) > 1 << 24:
        return NoKernel("it takes cubic samples on one or two axes")
    return planning.refused(node, LoopSpec) or (Choice("grid sample"),)


@plans(GridSample, plan=plan_grid_sample)
def place_grid_sample(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Per axis: grid, tables. Then tables, the image once per combination of taps, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, GridSample)
    types = [lowering.graph.types[v or ""] for v in node.inputs]
    sizes, rank = types[0].shape[2:], types[0].rank - 2
    dtypes = [str(t.dtype) for t in types]
    stored, dtype = dtypes[0], F64 if F64 in dtypes else F32
    taps = [_taps(op, n, dtypes[1], dtype) for n in sizes]
    x, grid = (lowering.values.read(v or "") for v in node.inputs)
    y = lowering.values.write(node.outputs[0])
    tap_tables = [
        _tables(lowering, grid, own, rank - 1 - axis, f"{group.label}: axis {axis}")
        for axis, own in enumerate(taps)
    ]
    batch, _, *grid_shape = y.physical.shape
    steps = Physical(TensorType(DType.int32, (batch, *grid_shape))).strides
    inputs: list[Access] = []
    arguments: list[Placed] = []

    def table(placed: Placed | None) -> int:
        assert placed is not None
        dtype = str(placed.physical.type.dtype)
        inputs.append(Access(dtype, (steps[0], 0, *steps[1:])))
        arguments.append(placed)
        return len(inputs) - 1

    numbers = [
        [tuple(None if p is None else table(p) for p in tap) for tap in own] for own in tap_tables
    ]
    (n, c, *space), reads = x.physical.strides, {}
    for tap_indices in itertools.product(*(range(len(own)) for own in numbers)):
        picked = [own[k] for own, k in zip(numbers, tap_indices, strict=True)]
        lookups = tuple(
            Lookup(p[0] or 0, size, step, checked=False)
            for p, size, step in zip(picked, sizes, space, strict=True)
        )
        inputs.append(Access(stored, (n, c, *(0 for _ in grid_shape)), 0, lookups))
        arguments.append(x)
        value: Expr = Input(len(inputs) - 1, stored)
        for _, inside, _ in picked:
            if inside is not None:
                value = M.select(Input(inside, "bool"), value, _constant(0, value))
        reads[tap_indices] = value if op.mode == "nearest" else converted(value, dtype)
    spec = LoopSpec(
        y.physical.shape,
        tuple(inputs),
        (Access(stored, y.physical.strides),),
        (converted(_weighted(op, numbers, reads, (), dtype), stored),),
    )
    lowering.calls.call(spec, [*arguments, y], group.label)


def _tables(
    lowering: Lowering, grid: Placed, taps: Sequence[_Tap], coordinate: int, label: str
) -> list[tuple[Placed, Placed | None, Placed]]:
    """Position, whether inside, and weight of every tap, per place of the grid."""
    *dims, _ = grid.physical.shape
    *steps, step = grid.physical.strides
    written: list[tuple[Placed, Expr]] = []

    def keep(expr: Expr) -> Placed:
        placed = lowering.values.allocate(Physical(TensorType(DType(expr.dtype), tuple(dims))))
        written.append((placed, expr))
        return placed

    placed_taps = [
        (keep(t.position), None if t.inside is None else keep(t.inside), keep(t.weight))
        for t in taps
    ]
    spec = LoopSpec(
        tuple(dims),
        (Access(str(grid.physical.type.dtype), tuple(steps), coordinate * step),),
        tuple(Access(e.dtype, p.physical.strides) for p, e in written),
        tuple(e for _, e in written),
    )
    lowering.calls.call(spec, [grid, *(p for p, _ in written)], label)
    return placed_taps


def _weighted(
    op: GridSample,
    numbers: Sequence[Sequence[tuple[int | None, ...]]],
    reads: dict[tuple[int, ...], Expr],
    tap_indices: tuple[int, ...],
    dtype: str,
) -> Expr:
    """Sums over the taps of each axis, the innermost first."""
    axis = len(tap_indices)
    if axis == len(numbers):
        return reads[tap_indices]
    if op.mode == "nearest":
        return _weighted(op, numbers, reads, (*tap_indices, 0), dtype)
    return weighted_sum(
        (_weighted(op, numbers, reads, (*tap_indices, k), dtype), Input(weight or 0, dtype))
        for k, (_, _, weight) in enumerate(numbers[axis])
    )


def plan_affine_grid(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    if str(planning.graph.types[node.inputs[0] or ""].dtype) not in (F32, F64):
        return NoKernel("it takes float32 or float64")
    return planning.refused(node, LoopSpec) or (Choice("affine grid"),)


@plans(AffineGrid, plan=plan_affine_grid)
def place_affine_grid(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Every number of a row of theta, a table of positions for each axis, the grid once per
    coordinate."""
    node, op = group.root, group.root.op
    assert isinstance(op, AffineGrid)
    theta = lowering.values.read_contiguous(node.inputs[0] or "")
    y = lowering.values.write_contiguous(node.outputs[0])
    dtype = str(theta.physical.type.dtype)
    batch, *space, rank = y.physical.shape
    steps, axes = y.physical.strides, [1 + rank - 1 - k for k in range(rank)]
    inputs: list[Access] = []
    arguments: list[Placed] = []
    exprs: list[Expr] = []
    outputs: list[Access] = []
    for axis in axes:  # the innermost comes first, as in a row of theta
        table = lowering.weights.constant(op.axis_positions(space[axis - 1]))
        inputs.append(Access(F64, tuple(int(d == axis) for d in range(rank + 1))))
        arguments.append(table)
    for j in range(rank):
        total: Expr | None = None
        for k in range(rank + 1):
            theta_entry = Input(len(inputs), dtype)
            offset = j * (rank + 1) + k
            inputs.append(Access(dtype, (rank * (rank + 1), *[0] * rank), offset))
            arguments.append(theta)
            coefficient = converted(theta_entry, F64)
            if k == rank:  # times 1
                total = coefficient if total is None else M.add(total, coefficient)
            else:
                coordinate = Input(k, F64)
                total = (
                    M.mul(coordinate, coefficient)
                    if total is None
                    else M.fma(coordinate, coefficient, total)
                )
        assert total is not None
        exprs.append(converted(total, dtype))
        outputs.append(Access(dtype, steps[:-1], j))
    spec = LoopSpec((batch, *space), tuple(inputs), tuple(outputs), tuple(exprs))
    lowering.calls.call(spec, [*arguments, *[y] * rank], group.label)
