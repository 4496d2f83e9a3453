"""Products of matrices, on the direct convolution: rows are pixels, columns are filters.

y[m, n] = sum over k, ascending, of a[m, k] b[k, n], one multiply-add each, starting from the bias
or +0. Up to two batch axes. The right factor is read in panels of 16 columns or more: a constant is
packed ahead by `pack_b`, anything else by the kernel of `emit_pack_b` into scratch memory.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.direct import emit_direct
from verax.compiler.kernels.convolution.pack import pack_direct_weights, sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule, direct_schedule
from verax.compiler.kernels.convolution.space import CONVOLUTION
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import CONTRACTED, ContractionTypes
from verax.compiler.kernels.layout import Epilogue, Operand, Strides, fused, operand_dtypes
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import Space, emits
from verax.compiler.kernels.sizes import Size, all_open, ceil_div, static_size
from verax.compiler.kernels.target import LANES, Target

KNOWN = (*CONTRACTED, "uint32", "uint64")
"""Element types of the kernels of products: of sums float32, float64, or of integers int32 and
int64; halves are what an epilogue reads and makes."""


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Where a matrix lies: distances in elements between rows, columns, and along both batch axes
    (0 where it is the same for all)."""

    row: Size
    col: Size
    outer: Size = 0
    inner: Size = 0


@dataclasses.dataclass(frozen=True)
class GemmSpec:
    """A batched product: y[i, j] = a[i, j] @ b[i, j] for i < outer, j < inner.

    m, n, k: rows and columns of y, and length of the sums. y.col must be 1. constant_b: b is one
    matrix, packed ahead. bias: "" for none, "column" for one value per column (packed by
    `pack_channels`), or "matrix" for a start value at `start`, whose row and batch distances may be
    0 and whose column distance must be 1 or 0. Epilogue operands: "channel" is per column; a
    "tensor" has strides from `operand_strides`. types: of elements.

    Arguments of the kernel: a, packed b, bias or start if any, epilogue operands, y.
    """

    m: Size
    n: Size
    k: Size
    a: Matrix
    y: Matrix
    outer: Size = 1
    inner: Size = 1
    constant_b: bool = True
    bias: str = ""
    start: Matrix | None = None
    epilogue: Epilogue | None = None
    types: ContractionTypes = dataclasses.field(kw_only=True)

    def __str__(self) -> str:
        batch = f"{self.outer * self.inner} x " if self.outer * self.inner != 1 else ""
        shapes = f"[{self.m}, {self.k}] @ [{self.k}, {self.n}]"
        return f"{self.types} {batch}{shapes}{fused(self.epilogue)}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read, added in and written."""
        return *self.types.names, *operand_dtypes(self.epilogue)

    def operand_strides(self, matrix: Matrix) -> Strides:
        """Strides of a tensor with y's logical shape."""
        return Strides(
            matrix.outer, LANES * matrix.col, matrix.inner, self.m * matrix.row, matrix.row,
            matrix.col,
        )  # fmt: skip

    @property
    def packed_elements(self) -> Size:
        """Elements of one packed right factor."""
        return ceil_div(self.n, LANES) * LANES * self.k

    def convolution(self) -> ConvSpec:
        """This product as a convolution with one kernel position."""
        size = 0 if self.constant_b else self.packed_elements
        return ConvSpec(
            batch=self.outer,
            channels=self.k,
            filters=self.n,
            output=(self.inner, 1, self.m),
            kernel=(1, 1, 1),
            x=self.operand_strides(self.a),
            y=self.operand_strides(self.y),
            bias=self.bias == "column",
            epilogue=self.epilogue,
            initial=self.operand_strides(self.start) if self.start else None,
            weight_strides=(size * self.inner, size),
            exact=True,
            types=self.types,
        )


def tensor_operand(spec: GemmSpec, matrix: Matrix, dtype: str = "float32") -> Operand:
    """An epilogue operand with y's logical shape, stored as `matrix`."""
    return Operand("tensor", spec.operand_strides(matrix), dtype=dtype)


def gemm_schedule(spec: GemmSpec, target: Target) -> ConvSchedule:
    """A schedule by rule."""
    return direct_schedule(spec.convolution(), target)


