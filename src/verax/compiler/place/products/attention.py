"""Attention: keys and values are packed, then every group of queries meets all keys."""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.dtypes import contraction
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.attention import panels
from verax.compiler.kernels.products.attention_spec import (
    AttentionSchedule,
    AttentionSpec,
    Mask,
    Shared,
)
from verax.compiler.kernels.products.gemm import SQUARE, GemmSpec, Matrix, PackSpec
from verax.compiler.kernels.products.visible_keys import UnusualSpec, VisibleKeysSpec
from verax.compiler.kernels.sizes import Size, ceil_div
from verax.compiler.kernels.target import LANES
from verax.compiler.place.copies import broadcast_strides
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.reduce.reduction import one_float
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.dim import same
from verax.ir.dim_forms import broadcasts
from verax.ir.graph import Node
from verax.ir.types import DType
from verax.numerics.expr import Input
from verax.ops.sums.attention import PARTS, Attention


@dataclasses.dataclass(frozen=True)
class _Operand:
    """A tensor as [outer, heads, rows, columns]; at: where these lie. outer is 1 where all batches
    share it."""

    outer: int
    heads: int
    rows: int
    columns: int
    at: Matrix


def _operand(shape: tuple[int, ...], inside: bool) -> _Operand:
    """A dense tensor, its rows outside its heads if `inside`."""
    *batch, first, second, columns = (1,) * (3 - len(shape)) + shape
    heads, rows = (second, first) if inside else (first, second)
    steps = (columns, second * columns) if inside else (second * columns, columns)
    outer, size = math.prod(batch), first * second * columns
    at = Matrix(steps[1], 1, 0 if same(outer, 1) else size, 0 if same(heads, 1) else steps[0])
    return _Operand(outer, heads, rows, columns, at)


def plan_attention(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: queries, keys, values and output by their axes."""
    graph, op = planning.graph, node.op
    assert isinstance(op, Attention)
    types = [graph.types[v or ""] for v in node.inputs[:3]]
    if not one_float([*types, graph.types[node.outputs[0]]]) or any(0 in t.shape for t in types):
        return NoKernel("attention takes float32 or float64, at least one query and one key")
    shapes = [t.shape for t in types] + [graph.types[node.outputs[0]].shape]
    layouts = tuple(_operand(s, name in op.heads_inside) for s, name in zip(shapes, PARTS))
    batch = layouts[-1].outer
    if not all(broadcasts(p.outer, batch) for p in layouts):
        return NoKernel("attention takes batches that are whole or one for all")
    mask = node.inputs[3] if len(node.inputs) > 3 else None
    if mask is not None and not broadcasts(math.prod(graph.types[mask].shape[:-3]), batch):
        return NoKernel("attention takes masks that are for each batch or one for all")
    masks = [] if mask is None else [graph.types[mask]]
    refused = planning.refused_types([*types, *masks], AttentionSpec)
    return (
        refused or planning.refused_types(types, PackSpec) or (Choice("attention", detail=layouts),)
    )


MOST_QUERIES = 16
"""Of a head, where keys and values are read as they lie: packing them costs about as much as eight
queries do, and 64 keys of each head would be packed for one that is new."""


@plans(Attention, plan=plan_attention)
def place_attention(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Two packings, unless queries are few; how many keys are visible, if that counts; and the
    kernel on q, keys, values, the mask, these numbers, scratch memory, y."""
    graph, node, op = lowering.graph, group.root, group.root.op
    assert isinstance(op, Attention)
    types = [graph.types[v or ""] for v in node.inputs[:3]]
    dtype = str(types[0].dtype)
    q, k, v, y = choice.detail
    k, v = (
        _lying(lowering, x, node.inputs[i] or "", PARTS[i] in op.heads_inside)
        for i, x in ((1, k), (2, v))
    )
    mask, masks = _mask(lowering, group, y, k.rows)
    counts, numbers = _visible_keys(lowering, group, op, y, k.rows)
    scalar = types[0].dtype.numpy.type
    spec = AttentionSpec(
        outer=y.outer, inner=y.heads, n=q.rows, m=k.rows, d=q.columns, e=v.columns,
        q=q.at, y=y.at, keys=_shared(k, y), values=_shared(v, y),
        scale=float(scalar(op.scale)), divisor=float(scalar(op.divisor)), mask=mask,
        hidden=op.hidden, causal=op.causal, masked_to_zero=op.masked_to_zero,
        nan_to_zero=op.nan_to_zero, dtype=dtype, ignores_hidden=op.reads_visible_alone,
        counts=counts,
    )  # fmt: skip
    if _stops_early(spec):
        spec, numbers = dataclasses.replace(spec, skips_later=True), [_unusual(lowering, group, v)]
    spec = _heads_as_rows(spec)
    if _is_read_as_it_lies(spec):
        spec = dataclasses.replace(spec, rows_of=(k.at, v.at))
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, AttentionSchedule)
    keys_and_values: list[Pointer | Placed]
    if spec.rows_of is None:
        transposed = dataclasses.replace(k.at, row=1, col=k.at.row)
        keys_and_values = [
            _packed(lowering, group, i, operand, schedule, *sizes)
            for i, operand, *sizes in (
                (1, dataclasses.replace(k, at=transposed), k.rows, k.columns),
                (2, v, v.columns, v.rows),
            )
        ]
    else:
        keys_and_values = [_rows(lowering, v or "") for v in node.inputs[1:3]]
    scratch = lowering.values.scratch(schedule.scratch_bytes(spec))
    queries = lowering.values.read_contiguous(node.inputs[0] or "")
    result = lowering.values.write_contiguous(node.outputs[0])
    arguments = [queries, *keys_and_values, *masks, *numbers, scratch, result]
    lowering.calls.call(spec, arguments, group.label, schedule)


