"""Strassen's algorithm on a GPU: a block's tile of all four quarters of the result.

Its seven products are taken one after the other by the tiles of `contraction`; each thread adds
its part of a product to where it belongs in the room, which no other thread reads or writes, in the
order of `numerics.strassen`. In the end what is complete is scaled back on its way to y.
"""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.gpu.contraction import PhaseTiles, tile_kernel
from verax.compiler.kernels.gpu.finish import Channels
from verax.compiler.kernels.gpu.index32 import Int
from verax.compiler.kernels.gpu.staging import CHUNK
from verax.compiler.kernels.gpu.tiles import TILED, TileSchedule, tile_schedule
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import Index, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.products.gemm import KNOWN
from verax.compiler.kernels.products.strassen import ARGUMENTS, StrassenSpec, written_in_line
from verax.compiler.kernels.registry import Space, emits
from verax.compiler.kernels.sizes import all_open, static_size
from verax.compiler.kernels.target import LANES
from verax.numerics import strassen


@emits(
    StrassenSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (tile_schedule(spec.half, target),),
    target="gpu",
    space=Space(
        TileSchedule,
        lambda spec, target: TILED.stages(spec.half, target),
        lambda spec, target, schedule: TILED.admits(spec.half, target, schedule),
    ),
    settle=all_open,
)
def emit_strassen(module: ModuleBuilder, spec: StrassenSpec, schedule: TileSchedule) -> Kernel:
    """As `products.strassen.emit_strassen`. Items: tiles of a quarter, and what lies there in the
    others."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    n_args = len(ARGUMENTS) + len(operands) + 1
    f = tile_kernel(module, ("strassen", spec), n_args, schedule, "strassen")
    if f.kernel is not None:
        return f.kernel
    tiles = _QuarterTiles(f, spec, schedule)
    tiles.emit_products()
    weights = strassen.PRODUCTS * (spec.n // 2) * (spec.k // 2)
    elements = spec.m * spec.k + spec.sum_elements + weights + spec.m * spec.n
    return f.finish(tiles.items, strassen.PRODUCTS * spec.half.flops, 4 * elements)


class _QuarterTiles(PhaseTiles):
    """Tiles of the upper left quarter, and of the others as far to the right or down.

    The room holds all quarters [4, rows of the upper half, columns of a half].
    """

    def __init__(self, f: BlockBuilder, spec: StrassenSpec, schedule: TileSchedule) -> None:
        (phase,) = spec.half.phases()
        super().__init__(f, spec.half, schedule, phase, 0, 0)
        self.panel_step = strassen.PRODUCTS * self.panel  # of each panel all seven follow
        self.product_spec = spec
        named = dict(zip(ARGUMENTS, f.args, strict=False))
        self.a, self.sums, self.row_scales = (named[n] for n in ARGUMENTS[:3])
        self.packed, self.column_scales, self.signs = (named[n] for n in ARGUMENTS[3:6])
        self.room = named["room"]
        self.columns = static_size(spec.n // 2)
        self.in_line = spec.image is None or written_in_line(spec.image, spec.epilogue)

    def emit_products(self) -> None:
        """All that this block does."""
        f, n, s = self.f, self.n, self.schedule
        row, column = self.locate()
        zeros = [f.constant(0.0, lanes=CHUNK)] * (s.thread_pixels * s.thread_filters // CHUNK)
        with f.loop(strassen.PRODUCTS) as p:
            f.barrier()  # what the product before has left in shared memory has been read
            with f.when(self._is(p.index, strassen.ALL_BEGUN)):
                self._emit_not_finite(row, column)
            x = f.at(self.sums, (p.index, self.product_spec.upper * (self.product_spec.k // 2)))
            weights = f.at(self.packed, (p.index, self.panel))
            sums = self.emit_sums(row, column, zeros, x, weights)
            columns = self._chunks(n.anew(column))
            rows = [self._row(n.add(n.anew(row), i * s.down)) for i in range(s.thread_pixels)]
            for product in range(strassen.PRODUCTS):
                with f.when(self._is(p.index, product)):
                    self._add(product, rows, columns, sums)
        self._emit_results(row, column)

    def _is(self, product: Index, index: int) -> ir.Value:
        return self.f.b.icmp_signed("==", self.f.i64(product), self.f.i64(index))

    # --- where a thread's outputs lie

    def _row(self, row: Int) -> tuple[Int, ir.Value]:
        """A row of a half, and whether the upper half has it."""
        index = self.n.add(self.first_pixel, row)
        return index, self.n.less(index, self.total)

    def _chunks(self, column: Int) -> list[tuple[Int, ir.Value]]:
        """First columns of a thread's chunks in a half, and whether they exist."""
        n, s = self.n, self.schedule
        first = n.mul(self.first_panel, LANES)
        indices = [
            n.add(first, n.mul(n.add(column, j * s.across), CHUNK))
            for j in range(s.thread_filters // CHUNK)
        ]
        return [(index, n.less(index, self.columns)) for index in indices]

    def _in_room(self, quarter: Index, row: Int, column: Int) -> ir.Value:
        f, n = self.f, self.n
        line = f.iadd(f.imul(quarter, self.product_spec.upper), n.wide(row))
        return f.at(self.room, (line, self.columns), n.wide(column))

    def _load_sums(self, pointer: ir.Value) -> ir.Value:
        """A chunk of the room, which is scratch memory: it begins at a multiple of 16 bytes."""
        return self.f.b.load(pointer, align=16, typ=self.f.vector_type(lanes=CHUNK))

    def _add(
        self,
        product: int,
        rows: list[tuple[Int, ir.Value]],
        columns: list[tuple[Int, ir.Value]],
        sums: list[ir.Value],
    ) -> None:
        """Add a thread's part of a product to the quarters that it belongs to."""
        f = self.f
        for i, (row, row_exists) in enumerate(rows):
            with f.when(row_exists):
                for j, (column, columns_exist) in enumerate(columns):
                    with f.when(columns_exist):
                        for quarter, sign in strassen.OUTPUT_OF[product]:
                            value = sums[i * len(columns) + j]
                            pointer = self._in_room(quarter, row, column)
                            if product != strassen.OUTPUT[quarter][0][0]:
                                add = f.b.fadd if sign > 0 else f.b.fsub
                                value = add(self._load_sums(pointer), value)
                            f.b.store(value, pointer, align=16)

    # --- what is not finite

    def _emit_not_finite(self, row: Int, column: Int) -> None:
        """The sums of rows that are not finite become what direct summation gives; what is added
        afterwards is finite and changes nothing."""
        f, n, spec, s = self.f, self.n, self.product_spec, self.schedule
        infinite = f.constant(np.inf, lanes=0)
        with f.loop(s.thread_pixels) as i, f.loop(2) as down:
            here = n.add(row, n.mul(n.truncated(i.index), s.down))
            index, at, exists = self._whole_row(here, down.index)
            with f.when(exists):
                back = f.load(f.at(self.row_scales, at), lanes=0)
                with f.when(f.b.fcmp_ordered("==", back, infinite)), f.loop(2) as right:
                    for first, exist in self._chunks(column):
                        with f.when(exist):
                            start = f.iadd(f.imul(right.index, spec.n // 2), n.wide(first))
                            value = self._not_finite(at, start)
                            quarter = f.iadd(f.imul(down.index, 2), right.index)
                            f.store(value, self._in_room(quarter, index, first))

    def _whole_row(self, row: Int, down: Index) -> tuple[Int, Index, ir.Value]:
        """A row of the upper half (down: 0) or the lower one (1), its number in the whole, and
        whether it exists."""
        f, n, spec = self.f, self.n, self.product_spec
        index, _ = self._row(row)
        at = f.iadd(f.imul(down, spec.upper), n.wide(index))
        stop = f.iadd(f.imul(down, spec.m), f.imul(f.iadd(1, f.imul(down, -1)), spec.upper))
        return index, at, f.b.icmp_signed("<", f.i64(at), f.i64(stop))

    def _not_finite(self, row: Index, column: Index) -> ir.Value:
        """Four neighbors of a row."""
        f, spec = self.f, self.product_spec
        step, block, _ = spec.steps
        zero, above, below = (f.constant(v, lanes=0) for v in (0.0, -np.inf, np.inf))
        blocks, length = (spec.k // LANES, LANES) if spec.image else (1, spec.k)
        with f.loop(blocks, carry=[f.constant(0.0, lanes=CHUNK)]) as terms:
            with f.loop(length, carry=terms.values) as lane:
                x = f.load(f.at(self.a, (row, step), (terms.index, block), lane.index), lanes=0)
                finite = f.b.and_(f.b.fcmp_ordered(">", x, above), f.b.fcmp_ordered("<", x, below))
                x = f.splat(f.b.select(finite, zero, x), CHUNK)
                term = f.iadd(f.imul(terms.index, length), lane.index)
                sign = f.load(f.at(self.signs, (term, spec.n), column, dtype="int8"), "int8", CHUNK)
                weight = f.b.sitofp(sign, f.vector_type(lanes=CHUNK))
                lane.next([f.fma(x, weight, lane.values[0])])
            terms.next(lane.results)
        return terms.results[0]

    # --- results

    def _emit_results(self, row: Int, column: Int) -> None:
        """What is complete, scaled back and through the epilogue."""
        f, n, s = self.f, self.n, self.schedule
        with f.loop(len(strassen.OUTPUT)) as quarter:
            down, right = f.split(quarter.index, 2)
            for i in range(s.thread_pixels):
                index, at, exists = self._whole_row(n.add(row, i * s.down), down)
                with f.when(exists):
                    back = f.broadcast(f.at(self.row_scales, at), lanes=CHUNK)
                    for first, exist in self._chunks(column):
                        with f.when(exist):
                            value = self._load_sums(self._in_room(quarter.index, index, first))
                            self._emit_result(value, back, at, right, first)

    def _emit_result(
        self, value: ir.Value, back: ir.Value, row: Index, right: Index, column: Int
    ) -> None:
        f, n, spec = self.f, self.n, self.product_spec
        y = spec.image.y if spec.image else self.spec.y
        position: list[Index] = [0, 0, row]
        if spec.image and not self.in_line:
            position = f.split(row, *spec.image.size[1:])
        block, within = n.divmod(column, LANES)
        half = f.imul(right, static_size(spec.n) // 2 // LANES)
        channels = Channels(f, CHUNK, 0, f.iadd(half, n.wide(block)), n.wide(within), position)
        scale = f.load(channels.of_vector(self.column_scales), lanes=CHUNK)
        value = f.fma(f.b.fmul(value, scale), back, f.constant(0.0, lanes=CHUNK))
        result = channels.finished(spec.epilogue, f.args[len(ARGUMENTS) : -1], value)
        f.store(result, channels.of_tensor(y, f.args[-1], spec.stored))
