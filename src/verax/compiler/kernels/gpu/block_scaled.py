"""Products of bytes by weights of 4 or 8 bits in blocks of the sums, on a GPU.

Threads have a column each and take whole blocks, whose sums are exact integers (dp4a); neighbors
read weights that lie together. What the blocks come to is added up in float32, ascending, by one
thread a sum (`chains`), as `products.block_scaled` does.
"""

from __future__ import annotations

from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.gpu.chains import THREADS, Chains
from verax.compiler.kernels.gpu.index32 import Index32, Int
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import F32, I32, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder, block_kernel
from verax.compiler.kernels.products.block_scaled import ROWS, VECTOR, BlockProductSpec
from verax.compiler.kernels.products.steps import add_quads
from verax.compiler.kernels.products.stored import KNOWN
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import all_open, ceil_div, static_size
from verax.compiler.kernels.target import LANES, Target

MOST_ROWS = 8
"""Of a block of threads."""
UNROLL = 8
"""Words of a block of weights that are written out."""


def block_schedule(spec: BlockProductSpec, target: Target) -> ConvSchedule:
    """Panels of 32 columns, as wide for one row as for many, so that weights are packed once."""
    rows, total = spec.product.m, -(-static_size(spec.product.n) // LANES)
    rows = min(rows, MOST_ROWS) if isinstance(rows, int) else MOST_ROWS
    return ConvSchedule(min(2, total), 1, rows)


@emits(
    BlockProductSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (block_schedule(spec, target),),
    target="gpu",
    settle=all_open,
)
def emit_block_product(
    module: ModuleBuilder, spec: BlockProductSpec, schedule: ConvSchedule
) -> Kernel:
    """As `products.block_scaled.emit_block_product`. Items: some rows by a panel of columns."""
    product, rows = spec.product, schedule.cols
    operands = product.epilogue.operands if product.epilogue else ()
    memory = 2 * _buffer_bytes(rows, schedule.blocks * LANES)
    f = block_kernel(
        module, (spec, schedule), 5 + len(operands), THREADS, memory, hint="block_product"
    )
    if f.kernel is not None:
        return f.kernel
    groups = ceil_div(product.m, rows)
    items, offset = 0, 0
    panel_index, group = f.split(f.begin, groups)
    for first, count, blocks in sections(product.convolution(), schedule):
        first, count = static_size(first), static_size(count)
        panel_bytes = blocks * spec.width * spec.count
        own = f.iadd(panel_index, -items)
        with f.when(f.b.icmp_unsigned("<", f.i64(own), f.i64(count))):
            panel = f.at(f.args[3], (own, panel_bytes), offset, dtype="uint8")
            block = f.iadd(f.imul(own, blocks), first)
            _BlockPanel(f, spec, panel, block, blocks, f.imul(group, rows), rows).emit()
        items += count
        offset += count * panel_bytes
    operations = product.m * (2 * static_size(product.n) * static_size(product.k))
    return f.finish(items * groups, operations, spec.nbytes)


def _terms(rows: int) -> int:
    """Blocks of the sums of a tile."""
    return 32 if rows <= 2 else 16


def _buffer_bytes(rows: int, columns: int) -> int:
    """Of a tile: for each of its blocks the sums of all rows, and the scales."""
    return 4 * _terms(rows) * (rows + 1) * columns


class _BlockPanel:
    """`rows` rows from `row` on by `blocks` * 16 columns from block `block` on, whose weights are
    at `panel`."""

    def __init__(
        self,
        f: BlockBuilder,
        spec: BlockProductSpec,
        panel: ir.Value,
        block: Index,
        blocks: int,
        row: Index,
        rows: int,
    ) -> None:
        self.f, self.n, self.spec, self.panel = f, Index32(f), spec, panel
        self.block, self.blocks, self.columns = block, blocks, blocks * LANES
        self.first_row, self.rows, self.terms = row, rows, _terms(rows)
        self.chains = Chains(f, rows, self.columns, self.terms, _buffer_bytes(rows, self.columns))

    def emit(self) -> None:
        f, n, product = self.f, self.n, self.spec.product
        total = self.chains.run(self.spec.count, f.constant(0.0, lanes=0), self._make, self._add)
        row = n.add(n.truncated(self.first_row), self.chains.row)
        channel = self.chains.channel(self.block, row)
        column = f.iadd(f.imul(self.block, LANES), n.wide(self.chains.column))
        is_column = f.b.icmp_signed("<", f.i64(column), f.i64(static_size(product.n)))
        inside = f.b.and_(self.chains.is_sum, is_column)
        inside = f.b.and_(inside, n.less(row, n.of(product.m)))
        with f.when(inside):
            result = channel.finished(product.epilogue, f.args[4:-1], total)
            y = product.convolution().y
            f.store(result, channel.of_tensor(y, f.args[-1], product.types.y))

    def _row(self, r: Int) -> Index:
        """A row of the data, the last one behind it."""
        n = self.n
        last = n.sub(n.of(self.spec.product.m), 1)
        return n.wide(n.minimum(n.add(n.truncated(self.first_row), r), last))

    # --- terms

    def _make(self, first: Int, buffer: ir.Value) -> None:
        """For each block of a tile, and each column: the sum of every row in float32, then the
        scale."""
        f, n, chains = self.f, self.n, self.chains
        count = self.terms * self.columns
        for begin in range(0, count, chains.makers):
            index = n.add(chains.maker, begin)
            term, column = n.divmod(index, self.columns)
            block = n.add(first, term)
            exists = n.less(block, self.spec.count)
            if begin + chains.makers > count:
                exists = f.b.and_(exists, n.less(index, count))
            with f.when(exists):
                scale, sums = self._sums(block, column)
                at = n.add(n.mul(term, (self.rows + 1) * self.columns), column)
                for r, value in enumerate([*sums, scale]):
                    f.store(value, f.at(buffer, n.wide(n.add(at, r * self.columns))))

    def _sums(self, group: Int, column: Int) -> tuple[ir.Value, list[ir.Value]]:
        """The scale of a block of the sums for a column, and its sums, by row."""
        f, n, spec = self.f, self.n, self.spec
        data = f.at(self.panel, (n.wide(group), self.blocks * spec.width), dtype="uint8")
        scale = f.b.load(f.at(data, n.wide(n.mul(column, 4)), dtype="uint8"), align=4, typ=F32)
        tables = [
            f.load(
                f.at(f.args[1], (self._row(r), spec.count), n.wide(group), dtype="int32"),
                "int32",
                lanes=0,
            )
            for r in range(self.rows)
        ]
        zero = ir.Constant(I32, 0)
        totals = self._integers(group, column, data, [zero] * self.rows if spec.zeros else tables)
        if spec.zeros:
            begin = 4 * LANES * self.blocks
            point = f.load(f.at(data, n.wide(n.add(column, begin)), dtype="uint8"), "uint8", 0)
            point = f.b.zext(point, I32)
            totals = [f.b.add(t, f.b.mul(point, s)) for t, s in zip(totals, tables, strict=True)]
        return scale, [f.b.sitofp(total, F32) for total in totals]

    def _integers(
        self, group: Int, column: Int, data: ir.Value, totals: list[ir.Value]
    ) -> list[ir.Value]:
        """`totals` and the products of a block."""
        f, n, spec = self.f, self.n, self.spec
        covered = ROWS * (2 if spec.bits == 4 else 1)
        k = static_size(spec.product.k)
        rows = [
            f.at(f.args[0], (self._row(r), k), (n.wide(group), spec.size), dtype="int8")
            for r in range(self.rows)
        ]
        block, lane = n.divmod(column, LANES)
        numbers = n.add(n.mul(block, VECTOR), n.mul(lane, ROWS))
        weights = f.at(data, n.wide(n.add(numbers, self.columns * (4 + spec.zeros))), dtype="uint8")
        step = min(spec.vectors, UNROLL)
        trips, remainder = divmod(spec.vectors, step)
        for start, count, size in ((0, trips, step), (trips * step, 1, remainder)):
            if not size:
                continue
            with f.loop(count, carry=totals) as trip:
                totals, at = list(trip.values), f.iadd(f.imul(trip.index, size), start)
                here = f.at(weights, (at, self.blocks * VECTOR), dtype="uint8")
                sources = [f.at(row, (at, covered), dtype="int8") for row in rows]
                for i in range(size):
                    word = self._word(f.at(here, i * self.blocks * VECTOR, dtype="uint8"))
                    for q, numbers_of_rows in enumerate(self._nibbles(word)):
                        for r, source in enumerate(sources):
                            x = self._word(f.at(source, covered * i + ROWS * q, dtype="int8"))
                            totals[r] = self._dot(numbers_of_rows, x, totals[r])
                trip.next(totals)
            totals = list(trip.results)
        return totals

    def _word(self, pointer: ir.Value) -> ir.Value:
        """Four bytes, which lie at a multiple of four."""
        return self.f.b.load(pointer, align=ROWS, typ=I32)

    def _nibbles(self, word: ir.Value) -> list[ir.Value]:
        """The weights of four rows, or of four and the next four."""
        b = self.f.b
        if self.spec.bits == 8:
            return [word]
        mask, four = ir.Constant(I32, 0x0F0F0F0F), ir.Constant(I32, 4)
        return [b.and_(word, mask), b.and_(b.lshr(word, four), mask)]

    def _dot(self, weights: ir.Value, x: ir.Value, total: ir.Value) -> ir.Value:
        f, one, first = (
            self.f,
            ir.Constant(ir.VectorType(I32, 1), ir.Undefined),
            ir.Constant(I32, 0),
        )
        vectors = [f.b.insert_element(one, v, first) for v in (weights, x, total)]
        return f.b.extract_element(add_quads(f, *vectors), first)

    def _add(self, first: Int, term: Int, buffer: ir.Value, total: ir.Value) -> ir.Value:
        f, n, chains = self.f, self.n, self.chains
        begin = n.add(n.mul(term, (self.rows + 1) * self.columns), chains.column)
        value = f.load(f.at(buffer, n.wide(n.add(begin, n.mul(chains.row, self.columns)))), lanes=0)
        scale = f.load(f.at(buffer, n.wide(n.add(begin, self.rows * self.columns))), lanes=0)
        at = (self._row(chains.row), self.spec.count), n.wide(n.add(first, term))
        factor = f.load(f.at(f.args[2], *at), lanes=0)
        return f.fma(value, f.b.fmul(factor, scale), total)
