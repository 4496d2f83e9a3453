"""Regions of an image, each with bins of its own: RoiAlign, MaxRoiPool.

Samples are computed in float64 and rounded once, to float32. Where a region's samples lie along
either axis is found once and kept in scratch memory, then every channel is read there.
"""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.llvm.lanes import joined_lanes
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES

MOST_ITEMS = 8
"""Each has scratch memory of its own."""
_ENTRY = 4  # of a sample along one axis: both neighbors and their weights, 8 bytes each
F32, F64 = "float32", "float64"


@dataclasses.dataclass(frozen=True)
class AlignSpec:
    """y[r, c, i, j] = the mean (or the largest corner) of the samples in bin (i, j) of region r.

    x: (batch, channels, height, width), contiguous, as is y: (regions, channels, *bins). ratio:
    samples of a bin along each axis, 0 for as many as it is wide. scale, shift: of coordinates.
    dtype, regions_dtype: of x and y, and of the regions. Arguments: x, regions [regions, 4], their
    images (index_dtype), scratch (`scratch_bytes`), y, and the int32 that is set to 1 where a
    region is not finite, has too many samples, or is of an image that does not exist.
    """

    batch: int
    channels: int
    size: tuple[int, int]
    regions: int
    bins: tuple[int, int]
    ratio: int
    scale: float
    shift: float
    largest: bool
    index_dtype: str
    dtype: str = F32
    regions_dtype: str = F32

    def __str__(self) -> str:
        bins = "x".join(map(str, self.bins))
        return f"{self.dtype} {self.regions} regions of {self.channels} channels in {bins} bins"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.dtype, self.regions_dtype, self.index_dtype

    @property
    def items(self) -> int:
        return min(self.regions, MOST_ITEMS)

    def max_samples(self, axis: int) -> int:
        """The largest supported count of samples per bin along `axis`."""
        return self.ratio or 4 * (self.size[axis] + 2)

    @property
    def item_bytes(self) -> int:
        return sum(8 * _ENTRY * self.bins[a] * self.max_samples(a) for a in (0, 1)) + 64

    @property
    def scratch_bytes(self) -> int:
        return self.items * self.item_bytes