def pack_b(b: np.ndarray, spec: GemmSpec, schedule: ConvSchedule) -> np.ndarray:
    """A constant right factor (k, n) as one vector, in panels."""
    weights = np.asarray(b, spec.types.weights).reshape(static_size(spec.k), static_size(spec.n)).T
    return pack_direct_weights(weights, spec.convolution(), schedule)


@emits(
    GemmSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (gemm_schedule(spec, target),),
    space=Space(
        ConvSchedule,
        lambda spec, target: CONVOLUTION.stages(spec.convolution(), target),
        lambda spec, target, schedule: CONVOLUTION.admits(spec.convolution(), target, schedule),
    ),
    settle=all_open,
)
def emit_gemm(module: ModuleBuilder, spec: GemmSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel that multiplies; its right factor is packed with the same `schedule`."""
    assert spec.y.col == 1, "columns of y are neighbors"
    return emit_direct(module, spec.convolution(), schedule)


@dataclasses.dataclass(frozen=True)
class PackSpec:
    """Packing the right factors of `product`, which lie as `b` says, with the product's schedule.

    Arguments of the kernel: b, packed (outer * inner * `packed_elements` elements).
    """

    product: GemmSpec
    b: Matrix

    def __str__(self) -> str:
        return f"pack {self.product.types.weights} [{self.product.k}, {self.product.n}]"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.product.types.weights,)


@emits(
    PackSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (gemm_schedule(spec.product, target),),
    settle=all_open,
)
def emit_pack_b(module: ModuleBuilder, pack: PackSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel that packs. Items: a panel of columns of one factor."""
    spec, b, kind = pack.product, pack.b, pack.product.types.weights
    assert spec.convolution().step == 1, "pairs are packed when the network is compiled"
    key = ("pack_b", kind, spec.outer, spec.inner, spec.n, spec.k, b, schedule.blocks)
    f = module.kernel(key, 2)
    if f.kernel is not None:
        return f.kernel
    items: Size = 0
    offset: Size = 0
    for first, count, blocks in sections(spec.convolution(), schedule):
        total = spec.outer * spec.inner * count
        start = f.clamp(f.iadd(f.begin, -items), 0, total)
        with f.loop(f.clamp(f.iadd(f.end, -items), 0, total), start=start) as item:
            outer, inner, panel = f.split(item.index, spec.inner, count)
            column = f.iadd(f.imul(panel, blocks * LANES), first * LANES)
            matrix_terms = (outer, b.outer), (inner, b.inner), (column, b.col)
            source = f.at(f.args[0], *matrix_terms, dtype=kind)
            matrix_index = f.iadd(f.imul(outer, spec.inner), inner)
            start_of = (matrix_index, spec.packed_elements), (panel, blocks * LANES * spec.k)
            packed = f.at(f.args[1], *start_of, offset, dtype=kind)
            _emit_panel(f, spec, b, source, packed, column, blocks)
        items += total
        offset += count * blocks * LANES * spec.k
    elements = spec.outer * spec.inner * (spec.packed_elements + spec.n * spec.k)
    return f.finish(items, 0, 4 * elements)


def _emit_panel(
    f: FunctionBuilder,
    spec: GemmSpec,
    b: Matrix,
    source: ir.Value,
    packed: ir.Value,
    column: Index,
    blocks: int,
) -> None:
    """All k of `blocks` * 16 columns from `column`; columns beyond n are zero."""
    is_full, kind = spec.n % LANES == 0, spec.types.weights
    left = f.iadd(spec.n, f.imul(column, -1))
    counts = [f.clamp(f.iadd(left, -j * LANES), 0, LANES) for j in range(blocks)]
    done = 0
    if b.row == 1 and b.col != 1 and kind == "float32" and isinstance(spec.k, int):
        done = spec.k // SQUARE * SQUARE
        for j, count in enumerate(counts) if done else ():
            columns = f.at(source, j * LANES * b.col)
            column_pointers = [
                f.at(columns, (inside, b.col)) for inside in _inside(f, None if is_full else count)
            ]
            with f.loop(done // SQUARE) as square:
                at = f.imul(square.index, SQUARE)
                values = transposed_rows(f, [f.at(pointer, at) for pointer in column_pointers])
                for i, value in enumerate(values):
                    if not is_full:
                        value = f.b.select(f.first(count), value, f.constant(0.0))
                    step = (f.iadd(at, i), blocks * LANES)
                    f.store(value, f.at(packed, step, j * LANES))
    if done == spec.k:
        return
    with f.loop(spec.k, start=done) as k:
        for j, count in enumerate(counts):
            row = f.at(source, (k.index, b.row), j * LANES * b.col, dtype=kind)
            if b.col == 1:
                value = f.load(row, kind) if is_full else f.load_first(row, count, kind)
            else:
                value = _strided(f, row, b.col, None if is_full else count, kind)
            f.store(value, f.at(packed, (k.index, blocks * LANES), j * LANES, dtype=kind))


SQUARE = 8
"""Rows and columns that are turned at a time, in registers."""


def _inside(f: FunctionBuilder, count: Index | None) -> list[Index]:
    """The columns of 16 lanes; from `count` on the first one again."""
    if count is None:
        return list(range(LANES))
    ends = [f.b.icmp_signed(">=", f.i64(lane), f.i64(count)) for lane in range(LANES)]
    return [f.b.select(end, f.i64(0), f.i64(lane)) for lane, end in enumerate(ends)]


def transposed_rows(f: FunctionBuilder, pointers: list[ir.Value]) -> list[ir.Value]:
    """Transpose 16 rows of 8 neighbors, at `pointers`, into 8 vectors of 16 lanes."""
    square_rows = []
    for first in (0, SQUARE):
        rows = [f.load(pointer, lanes=SQUARE) for pointer in pointers[first : first + SQUARE]]
        row_pairs = [_interleaved(f, rows[i], rows[i + 1], 1) for i in range(0, SQUARE, 2)]
        row_quads = []  # by four rows: columns 0 and 4, 1 and 5, 2 and 6, 3 and 7
        for a, b in ((row_pairs[0], row_pairs[1]), (row_pairs[2], row_pairs[3])):
            row_quads.append([v for i in (0, 1) for v in _interleaved(f, a[i], b[i], 2)])
        columns = [_interleaved(f, a, b, 4) for a, b in zip(*row_quads, strict=True)]
        square_rows.append([pair[side] for side in (0, 1) for pair in columns])
    all_lanes = ir.Constant(ir.VectorType(I32, LANES), list(range(LANES)))
    return [f.b.shuffle_vector(a, b, all_lanes) for a, b in zip(*square_rows, strict=True)]


def _interleaved(
    f: FunctionBuilder, a: ir.Value, b: ir.Value, size: int
) -> tuple[ir.Value, ir.Value]:
    """Groups of `size` lanes of a and b in turn: the first of each register's half, the second."""
    span = 4 if size < 4 else SQUARE
    vectors = []
    for offset in (0, span // 2):
        lanes = [
            vector * SQUARE + start + offset + group * size + i
            for start in range(0, SQUARE, span)
            for group in range(span // 2 // size)
            for vector in (0, 1)
            for i in range(size)
        ]
        mask = ir.Constant(ir.VectorType(I32, SQUARE), lanes)
        vectors.append(f.b.shuffle_vector(a, b, mask))
    return vectors[0], vectors[1]


def _strided(
    f: FunctionBuilder, row: ir.Value, stride: Size, count: Index | None, kind: str
) -> ir.Value:
    """16 elements `stride` apart; zero from lane `count` on, where nothing is read."""
    vector: ir.Value = ir.Constant(f.vector_type(kind), None)
    for lane in range(LANES):
        inside: Index = lane
        if count is not None:  # spare lanes read the first column again
            beyond = f.b.icmp_signed(">=", f.i64(lane), f.i64(count))
            inside = f.b.select(beyond, f.i64(0), f.i64(lane))
        value = f.load(f.at(row, (inside, stride), dtype=kind), kind, lanes=0)
        vector = f.b.insert_element(vector, value, ir.Constant(I32, lane))
    if count is None:
        return vector
    return f.b.select(f.first(count), vector, ir.Constant(f.vector_type(kind), None))
