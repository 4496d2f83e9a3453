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
    Strides,
    Triple,
    by,
    finished,
    fused,
    operand_dtypes,
)
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES
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
    batch: int
    channels: int
    size: Triple
    output: Triple
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
        end = min(self.kernel[axis], (self.size[axis] - 1 - start) // d + 1)
        return (first, end) if first < end else (0, 0)

    def counted(self, axis: int, output: int) -> int:
        """Kernel positions that count towards a mean, at an output position."""
        if not self.count_include_pad:
            first, end = self.taps(axis, output)
            return end - first
        start, d = output * self.strides[axis] - self.pads[axis], self.dilations[axis]
        last = self.size[axis] + self.pads_after[axis] - 1
        return max(0, min(self.kernel[axis], (last - start) // d + 1))

    @property
    def pieces(self) -> int:
        """Pieces of code that differ in the kernel positions they read."""
        return math.prod(len(_runs(self, axis)) for axis in range(3))


@dataclasses.dataclass(frozen=True)
class _Run:
    """Neighboring outputs of one axis with the same kernel positions inside the input."""

    first: int
    count: int
    taps: tuple[int, int]
    counted: int


def _runs(spec: PoolSpec, axis: int) -> list[_Run]:
    keys = [(spec.taps(axis, o), spec.counted(axis, o)) for o in range(spec.output[axis])]
    runs, first = [], 0
    for (taps, counted), same in itertools.groupby(keys):
        count = len(list(same))
        runs.append(_Run(first, count, taps, counted))
        first += count
    return runs


TILE = 8
"""Outputs of a row computed together: enough chains to hide latency."""


KNOWN = ("float32", "float64", "int8", "uint8", "int16", "int32")
"""Element types of pools."""


@emits(PoolSpec, dtypes=KNOWN)
def emit_pool(module: ModuleBuilder, spec: PoolSpec) -> Kernel:
    """The kernel for `spec`. Items: a chunk of rows of one block of channels, at one depth."""
    operands = spec.epilogue.operands if spec.epilogue else ()
    f = module.kernel(("pool", spec), 2 + len(operands))
    if f.kernel is not None:
        return f.kernel
    blocks = -(-spec.channels // LANES)
    rows_of_blocks = spec.batch * blocks * spec.output[0]
    outer = splits_channels(*spec.output[1:])
    chunk = choose_chunk(rows_of_blocks, spec.output[1], outer)
    chunks = -(-spec.output[1] // chunk)
    with f.items() as item:
        n, block, d, row_chunk = item_position(f, item.index, blocks, spec.output[0], chunks, outer)
        start = f.imul(row_chunk, chunk)
        stop = f.clamp(f.iadd(start, chunk), 0, spec.output[1])
        for depth in _runs(spec, 0):
            with _within(f, d, depth):
                for rows in _runs(spec, 1):
                    low = f.clamp(start, rows.first, rows.first + rows.count)
                    high = f.clamp(stop, rows.first, rows.first + rows.count)
                    with f.loop(high, start=low) as row:
                        for cols in _runs(spec, 2):
                            _emit_row(f, spec, (n, block), (d, row.index), (depth, rows, cols))
    elements = spec.batch * spec.channels * (math.prod(spec.size) + math.prod(spec.output))
    flops = spec.batch * spec.channels * math.prod(spec.output) * math.prod(spec.kernel)
    return f.finish(rows_of_blocks * chunks, flops, 4 * elements)


def _within(f: FunctionBuilder, index: Index, run: _Run):  # type: ignore[no-untyped-def]
    """Code for those values of `index` that belong to `run`."""
    above = f.b.icmp_signed(">=", f.i64(index), f.i64(run.first))
    below = f.b.icmp_signed("<", f.i64(index), f.i64(run.first + run.count))
    return f.when(f.b.and_(above, below))


def _emit_row(
    f: FunctionBuilder,
    spec: PoolSpec,
    channels: tuple[Index, Index],
    position: tuple[Index, Index],
    runs: tuple[_Run, _Run, _Run],
) -> None:
    """Neighboring outputs of one row, in tiles."""
    cols = runs[2]
    full, remainder = divmod(cols.count, TILE)
    for first, count, size in ((0, full, TILE), (full * TILE, 1, remainder)):
        if count and size:
            with f.loop(count) as t:
                col = f.iadd(f.imul(t.index, size), cols.first + first)
                _emit_tile(f, spec, channels, (*position, col), runs, size)


def _emit_tile(
    f: FunctionBuilder,
    spec: PoolSpec,
    channels: tuple[Index, Index],
    position: tuple[Index, Index, Index],
    runs: tuple[_Run, _Run, _Run],
    size: int,
) -> None:
    n, block = channels
    input_position = [
        f.iadd(f.imul(i, s), run.taps[0] * d - p)
        for i, s, d, p, run in zip(
            position, spec.strides, spec.dilations, spec.pads, runs, strict=True
        )
    ]
    x = spec.x.at(f, f.args[0], n, block, input_position, dtype=spec.dtype)
    steps = [d * s for d, s in zip(spec.dilations, spec.x.space, strict=True)]
    counts = [run.taps[1] - run.taps[0] for run in runs]
    start = _start(f, spec)
    state = [start] * size
    across = spec.strides[2] * spec.x.pixel
    if math.prod(counts):
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
    divisor = math.prod(run.counted for run in runs)
    for i, value in enumerate(state):
        if spec.kind == "average":
            value = f.b.fdiv(value, f.constant(float(divisor), spec.dtype))
        elif spec.kind == "norm2":
            value = f.b.call(_function(f, "sqrt", value, spec.dtype), [value])
        elif spec.kind == "rounded":
            value = _rounded_mean(f, value, divisor)
        location = (n, block, list(position), (0, 0, i))
        (result,) = finished(f, spec.epilogue, f.args[1:-1], [value], [location])
        f.store(result, spec.y.at(f, f.args[-1], *location, dtype=spec.stored))


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