@emits(AlignSpec, dtypes=(F32, F64, "int32", "int64"))
def emit_align(module: ModuleBuilder, spec: AlignSpec) -> Kernel:
    """Items: some neighboring regions."""
    f = module.kernel(spec, 6, hint="align")
    if f.kernel is not None:
        return f.kernel
    regions_per_item = -(-spec.regions // spec.items)
    with f.items() as item:
        scratch = f.at(f.args[3], (item.index, spec.item_bytes), dtype="int8")
        start = f.imul(item.index, regions_per_item)
        end = f.clamp(f.iadd(start, regions_per_item), 0, spec.regions)
        with f.loop(end, start=start) as region:
            _Region(f, spec, region.index, scratch).emit()
    written = spec.regions * spec.channels * math.prod(spec.bins)
    return f.finish(spec.items, 64 * written, 20 * written)


class _Region:
    """One region being written."""

    def __init__(
        self, f: FunctionBuilder, spec: AlignSpec, region: Index, scratch: ir.Value
    ) -> None:
        self.f, self.b, self.spec, self.region = f, f.b, spec, region
        self.m = LlvmArith(f, lanes=0)
        rows = spec.bins[0] * spec.max_samples(0) * _ENTRY
        self.tables = scratch, f.at(scratch, rows, dtype=F64)

    def emit(self) -> None:
        f, b, m, spec = self.f, self.b, self.m, self.spec
        corners = [
            self._load(f.args[1], spec.regions_dtype, (self.region, 4), k) for k in (1, 0, 3, 2)
        ]  # by axis: height, then width
        raw = f.load(
            f.at(f.args[2], (self.region, 1), dtype=spec.index_dtype), spec.index_dtype, lanes=0
        )
        image = raw if spec.index_dtype == "int64" else b.sext(raw, I64)
        good = b.icmp_unsigned("<", image, f.i64(spec.batch))
        for value in corners:
            good = b.and_(good, m.unbind(m.lt(m.abs(value), m.const(math.inf, F64))))
        axes = []
        for axis in (0, 1):
            start, width, points, fits = self._axis(axis, corners[axis], corners[axis + 2])
            good = b.and_(good, fits)
            axes.append((start, width, points))
        with b.if_else(good) as (inside, outside):
            with inside:
                for axis, axis_geometry in enumerate(axes):
                    self._list(axis, *axis_geometry)
                self._channels(image, axes[0][2], axes[1][2])
            with outside:
                b.store(ir.Constant(I32, 1), f.args[5], align=4)

    def _load(self, pointer: ir.Value, dtype: str, *terms: Index | tuple[Index, Index]) -> Typed:
        """One number, as float64."""
        return _number_at(self.f, self.m, pointer, dtype, *terms)

    def _axis(self, axis: int, low: Typed, high: Typed) -> tuple[Typed, Typed, ir.Value, ir.Value]:
        """Where the region starts, how wide its bins are, samples of one, whether they fit."""
        f, m, spec = self.f, self.m, self.spec
        scale, shift = m.const(spec.scale, F64), m.const(spec.shift, F64)
        start = m.sub(m.mul(low, scale), shift)
        extent = m.sub(m.sub(m.mul(high, scale), shift), start)
        if not spec.shift:
            one = m.const(1.0, F64)
            extent = m.select(m.lt(extent, one), one, extent)
        width = m.div(extent, m.const(float(spec.bins[axis]), F64))
        if spec.ratio:
            return start, width, f.i64(spec.ratio), ir.Constant(ir.IntType(1), 1)
        count, zero = m.ceil(width), m.const(0.0, F64)
        fits = m.le(count, m.const(float(spec.max_samples(axis)), F64))
        count = m.select(m.and_(fits, m.gt(count, zero)), count, zero)
        return start, width, m.unbind(m.convert(count, "int64")), m.unbind(fits)

    def _entry(self, axis: int, index: Index) -> ir.Value:
        return self.f.at(self.tables[axis], (index, _ENTRY), dtype=F64)

    def _list(self, axis: int, start: Typed, width: Typed, points: ir.Value) -> None:
        """Neighbors (as offsets in the image) and weights of the samples along an axis."""
        f, b, m, spec = self.f, self.b, self.m, self.spec
        size, step = spec.size[axis], spec.size[1] if axis == 0 else 1
        zero, one, half = (m.const(v, F64) for v in (0.0, 1.0, 0.5))
        count = m.convert(m.bind(points, "int64"), F64)
        with f.loop(spec.bins[axis]) as i, f.loop(points) as p:
            bin_offset = m.mul(self._to_float64(i.index), width)
            sample_offset = m.div(m.mul(m.add(self._to_float64(p.index), half), width), count)
            at = m.add(m.add(start, bin_offset), sample_offset)
            inside = m.and_(m.ge(at, m.const(-1.0, F64)), m.le(at, m.const(float(size), F64)))
            last = m.const(float(size - 1), F64)
            clipped = m.select(m.lt(at, zero), zero, m.select(m.gt(at, last), last, at))
            floor = m.floor(clipped)
            low = m.unbind(m.convert(floor, "int64"))
            beyond = b.icmp_signed("<", low, f.i64(size - 1))
            high = b.select(beyond, b.add(low, f.i64(1)), low)
            t = m.sub(clipped, floor)
            weights = (m.select(inside, m.sub(one, t), zero), m.select(inside, t, zero))
            entry = self._entry(axis, f.iadd(f.imul(i.index, points), p.index))
            for k, neighbor in enumerate((low, high)):
                f.store(b.mul(neighbor, f.i64(step)), f.at(entry, k, dtype="int64"))
                f.store(m.unbind(weights[k]), f.at(entry, 2 + k, dtype=F64))

    def _to_float64(self, index: Index) -> Typed:
        return self.m.convert(self.m.bind(self.f.i64(index), "int64"), F64)

    def _channels(self, image: ir.Value, rows: ir.Value, columns: ir.Value) -> None:
        f, m, spec = self.f, self.m, self.spec
        area = math.prod(spec.size)
        x = f.at(f.args[0], (image, spec.channels * area), dtype=spec.dtype)
        written = spec.channels * math.prod(spec.bins)
        y = f.at(f.args[4], (self.region, written), dtype=spec.dtype)
        count = f.b.mul(rows, columns)
        total = m.convert(m.bind(count, "int64"), F64)
        has_samples = m.bind(f.b.icmp_signed(">", count, f.i64(0)), "bool")
        first = m.unbind(m.const(-math.inf if spec.largest else 0.0, F64))
        with f.loop(spec.channels) as c:
            plane = f.at(x, (c.index, area), dtype=spec.dtype)
            with f.loop(spec.bins[0]) as i, f.loop(spec.bins[1]) as j:
                with f.loop(rows, carry=[first]) as p:
                    with f.loop(columns, carry=p.values) as q:
                        row = self._entry(0, f.iadd(f.imul(i.index, rows), p.index))
                        column = self._entry(1, f.iadd(f.imul(j.index, columns), q.index))
                        value = self._sample(plane, row, column)
                        so_far = m.bind(q.values[0], F64)
                        join = m.max if spec.largest else m.add
                        q.next([m.unbind(join(so_far, value))])
                    p.next(q.results)
                pooled = m.bind(p.results[0], F64)
                zero = m.const(0.0, F64)
                pooled = m.add(pooled, zero) if spec.largest else m.div(pooled, total)
                pooled = m.select(has_samples, pooled, zero)
                terms = ((c.index, math.prod(spec.bins)), (i.index, spec.bins[1]), (j.index, 1))
                rounded = m.convert(pooled, spec.dtype)
                f.store(m.unbind(rounded), f.at(y, *terms, dtype=spec.dtype))

    def _sample(self, plane: ir.Value, row: ir.Value, column: ir.Value) -> Typed:
        """Four corners by their weights: summed, or the largest of them."""
        f, m = self.f, self.m

        def corner_weights(entry: ir.Value) -> list[tuple[ir.Value, Typed]]:
            return [
                (
                    f.load(f.at(entry, k, dtype="int64"), "int64", lanes=0),
                    m.bind(f.load(f.at(entry, 2 + k, dtype=F64), F64, lanes=0), F64),
                )
                for k in (0, 1)
            ]

        total: Typed | None = None
        across = corner_weights(column)
        for offset, wy in corner_weights(row):
            for further, wx in across:
                corner = self._load(plane, self.spec.dtype, (offset, 1), (further, 1))
                term = m.mul(corner, m.mul(wy, wx))
                join = m.max if self.spec.largest else m.add
                total = term if total is None else join(total, term)
        assert total is not None
        return total


def _number_at(
    f: FunctionBuilder,
    m: LlvmArith,
    pointer: ir.Value,
    dtype: str,
    *terms: Index | tuple[Index, Index],
) -> Typed:
    """One number, as float64."""
    return m.convert(m.bind(f.load(f.at(pointer, *terms, dtype=dtype), dtype, lanes=0), dtype), F64)


@dataclasses.dataclass(frozen=True)
class RoiPoolSpec:
    """y[r, c, i, j] = the largest element of bin (i, j) of region r, 0 of an empty one.

    x: (batch, channels, height, width), contiguous, as is y: (regions, channels, *bins). A region's
    corners times `scale` are rounded to whole pixels, halves away from zero. dtype, regions_dtype:
    of x and y, and of the regions. Arguments: x, regions ([regions, 5]: image, left, top, right,
    bottom), y, and the int32 that is set to 1 where a region is not finite or of an image that does
    not exist.
    """

    batch: int
    channels: int
    size: tuple[int, int]
    regions: int
    bins: tuple[int, int]
    scale: float
    dtype: str = F32
    regions_dtype: str = F32

    def __str__(self) -> str:
        description = f"{self.dtype} {self.regions} regions of {self.channels} channels"
        return f"{description}, largest of {'x'.join(map(str, self.bins))} bins"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return self.dtype, self.regions_dtype


@emits(RoiPoolSpec, dtypes=(F32, F64))
def emit_roi_pool(module: ModuleBuilder, spec: RoiPoolSpec) -> Kernel:
    """Items: regions."""
    f = module.kernel(spec, 4, hint="roi_pool")
    if f.kernel is not None:
        return f.kernel
    b, m = f.b, LlvmArith(f, lanes=0)
    with f.items() as region:
        row = (region.index, 5)
        numbers = [_number_at(f, m, f.args[1], spec.regions_dtype, row, k) for k in range(5)]
        good = m.ge(numbers[0], m.const(0.0, F64))
        for value in numbers:
            good = m.and_(good, m.lt(m.abs(value), m.const(math.inf, F64)))
        image = m.unbind(m.convert(numbers[0], "int64"))
        exists = b.and_(m.unbind(good), b.icmp_unsigned("<", image, f.i64(spec.batch)))
        corners = [_whole_pixel(m, v, spec.scale) for v in numbers[1:]]
        with b.if_else(exists) as (inside, outside):
            with inside:
                _largest(f, m, spec, (region.index, image), corners)
            with outside:
                b.store(ir.Constant(I32, 1), f.args[3], align=4)
    written = spec.regions * spec.channels * math.prod(spec.bins)
    return f.finish(spec.regions, 16 * written, 20 * written)


def _whole_pixel(m: LlvmArith, value: Typed, scale: float) -> ir.Value:
    scaled = m.mul(value, m.const(scale, F64))
    size = m.floor(m.add(m.abs(scaled), m.const(0.5, F64)))
    size = m.min(size, m.const(2.0**31, F64))
    return m.unbind(m.convert(m.copysign(size, scaled), "int64"))


def _largest(
    f: FunctionBuilder,
    m: LlvmArith,
    spec: RoiPoolSpec,
    region_image: tuple[Index, ir.Value],
    corners: list[ir.Value],
) -> None:
    """All bins of one region."""
    b, area, dtype = f.b, math.prod(spec.size), spec.dtype

    def edges(axis: int, i: Index) -> tuple[Index, Index]:
        """[first, last) pixel of bin i along an axis."""
        count, low, high = spec.bins[axis], corners[1 - axis], corners[3 - axis]
        extent = b.add(b.sub(high, low), f.i64(1))
        extent = b.select(b.icmp_signed("<", extent, f.i64(1)), f.i64(1), extent)
        start = b.udiv(b.mul(f.i64(i), extent), f.i64(count))
        end = b.mul(f.i64(f.iadd(i, 1)), extent)
        end = b.udiv(b.add(end, f.i64(count - 1)), f.i64(count))
        size = spec.size[axis]
        return f.clamp(b.add(low, start), 0, size), f.clamp(b.add(low, end), 0, size)

    region, image = region_image
    lanes = LlvmArith(f)
    minus = lanes.unbind(lanes.const(-math.inf, dtype))

    def larger(a: ir.Value, b: ir.Value) -> ir.Value:
        return lanes.unbind(lanes.max(lanes.bind(a, dtype), lanes.bind(b, dtype)))

    with f.loop(spec.bins[0]) as i, f.loop(spec.bins[1]) as j:
        (top, bottom), (left, right) = edges(0, i.index), edges(1, j.index)
        is_nonempty = b.and_(
            b.icmp_signed("<", f.i64(top), f.i64(bottom)),
            b.icmp_signed("<", f.i64(left), f.i64(right)),
        )
        with f.loop(spec.channels) as c:
            plane = f.at(f.args[0], (image, spec.channels * area), (c.index, area), dtype=dtype)
            with f.loop(bottom, start=top, carry=[minus]) as p:
                with f.loop(right, step=LANES, start=left, carry=p.values) as q:
                    at = f.at(plane, (p.index, spec.size[1]), (q.index, 1), dtype=dtype)
                    remaining = f.clamp(b.sub(f.i64(right), f.i64(q.index)), 0, LANES)
                    seen = f.load_masked(at, f.first(remaining), minus, dtype)
                    q.next([larger(q.values[0], seen)])
                p.next(q.results)
            largest = b.extract_element(joined_lanes(f, p.results[0], larger), ir.Constant(I32, 0))
            value = b.select(is_nonempty, largest, m.unbind(m.const(0.0, dtype)))
            bins = math.prod(spec.bins)
            terms = ((region, spec.channels * bins), (c.index, bins), (i.index, spec.bins[1]))
            f.store(value, f.at(f.args[2], *terms, (j.index, 1), dtype=dtype))