def _lying(lowering: Lowering, operand: _Operand, value: str, inside: bool) -> _Operand:
    """Keys or values as `_rows` reads them: in a cache that grows, heads are as far apart as there
    is room for rows."""
    placed = lowering.values.read_cache(value)
    if placed is None:
        return operand
    outer, first, second, _ = placed.physical.strides
    head, row = (second, first) if inside else (first, second)
    at = Matrix(row, 1, outer if operand.at.outer else 0, head if operand.at.inner else 0)
    return dataclasses.replace(operand, at=at)


def _rows(lowering: Lowering, value: str) -> Placed:
    """Keys or values, where they lie."""
    return lowering.values.read_cache(value) or lowering.values.read_contiguous(value)


def _stops_early(spec: AttentionSpec) -> bool:
    """True if causal queries are so many that it pays to look for values that are not finite."""
    may = spec.causal and not spec.ignores_hidden and spec.hidden == -math.inf
    return may and not (isinstance(spec.n, int) and spec.n <= MOST_QUERIES)


def _unusual(lowering: Lowering, group: Group, v: _Operand) -> Pointer | Placed:
    """Where it stands by head of the values whether one of them is not finite."""
    source = _rows(lowering, group.root.inputs[2] or "")
    flags = lowering.values.scratch(v.outer * v.heads * ELEMENT_SIZES["int64"])
    dtype = str(source.physical.type.dtype)
    spec = UnusualSpec(v.outer, v.heads, v.rows, v.columns, v.at, dtype)
    lowering.calls.call(spec, [source, flags], f"{group.label}: finite values")
    return flags


def _heads_as_rows(spec: AttentionSpec) -> AttentionSpec:
    """The heads of one query that share keys and values, as queries of one head: what is read is
    read once for all of them."""
    repeats = spec.keys.repeats
    if spec.n != 1:  # asked of open sizes, too: a program for one token, another for prompts
        return spec
    spec = dataclasses.replace(spec, n=1)
    if same(repeats, 1) or spec.causal or not same(spec.values.repeats, repeats):
        return spec
    moving = [at for at in (None if spec.mask is None else spec.mask.at, spec.counts) if at]
    if not all(same(at.inner, 0) for at in moving):
        return spec

    def rows(at: Matrix) -> Matrix:
        return dataclasses.replace(at, row=at.inner, inner=at.inner * repeats)

    mask = spec.mask and dataclasses.replace(spec.mask, at=rows(spec.mask.at))
    counts = None if spec.counts is None else rows(spec.counts)
    keys, values = (dataclasses.replace(s, repeats=1) for s in (spec.keys, spec.values))
    return dataclasses.replace(
        spec, inner=spec.inner // repeats, n=repeats, q=rows(spec.q), y=rows(spec.y), keys=keys,
        values=values, mask=mask, counts=counts,
    )  # fmt: skip


