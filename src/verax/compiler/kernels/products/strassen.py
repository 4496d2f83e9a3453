"""Products of matrices by Strassen's algorithm, one level: seven products of halves, not eight.

The rows of the left factor, the columns of the right one, and what is summed over are halved (see
`numerics.strassen`); of a 1x1 convolution these are pixels, filters and channels. The right
factor's seven sums are packed ahead, the left one's are made by a loop before. Then, for some
columns of both halves and all rows, the seven products are taken one after the other by the direct
kernel's tiles, and each tile of sums is added to where it belongs in y, which is at hand in the
cache: products are never in memory as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from verax.compiler.kernels.convolution.direct import Section
from verax.compiler.kernels.convolution.pack import direct_elements, pack_direct_weights, sections
from verax.compiler.kernels.convolution.schedule import (
    L2_BYTES,
    ConvSchedule,
    direct_schedule,
    filter_blocks,
)
from verax.compiler.kernels.convolution.space import CONVOLUTION
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import (
    Epilogue,
    Sizes,
    Strides,
    Triple,
    finished,
    fused,
    is_long,
    operand_dtypes,
)
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.products.gemm import KNOWN, GemmSpec, Matrix
from verax.compiler.kernels.registry import Space, emits
from verax.compiler.kernels.sizes import known
from verax.compiler.kernels.target import LANES, Target
from verax.numerics import strassen
from verax.numerics.expr import Const, Expr, Input, TracingArith

F32 = "float32"
COLUMNS = 2 * LANES
"""The right factor has a multiple of so many columns."""


@dataclasses.dataclass(frozen=True)
class Image:
    """Rows of a product that are the pixels of an image in blocks of 16 channels.

    block: elements from a block of a to the next one; its pixels lie side by side. y: strides of
    the result. size: depth, rows and columns of the image, of y and what is fused too.
    """

    block: int
    y: Strides
    size: Triple


@dataclasses.dataclass(frozen=True)
class StrassenSpec:
    """y [m, n] = a [m, k] @ b [k, n], float32; k is even, n a multiple of 32. Both are row-major
    and dense, or as `image` says; k is then a multiple of 32. epilogue: as that of `whole`, or of a
    convolution; y has its type.

    Arguments of the kernel: a, sums of its quarters (of `left_sums`), packed b, room for sums
    (`room_elements`), epilogue operands, y.
    """

    m: int
    n: int
    k: int
    epilogue: Epilogue | None = None
    image: Image | None = None

    def __str__(self) -> str:
        text = f"[{self.m}, {self.k}] @ [{self.k}, {self.n}]"
        if self.image:
            text = f"convolution {self.k} to {self.n} x {self.m} pixels"
        return f"Strassen float32 {text}{fused(self.epilogue)}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return F32, *operand_dtypes(self.epilogue)

    @property
    def stored(self) -> str:
        """Element type of y."""
        return self.epilogue.expr.dtype if self.epilogue else F32

    @property
    def upper(self) -> int:
        """Rows of the upper half; the lower one has one less where m is odd."""
        return -(-self.m // 2)

    @property
    def lower(self) -> int:
        return self.m - self.upper

    @property
    def whole(self) -> GemmSpec:
        """The product itself, of matrices."""
        return GemmSpec(self.m, self.n, self.k, Matrix(self.k, 1), Matrix(self.n, 1), types=FLOAT32)

    @property
    def half(self) -> ConvSpec:
        """One of the seven, its sums written where the upper left quarter of y is."""
        n, k = self.n // 2, self.k // 2
        if self.image is None:
            left, y = Matrix(k, 1), Matrix(self.n, 1)
            return GemmSpec(self.upper, n, k, left, y, types=FLOAT32).convolution()
        row = self.upper * LANES
        x, result = (Strides(0, each, 0, row) for each in (self.image.block, self.image.y.block))
        size, one = (1, 1, self.upper), (1, 1, 1)
        return ConvSpec(1, k, n, size, one, x, result, bias=False, types=FLOAT32)

    @property
    def steps(self) -> tuple[int, int, int]:
        """Elements of a from a row to the next, from 16 terms to the next, to the right half."""
        if self.image is None:
            return self.k, LANES, self.k // 2
        return LANES, self.image.block, self.k // 2 // LANES * self.image.block

    @property
    def sum_steps(self) -> tuple[int, int]:
        """Elements of a sum from a row to the next, from 16 terms to the next."""
        return (self.k // 2, LANES) if self.image is None else (LANES, self.upper * LANES)

    @property
    def summed(self) -> tuple[int, ...]:
        """Products whose left factor is made by `left_sums`: not a quarter that a has as it is."""
        odd = self.m % 2
        return tuple(
            p
            for p, terms in enumerate(strassen.LEFT)
            if len(terms) > 1 or (odd and terms[0][0] >= 2)
        )

    @property
    def sum_elements(self) -> int:
        """Elements that the sums of a take."""
        return len(self.summed) * self.upper * (self.k // 2)


def left_sums(spec: StrassenSpec) -> list[LoopSpec]:
    """What makes the sums of a's quarters: arguments four times a, then the sums once for each of
    `spec.summed`. The last upper row of an odd number stands above a row of zeros."""
    half, (row, block, right) = spec.k // 2, spec.steps
    down = spec.upper * row
    starts = (0, right, down, down + right)
    size, m = spec.upper * half, TracingArith()
    quarters: list[Expr] = [Input(i, F32) for i in range(4)]
    zero = Const(0.0, F32)
    # Rows of 16 terms, a block at a time, or whole rows.
    across, terms = (half // LANES, LANES) if spec.image else (1, half)
    sum_row, sum_block = spec.sum_steps

    def loop(first: int, rows: int, parts: list[Expr]) -> LoopSpec:
        inputs = tuple(Access(F32, (block, row, 1), start + first * row) for start in starts)
        outputs = tuple(
            Access(F32, (sum_block, sum_row, 1), i * size + first * sum_row)
            for i in range(len(spec.summed))
        )
        exprs = tuple(strassen.left_factor(m, p, parts) for p in spec.summed)
        return LoopSpec((across, rows, terms), inputs, outputs, exprs)

    found = [loop(0, spec.lower, quarters)] if spec.lower else []
    if spec.upper > spec.lower:
        found.append(loop(spec.lower, 1, [*quarters[:2], zero, zero]))
    return found


def pack_right(b: np.ndarray, spec: StrassenSpec, schedule: ConvSchedule) -> np.ndarray:
    """The seven sums of b's quarters, in the order that the kernel reads: for each panel of columns
    all seven."""
    conv = spec.half
    packed = [
        pack_direct_weights(np.ascontiguousarray(part.T), conv, schedule)
        for part in strassen.right_factors(b)
    ]
    parts, at = [], 0
    for _, count, blocks in sections(conv, schedule):
        size = known(count) * blocks * LANES * (spec.k // 2)
        panels = [one[at : at + size].reshape(known(count), -1) for one in packed]
        parts.append(np.stack(panels, axis=1).reshape(-1))
        at += size
    return np.concatenate(parts)


def right_elements(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Length of what `pack_right` gives."""
    return strassen.PRODUCTS * direct_elements(spec.half, schedule)


