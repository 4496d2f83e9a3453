"""Largest element over windows of row-major planes, along rows first and then along columns.

What is compared are keys: whole numbers that are ordered as elements are, +0 above -0 and every NaN
above infinity, so that a maximum is one instruction and its order changes no bit. The least key
stands for padding. Each row of the input becomes keys once, and is reduced along itself once,
however many windows share it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from verax.compiler.kernels.convolution.tiles import choose_chunk
from verax.compiler.kernels.layout import Triple, by
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES

ITEMS = 64
"""Each has scratch memory of its own, if it is the first of its thread's."""
SCRATCH = 1 << 16
"""Bytes of rows that an item keeps, if they are enough for a few windows."""
UNROLLED = 8
"""Kernel positions of an axis with code of their own each."""
KEYS = {
    "float32": "int32",
    "float64": "int64",
    **{n: n for n in ("int8", "uint8", "int16", "int32")},
}
"""Type of the keys, by type of the elements."""
_BESIDE = 10
_REST = {"float32": (1 << 23) - 1, "float64": (1 << 52) - 1}  # brings -inf to the least key


@dataclasses.dataclass(frozen=True)
class PlanarMaxSpec:
    """The largest elements of `planes` planes, each row-major and dense; the rest per axis (depth,
    row, column). Arguments of the kernel: x, scratch (`scratch_bytes`), y."""

    planes: int
    size: Triple
    output: Triple
    kernel: Triple
    strides: Triple
    dilations: Triple
    pads: Triple
    dtype: str

    def __str__(self) -> str:
        return (
            f"{self.dtype} max pool {self.planes} x {by(self.output)} row-major, "
            f"kernel {by(self.kernel)}, stride {by(self.strides)}"
        )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of everything read and written."""
        return (self.dtype,)

    def reach(self, axis: int, outputs: int) -> int:
        """Input positions from the first to the last that so many neighboring outputs see."""
        return (
            (outputs - 1) * self.strides[axis] + (self.kernel[axis] - 1) * self.dilations[axis] + 1
        )

    @property
    def width(self) -> int:
        """Elements of a reduced row."""
        return -(-self.output[2] // LANES) * LANES

    @property
    def chunk(self) -> int:
        """Rows of output that are made from rows kept together."""
        rows = choose_chunk(self.planes * self.output[0], self.output[1])
        scratch_rows = SCRATCH // (ELEMENT_SIZES[self.dtype] * self.width * self.kernel[0])
        min_rows = 4 * -(-self.reach(1, 1) // self.strides[1])
        return min(rows, max(min_rows, (scratch_rows - self.reach(1, 1)) // self.strides[1] + 1))

    @property
    def units(self) -> int:
        """Chunks in all."""
        return self.planes * self.output[0] * -(-self.output[1] // self.chunk)

    @property
    def units_per_item(self) -> int:
        return -(-self.units // ITEMS)

    @property
    def items(self) -> int:
        return -(-self.units // self.units_per_item)

    @property
    def reduced_elements(self) -> int:
        """Elements of the reduced rows of a chunk."""
        return self.kernel[0] * self.reach(1, self.chunk) * self.width

    @property
    def line(self) -> int:
        """Elements of a row of keys with its padding, and what vectors reach beyond."""
        row = max(self.pads[2] + self.size[2], self.reach(2, self.width))
        return -(-row // LANES) * LANES + 2 * LANES

    @property
    def item_elements(self) -> int:
        """Reduced rows, a row of keys, and the same row reduced at every position."""
        return self.reduced_elements + 2 * self.line

    @property
    def scratch_bytes(self) -> int:
        return self.items * self.item_elements * ELEMENT_SIZES[self.dtype]

    @property
    def cost(self) -> float:
        """About the instructions on vectors of 16, each row costing some beside."""
        output_vectors, stride = -(-self.output[2] // LANES), self.strides[2]
        along = output_vectors * stride * self.kernel[2] + (2 * self.output[2] if stride > 2 else 0)
        reduced = 6 * -(-self.size[2] // LANES) + along + _BESIDE
        across = output_vectors * (self.kernel[0] * self.kernel[1] + 5) + _BESIDE
        return self.planes * (
            self.size[0] * self.size[1] * reduced + self.output[0] * self.output[1] * across
        )


def blocked_cost(spec: PlanarMaxSpec, channels: int) -> float:
    """The same of putting images of so many channels in blocks, and reducing these."""
    blocks = -(-channels // LANES)
    taps = math.prod(min(k, n) for k, n in zip(spec.kernel, spec.size, strict=True))
    images = spec.planes // channels
    return images * blocks * (8 * math.prod(spec.size) + math.prod(spec.output) * (5 * taps + 3))


@emits(PlanarMaxSpec, dtypes=tuple(KEYS))
def emit_planar_max(module: ModuleBuilder, spec: PlanarMaxSpec) -> Kernel:
    """The kernel for `spec`. Items: some chunks of rows of one plane at one depth."""
    f = module.kernel(("planar_max", spec), 3)
    if f.kernel is not None:
        return f.kernel
    scratch = f.at(f.args[1], (f.begin, spec.item_elements), dtype=KEYS[spec.dtype])
    per_item = spec.units_per_item
    with f.items() as item:
        first = f.imul(item.index, per_item)
        last = f.clamp(f.iadd(first, per_item), 0, spec.units)
        with f.loop(last, start=first) as unit:
            _Chunk(f, spec, unit.index, scratch).emit()
    elements = spec.planes * (math.prod(spec.size) + math.prod(spec.output))
    flops = spec.planes * math.prod(spec.output) * math.prod(spec.kernel)
    return f.finish(spec.items, flops, ELEMENT_SIZES[spec.dtype] * elements)


class _Chunk:
    """Some rows of output being written."""

    def __init__(
        self, f: FunctionBuilder, spec: PlanarMaxSpec, index: Index, scratch: ir.Value
    ) -> None:
        self.f, self.b, self.spec = f, f.b, spec
        self.key = KEYS[spec.dtype]
        self.plane, self.depth, chunk = f.split(
            index, spec.output[0], -(-spec.output[1] // spec.chunk)
        )
        self.row = f.imul(chunk, spec.chunk)
        self.rows = f.clamp(f.iadd(spec.output[1], f.imul(self.row, -1)), 0, spec.chunk)
        self.reduced = scratch
        self.line = self._at(scratch, spec.reduced_elements)
        self.everywhere = self._at(self.line, spec.line)
        self.seen = spec.reach(1, spec.chunk)  # rows of input, with padding

    def emit(self) -> None:
        """Rows of keys along themselves, then across rows."""
        f, spec = self.f, self.spec
        lowest = f.constant(_min_key(self.key), self.key)
        for start in range(0, spec.pads[2], LANES):
            f.store(lowest, self._at(self.line, start))
        rows = f.iadd(f.imul(f.iadd(self.rows, -1), spec.strides[1]), spec.reach(1, 1))
        with f.loop(spec.kernel[0]) as a, f.loop(rows) as r:
            z = self._source(0, self.depth, a.index, spec.dilations[0])
            y = self._source(1, self.row, r.index, 1)
            target = self._at(self.reduced, self._row_offset(a.index, r.index))
            inside = f.b.and_(
                f.b.icmp_unsigned("<", f.i64(z), f.i64(spec.size[0])),
                f.b.icmp_unsigned("<", f.i64(y), f.i64(spec.size[1])),
            )
            with f.b.if_else(inside) as (real, padding):
                with real:
                    depth, height, width = spec.size
                    terms = (self.plane, depth * height * width), (z, height * width), (y, width)
                    self._reduce_line(f.at(f.args[0], *terms, dtype=spec.dtype), target)
                with padding, f.loop(spec.width, step=LANES) as at:
                    f.store(lowest, self._at(target, at.index))
        with f.loop(self.rows) as o:
            self._across(o.index)

    def _at(self, pointer: ir.Value, *terms: Index | tuple[Index, Index]) -> ir.Value:
        return self.f.at(pointer, *terms, dtype=self.key)

    def _source(self, axis: int, output: Index, step: Index, dilation: int) -> Index:
        """Position in the input, which may be negative."""
        f, spec = self.f, self.spec
        offset = f.iadd(f.imul(output, spec.strides[axis]), f.imul(step, dilation))
        return f.iadd(offset, -spec.pads[axis])

    def _row_offset(self, depth: Index, row: Index) -> Index:
        """Offset of a reduced row, in elements."""
        f, width = self.f, self.spec.width
        return f.iadd(f.imul(depth, self.seen * width), f.imul(row, width))

    def _reduce_line(self, source: ir.Value, target: ir.Value) -> None:
        """The largest key of each window of a row."""
        f, spec = self.f, self.spec
        width, begin, stride = spec.size[2], spec.pads[2], spec.strides[2]
        for at in _vectors(f, width):
            read = f.at(source, at, dtype=spec.dtype)
            fits_vector = width >= LANES
            value = (
                f.load(read, spec.dtype) if fits_vector else f.load_first(read, width, spec.dtype)
            )
            f.store(self._keys(value), self._at(self.line, at, begin))
        lowest = f.constant(_min_key(self.key), self.key)
        for start in range(begin + width, spec.reach(2, spec.output[2]), LANES):
            f.store(lowest, self._at(self.line, start))
        if stride <= 2:
            for at in _vectors(f, spec.output[2]):
                f.store(
                    self._along(self._at(self.line, (at, stride)), stride), self._at(target, at)
                )
            return
        with f.loop((spec.output[2] - 1) * stride + 1, step=LANES) as q:
            largest = self._along(self._at(self.line, q.index), 1)
            f.store(largest, self._at(self.everywhere, q.index))
        with f.loop(spec.output[2]) as o:
            one = f.load(self._at(self.everywhere, (o.index, stride)), self.key, lanes=0)
            f.store(one, self._at(target, o.index))

    def _along(self, start: ir.Value, stride: int) -> ir.Value:
        """16 neighboring windows of a row, 1 or 2 apart."""
        f, spec = self.f, self.spec

        def seen(tap: Index) -> ir.Value:
            pointer = self._at(start, (tap, spec.dilations[2]))
            if stride == 1:
                return f.load(pointer, self.key)
            here, there = f.load(pointer, self.key), f.load(self._at(pointer, LANES), self.key)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), list(range(0, 2 * LANES, 2)))
            return f.b.shuffle_vector(here, there, lanes)

        if spec.kernel[2] <= UNROLLED:
            return self._largest(seen(k) for k in range(spec.kernel[2]))
        with f.loop(spec.kernel[2], carry=[f.constant(_min_key(self.key), self.key)]) as k:
            k.next([self._largest([k.values[0], seen(k.index)])])
        return k.results[0]

    def _across(self, row: Index) -> None:
        """A row of output: the largest of reduced rows."""
        f, spec = self.f, self.spec
        top = self._at(self.reduced, (row, spec.strides[1] * spec.width))
        terms = (self.plane, spec.output[0]), self.depth
        outer = f.imul(f.iadd(f.imul(*terms[0]), terms[1]), spec.output[1])
        line = f.imul(f.iadd(f.iadd(outer, self.row), row), spec.output[2])
        y = f.at(f.args[2], line, dtype=spec.dtype)
        for at in _vectors(f, spec.output[2]):
            value = self._elements(self._window(self._at(top, at)))
            pointer = f.at(y, at, dtype=spec.dtype)
            for start, count in _power_of_two_pieces(min(spec.output[2], LANES)):
                piece = value if count == LANES else _lanes(f, value, start, count)
                f.store(piece, f.at(pointer, start, dtype=spec.dtype))

    def _window(self, start: ir.Value) -> ir.Value:
        f, spec = self.f, self.spec
        depths, rows = spec.kernel[:2]

        def seen(a: Index, k: Index) -> ir.Value:
            return f.load(
                self._at(start, self._row_offset(a, f.imul(k, spec.dilations[1]))), self.key
            )

        if depths * rows <= UNROLLED:
            return self._largest(seen(a, k) for a in range(depths) for k in range(rows))
        with f.loop(depths, carry=[f.constant(_min_key(self.key), self.key)]) as a:
            with f.loop(rows, carry=a.values) as k:
                k.next([self._largest([k.values[0], seen(a.index, k.index)])])
            a.next(k.results)
        return a.results[0]

    # --- keys

    def _largest(self, keys: Iterable[ir.Value]) -> ir.Value:
        b = self.b
        largest, *remaining = keys
        compare = b.icmp_unsigned if self.key.startswith("u") else b.icmp_signed
        for candidate in remaining:
            largest = b.select(compare(">", candidate, largest), candidate, largest)
        return largest

    def _keys(self, elements: ir.Value) -> ir.Value:
        if self.key == self.spec.dtype:
            return elements
        bits = self.b.bitcast(elements, self.f.vector_type(self.key))
        return self.b.sub(self._ordered_bits(bits), self._constant(_REST[self.spec.dtype]))

    def _elements(self, keys: ir.Value) -> ir.Value:
        if self.key == self.spec.dtype:
            return keys
        bits = self._ordered_bits(self.b.add(keys, self._constant(_REST[self.spec.dtype])))
        return self.b.bitcast(bits, self.f.vector_type(self.spec.dtype))

    def _ordered_bits(self, bits: ir.Value) -> ir.Value:
        """`bits` with all but the sign inverted where the sign is set, so that integers compare
        like the floats; applied twice it is the identity."""
        sign = self.b.ashr(bits, self._constant(8 * ELEMENT_SIZES[self.key] - 1))
        return self.b.xor(bits, self.b.lshr(sign, self._constant(1)))

    def _constant(self, value: int) -> ir.Value:
        return self.f.constant(value, self.key)


def _min_key(key: str) -> int:
    return 0 if key.startswith("u") else -(1 << (8 * ELEMENT_SIZES[key] - 1))


def _vectors(f: FunctionBuilder, extent: int) -> Iterator[Index]:
    """Positions of vectors that cover `extent` elements, the last one over the one before it; where
    there are fewer than 16, one that reaches beyond. Code goes where the iterator stands."""
    full, remainder = divmod(extent, LANES)
    if full:
        with f.loop(full * LANES, step=LANES) as loop:
            yield loop.index
    if remainder:
        yield max(0, extent - LANES)


def _power_of_two_pieces(count: int) -> Iterator[tuple[int, int]]:
    """(first, lanes) of pieces of 16, 8, 4, 2 and 1 lanes that make up `count`."""
    first, size = 0, LANES
    while size:
        if count & size:
            yield first, size
            first += size
        size //= 2


def _lanes(f: FunctionBuilder, value: ir.Value, start: int, count: int) -> ir.Value:
    """Some lanes of a vector; a scalar for one."""
    if count == 1:
        return f.b.extract_element(value, ir.Constant(ir.IntType(32), start))
    return f.shuffle(value, range(start, start + count))


assert set(_REST) < set(KEYS) and all(KEYS[name] in ELEMENT_TYPES for name in KEYS)