def _is_read_as_it_lies(spec: AttentionSpec) -> bool:
    """True if there are few queries, and keys and values of whole vectors."""
    sizes = spec.n, spec.d, spec.e
    if not all(isinstance(n, int) for n in sizes) or spec.dtype != "float32":
        return False
    return spec.n <= MOST_QUERIES and spec.d % SQUARE == 0 and spec.e % LANES == 0


def _visible_keys(
    lowering: Lowering, group: Group, op: Attention, y: _Operand, keys: int
) -> tuple[Matrix | None, list[Pointer | Placed]]:
    """Where it stands for each query how many keys it reads; nothing where no mask limits them."""
    value = group.root.inputs[3] if len(group.root.inputs) > 3 else None
    if value is None or not op.reads_visible_alone:
        return None, []
    placed = lowering.values.read_contiguous(value)
    shape = placed.physical.shape
    if placed.physical.type.dtype is not DType.bool_ or not same((1, *shape)[-1], keys):
        return None, []
    *batch, heads, rows, _ = (1,) * (3 - len(shape)) + shape
    dims = (math.prod(batch), heads, rows)
    counts = lowering.values.scratch(math.prod(dims) * ELEMENT_SIZES["int64"])
    spec = VisibleKeysSpec(math.prod(dims), keys)
    lowering.calls.call(spec, [placed, counts], f"{group.label}: visible keys")
    steps = (heads * rows, rows, 1)
    outer, head, row = broadcast_strides(dims, steps, (y.outer, y.heads, y.rows))
    return Matrix(row, 1, outer, head), [counts]


def _shared(operand: _Operand, y: _Operand) -> Shared:
    return Shared(0 if same(operand.outer, 1) else operand.heads, y.heads // operand.heads)


def _packed(
    lowering: Lowering,
    group: Group,
    index: int,
    operand: _Operand,
    schedule: AttentionSchedule,
    columns: int,
    depth: int,
) -> Pointer:
    """Input `index` as right factors [depth, columns], in panels."""
    source = _rows(lowering, group.root.inputs[index] or "")
    dtype = str(source.physical.type.dtype)
    product = GemmSpec(
        1, columns, depth, Matrix(depth, 1), Matrix(columns, 1), operand.outer, operand.heads,
        constant_b=False, types=contraction(dtype, dtype, dtype),
    )  # fmt: skip
    elements = product.outer * product.inner * product.packed_elements
    packed = lowering.values.scratch(elements * ELEMENT_SIZES[dtype])
    label = f"{group.label}: pack {('keys', 'values')[index - 1]}"
    lowering.calls.call(PackSpec(product, operand.at), [source, packed], label, panels(schedule))
    return packed


def _mask(
    lowering: Lowering, group: Group, y: _Operand, keys: int
) -> tuple[Mask | None, list[Pointer | Placed]]:
    """The mask, rows of whole vectors; and the argument that it is."""
    value = group.root.inputs[3] if len(group.root.inputs) > 3 else None
    if value is None:
        return None, []
    placed = lowering.values.read_contiguous(value)
    shape, dtype = placed.physical.shape, str(placed.physical.type.dtype)
    *batch, heads, rows, columns = (1,) * (3 - len(shape)) + shape
    dims = (math.prod(batch), heads, rows, columns)
    pitch: Size = columns
    argument: Pointer | Placed = placed
    if not same(columns, 1) and not same(columns % LANES, 0):
        pitch = ceil_div(keys, LANES) * LANES
        argument = lowering.values.scratch(math.prod(dims[:3]) * pitch * ELEMENT_SIZES[dtype])
        count, copied = math.prod(dims[:3]), Input(0, dtype)
        copy = LoopSpec((count, columns), (Access(dtype, (columns, 1)),),
                        (Access(dtype, (pitch, 1)),), (copied,))  # fmt: skip
        lowering.calls.call(copy, [placed, argument], f"{group.label}: mask")
    steps = (heads * rows * pitch, rows * pitch, pitch, 1)
    outer, head, row, column = broadcast_strides(
        dims,
        steps,  # type: ignore[arg-type]
        (y.outer, y.heads, y.rows, keys),
    )
    return Mask(Matrix(row, column, outer, head), dtype), [argument]
