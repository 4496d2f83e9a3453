"""Emits the code of a loop `LoopPlan`: rows of vectors, or tiles transposed in registers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import ELEMENT_TYPES, I1, I32, I64, FunctionBuilder, Index
from verax.compiler.kernels.llvm.side_by_side import evaluate_each, in_step, is_chain
from verax.compiler.kernels.loops.indices import checked, index_scalar, wide, widened
from verax.compiler.kernels.loops.spec import Access, Lookup, LoopPlan, LoopSpec
from verax.compiler.kernels.sizes import Size, static_size
from verax.compiler.kernels.target import LANES


@dataclass
class Cursor:
    """An access while loops are being entered: what is known of its address so far."""

    access: Access
    pointer: ir.Value
    offset: Index
    value: ir.Value | None = None  # loaded already, when it no longer changes
    pending: list[Lookup] = field(default_factory=list)


class LoopEmitter:
    """State of one loop kernel's emission. The last dim is the vector dim."""

    def __init__(self, fb: FunctionBuilder, spec: LoopSpec) -> None:
        self.fb, self.spec = fb, spec
        n = len(spec.inputs)
        self.inputs = [self._cursor(a, p) for a, p in zip(spec.inputs, fb.args, strict=False)]
        self.outputs = [self._cursor(a, p) for a, p in zip(spec.outputs, fb.args[n:])]
        self.flag = fb.args[-1] if spec.checked else None
        self.bound: set[int] = set()

    @staticmethod
    def _cursor(access: Access, pointer: ir.Value) -> Cursor:
        return Cursor(access, pointer, access.offset, pending=list(access.lookups))

    # --- entering loops

    def save(self) -> tuple[object, ...]:
        """The state to return to after a loop's body was emitted."""
        state = [(c, c.offset, c.value, list(c.pending)) for c in (*self.inputs, *self.outputs)]
        return state, set(self.bound)

    def restore(self, saved: tuple[object, ...]) -> None:
        state, self.bound = saved  # type: ignore[assignment]
        for cursor, offset, value, pending in state:  # type: ignore[attr-defined]
            cursor.offset, cursor.value, cursor.pending = offset, value, list(pending)
        self.bound = set(self.bound)

    def advance(self, dim: int, index: Index) -> None:
        """Add index * stride of `dim` to every address."""
        for cursor in (*self.inputs, *self.outputs):
            step = self.fb.imul(index, cursor.access.strides[dim])
            cursor.offset = self.fb.iadd(cursor.offset, step)

    def bind(self, dims: Sequence[int]) -> None:
        """Note that `dims` have their index; read indices that are fixed from here on."""
        self.bound |= set(dims)
        for cursor in self.inputs:
            for look in list(cursor.pending):
                index = self.inputs[look.input]
                if all(d in self.bound for d, s in enumerate(index.access.strides) if s != 0):
                    position = self._index_scalar(index, look)
                    step = self.fb.imul(position, look.stride)
                    cursor.offset = self.fb.iadd(cursor.offset, step)
                    cursor.pending.remove(look)

    def hoist(self, single_vector: bool) -> None:
        """Load inputs that do not change in the loops still to come.

        single_vector: the vector dim is one vector (of 16 or fewer lanes).
        """
        vector = len(self.spec.dims) - 1
        for index in self.spec.value_inputs:
            cursor = self.inputs[index]
            free = {d for d, s in enumerate(cursor.access.strides) if s != 0} - self.bound
            if (
                cursor.value is None
                and not cursor.pending
                and free <= ({vector} if single_vector else set())
            ):
                count = static_size(self.spec.dims[vector]) if single_vector else LANES
                cursor.value = self.load(cursor, 0, min(count, LANES))

    def _index_scalar(self, index: Cursor, look: Lookup) -> ir.Value:
        dtype = index.access.dtype
        pointer = self.fb.at(index.pointer, index.offset, dtype=dtype)
        return index_scalar(self.fb, pointer, dtype, look, self.flag)

    # --- vectors along the last dim

    def load(self, cursor: Cursor, at: Index, count: Index) -> ir.Value:
        """`count` elements from position `at` of the vector dim, as a register value."""
        fb, access = self.fb, cursor.access
        stride, dtype = access.strides[-1], access.dtype
        if cursor.pending:
            value = self._gather(cursor, at, count)
        else:
            pointer = fb.at(cursor.pointer, cursor.offset, (at, stride), dtype=dtype)
            value = load_strided(fb, pointer, stride, dtype, count)
        return to_register(fb, value, dtype)

    def _gather(self, cursor: Cursor, at: Index, count: Index) -> ir.Value:
        """Load through indices that change along the vector dim."""
        fb, b, access = self.fb, self.fb.b, cursor.access
        kind = ir.VectorType(I64, LANES)
        lanes = wide(fb, [i * access.strides[-1] for i in range(LANES)])
        start = fb.iadd(cursor.offset, fb.imul(at, access.strides[-1]))
        offsets = b.add(lanes, fb.splat(fb.i64(start)))
        for look in cursor.pending:
            index = self.inputs[look.input]
            position = self.load(index, at, count)
            if index.access.dtype != "int64":
                position = widened(fb, position, index.access.dtype, kind)
            if look.checked:
                position = checked(fb, position, look.size, self.flag, fb.first(count))
            step = b.mul(position, wide(fb, [look.stride] * LANES))
            offsets = b.add(offsets, step)
        element = ELEMENT_TYPES[access.dtype]
        value: ir.Value = ir.Constant(ir.VectorType(element, LANES), None)
        for lane, used in lanes_of(fb, count):
            position = b.extract_element(offsets, used)
            pointer = fb.at(cursor.pointer, (position, 1), dtype=access.dtype)
            one = fb.load(pointer, access.dtype, lanes=0)
            value = b.insert_element(value, one, ir.Constant(I32, lane))
        return value

    def compute(self, raw: Sequence[dict[int, ir.Value]]) -> list[list[ir.Value]]:
        """The expressions over the register values of the inputs, for each of some vectors."""
        inputs = [[one.get(i) for i in range(len(self.inputs))] for one in raw]
        return evaluate_each(self.fb, self.spec.exprs, inputs)

    def store(self, cursor: Cursor, at: Index, value: ir.Value, count: Index) -> None:
        fb, access = self.fb, cursor.access
        stride, dtype = access.strides[-1], access.dtype
        pointer = fb.at(cursor.pointer, cursor.offset, (at, stride), dtype=dtype)
        value = from_register(fb, value, dtype)
        if stride == 1 or count == 1:
            store_count(fb, value, pointer, count, dtype)
            return
        for lane in range(count if isinstance(count, int) else LANES):
            with nullcontext() if isinstance(count, int) else fb.when(inside(fb, lane, count)):
                one = fb.b.extract_element(value, ir.Constant(I32, lane))
                fb.store(one, fb.at(pointer, lane * stride, dtype=dtype))

    def vector(self, at: Index, count: Index) -> None:
        """One vector of results at position `at`."""
        self.vectors([(at, count)])

    def vectors(self, vector_ranges: Sequence[tuple[Index, Index]]) -> None:
        """Several vectors, all loaded before any is stored."""
        read = []
        for at, count in vector_ranges:
            raw = {}
            for index in self.spec.value_inputs:
                cursor = self.inputs[index]
                raw[index] = (
                    cursor.value if cursor.value is not None else self.load(cursor, at, count)
                )
            read.append(raw)
        for (at, count), values in zip(vector_ranges, self.compute(read), strict=True):
            for cursor, value in zip(self.outputs, values, strict=True):
                self.store(cursor, at, value, count)

    def row(self, extent: Index) -> None:
        """All of the vector dim, from position 0 to `extent`."""
        unroll = 4 if self.spec.cost <= 12 else 2 if self.spec.cost <= 64 else 1
        if is_chain(self.spec.exprs):
            unroll = in_step(self.fb.module.target)
        if not isinstance(extent, int):
            self._row_to(extent, unroll)
            return
        full = extent // LANES
        main = full // unroll * unroll
        if main:
            with self.fb.loop(main * LANES, step=unroll * LANES) as loop:
                self.vectors([(self.fb.iadd(loop.index, u * LANES), LANES) for u in range(unroll)])
        for position in range(main, full):
            self.vector(position * LANES, LANES)
        if extent % LANES:
            self.vector(full * LANES, extent % LANES)

    def _row_to(self, extent: Size | ir.Value, unroll: int) -> None:
        """`row`, when its length is known when it runs."""
        fb = self.fb
        width = unroll * LANES
        main = fb.imul(fb.idiv(extent, width), width)
        with fb.loop(main, step=width) as loop:
            self.vectors([(fb.iadd(loop.index, u * LANES), LANES) for u in range(unroll)])
        full = fb.imul(fb.idiv(extent, LANES), LANES)
        if unroll > 1:
            with fb.loop(full, start=main, step=LANES) as loop:
                self.vector(loop.index, LANES)
        remainder = fb.iadd(extent, fb.imul(full, -1))
        with fb.when(fb.b.icmp_signed(">", fb.i64(remainder), fb.i64(0))):
            self.vector(full, remainder)