def sums_of_item(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Elements that the sums of an item take."""
    rows = min(schedule.rows, spec.upper)
    full, rest = divmod(spec.upper, rows)
    tiles = min(schedule.chunk, full) + bool(rest)
    return tiles * rows * len(strassen.OUTPUT) * schedule.blocks * LANES


def room_elements(spec: StrassenSpec, schedule: ConvSchedule) -> int:
    """Elements of the room that the kernel needs: each of its calls takes the part of its first
    item, again for each item, so that it stays in the cache."""
    full = spec.upper // min(schedule.rows, spec.upper)
    panels = sum(known(count) for _, count, _ in sections(spec.half, schedule))
    return panels * -(-full // schedule.chunk) * sums_of_item(spec, schedule)


NARROW, ROWS = 2, 12
"""Blocks of columns and rows of a tile, where wide panels cannot be shared."""
FEW_PANELS, ITEMS = 4, 8
"""Fewer panels than these, or an odd number below twice as many, are shared by rows as well."""


def strassen_schedule(spec: StrassenSpec, target: Target) -> ConvSchedule:
    """As of one of the seven products, but an item takes all rows: whenever some rows are taken by
    themselves all seven panels of weights are read again, which no cache holds (ViT-small takes
    4 % longer, BERT 6 %). The next panel is fetched meanwhile. Panels are narrow where two wide
    ones are more than the cache holds (BERT 1 %), or where these are an odd number, which two
    threads cannot share."""
    found, blocks = direct_schedule(spec.half, target), known(filter_blocks(spec.half))
    large = spec.k // 2 * found.blocks * LANES * 4 > 5 * L2_BYTES // 8
    if found.blocks > NARROW and (large or blocks % (2 * found.blocks)):
        rows = _evenly(spec.upper, ROWS)
        found = dataclasses.replace(found, blocks=NARROW, rows=rows, cols=1)
    panels, tiles = -(-blocks // found.blocks), max(1, spec.upper // found.rows)
    shared = panels >= ITEMS or (panels >= FEW_PANELS and panels % 2 == 0)
    parts = 1 if shared else -(-ITEMS // panels)
    return dataclasses.replace(found, chunk=-(-tiles // parts), pass_blocks=0, ahead=True)


def _evenly(count: int, most: int) -> int:
    """Of parts of about the same size, at most `most`, that make `count`: the largest."""
    return -(-count // -(-count // most))


@emits(
    StrassenSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (strassen_schedule(spec, target),),
    space=Space(
        ConvSchedule,
        lambda spec, target: CONVOLUTION.stages(spec.half, target),
        lambda spec, target, asked: (
            CONVOLUTION.admits(spec.half, target, asked) and asked.pass_blocks == 0
        ),  # sums of one product of seven are nowhere by themselves
    ),
)
def emit_strassen(module: ModuleBuilder, spec: StrassenSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel that multiplies and adds. Items: columns of both halves, for a chunk of rows."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("strassen", spec, schedule), 5 + len(operands))
    if f.kernel is not None:
        return f.kernel
    items, weights = 0, 0
    parts: list[_Columns] = []
    for first, count, blocks in sections(spec.half, schedule):
        part = _Columns(f, spec, schedule, known(first), known(count), blocks, items, weights)
        parts.append(part)
        items += known(part.items)
        weights += strassen.PRODUCTS * known(count) * known(part.weights_per_item)
    for part in parts:
        part.emit(alone=len(parts) == 1)
    multiplied = strassen.PRODUCTS * spec.half.flops
    moved = spec.m * spec.k + spec.sum_elements + weights + spec.m * spec.n
    return f.finish(items, multiplied, 4 * moved)


def written_in_line(image: Image, epilogue: Epilogue | None) -> bool:
    """Whether rows of an image follow one another in the result, and in what is added to it."""
    operands = epilogue.operands if epilogue else ()
    tensors = [image.y, *(o.strides for o in operands if o.strides)]
    depth, rows, columns = image.size
    dense = all(t.row == columns * t.pixel for t in tensors)
    return dense and (depth == 1 or all(t.depth == rows * t.row for t in tensors))


class _Columns(Section):
    """Panels of `blocks` blocks of columns of the left half, and of the right half, of y."""

    def __init__(
        self,
        f: FunctionBuilder,
        spec: StrassenSpec,
        schedule: ConvSchedule,
        first_block: int,
        panels: int,
        blocks: int,
        first_item: int,
        weights: int,
    ) -> None:
        conv = spec.half
        (phase,) = conv.phases()
        super().__init__(f, conv, schedule, phase, first_block, panels, blocks, first_item, weights)
        self.whole = spec
        self.taken: tuple[int, ...] = ()  # products that code being emitted may be of; () for none
        self.product: Index = 0
        self.finishes_later = is_long(spec.epilogue)
        self.tile_elements = len(strassen.OUTPUT) * self.tile_rows * self.width
        self.across = spec.n // 2 // LANES  # blocks of columns of a half
        self.in_line = spec.image is None or written_in_line(spec.image, spec.epilogue)

    def _emit_item(self, group: Index, kgroup: Index, n: Index, d: Index, chunk: Index) -> None:
        self.order, self.turn, self.n, self.d = kgroup, 0, 0, 0
        self.room = self.f.at(
            self.f.args[3], (self.f.begin, sums_of_item(self.whole, self.schedule))
        )
        self.block = self.f.iadd(self.f.imul(kgroup, self.blocks), self.first_block)
        # The products whose left factor is a sum have one code, and so have those of a's quarters:
        # seven copies were most of what LLVM had to do for a network.
        plain = tuple(p for p in range(strassen.PRODUCTS) if p not in self.whole.summed)
        with self.f.loop(strassen.PRODUCTS) as p:
            for products in (self.whole.summed, plain):
                with self.f.when(self._is_one_of(p.index, products)):
                    self._take(p.index, products)
                    self._emit_pass(chunk)
        if self.finishes_later:
            self._emit_finish(chunk)

    def _is_one_of(self, product: Index, products: Sequence[int]) -> ir.Value:
        b, mask = self.f.b, sum(1 << p for p in products)
        bit = b.and_(b.lshr(self.f.i64(mask), self.f.i64(product)), self.f.i64(1))
        return b.icmp_signed("!=", bit, self.f.i64(0))

    def _take(self, product: Index, products: tuple[int, ...]) -> None:
        """What is emitted next is of this product, which is one of `products`."""
        f, spec = self.f, self.whole
        self.product, self.taken = product, products
        if products == spec.summed:
            base, (self.x_row, self.x_block) = f.args[1], spec.sum_steps
            starts = [i * spec.upper * (spec.k // 2) for i in range(len(products))]
        else:
            base, (self.x_row, self.x_block, across) = f.args[0], spec.steps
            halves = [divmod(strassen.LEFT[p][0][0], 2) for p in products]
            starts = [down * spec.upper * self.x_row + right * across for down, right in halves]
        place = f.i64(starts[0])
        for p, start in zip(products[1:], starts[1:], strict=True):
            place = f.b.select(self._is_one_of(product, [p]), f.i64(start), place)
        self.pass_x = f.at(base, (place, 1))
        panel = known(self.weights_per_item)
        whole = (self.order, strassen.PRODUCTS * panel)
        self.pass_w = f.at(f.args[2], whole, (product, panel), self.weight_offset)

    def _emit_rows(self, row: Index, rows: int, tile: Index) -> None:
        self.tile = tile
        super()._emit_rows(row, rows, tile)

    def _emit_tile(self, row: Index, col: Index, rows: int, cols: int, tile: Index) -> None:
        if self.taken:
            super()._emit_tile(row, col, rows, cols, tile)
            return
        f = self.f
        sums = f.at(self.room, (self.tile, self.tile_elements))
        left = f.clamp(f.iadd(self.whole.lower, f.imul(row, -1)), 0, rows)
        for quarter in range(len(strassen.OUTPUT)):
            count = left if quarter >= 2 else rows
            if count == 0:
                continue
            with f.loop(count) as r:
                places = [self._in_tile(quarter, r.index, j) for j in range(self.blocks)]
                values = [f.load(f.at(sums, place)) for place in places]
                self._finish(values, quarter, f.iadd(row, r.index), 0)

    def _emit_final(
        self,
        row: Index,
        col: Index,
        pixels: list[tuple[int, int]],
        outputs: object,
        acc: Sequence[ir.Value],
    ) -> None:
        """Add a tile of the product to the quarters that it belongs to."""
        for product in self.taken:
            only = len(self.taken) == 1
            with nullcontext() if only else self.f.when(self._is_one_of(self.product, [product])):
                self._add_to_quarters(product, row, pixels, acc)

    def _add_to_quarters(
        self, product: int, row: Index, pixels: list[tuple[int, int]], acc: Sequence[ir.Value]
    ) -> None:
        f, lower = self.f, self.whole.lower
        tile = f.at(self.room, (self.tile, self.tile_elements))
        for quarter, sign in strassen.OUTPUT_OF[product]:
            terms = [p for p, _ in strassen.OUTPUT[quarter]]
            down = quarter // 2
            for i, (r, _) in enumerate(pixels):
                last = product == terms[-1]
                inside = None
                if last and not self.finishes_later and down and lower < self.whole.upper:
                    at = f.iadd(row, r)
                    if isinstance(at, int) and at >= lower:
                        continue
                    if not isinstance(at, int) and r == len(pixels) - 1:
                        inside = f.b.icmp_signed("<", f.i64(at), f.i64(lower))
                with nullcontext() if inside is None else f.when(inside):
                    values = list(acc[i * self.blocks : (i + 1) * self.blocks])
                    inside_tile = [self._in_tile(quarter, r, j) for j in range(self.blocks)]
                    places = [f.at(tile, place) for place in inside_tile]
                    if product != terms[0]:
                        add = f.b.fadd if sign > 0 else f.b.fsub
                        values = [add(f.load(p), v) for p, v in zip(places, values, strict=True)]
                    if last and not self.finishes_later:
                        self._finish(values, quarter, row, r)
                        continue
                    for place, value in zip(places, values, strict=True):
                        f.store(value, place)

    def _in_tile(self, quarter: int, row: Index, block: int) -> Index:
        """Where 16 sums lie among those of a tile."""
        rows = self.f.iadd(row, quarter * self.tile_rows)
        return self.f.iadd(self.f.imul(rows, self.width), block * LANES)

    def _finish(self, values: Sequence[ir.Value], quarter: int, row: Index, r: int) -> None:
        """The epilogue of a row's blocks, and their results to y."""
        f, spec, (down, right) = self.f, self.whole, divmod(quarter, 2)
        y = spec.image.y if spec.image else self.spec.y
        where: tuple[list[Index], Sizes] = [0, 0, row], (0, 0, r + down * spec.upper)
        if spec.image and not self.in_line:
            at = f.iadd(row, r + down * spec.upper)
            where = f.split(at, *spec.image.size[1:]), (0, 0, 0)
        blocks = [f.iadd(self.block, j + right * self.across) for j in range(self.blocks)]
        places = [(0, block, *where) for block in blocks]
        results = finished(f, spec.epilogue, f.args[4:-1], values, places)
        for place, value in zip(places, results, strict=True):
            f.store(value, y.at(f, f.args[-1], *place, spec.stored))

    def _emit_finish(self, chunk: Index) -> None:
        """The epilogue of all tiles of an item, whose sums are complete."""
        self.taken = ()
        self._emit_pass(chunk)
