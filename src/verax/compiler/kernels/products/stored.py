"""Products with a right factor that is kept in fewer bits than it is multiplied in.

The factor lies in the panels of `gemm.pack_b`, in 16, 8 or 4 bits, and becomes float32 where it is
read: halves are widened, integers are centered and multiplied with the scale of their column and
group of rows, rounded once. So the sums have the bits of the same product with a float32 factor. A
few rows are multiplied while the factor is read, once; for many it is widened ahead, by a kernel of
its own, into memory that other layers use as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.layout import Sizes, finished, load_lanes
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.products.gemm import GemmSpec, gemm_schedule, pack_b
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES, Target

KNOWN = (
    *("float32", "float16", "bfloat16", "int8", "uint8", "uint4"),
    *("int16", "uint16", "int32", "uint32", "int64"),
)
"""Element types: those of a stored factor, and what epilogues read and make."""
HALVES = ("float16", "bfloat16")
MOST_ROWS = 8
"""Rows that are multiplied while the factor is read."""
UNROLL = 4


@dataclasses.dataclass(frozen=True)
class Stored:
    """How a right factor is kept. kind: float16 or bfloat16; int8, uint8 or uint4 (two numbers a
    byte: of 32 columns of a panel the first 16 in the low half, of 16 that are left the first 8)
    with scales. group: rows that share scales, a divisor of all; 0 without. zeros: whether every
    scale has a zero point. zero: that of all numbers of 4 bits, where they share one."""

    kind: str
    group: int = 0
    zeros: bool = False
    zero: int = 0

    @property
    def element(self) -> str:
        """What addresses count in."""
        return "uint8" if self.kind == "uint4" else self.kind

    @property
    def width(self) -> int:
        """Elements that hold 16 columns."""
        return LANES // 2 if self.kind == "uint4" else LANES

    @property
    def tables(self) -> int:
        """Pointers to scales and zero points, float32, in rows of whole blocks of columns."""
        return bool(self.group) + self.zeros

    def __str__(self) -> str:
        shared = f" by {self.group}" if self.group else ""
        return f"{self.kind}{shared}"


@dataclasses.dataclass(frozen=True)
class RowsSpec:
    """`product`, of at most MOST_ROWS rows and no batch, by a stored factor.

    Arguments of the kernel: a, factor, scales, zero points, then those of the product from its bias
    on."""

    product: GemmSpec
    stored: Stored

    def __str__(self) -> str:
        return f"{self.product}, factor kept in {self.stored}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return *self.product.dtypes, self.stored.kind


@dataclasses.dataclass(frozen=True)
class WidenSpec:
    """The factor of `product` from what is stored to panels of float32.

    Arguments of the kernel: factor, scales, zero points, panels."""

    product: GemmSpec
    stored: Stored

    def __str__(self) -> str:
        p = self.product
        return f"{self.stored} [{p.k}, {p.n}] to {p.types.weights}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.product.types.weights, self.stored.kind


def rows_schedule(spec: RowsSpec, target: Target) -> ConvSchedule:
    """As many columns as leave the sums of all rows in registers."""
    rows = static_size(spec.product.m)
    total = -(-static_size(spec.product.n) // LANES)
    blocks = max(1, min(4, (target.registers - 4) // (target.physical * rows)))
    return ConvSchedule(min(blocks, total), 1, rows)


def pack_stored(
    b: np.ndarray, stored: Stored, spec: GemmSpec, schedule: ConvSchedule
) -> np.ndarray:
    """A factor (k, n) of the stored kind as one vector, in panels."""
    elements = b.view(np.uint16) if stored.kind in HALVES else b
    types = dataclasses.replace(spec.types, weights=elements.dtype.name)
    packed = pack_b(elements, dataclasses.replace(spec, types=types), schedule)
    if stored.kind != "uint4":
        return packed
    pieces, begin, k = [], 0, static_size(spec.k)
    for _, count, blocks in sections(spec.convolution(), schedule):
        end = begin + static_size(count) * k * blocks * LANES
        panels, paired_columns = (
            packed[begin:end].reshape(-1, blocks * LANES),
            blocks // 2 * 2 * LANES,
        )
        couples = panels[:, :paired_columns].reshape(len(panels), -1, 2, LANES)
        remainder = panels[:, paired_columns:].reshape(len(panels), -1, 2, LANES // 2)
        byte_rows = [
            (h[:, :, 0] | h[:, :, 1] << 4).reshape(len(panels), -1) for h in (couples, remainder)
        ]
        pieces.append(np.concatenate(byte_rows, axis=1).reshape(-1))
        begin = end
    return np.concatenate(pieces)


@emits(RowsSpec, dtypes=KNOWN, schedules=lambda spec, target: (rows_schedule(spec, target),))
def emit_rows(module: ModuleBuilder, spec: RowsSpec, schedule: ConvSchedule) -> Kernel:
    """Items: panels of columns."""
    product, tables = spec.product, spec.stored.tables
    operands = product.epilogue.operands if product.epilogue else ()
    arguments = 3 + tables + bool(product.bias) + len(operands)
    f = module.kernel((spec, schedule), arguments, hint="rows")
    if f.kernel is not None:
        return f.kernel
    rows, n, k = (static_size(size) for size in (product.m, product.n, product.k))

    def panel(block: Index, factor: ir.Value, blocks: int) -> None:
        tile = _Tile(f, spec, block, blocks)
        row_walk = PanelWalk(f, spec.product, spec.stored, block, blocks, factor, f.args[2:])
        tile.finish(row_walk.over(tile.start(), tile.multiply))

    items = _each_panel(f, product, spec.stored, schedule, f.args[1], panel)
    bytes_read = static_size(product.packed_elements) * spec.stored.width // LANES
    return f.finish(items, 2 * rows * n * k, bytes_read)


@emits(
    WidenSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (gemm_schedule(spec.product, target),),
)
def emit_widen(module: ModuleBuilder, spec: WidenSpec, schedule: ConvSchedule) -> Kernel:
    """Items: panels of columns."""
    product, stored = spec.product, spec.stored
    f = module.kernel((spec, schedule), 2 + stored.tables, hint="widen")
    if f.kernel is not None:
        return f.kernel
    row = static_size(product.k) * LANES

    def panel(block: Index, factor: ir.Value, blocks: int) -> None:
        panels = f.at(f.args[-1], (block, row))

        def keep(k: Index, weights: list[ir.Value], state: list[ir.Value]) -> list[ir.Value]:
            for j, weight in enumerate(weights):
                f.store(weight, f.at(panels, (k, blocks * LANES), j * LANES))
            return state

        PanelWalk(f, product, stored, block, blocks, factor, f.args[1:]).over([], keep)

    items = _each_panel(f, product, stored, schedule, f.args[0], panel)
    return f.finish(items, 0, 5 * static_size(product.packed_elements))


def _each_panel(
    f: FunctionBuilder,
    product: GemmSpec,
    stored: Stored,
    schedule: ConvSchedule,
    factor: ir.Value,
    body: Callable[[Index, ir.Value, int], None],
) -> int:
    """body(first block of 16 columns, where the panel begins, blocks) for this call's panels."""
    items, offset, k = 0, 0, static_size(product.k)
    for first, count, blocks in sections(product.convolution(), schedule):
        first, count = static_size(first), static_size(count)
        elements = blocks * stored.width * k
        start = f.clamp(f.iadd(f.begin, -items), 0, count)
        with f.loop(f.clamp(f.iadd(f.end, -items), 0, count), start=start) as item:
            block = f.iadd(f.imul(item.index, blocks), first)
            here = f.at(factor, (item.index, elements), offset, dtype=stored.element)
            body(block, here, blocks)
        items += count
        offset += count * elements
    return items