def emit_rows(fb: FunctionBuilder, plan: LoopPlan) -> None:
    """Loops over the outer dims around rows of vectors."""
    spec, emitter = plan.spec, LoopEmitter(fb, plan.spec)
    vector = len(spec.dims) - 1
    extent = spec.dims[vector]
    single = isinstance(extent, int) and extent <= LANES
    emitter.bind(())
    emitter.hoist(single)
    with fb.items() as items:
        coordinates = _coordinates(fb, plan, items.index)
        for dim in range(len(plan.item_dims)):
            emitter.advance(dim, coordinates[dim])
        emitter.bind(range(len(plan.item_dims)))
        emitter.hoist(single)

        def nest(dim: int) -> None:
            if dim == vector:
                _pieces(fb, plan, coordinates[-1], extent, plan.chunk, row)
                return
            saved = emitter.save()
            with fb.loop(spec.dims[dim]) as loop:
                emitter.advance(dim, loop.index)
                emitter.bind((dim,))
                emitter.hoist(single)
                nest(dim + 1)
            emitter.restore(saved)

        def row(piece: Index, length: Index) -> None:
            saved = emitter.save()
            emitter.advance(vector, fb.imul(piece, plan.chunk))
            emitter.row(length)
            emitter.restore(saved)

        nest(len(plan.item_dims))


