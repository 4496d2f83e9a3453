"""Largest element, mean and norm over windows, on blocked activations.

Kernel positions in ascending order, starting from -inf or +0; NaN wins, and of two zeros the
positive one is larger. Padding is not read: positions outside the input are left out, which is the
same as -inf for the largest, and as adding zeros to a sum that began as +0. A mean is the sum
divided once by the number of positions; that of integers is rounded to the nearest, halves away
from zero.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from verax.compiler.kernels.convolution.tiles import choose_chunk, item_position, splits_channels
from verax.compiler.kernels.layout import (
    Epilogue,
    Sizes,
    Strides,
    Triple,
    by,
    finished,
    fused,
    operand_dtypes,
)
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import (
    Size,
    ceil_div,
    entries,
    maximum,
    minimum,
    numbers,
    static_size,
)
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same
from verax.numerics.formats import FLOATS


@dataclasses.dataclass(frozen=True)
class PoolSpec:
    """A pooling. kind: "max", "average", "norm1" or "norm2" for the sum of sizes and the root of
    the sum of squares, or of integers "rounded" for their mean; the rest per axis (depth, row,
    column).

    pads: before, pads_after: after, where a mean that includes padding stops counting. Arguments of
    the kernel: x, epilogue operands, y. Both tensors are blocked; x needs no border. dtype: of
    elements, of x, y and sums; but means of integers are summed and given as int32.
    """

    kind: str
    batch: Size
    channels: int
    size: Sizes
    output: Sizes
    kernel: Triple
    x: Strides
    y: Strides
    strides: Triple = (1, 1, 1)
    dilations: Triple = (1, 1, 1)
    pads: Triple = (0, 0, 0)
    pads_after: Triple = (0, 0, 0)
    count_include_pad: bool = False
    epilogue: Epilogue | None = None
    dtype: str = dataclasses.field(kw_only=True)

    def __str__(self) -> str:
        return (
            f"{self.dtype} {self.kind} pool {self.batch} x {self.channels} x {by(self.output)}, "
            f"kernel {by(self.kernel)}, stride {by(self.strides)}{fused(self.epilogue)}"
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read, added in and written."""
        return self.dtype, *operand_dtypes(self.epilogue)

    @property
    def stored(self) -> str:
        """Element type of y."""
        if self.epilogue:
            return self.epilogue.expr.dtype
        return "int32" if self.kind == "rounded" else self.dtype

    def taps(self, axis: int, output: int) -> tuple[int, int]:
        """[first, one past the last) kernel position inside the input, at an output position."""
        start, d = output * self.strides[axis] - self.pads[axis], self.dilations[axis]
        first = max(0, -(start // d))
        end = min(self.kernel[axis], (static_size(self.size[axis]) - 1 - start) // d + 1)
        return (first, end) if first < end else (0, 0)

    def counted(self, axis: int, output: int) -> int:
        """Kernel positions that count towards a mean, at an output position."""
        if not self.count_include_pad:
            first, end = self.taps(axis, output)
            return end - first
        start, d = output * self.strides[axis] - self.pads[axis], self.dilations[axis]
        last = static_size(self.size[axis]) + self.pads_after[axis] - 1
        return max(0, min(self.kernel[axis], (last - start) // d + 1))

    @property
    def pieces(self) -> int:
        """Pieces of code that differ in the kernel positions they read."""
        return math.prod(len(_stretches(self, axis)) for axis in range(3))


@dataclasses.dataclass(frozen=True)
class _Run:
    """Neighboring outputs of one axis with the same kernel positions inside the input."""

    first: Size
    count: Size
    taps: tuple[Index, Index]
    counted: Index


CHUNK = 4
"""Rows of an item, where how many there are is read at run time."""


def _runs(spec: PoolSpec, axis: int) -> list[_Run]:
    """The runs of an axis of known size."""
    keys = [(spec.taps(axis, o), spec.counted(axis, o)) for o in range(spec.output[axis])]
    runs, first = [], 0
    for (taps, counted), alike in itertools.groupby(keys):
        count = len(list(alike))
        runs.append(_Run(first, count, taps, counted))
        first += count
    return runs


@dataclasses.dataclass(frozen=True)
class _Stretch:
    """Neighboring outputs of one axis. run: where all of them meet the same kernel positions, which
    are known; else they are computed for each (`run_at`)."""

    first: Size
    count: Size
    run: _Run | None = None


def _stretches(spec: PoolSpec, axis: int) -> list[_Stretch]:
    """Of a known size, the runs; of an open one the outputs whose windows lie inside, and those
    before and after."""
    if all(isinstance(n, int) for n in (spec.size[axis], spec.output[axis])):
        return [_Stretch(run.first, run.count, run) for run in _runs(spec, axis)]
    kernel, stride, pad = spec.kernel[axis], spec.strides[axis], spec.pads[axis]
    extent, output = (kernel - 1) * spec.dilations[axis] + 1, spec.output[axis]
    begin = minimum(-(-pad // stride), output)
    inside = maximum(spec.size[axis] + pad - extent + stride, 0) // stride
    end = maximum(begin, minimum(inside, output))
    full_windows = _Run(begin, end - begin, (0, kernel), kernel)
    stretches = (
        _Stretch(0, begin),
        _Stretch(begin, end - begin, full_windows),
        _Stretch(end, output - end),
    )
    return [stretch for stretch in stretches if not same(stretch.count, 0)]


def run_at(f: FunctionBuilder, spec: PoolSpec, axis: int, output: Index) -> _Run:
    """The run of one output, computed when it runs; see `PoolSpec.taps` and `counted`."""
    d, size, kernel = spec.dilations[axis], spec.size[axis], spec.kernel[axis]
    start = f.iadd(f.imul(output, spec.strides[axis]), -spec.pads[axis])
    first = f.clamp(_ceil_div(f, f.imul(start, -1), d), 0, kernel)
    end = f.clamp(_ceil_div(f, f.iadd(size, f.imul(start, -1)), d), 0, kernel)
    count = f.clamp(f.iadd(end, f.imul(first, -1)), 0, kernel)
    counted = count
    if spec.count_include_pad:
        past = f.iadd(size + spec.pads_after[axis], f.imul(start, -1))
        counted = f.clamp(_ceil_div(f, past, d), 0, kernel)
    return _Run(0, 1, (first, f.iadd(first, count)), counted)


def _ceil_div(f: FunctionBuilder, a: Index, b: int) -> Index:
    """a / b rounded up; 0 or less where a is."""
    positive = f.clamp(a, 0, 1 << 62)
    return f.idiv(f.iadd(positive, b - 1), b)


TILE = 8
"""Outputs of a row computed together: enough chains to hide latency."""


KNOWN = ("float32", "float64", "int8", "uint8", "int16", "int32")
"""Element types of pools."""


def with_known_channels(spec: PoolSpec) -> PoolSpec:
    """Batch and image sizes may be read at run time, but for means of integers."""
    if spec.kind == "rounded":
        return numbers(spec)
    return dataclasses.replace(spec, channels=numbers(spec.channels))


@emits(PoolSpec, dtypes=KNOWN, settle=with_known_channels)
def emit_pool(module: ModuleBuilder, spec: PoolSpec) -> Kernel:
    """The kernel for `spec`. Items: a chunk of rows of one block of channels, at one depth."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("pool", spec), 2 + len(operands))
    if f.kernel is not None:
        return f.kernel
    blocks = -(-spec.channels // LANES)
    rows_of_blocks = spec.batch * blocks * spec.output[0]
    if entries((spec.batch, spec.output)):
        outer, chunk = False, CHUNK
    else:
        output_rows, output_columns = map(static_size, spec.output[1:])
        outer = splits_channels(output_rows, output_columns)
        chunk = choose_chunk(static_size(rows_of_blocks), output_rows, outer)
    chunks = ceil_div(spec.output[1], chunk)
    with f.items() as item:
        n, block, d, row_chunk = item_position(f, item.index, blocks, spec.output[0], chunks, outer)
        start = f.imul(row_chunk, chunk)
        stop = f.clamp(f.iadd(start, chunk), 0, spec.output[1])
        for depth in _stretches(spec, 0):
            with _within(f, d, depth):
                deep = depth.run or run_at(f, spec, 0, d)
                for rows in _stretches(spec, 1):
                    low = f.clamp(start, rows.first, rows.first + rows.count)
                    high = f.clamp(stop, rows.first, rows.first + rows.count)
                    with f.loop(high, start=low) as row:
                        high_run = rows.run or run_at(f, spec, 1, row.index)
                        for cols in _stretches(spec, 2):
                            outer_runs = (deep, high_run)
                            _emit_row(f, spec, (n, block), (d, row.index), outer_runs, cols)
    elements = spec.batch * spec.channels * (math.prod(spec.size) + math.prod(spec.output))
    flops = spec.batch * spec.channels * math.prod(spec.output) * math.prod(spec.kernel)
    return f.finish(rows_of_blocks * chunks, flops, 4 * elements)


def _within(f: FunctionBuilder, index: Index, run: _Stretch):  # type: ignore[no-untyped-def]
    """Code for those values of `index` that belong to `run`."""
    above = f.b.icmp_signed(">=", f.i64(index), f.i64(run.first))
    below = f.b.icmp_signed("<", f.i64(index), f.i64(run.first + run.count))
    return f.when(f.b.and_(above, below))


def _emit_row(
    f: FunctionBuilder,
    spec: PoolSpec,
    channels: tuple[Index, Index],
    position: tuple[Index, Index],
    outer: tuple[_Run, _Run],
    cols: _Stretch,
) -> None:
    """Neighboring outputs of one row, in tiles; outer: the runs of depth and row."""
    if cols.run is None:
        with f.loop(cols.count) as t:
            col = f.iadd(t.index, cols.first)
            runs = (*outer, run_at(f, spec, 2, col))
            emit_tile(f, spec, channels, (*position, col), runs, 1)
        return
    full, remainder = divmod(cols.count, TILE)
    if full != 0:
        with f.loop(full) as t:
            col = f.iadd(f.imul(t.index, TILE), cols.first)
            emit_tile(f, spec, channels, (*position, col), (*outer, cols.run), TILE)
    for first, size in f.remainder(remainder, TILE):
        col = cols.first + full * TILE + first
        emit_tile(f, spec, channels, (*position, col), (*outer, cols.run), size)


def emit_tile(
    f: FunctionBuilder,
    spec: PoolSpec,
    channels: tuple[Index, Index],
    position: tuple[Index, Index, Index],
    runs: tuple[_Run, _Run, _Run],
    size: int,
) -> None:
    n, block = channels
    input_position = [
        f.iadd(f.iadd(f.imul(i, s), f.imul(run.taps[0], d)), -p)
        for i, s, d, p, run in zip(
            position, spec.strides, spec.dilations, spec.pads, runs, strict=True
        )
    ]
    x = spec.x.at(f, f.args[0], n, block, input_position, dtype=spec.dtype)
    steps = [d * s for d, s in zip(spec.dilations, spec.x.space, strict=True)]
    counts = [f.iadd(run.taps[1], f.imul(run.taps[0], -1)) for run in runs]
    start = _start(f, spec)
    state = [start] * size
    across = spec.strides[2] * spec.x.pixel
    if not any(isinstance(count, int) and count == 0 for count in counts):
        with f.loop(counts[0], carry=state) as kd:
            with f.loop(counts[1], carry=kd.values) as kh:
                with f.loop(counts[2], carry=kh.values) as kw:
                    terms = zip((kd.index, kh.index, kw.index), steps, strict=True)
                    source = f.anchor(f.at(x, *terms, dtype=spec.dtype))
                    pointers = [f.at(source, i * across, dtype=spec.dtype) for i in range(size)]
                    seen = [f.load(position, spec.dtype) for position in pointers]
                    kw.next([_join(f, spec, a, v) for a, v in zip(kw.values, seen, strict=True)])
                kh.next(kw.results)
            kd.next(kh.results)
        state = kd.results
    divisor: Index = 1
    for run in runs:
        divisor = f.imul(divisor, run.counted)
    for i, value in enumerate(state):
        if spec.kind == "average":
            value = f.b.fdiv(value, _as_float(f, divisor, spec.dtype))
        elif spec.kind == "norm2":
            value = f.b.call(_function(f, "sqrt", value, spec.dtype), [value])
        elif spec.kind == "rounded":
            assert isinstance(divisor, int), "sizes of means of integers are known"
            value = _rounded_mean(f, value, divisor)
        location = (n, block, list(position), (0, 0, i))
        (result,) = finished(f, spec.epilogue, f.args[1:-1], [value], [location])
        f.store(result, spec.y.at(f, f.args[-1], *location, dtype=spec.stored))


def _as_float(f: FunctionBuilder, count: Index, dtype: str) -> ir.Value:
    """A number of elements, in every lane."""
    if isinstance(count, int):
        return f.constant(float(count), dtype)
    return f.splat(f.b.sitofp(f.i64(count), ELEMENT_TYPES[dtype]))


def _start(f: FunctionBuilder, spec: PoolSpec) -> ir.Value:
    """What a window starts from."""
    if spec.kind == "rounded":
        return f.constant(0, "int32")
    if spec.dtype in FLOATS:
        return f.constant(-math.inf if spec.kind == "max" else 0.0, spec.dtype)
    return f.constant(int(np.iinfo(spec.dtype).min), spec.dtype)


def _rounded_mean(f: FunctionBuilder, total: ir.Value, count: int) -> ir.Value:
    """total / count, halves away from zero."""
    arith = LlvmArith(f)
    value = arith.bind(total, "int32")
    half, divisor = (arith.const(n, "int32") for n in (count // 2, max(count, 1)))
    size = arith.div(arith.add(arith.abs(value), half), divisor)
    positive = arith.gt(value, arith.const(0, "int32"))
    return arith.unbind(arith.select(positive, size, arith.neg(size)))


def _join(f: FunctionBuilder, spec: PoolSpec, acc: ir.Value, value: ir.Value) -> ir.Value:
    if spec.kind == "norm2":
        return f.fma(value, value, acc)
    if spec.kind == "norm1":
        value = f.b.call(_function(f, "fabs", value, spec.dtype), [value])
    if spec.kind in ("average", "norm1"):
        return f.b.fadd(acc, value)
    if spec.kind == "rounded":
        extend = f.b.zext if spec.dtype.startswith("u") else f.b.sext
        return f.b.add(acc, extend(value, acc.type))
    arith = LlvmArith(f)
    largest = arith.max(arith.bind(acc, spec.dtype), arith.bind(value, spec.dtype))
    return arith.unbind(largest)


def _function(f: FunctionBuilder, name: str, value: ir.Value, dtype: str) -> ir.Function:
    """LLVM's function of one vector like `value`."""
    kind = value.type
    return f.module.intrinsic(f"llvm.{name}.v{LANES}f{dtype.removeprefix('float')}", kind, [kind])
