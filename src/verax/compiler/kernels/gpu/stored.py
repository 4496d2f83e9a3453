"""Products of a few rows by weights of 16, 8 or 4 bits, and such weights widened, on a GPU.

A block has a panel of columns. Its threads widen weights that lie together, four bytes each, and
others add up the sums (`chains`). The numbers, and their order, are those of `products.stored`.
"""

from __future__ import annotations

import math

from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.gpu.chains import THREADS, Chains
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import Index, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.products.gemm import gemm_schedule
from verax.compiler.kernels.products.stored import HALVES, KNOWN, PanelWalk, RowsSpec, WidenSpec
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import static_size
from verax.compiler.kernels.target import LANES, Target

CHUNK = 4
"""Columns that a thread widens at a time, of 4 bits twice as many."""
TERMS = 64
"""Rows of weights of a tile."""


def rows_schedule(spec: RowsSpec, target: Target) -> ConvSchedule:
    """Panels of 32 columns: few, so that there are many."""
    total = -(-static_size(spec.product.n) // LANES)
    return ConvSchedule(min(2, total), 1, static_size(spec.product.m))


@emits(
    RowsSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (rows_schedule(spec, target),),
    target="gpu",
)
def emit_rows(module: ModuleBuilder, spec: RowsSpec, schedule: ConvSchedule) -> Kernel:
    """As `products.stored.emit_rows`. Items: panels of columns."""
    product, tables = spec.product, spec.stored.tables
    operands = product.epilogue.operands if product.epilogue else ()
    arguments = 3 + tables + bool(product.bias) + len(operands)
    rows, n, k = (static_size(size) for size in (product.m, product.n, product.k))
    memory = 2 * _buffer_bytes(rows, schedule.blocks * LANES)
    f = block_kernel(module, (spec, schedule), arguments, THREADS, memory, hint="rows")
    if f.kernel is not None:
        return f.kernel
    items, offset = 0, 0
    for first, count, blocks in sections(product.convolution(), schedule):
        first, count = static_size(first), static_size(count)
        elements = blocks * spec.stored.width * k
        own = f.iadd(f.begin, -items)
        with f.when(f.b.icmp_unsigned("<", f.i64(own), f.i64(count))):
            factor = f.at(f.args[1], (own, elements), offset, dtype=spec.stored.element)
            block = f.iadd(f.imul(own, blocks), first)
            _StoredPanel(f, spec, factor, block, blocks).emit()
        items += count
        offset += count * elements
    bytes_read = static_size(product.packed_elements) * spec.stored.width // LANES
    return f.finish(items, 2 * rows * n * k, bytes_read)


def _buffer_bytes(rows: int, columns: int) -> int:
    """Of the weights of a tile, and the data of its terms."""
    return 4 * TERMS * (columns + rows)


class _StoredPanel:
    """`blocks` * 16 columns from block `block` on. factor: where their weights begin."""

    def __init__(
        self, f: BlockBuilder, spec: RowsSpec, factor: ir.Value, block: Index, blocks: int
    ) -> None:
        self.f, self.n, self.spec, self.factor = f, Index32(f), spec, factor
        self.block, self.blocks, self.columns = block, blocks, blocks * LANES
        self.rows, self.k = static_size(spec.product.m), static_size(spec.product.k)
        self.total = -(-static_size(spec.product.n) // LANES) * LANES
        bytes_ = _buffer_bytes(self.rows, self.columns)
        self.chains = Chains(f, self.rows, self.columns, TERMS, bytes_)
        self.layout = spec.product.convolution()

    def emit(self) -> None:
        f, n, product = self.f, self.n, self.spec.product
        chains, tables = self.chains, self.spec.stored.tables
        row = n.minimum(chains.row, self.rows - 1)  # for threads that have none
        channel = chains.channel(self.block, row)
        start = f.constant(0.0, lanes=0)
        # Behind the last column threads start from what their neighbors do; nothing is stored.
        if product.bias and not self.layout.initial:
            start = f.load(channel.of_vector(f.args[2 + tables]), lanes=0)
        inside = f.b.and_(chains.is_sum, self._is_column())
        if self.layout.initial:
            start = self._initial(inside, channel.of_tensor(
                self.layout.initial, f.args[2 + tables], "float32"))  # fmt: skip
        total = chains.run(self.k, start, self._make, self._add)
        operands = f.args[2 + tables + bool(product.bias) : -1]
        with f.when(inside):
            result = channel.finished(product.epilogue, operands, total)
            kind = product.types.y
            f.store(result, channel.of_tensor(self.layout.y, f.args[-1], kind))

    def _is_column(self) -> ir.Value:
        column = self.f.iadd(self.f.imul(self.block, LANES), self.n.wide(self.chains.column))
        end = self.f.i64(static_size(self.spec.product.n))
        return self.f.b.icmp_signed("<", self.f.i64(column), end)

    def _initial(self, inside: ir.Value, pointer: ir.Value) -> ir.Value:
        """What a sum starts from; 0 where there is none."""
        f = self.f
        return f.value_if(inside, lambda: f.load(pointer, lanes=0), f.constant(0.0, lanes=0))

    # --- terms

    def _make(self, first: Int, buffer: ir.Value) -> None:
        """The weights of a tile, in rows of all columns, and behind them its data, by row."""
        f, n, chains = self.f, self.n, self.chains
        per_row = self.columns // (2 * CHUNK if self.spec.stored.kind == "uint4" else CHUNK)
        for begin in range(0, TERMS * per_row, chains.makers):
            index = n.add(chains.maker, begin)
            term, unit = n.divmod(index, per_row)
            k = n.add(first, term)
            exists = n.less(k, self.k)
            if begin + chains.makers > TERMS * per_row:
                exists = f.b.and_(exists, n.less(index, TERMS * per_row))
            with f.when(exists):
                for column, values in self._widened(k, unit):
                    at = n.add(n.mul(term, self.columns), column)
                    f.b.store(values, f.at(buffer, n.wide(at)), align=16)
        a = self.spec.product.a
        for begin in range(0, TERMS * self.rows, chains.makers):
            index = n.add(chains.maker, begin)
            row, term = n.divmod(index, TERMS)
            k = n.add(first, term)
            exists = f.b.and_(n.less(k, self.k), n.less(row, self.rows))
            with f.when(exists):
                x = f.load(f.at(f.args[0], (n.wide(k), a.col), (n.wide(row), a.row)), lanes=0)
                f.store(x, f.at(buffer, n.wide(n.add(index, TERMS * self.columns))))

    def _widened(self, k: Int, unit: Int) -> list[tuple[Int, ir.Value]]:
        """(first column, four numbers in float32) of what lies together in a row."""
        f, n, stored = self.f, self.n, self.spec.stored
        kind, width = stored.element, stored.width
        row = f.at(self.factor, (n.wide(k), self.blocks * width), dtype=kind)
        numbers = f.load(f.at(row, n.wide(n.mul(unit, CHUNK)), dtype=kind), kind, CHUNK)
        column = n.mul(unit, CHUNK)
        if kind != stored.kind:  # 4 bits
            wide = f.b.zext(numbers, f.vector_type("int32", CHUNK))
            fifteen, four = (f.constant(v, "int32", CHUNK) for v in (15, 4))
            distance = LANES if self.blocks == 2 else LANES // 2
            nibbles = f.b.and_(wide, fifteen), f.b.lshr(wide, four)
            columns: tuple[Int, ...] = (column, n.add(column, distance))
            values = [self._centered(half) for half in nibbles]
        else:
            columns, values = (column,), [self._in_float32(numbers)]
        group = n.divmod(k, stored.group)[0] if stored.group else 0
        return [
            (at, self._scaled(value, group, at)) for at, value in zip(columns, values, strict=True)
        ]

    def _centered(self, numbers: ir.Value) -> ir.Value:
        f, zero = self.f, self.spec.stored.zero
        if zero:
            numbers = f.b.sub(numbers, f.constant(zero, "int32", CHUNK))
        return f.b.sitofp(numbers, f.vector_type(lanes=CHUNK))

    def _in_float32(self, numbers: ir.Value) -> ir.Value:
        f, kind = self.f, self.spec.stored.kind
        if kind in HALVES:
            arith = LlvmArith(f, CHUNK)
            return arith.convert(Typed(numbers, kind), "float32").value  # type: ignore[no-any-return]
        widen = f.b.sitofp if kind == "int8" else f.b.uitofp
        return widen(numbers, f.vector_type(lanes=CHUNK))

    def _scaled(self, values: ir.Value, group: Int, column: Int) -> ir.Value:
        """Less the zero points, by the scales: a rounding each."""
        f, n, stored = self.f, self.n, self.spec.stored
        if not stored.tables:
            return values
        terms = (n.wide(group), self.total), (self.block, LANES), n.wide(column)
        tables = [
            f.load(f.at(table, *terms), lanes=CHUNK) for table in f.args[2 : 2 + stored.tables]
        ]
        if stored.zeros:
            values = f.b.fsub(values, tables[1])
        return f.b.fmul(values, tables[0])

    def _add(self, first: Int, term: Int, buffer: ir.Value, total: ir.Value) -> ir.Value:
        f, n, chains = self.f, self.n, self.chains
        at = n.add(n.mul(term, self.columns), chains.column)
        weight = f.load(f.at(buffer, n.wide(at)), lanes=0)
        data = n.add(n.add(n.mul(chains.row, TERMS), term), TERMS * self.columns)
        x = f.load(f.at(buffer, n.wide(data)), lanes=0)
        return f.fma(x, weight, total)


@emits(
    WidenSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (gemm_schedule(spec.product, target),),
    target="gpu",
)
def emit_widen(module: ModuleBuilder, spec: WidenSpec, schedule: ConvSchedule) -> Kernel:
    """As `products.stored.emit_widen`. Items: rows of panels, which lie next to one another."""
    product, stored = spec.product, spec.stored
    f = module.kernel((spec, schedule), 2 + stored.tables, hint="widen")
    if f.kernel is not None:
        return f.kernel
    k = static_size(product.k)
    group, items, offset = stored.group or k, 0, 0
    with f.items() as item:
        for first, count, blocks in sections(product.convolution(), schedule):
            first, count = static_size(first), static_size(count)
            elements = blocks * stored.width * k
            own = f.iadd(item.index, -items)
            with f.when(f.b.icmp_unsigned("<", f.i64(own), f.i64(count * k))):
                panel, row = f.split(own, k)
                factor = f.at(f.args[0], (panel, elements), offset, dtype=stored.element)
                block = f.iadd(f.imul(panel, blocks), first)
                panel_rows = PanelWalk(f, product, stored, block, blocks, factor, f.args[1:])
                target = f.at(f.args[-1], (block, k * LANES), (row, blocks * LANES))
                weights = panel_rows.weights(row, panel_rows.shared(f.idiv(row, group)))
                for j, weight in enumerate(weights):
                    f.store(weight, f.at(target, j * LANES))
            items += count * k
            offset += count * elements
    return f.finish(items, 0, 5 * math.prod((k, -(-static_size(product.n) // LANES), LANES)))