def emit_tiles(fb: FunctionBuilder, plan: LoopPlan) -> None:
    """Tiles of 16 x 16 over the tile dim and the vector dim; see `transpose`."""
    spec, emitter = plan.spec, LoopEmitter(fb, plan.spec)
    vector, tile = len(spec.dims) - 1, len(spec.dims) - 2
    extent = spec.dims[vector]
    emitter.bind(())
    emitter.hoist(False)
    with fb.items() as items:
        coordinates = _coordinates(fb, plan, items.index)
        for dim in range(tile):
            emitter.advance(dim, coordinates[dim])
        emitter.bind(range(tile))
        emitter.hoist(False)

        def strip(piece: Index, length: Index) -> None:
            saved = emitter.save()
            emitter.advance(tile, fb.imul(piece, LANES))
            if isinstance(length, int):
                tiles(length)
            else:
                is_full = fb.b.icmp_signed("==", fb.i64(length), fb.i64(LANES))
                with fb.b.if_else(is_full) as (full, partial_block):
                    with full:
                        tiles(LANES)
                    with partial_block:
                        one_by_one(length)
            emitter.restore(saved)

        def tiles(rows: int) -> None:
            full, remainder = extent // LANES * LANES, extent % LANES
            if full != 0:
                with fb.loop(full, step=LANES) as loop:
                    _tile(emitter, loop.index, rows, LANES)
            if isinstance(remainder, int):
                if remainder:
                    _tile(emitter, full, rows, remainder)
            else:
                with fb.when(fb.b.icmp_signed(">", fb.i64(remainder), fb.i64(0))):
                    _tile(emitter, full, rows, remainder)

        def one_by_one(rows: Index) -> None:
            saved = emitter.save()
            with fb.loop(rows) as loop:
                emitter.advance(tile, loop.index)
                emitter.bind((tile,))
                emitter.row(extent)
            emitter.restore(saved)

        _pieces(fb, plan, coordinates[-1], spec.dims[tile], LANES, strip)


def _coordinates(fb: FunctionBuilder, plan: LoopPlan, item: Index) -> list[Index]:
    """Indices of the item dims, then the number of the piece."""
    extents = [*plan.item_dims, plan.pieces]
    return fb.split(item, *extents[1:])


def _pieces(
    fb: FunctionBuilder,
    plan: LoopPlan,
    piece: Index,
    extent: Size,
    size: int,
    emit: Callable[[Index, Index], None],
) -> None:
    """emit(piece, length): the last piece may be shorter, and gets code of its own.

    When the extent is known when it runs, one code serves for every length.
    """
    count = plan.pieces
    if not isinstance(count, int) or not isinstance(extent, int):
        left = fb.iadd(extent, fb.imul(piece, -size)) if size else extent
        emit(piece, fb.clamp(left, 0, size) if size else extent)
        return
    remainder = extent - (count - 1) * size if size else extent
    if count == 1:
        emit(0, extent)
    elif remainder == size:
        emit(piece, size)
    else:
        is_last = fb.b.icmp_signed("==", fb.i64(piece), fb.i64(count - 1))
        with fb.b.if_else(is_last) as (last, full_block):
            with last:
                emit(count - 1, remainder)
            with full_block:
                emit(piece, size)


