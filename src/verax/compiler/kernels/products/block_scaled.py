"""Products of bytes by weights of 4 or 8 bits, both with a scale for every block of the sums.

Inside of a block sums are exact integers, so that how they are added up changes no bit: by VNNI
(vpdpbusd, whose unsigned factor is the weight), by AVX2's vpmaddubsw where that cannot saturate
(weights of 4 bits: eight sums of two products stay below 2^15; weights of 8 bits are taken as two
of 4), or by ordinary instructions. Blocks are then added up in float32, ascending, by one
multiply-add each.

Weights lie as they are read: per panel of 16 `blocks` columns, per block of the sums the scales of
the columns (float32), their zero points where there are any (bytes), and the numbers: of 16
columns four neighboring rows each, and of 4 bits those of the next four rows in the upper nibbles.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.dtypes import ContractionTypes
from verax.compiler.kernels.layout import finished
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    I8,
    I32,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.products.gemm import GemmSpec
from verax.compiler.kernels.products.steps import products
from verax.compiler.kernels.products.stored import KNOWN
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, static_size
from verax.compiler.kernels.target import LANES, Target

I16 = ir.IntType(16)
ROWS = 4
"""Rows of the sums that one number of 32 bits holds."""
VECTOR = ROWS * LANES
"""Bytes of four rows of 16 columns."""
UNROLL = 8
"""Vectors of a block that are written out."""
SAFE_STEPS = 8
"""Sums of two products, of 4 bits by 8, that stay within 16 bits: 8 * 2 * 15 * 128 < 2^15."""


@dataclasses.dataclass(frozen=True)
class BlockProductSpec:
    """`product`, whose terms come in blocks of `size`, a multiple of 16. bits: of the weights, 4 or
    8. zeros: whether every column of a block has a zero point of its own.

    Arguments of the kernel: a (int8, row-major), its sums over blocks times a number (int32: minus
    the zero point of all weights, or -1 if `zeros`), its scales, weights, those of the product from
    its epilogue on."""

    product: GemmSpec
    size: int
    bits: int
    zeros: bool

    def __str__(self) -> str:
        return f"int8 by {self.bits} bits in blocks of {self.size}: {self.product}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return *self.product.dtypes, "int8", "uint8", "int32"

    @property
    def count(self) -> int:
        """Blocks of a sum."""
        return static_size(self.product.k) // self.size

    @property
    def vectors(self) -> int:
        """Vectors of bytes that hold 16 columns of a block."""
        return self.size * self.bits // 8 // ROWS

    @property
    def width(self) -> int:
        """Bytes of 16 columns of a block with their parameters."""
        return LANES * (4 + self.zeros) + VECTOR * self.vectors

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return -(-static_size(self.product.n) // LANES) * self.count * self.width


@dataclasses.dataclass(frozen=True)
class BlockSumsSpec:
    """`factor` times the sum of each block of `size` neighbors, of `count` blocks.

    Arguments of the kernel: x (int8), sums (int32)."""

    count: Size
    size: int
    factor: int

    def __str__(self) -> str:
        return f"{self.factor} x sums of {self.count} blocks of {self.size} int8"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return "int8", "int32"


def block_schedule(spec: BlockProductSpec, target: Target) -> ConvSchedule:
    """As many rows and columns as leave the sums, in integers and in float32, in registers. Panels
    are as wide for one row as for many, so that programs for both hold the weights once; for one
    row four blocks were 15 % slower than two."""
    rows, total = spec.product.m, -(-static_size(spec.product.n) // LANES)
    logical = target.registers // target.physical
    blocks = 2 if logical >= 16 else 1
    limit = max(1, (logical - 2 * blocks - 4) // (2 * blocks))
    rows = min(rows, limit, 8) if isinstance(rows, int) else min(limit, 8)
    return ConvSchedule(min(blocks, total), 1, rows)


def pack_blocks(
    numbers: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, spec: BlockProductSpec,
    schedule: ConvSchedule,
) -> np.ndarray:  # fmt: skip
    """Weights as one vector of bytes. numbers: unsigned bytes (k, n), whole blocks; scales:
    float32 (blocks, n); zeros: unsigned bytes likewise, None unless every column of a block has its
    own."""
    n = numbers.shape[1]
    spare = -n % LANES
    total, count = (n + spare) // LANES, spec.count
    w = np.pad(numbers, ((0, 0), (0, spare)))
    quads = w.reshape(count, spec.size // ROWS, ROWS, total, LANES).transpose(3, 0, 1, 4, 2)
    if spec.bits == 4:
        quads = quads[:, :, ::2] | quads[:, :, 1::2] << 4
    tables = (a for a in (scales.astype(np.float32), zeros) if a is not None)
    parameters = [
        np.ascontiguousarray(np.pad(a, ((0, 0), (0, spare))).reshape(count, total, LANES)
                             .transpose(1, 0, 2)).view(np.uint8)
        for a in tables
    ]  # fmt: skip
    pieces = [*(p.reshape(total, count, 1, -1) for p in parameters),
              quads.reshape(total, count, spec.vectors, VECTOR)]  # fmt: skip
    chunks = []
    for first, groups, blocks in sections(spec.product.convolution(), schedule):
        first, groups = static_size(first), static_size(groups)
        for start in range(first, first + groups * blocks, blocks):
            columns = (p[start : start + blocks].transpose(1, 2, 0, 3) for p in pieces)
            panel = [c.reshape(count, -1) for c in columns]
            chunks.append(np.concatenate(panel, axis=1).reshape(-1))
    return np.concatenate(chunks)


@emits(BlockSumsSpec, dtypes=("int8", "int32"), settle=all_open)
def emit_block_sums(module: ModuleBuilder, spec: BlockSumsSpec) -> Kernel:
    """Items: blocks."""
    f = module.kernel((spec, None), 2, hint="block_sums")
    if f.kernel is not None:
        return f.kernel
    wide = f.vector_type("int32")
    with f.items() as item:
        x = f.at(f.args[0], (item.index, spec.size), dtype="int8")
        total: ir.Value = f.constant(0, "int32")
        for first in range(0, spec.size, LANES):
            values = f.load(f.at(x, first, dtype="int8"), "int8")
            total = f.b.add(total, f.b.sext(values, wide))
        name = f"llvm.vector.reduce.add.v{LANES}i32"
        reduce = module.intrinsic(name, I32, [wide])
        result = f.b.mul(f.b.call(reduce, [total]), ir.Constant(I32, spec.factor))
        f.store(result, f.at(f.args[1], item.index, dtype="int32"))
    return f.finish(spec.count, 0, spec.count * (spec.size + 4))


@emits(
    BlockProductSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (block_schedule(spec, target),),
    settle=all_open,
)
def emit_block_product(
    module: ModuleBuilder, spec: BlockProductSpec, schedule: ConvSchedule
) -> Kernel:
    """Items: panels of columns."""
    product = spec.product
    operands = product.epilogue.operands if product.epilogue else ()
    f = module.kernel((spec, schedule), 5 + len(operands), hint="block_product")
    if f.kernel is not None:
        return f.kernel
    rows, tile_rows = product.m, schedule.cols
    full, remainder = rows // tile_rows, rows % tile_rows
    items, offset = 0, 0
    for first, count, blocks in sections(product.convolution(), schedule):
        first, count = static_size(first), static_size(count)
        start = f.clamp(f.iadd(f.begin, -items), 0, count)
        panel_bytes = blocks * spec.width * spec.count
        with f.loop(f.clamp(f.iadd(f.end, -items), 0, count), start=start) as item:
            block = f.iadd(f.imul(item.index, blocks), first)
            panel = f.at(f.args[3], (item.index, panel_bytes), offset, dtype="uint8")
            if full != 0:
                with f.loop(full) as tile:
                    row = f.imul(tile.index, tile_rows)
                    _BlockTile(f, spec, panel, block, blocks, row, tile_rows).emit()
            if isinstance(remainder, int) and remainder:
                row = rows - remainder
                _BlockTile(f, spec, panel, block, blocks, row, remainder).emit()
            elif remainder != 0:
                with f.loop(rows, start=full * tile_rows) as single:
                    _BlockTile(f, spec, panel, block, blocks, single.index, 1).emit()
        items += count
        offset += count * panel_bytes
    operations = rows * (2 * static_size(product.n) * static_size(product.k))
    return f.finish(items, operations, spec.nbytes)


class _BlockTile:
    """The sums of `rows` rows from `row` on by one panel's columns."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: BlockProductSpec,
        panel: ir.Value,
        block: Index,
        blocks: int,
        row: Index,
        rows: int,
    ) -> None:
        self.f, self.spec, self.panel, self.blocks = f, spec, panel, blocks
        self.block, self.row, self.rows = block, row, rows
        self.positions = [(r, j) for r in range(rows) for j in range(blocks)]
        self.dot = _Dot(f, spec.bits)

    def emit(self) -> None:
        f, spec = self.f, self.spec
        zero = f.constant(0.0)
        with f.loop(spec.count, carry=[zero] * len(self.positions)) as group:
            data = f.anchor(
                f.at(self.panel, (group.index, self.blocks * spec.width), dtype="uint8")
            )
            tables = [(f.iadd(self.row, r), spec.count) for r in range(self.rows)]
            sums = self._integers(group.index, data, tables)
            group.next(self._scaled(group.index, data, tables, sums, list(group.values)))
        self._finish(group.results)

    def _integers(
        self, group: Index, data: ir.Value, tables: list[tuple[Index, int]]
    ) -> list[ir.Value]:
        """The sums of a block, by position."""
        f, spec = self.f, self.spec
        start: list[ir.Value] = [f.constant(0, "int32")] * len(self.positions)
        if not spec.zeros:
            pointers = [f.at(f.args[1], t, group, dtype="int32") for t in tables]
            by_row = [f.broadcast(p, "int32") for p in pointers]
            start = [by_row[r] for r, _ in self.positions]
        k = static_size(spec.product.k)
        rows = [
            f.at(f.args[0], (f.iadd(self.row, r), k), (group, spec.size), dtype="int8")
            for r in range(self.rows)
        ]
        numbers = f.at(data, self.blocks * LANES * (4 + spec.zeros), dtype="uint8")
        state = self.dot.start(start)
        step = min(spec.vectors, UNROLL)
        trips, remainder = divmod(spec.vectors, step)
        with f.loop(trips, carry=state) as trip:
            base = f.imul(trip.index, step)
            trip.next(self._vectors(rows, numbers, base, step, list(trip.values)))
        state = trip.results
        if remainder:
            state = self._vectors(rows, numbers, trips * step, remainder, state)
        return self.dot.results(state)

    def _vectors(
        self, rows: list[ir.Value], numbers: ir.Value, first: Index, count: int,
        state: list[ir.Value],
    ) -> list[ir.Value]:  # fmt: skip
        """`state` after `count` vectors of each 16 columns."""
        f, covered = self.f, ROWS * (2 if self.spec.bits == 4 else 1)
        here = f.at(numbers, (first, self.blocks * VECTOR), dtype="uint8")
        rows = [f.at(row, (first, covered), dtype="int8") for row in rows]
        steps = self.dot.running(state)
        for i in range(count):
            values = [
                [self.f.b.load(f.at(row, covered * i + ROWS * q, dtype="int8"), align=1, typ=I32)
                 for row in rows]
                for q in range(covered // ROWS)
            ]  # fmt: skip
            splats = [[f.splat(v) for v in quad] for quad in values]
            for j in range(self.blocks):
                pointer = f.at(here, (i * self.blocks + j) * VECTOR, dtype="uint8")
                weights = f.b.load(pointer, align=1, typ=ir.VectorType(I32, LANES))
                for r in range(self.rows):
                    x = [quad[r] for quad in splats]
                    self.dot.add(steps, r * self.blocks + j, x, weights)
        return self.dot.finish(steps)

    def _scaled(
        self, group: Index, data: ir.Value, tables: list[tuple[Index, int]],
        sums: list[ir.Value], totals: list[ir.Value],
    ) -> list[ir.Value]:  # fmt: skip
        f, spec, floats = self.f, self.spec, self.f.vector_type()
        scales = [f.load(f.at(data, 4 * LANES * j, dtype="uint8")) for j in range(self.blocks)]
        if spec.zeros:
            begin = 4 * LANES * self.blocks
            wide = f.vector_type("int32")
            points = [
                f.b.zext(f.load(f.at(data, begin + LANES * j, dtype="uint8"), "uint8"), wide)
                for j in range(self.blocks)
            ]
            by_row = [
                f.broadcast(f.at(f.args[1], t, group, dtype="int32"), "int32") for t in tables
            ]
            sums = [
                f.b.add(total, f.b.mul(points[j], by_row[r]))
                for (r, j), total in zip(self.positions, sums, strict=True)
            ]
        factors = [f.broadcast(f.at(f.args[2], t, group)) for t in tables]
        return [
            f.fma(f.b.sitofp(value, floats), f.b.fmul(factors[r], scales[j]), total)
            for (r, j), value, total in zip(self.positions, sums, totals, strict=True)
        ]

    def _finish(self, sums: list[ir.Value]) -> None:
        f, product = self.f, self.spec.product
        layout, n = product.convolution(), static_size(product.n)
        remainder = f.iadd(n, f.imul(self.block, -LANES))
        columns: list[Index | None] = [
            None if n % LANES == 0 else f.clamp(f.iadd(remainder, -j * LANES), 0, LANES)
            for j in range(self.blocks)
        ]
        locations = [
            (0, f.iadd(self.block, j), (0, 0, f.iadd(self.row, r)), (0, 0, 0))
            for r, j in self.positions
        ]
        counts = [columns[j] for _, j in self.positions]
        results = finished(f, product.epilogue, f.args[4:-1], sums, locations, counts)
        for location, count, value in zip(locations, counts, results, strict=True):
            address = layout.y.at(f, f.args[-1], *location, dtype=product.types.y)
            if count is None:
                f.store(value, address)
            else:
                f.store_first(value, address, count)


class _Dot:
    """Sums of unsigned weights of 4 or 8 bits by signed bytes, four at a time.

    State: int32, one vector a sum; of weights of 8 bits without VNNI a second one for their upper
    nibbles. While steps are written out it is the same with sums of 16 bits beside it."""

    def __init__(self, f: FunctionBuilder, bits: int) -> None:
        self.f, self.bits, target = f, bits, f.module.target
        self.quads = products(f, ContractionTypes("uint8", "int8", "int32", "int32"))
        self.is_paired = not target.has_int8_dot and target.vector_bits >= 256
        self.planes = 2 if self.is_paired and bits == 8 else 1

    def start(self, sums: list[ir.Value]) -> list[ir.Value]:
        more = (self.planes - 1) * len(sums)
        return [*sums, *[self.f.constant(0, "int32")] * more]

    def results(self, state: list[ir.Value]) -> list[ir.Value]:
        if self.planes == 1:
            return state
        middle = len(state) // 2
        four = self.f.constant(4, "int32")
        return [
            self.f.b.add(a, self.f.b.shl(b, four)) for a, b in zip(state[:middle], state[middle:])
        ]

    def running(self, state: list[ir.Value]) -> list[_Running]:
        return [_Running(total) for total in state]

    def add(self, steps: list[_Running], index: int, x: list[ir.Value], weights: ir.Value) -> None:
        """Adds the products of one vector of weights. x: one number of 32 bits, or two of weights
        of 4 bits."""
        f = self.f
        if self.bits == 8 and not self.is_paired:
            steps[index].total = self.quads.add(weights, x[0], steps[index].total)
            return
        mask, four = f.constant(0x0F0F0F0F, "int32"), f.constant(4, "int32")
        nibbles = f.b.and_(weights, mask), f.b.and_(f.b.lshr(weights, four), mask)
        count = len(steps) // self.planes
        targets = (index, index) if self.bits == 4 else (index, index + count)
        values = x if self.bits == 4 else (x[0], x[0])
        for nibble, value, target in zip(nibbles, values, targets, strict=True):
            if self.is_paired:
                self._add_pairs(steps[target], nibble, value)
            else:
                steps[target].total = self.quads.add(nibble, value, steps[target].total)

    def finish(self, steps: list[_Running]) -> list[ir.Value]:
        for running in steps:
            self._widen(running)
        return [running.total for running in steps]

    def _add_pairs(self, running: _Running, weights: ir.Value, x: ir.Value) -> None:
        f, kind = self.f, ir.VectorType(I8, VECTOR)
        w, v = f.b.bitcast(weights, kind), f.b.bitcast(x, kind)
        bits = f.module.target.vector_bits
        name = "avx2.pmadd.ub.sw" if bits == 256 else "avx512.pmaddubs.w.512"
        pair_sums = self._by_register(f"llvm.x86.{name}", I16, (w, v))
        running.pair_sums = (
            pair_sums if running.pair_sums is None else f.b.add(running.pair_sums, pair_sums)
        )
        running.steps += 1
        if running.steps == SAFE_STEPS:
            self._widen(running)

    def _widen(self, running: _Running) -> None:
        if running.pair_sums is None:
            return
        f, bits = self.f, self.f.module.target.vector_bits
        ones = ir.Constant(ir.VectorType(I16, 2 * LANES), [1] * (2 * LANES))
        name = "avx2.pmadd.wd" if bits == 256 else "avx512.pmaddw.d.512"
        sums = self._by_register(f"llvm.x86.{name}", I32, (running.pair_sums, ones))
        running.total = f.b.add(running.total, sums)
        running.pair_sums, running.steps = None, 0

    def _by_register(
        self, name: str, element: ir.Type, operands: tuple[ir.Value, ir.Value]
    ) -> ir.Value:
        """An instruction that halves the number of elements, register by register."""
        f, bits = self.f, self.f.module.target.vector_bits
        kind = operands[0].type
        count = kind.count // (VECTOR * 8 // bits)
        result, operand = ir.VectorType(element, count // 2), ir.VectorType(kind.element, count)
        instruction = f.module.intrinsic(name, result, [operand, operand])
        results = []
        for first in range(0, kind.count, count):
            lanes = list(range(first, first + count))
            of = [v if count == kind.count else f.shuffle(v, lanes) for v in operands]
            results.append(f.b.call(instruction, of))
        if len(results) == 1:
            return results[0]
        all_lanes = ir.Constant(ir.VectorType(I32, kind.count // 2), list(range(kind.count // 2)))
        return f.b.shuffle_vector(results[0], results[1], all_lanes)


@dataclasses.dataclass
class _Running:
    """A sum while steps are written out. pair_sums: of 16 bits, of `steps`, not yet in it."""

    total: ir.Value
    pair_sums: ir.Value | None = None
    steps: int = 0