class PanelWalk:
    """The rows of one panel in turn, widened. tables: scales, zero points."""

    def __init__(
        self,
        f: FunctionBuilder,
        product: GemmSpec,
        stored: Stored,
        block: Index,
        blocks: int,
        factor: ir.Value,
        tables: Sequence[ir.Value],
    ) -> None:
        self.f, self.stored, self.blocks, self.factor = f, stored, blocks, factor
        self.k, self.block, self.tables = static_size(product.k), block, tables[: stored.tables]
        self.columns = -(-static_size(product.n) // LANES) * LANES

    def over(
        self,
        state: list[ir.Value],
        step: Callable[[Index, list[ir.Value], list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """state = step(row, its weights by block, state) for every row, ascending."""
        f, group = self.f, self.stored.group or self.k
        full, remainder = divmod(group, UNROLL)
        with f.loop(self.k // group, carry=state) as groups:
            shared, state = self.shared(groups.index), list(groups.values)
            for first, count, size in ((0, full, UNROLL), (full * UNROLL, 1, remainder)):
                if not count or not size:
                    continue
                with f.loop(count, carry=state) as trip:
                    row = f.iadd(f.imul(groups.index, group), first)
                    row, sums = f.iadd(row, f.imul(trip.index, size)), list(trip.values)
                    for i in range(size):
                        sums = step(f.iadd(row, i), self.weights(f.iadd(row, i), shared), sums)
                    trip.next(sums)
                state = trip.results
            groups.next(state)
        return groups.results

    def shared(self, group: Index) -> list[list[ir.Value]]:
        """Scales and zero points of a group of rows, by block."""
        terms = (group, self.columns), (self.block, LANES)
        return [
            [self.f.load(self.f.at(table, *terms, j * LANES)) for j in range(self.blocks)]
            for table in self.tables
        ]

    def weights(self, row: Index, shared: list[list[ir.Value]]) -> list[ir.Value]:
        f, width, kind = self.f, self.stored.width, self.stored.element
        terms = [((row, self.blocks * width), j * width) for j in range(self.blocks)]
        pointers = [f.at(self.factor, *t, dtype=kind) for t in terms]
        if self.stored.kind == "uint4":
            couples = zip(pointers[::2], pointers[1::2])
            values = [v for first, _ in couples for v in self._load_pair(first)]
            values += map(self._load_float32, pointers[len(values) :])
        else:
            values = [self._load_float32(p) for p in pointers]
        if self.stored.zeros:
            values = [f.b.fsub(v, zero) for v, zero in zip(values, shared[1], strict=True)]
        if shared:
            values = [f.b.fmul(v, scale) for v, scale in zip(values, shared[0], strict=True)]
        return values

    def _load_float32(self, pointer: ir.Value) -> ir.Value:
        """16 stored numbers in float32."""
        f, kind, wide = self.f, self.stored.kind, self.f.vector_type()
        if kind in HALVES:
            arith = LlvmArith(f)
            return arith.convert(Typed(f.load(pointer, kind), kind), "float32").value
        if kind != "uint4":
            value = f.load(pointer, kind)
            return (f.b.sitofp if kind == "int8" else f.b.uitofp)(value, wide)
        packed_bytes = f.b.zext(
            f.load(pointer, "uint8", LANES // 2), f.vector_type("int32", LANES // 2)
        )
        fifteen, four = (f.constant(v, "int32", LANES // 2) for v in (15, 4))
        all_lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
        nibbles = f.b.and_(packed_bytes, fifteen), f.b.lshr(packed_bytes, four)
        return self._centered(f.b.shuffle_vector(*nibbles, all_lanes))

    def _load_pair(self, pointer: ir.Value) -> list[ir.Value]:
        """32 numbers of 4 bits in float32."""
        f, wide = self.f, self.f.vector_type()
        packed_bytes = f.b.zext(f.load(pointer, "uint8"), f.vector_type("int32"))
        upper = f.b.lshr(packed_bytes, f.constant(4, "int32"))
        if f.module.target.vector_bits < LANES * 32:
            fifteen = f.constant(15, "int32")
            return [self._centered(f.b.and_(v, fifteen)) for v in (packed_bytes, upper)]
        # An instruction that looks up the lowest 4 bits of each number.
        table = ir.Constant(wide, [float(i - self.stored.zero) for i in range(LANES)])
        arguments = [wide, f.vector_type("int32")]
        look_up = f.module.intrinsic("llvm.x86.avx512.permvar.sf.512", wide, arguments)
        return [f.b.call(look_up, [table, v]) for v in (packed_bytes, upper)]

    def _centered(self, numbers: ir.Value) -> ir.Value:
        """Integers less the zero point that they share, in float32."""
        f, zero = self.f, self.stored.zero
        if zero:
            numbers = f.b.sub(numbers, f.constant(zero, "int32"))
        return f.b.sitofp(numbers, f.vector_type())


class _Tile:
    """The sums of all rows by one panel's columns."""

    def __init__(self, f: FunctionBuilder, spec: RowsSpec, block: Index, blocks: int) -> None:
        self.f, self.product, self.tables = f, spec.product, spec.stored.tables
        self.block, self.blocks, self.rows = block, blocks, static_size(spec.product.m)
        self.layout = spec.product.convolution()
        left = f.iadd(static_size(spec.product.n), f.imul(block, -LANES))
        is_full = static_size(spec.product.n) % LANES == 0
        self.counts = [
            None if is_full else f.clamp(f.iadd(left, -j * LANES), 0, LANES) for j in range(blocks)
        ]
        self.positions = [(r, j) for r in range(self.rows) for j in range(blocks)]

    def start(self) -> list[ir.Value]:
        f, first = self.f, self.layout.initial
        if first:
            return [
                load_lanes(f, first, first.at(f, f.args[2 + self.tables], *self._position(r, j)),
                           self.counts[j])
                for r, j in self.positions
            ]  # fmt: skip
        if self.product.bias:
            bias = f.at(f.args[2 + self.tables], (self.block, LANES))
            return [f.load(f.at(bias, j * LANES)) for _, j in self.positions]
        return [f.constant(0.0)] * len(self.positions)

    def multiply(self, k: Index, weights: list[ir.Value], sums: list[ir.Value]) -> list[ir.Value]:
        f, a = self.f, self.product.a
        pointers = [f.at(f.args[0], (k, a.col), r * static_size(a.row)) for r in range(self.rows)]
        x = [f.broadcast(pointer) for pointer in pointers]
        return [
            f.fma(x[r], weights[j], total)
            for (r, j), total in zip(self.positions, sums, strict=True)
        ]

    def finish(self, sums: list[ir.Value]) -> None:
        f, epilogue = self.f, self.product.epilogue
        operands = f.args[2 + self.tables + bool(self.product.bias) : -1]
        locations = [self._position(r, j) for r, j in self.positions]
        counts = [self.counts[j] for _, j in self.positions]
        results = finished(f, epilogue, operands, sums, locations, counts)
        for location, count, value in zip(locations, counts, results, strict=True):
            address = self.layout.y.at(f, f.args[-1], *location, dtype=self.product.types.y)
            if count is None:
                f.store(value, address)
            else:
                f.store_first(value, address, count)

    def _position(self, row: int, j: int) -> tuple[Index, Index, Sizes, Sizes]:
        """Batch, block of columns, place, offset."""
        return 0, self.f.iadd(self.block, j), (0, 0, row), (0, 0, 0)