def _tile(emitter: LoopEmitter, at: Index, rows: int, columns: Index) -> None:
    """rows x columns results: positions 0.. of the tile dim, `at`.. of the vector dim."""
    fb, spec = emitter.fb, emitter.spec
    tile = len(spec.dims) - 2
    values: dict[int, list[ir.Value]] = {}
    for index in spec.value_inputs:
        cursor = emitter.inputs[index]
        access = cursor.access
        if cursor.value is not None:
            values[index] = [cursor.value] * rows
        elif access.strides[tile] == 1 and access.strides[-1] != 1 and not cursor.pending:
            lines = []
            for column, used in lanes_of(fb, columns):
                column_index = fb.iadd(
                    at, column if isinstance(columns, int) else fb.b.sext(used, I64)
                )
                pointer = fb.at(
                    cursor.pointer,
                    cursor.offset,
                    (column_index, access.strides[-1]),
                    dtype=access.dtype,
                )
                lines.append(load_strided(fb, pointer, 1, access.dtype, rows))
            lines += [ir.Constant(lines[0].type, ir.Undefined)] * (LANES - len(lines))
            rows_of_tile = transpose(fb, lines)[:rows]
            values[index] = [to_register(fb, v, access.dtype) for v in rows_of_tile]
        else:
            values[index] = []
            for row in range(rows):
                saved = emitter.save()
                emitter.advance(tile, row)
                emitter.bind((tile,))
                values[index].append(emitter.load(cursor, at, columns))
                emitter.restore(saved)
    results = emitter.compute([{n: v[row] for n, v in values.items()} for row in range(rows)])
    for row, result in enumerate(results):
        saved = emitter.save()
        emitter.advance(tile, row)
        for cursor, value in zip(emitter.outputs, result, strict=True):
            emitter.store(cursor, at, value, columns)
        emitter.restore(saved)


def transpose(fb: FunctionBuilder, lines: Sequence[ir.Value]) -> list[ir.Value]:
    """The transpose of 16 vectors of 16 lanes, in four rounds of swapping half blocks."""
    lines = list(lines)
    for distance in (8, 4, 2, 1):
        low, high = _swapping(distance)
        for i in range(LANES):
            if not i & distance:
                pair = lines[i], lines[i + distance]
                lines[i] = fb.b.shuffle_vector(*pair, low)
                lines[i + distance] = fb.b.shuffle_vector(*pair, high)
    return lines


@functools.cache
def _swapping(distance: int) -> tuple[ir.Constant, ir.Constant]:
    """Lanes of two vectors whose half blocks of that many lanes are swapped: the first's, the
    second's."""
    low = [k if not k & distance else LANES + k - distance for k in range(LANES)]
    high = [k + distance if not k & distance else LANES + k for k in range(LANES)]
    kind = ir.VectorType(I32, LANES)
    return ir.Constant(kind, low), ir.Constant(kind, high)


def inside(fb: FunctionBuilder, lane: int, count: Index) -> ir.Value:
    """Whether `lane` is one of the first `count`."""
    return fb.b.icmp_signed("<", fb.i64(lane), fb.i64(count))


def lanes_of(fb: FunctionBuilder, count: Index) -> Iterator[tuple[int, ir.Value]]:
    """(lane, the lane whose element it may read), the latter an i32.

    A known `count` gives that many lanes. Otherwise all are given, and those from `count` on read
    what the first one does.
    """
    for lane in range(count if isinstance(count, int) else LANES):
        used: ir.Value = ir.Constant(I32, lane)
        if not isinstance(count, int):
            used = fb.b.select(inside(fb, lane, count), used, ir.Constant(I32, 0))
        yield lane, used


def load_strided(
    fb: FunctionBuilder, pointer: ir.Value, stride: Size, dtype: str, count: Index
) -> ir.Value:
    """`count` elements `stride` apart in the first lanes, memory type; the rest is anything."""
    if stride == 0:
        return fb.broadcast(pointer, dtype)
    if stride == 1:
        if count == LANES:
            return fb.load(pointer, dtype)
        return fb.load_first(pointer, count, dtype)
    value: ir.Value = ir.Constant(fb.vector_type(dtype), None)
    for lane, used in lanes_of(fb, count):
        step = (lane if isinstance(count, int) else fb.b.sext(used, I64), stride)
        one = fb.load(fb.at(pointer, step, dtype=dtype), dtype, lanes=0)
        value = fb.b.insert_element(value, one, ir.Constant(I32, lane))
    return value


def store_count(
    fb: FunctionBuilder, value: ir.Value, pointer: ir.Value, count: Index, dtype: str
) -> None:
    """The first `count` lanes to consecutive elements."""
    if count == LANES:
        fb.store(value, pointer)
    elif count == 1:
        fb.store(fb.b.extract_element(value, ir.Constant(I32, 0)), pointer)
    else:
        fb.store_first(value, pointer, count)


def to_register(fb: FunctionBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Memory type -> register type: a bool is any non-zero byte."""
    if dtype != "bool":
        return value
    return fb.b.icmp_unsigned("!=", value, ir.Constant(value.type, None))


def from_register(fb: FunctionBuilder, value: ir.Value, dtype: str) -> ir.Value:
    """Register type -> memory type."""
    if dtype != "bool":
        return value
    kind = ELEMENT_TYPES["bool"]
    wide = ir.VectorType(kind, value.type.count) if value.type != I1 else kind
    return fb.b.zext(value, wide)
