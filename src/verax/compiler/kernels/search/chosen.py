"""Elements that are counted while they are found: NonZero, Compress, Unique.

How many there are is known only when it runs, so each writes into room for all of them and says how
much of it holds something.
"""

from __future__ import annotations

import dataclasses
import math

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.emit import store_count
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.search import hash_table
from verax.compiler.kernels.search.sorting import SORTED, Row, int64_pointer
from verax.compiler.kernels.sizes import Size, all_open
from verax.compiler.kernels.target import LANES
from verax.ir.dim import same


@dataclasses.dataclass(frozen=True)
class PlacesSpec:
    """Coordinates of the elements other than 0, in row-major order.

    Arguments: x (row-major), places (int64 [rank, size]), and how many there are (int64 [1]).
    """

    shape: tuple[Size, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} places of {'x'.join(map(str, self.shape))} that are not 0"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype, "int64")


@emits(PlacesSpec, dtypes=ELEMENT_TYPES, settle=all_open)
def emit_places(module: ModuleBuilder, spec: PlacesSpec) -> Kernel:
    """One item: where a place is written depends on those before it."""
    f = module.kernel(spec, 3, hint="places")
    if f.kernel is not None:
        return f.kernel
    m, size, (*outer, inner) = LlvmArith(f, lanes=0), math.prod(spec.shape), spec.shape
    with f.items():
        with f.loop(size // inner, carry=[f.i64(0)]) as row:
            before = f.split(row.index, *outer[1:]) if outer else []
            with f.loop(inner, carry=row.values) as j:
                (count,) = j.values
                for axis, index in enumerate((*before, j.index)):
                    to = f.at(f.args[1], axis * size, (count, 1), dtype="int64")
                    f.store(f.i64(index), to)  # the next one overwrites that of a 0
                at = f.at(f.args[0], (row.index, inner), (j.index, 1), dtype=spec.dtype)
                x = m.bind(f.load(at, spec.dtype, lanes=0), spec.dtype)
                is_nonzero = m.unbind(m.ne(x, m.const(0, spec.dtype)))
                j.next([f.b.add(count, f.b.zext(is_nonzero, I64))])
            row.next(j.results)
        f.store(row.results[0], f.args[2])
    return f.finish(1, size, size * (ELEMENT_SIZES[spec.dtype] + 8 * len(spec.shape)))


@dataclasses.dataclass(frozen=True)
class KeptSpec:
    """Rows [outer, conditions, inner] of x [outer, length, inner] where a condition holds, those
    that hold in front.

    Arguments: x, conditions (bool, at most `length`), rows, and how many hold (int64 [1]).
    """

    outer: Size
    length: Size
    conditions: Size
    inner: Size
    dtype: str

    def __str__(self) -> str:
        dims = f"{self.outer}x{self.length}x{self.inner}"
        return f"{self.dtype} rows of {dims} where one of {self.conditions} conditions holds"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype, "int64")


@emits(KeptSpec, dtypes=ELEMENT_TYPES, settle=all_open)
def emit_kept(module: ModuleBuilder, spec: KeptSpec) -> Kernel:
    """Items: indices of `outer`; each counts for itself."""
    f = module.kernel(spec, 4, hint="kept")
    if f.kernel is not None:
        return f.kernel
    b = f.b
    with f.items() as outer:
        x = f.at(f.args[0], (outer.index, spec.length * spec.inner), dtype=spec.dtype)
        rows = f.at(f.args[2], (outer.index, spec.conditions * spec.inner), dtype=spec.dtype)
        with f.loop(spec.conditions, carry=[f.i64(0)]) as k:
            (count,) = k.values
            holds = f.load(f.at(f.args[1], (k.index, 1), dtype="bool"), "bool", lanes=0)
            holds = b.icmp_unsigned("!=", holds, holds.type(0))
            source = f.at(x, (k.index, spec.inner), dtype=spec.dtype)
            target = f.at(rows, (count, spec.inner), dtype=spec.dtype)
            if same(spec.inner, 1):  # the next one overwrites it if it does not hold
                f.store(f.load(source, spec.dtype, lanes=0), target)
            else:
                with f.when(holds):
                    _copy(f, source, target, spec.inner, spec.dtype)
            k.next([b.add(count, b.zext(holds, I64))])
        f.store(k.results[0], f.args[3])
    elements = spec.outer * spec.conditions * spec.inner * ELEMENT_SIZES[spec.dtype]
    return f.finish(spec.outer, 0, 2 * elements)


def _copy(f: FunctionBuilder, source: ir.Value, target: ir.Value, count: Size, dtype: str) -> None:
    """`count` neighboring elements."""
    if not isinstance(count, int):
        with f.loop(count) as i:
            x = f.load(f.at(source, (i.index, 1), dtype=dtype), dtype, lanes=0)
            f.store(x, f.at(target, (i.index, 1), dtype=dtype))
        return
    full, remainder = count // LANES * LANES, count % LANES
    if full:
        with f.loop(full, step=LANES) as i:
            at = (i.index, 1)
            f.store(f.load(f.at(source, at, dtype=dtype), dtype), f.at(target, at, dtype=dtype))
    if remainder:
        left = f.load_first(f.at(source, full, dtype=dtype), remainder, dtype)
        store_count(f, left, f.at(target, full, dtype=dtype), remainder, dtype)


@dataclasses.dataclass(frozen=True)
class UniqueSpec:
    """The different ones of `size` elements, rising or, unless `rises`, as they first appear.

    NaN are one, and so are zeros. A few are looked up (`few`), more are sorted. Arguments: x,
    scratch (`scratch_bytes`), then, with room for `size` each: values, first places, the number
    that each element has among the values, how often each occurs (int64 all three), and how many
    values there are (int64 [1]).
    """

    size: int
    rises: bool
    dtype: str

    def __str__(self) -> str:
        order = "rising" if self.rises else "by first appearance"
        return f"{self.dtype} different ones of {self.size}, {order}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        return (self.dtype, "int64")

    @property
    def scratch_bytes(self) -> int:
        """For sorting; else also first place, frequency and number of each in rising order. For
        few values at least their tables."""
        sorting = Row.bytes(self.size, self.dtype) + (0 if self.rises else 24 * self.size)
        return max(sorting, hash_table.BYTES)


@emits(UniqueSpec, dtypes=SORTED)
def emit_unique(module: ModuleBuilder, spec: UniqueSpec) -> Kernel:
    """One item."""
    f = module.kernel(spec, 7, hint="unique")
    if f.kernel is not None:
        return f.kernel
    x, scratch, values, first, inverse, counts, count = f.args
    with f.items(), hash_table.try_hash_table(f, spec.size, spec.rises, spec.dtype):
        row = Row(f, spec.size, spec.dtype, scratch)
        row.sort(x, 1)
        if spec.rises:
            with_values = (values, first, counts)
            f.store(_groups(f, spec, row, x, with_values, inverse), count)
        else:
            end = f.at(scratch, Row.bytes(spec.size, spec.dtype), dtype="int8")
            firsts, often, numbers = (int64_pointer(f, end, n * spec.size) for n in range(3))
            _groups(f, spec, row, x, (None, firsts, often), inverse)
            f.store(_in_order(f, spec, firsts, often, numbers), count)
    bytes_moved = spec.size * (ELEMENT_SIZES[spec.dtype] * 2 + 8 * 8)
    return f.finish(1, spec.size * 8, bytes_moved)


def _value(f: FunctionBuilder, dtype: str, x: ir.Value, i: Index) -> ir.Value:
    return f.load(f.at(x, (i, 1), dtype=dtype), dtype, lanes=0)


def _groups(
    f: FunctionBuilder,
    spec: UniqueSpec,
    row: Row,
    x: ir.Value,
    outputs: tuple[ir.Value | None, ir.Value, ir.Value],
    inverse: ir.Value,
) -> ir.Value:
    """Walk over the sorted row: values, first places and frequencies of equal ranks, and for each
    element the number of its group. How many there are."""
    b, (values, first, counts) = f.b, outputs
    first_differs = b.not_(row.rank_at(0))
    start = [f.i64(-1), first_differs, f.i64(0), f.i64(0)]
    with f.loop(spec.size, carry=start) as i:
        group, before, began, leader = i.values
        ranked, at = row.rank_at(i.index), row.place_at(i.index)
        new = b.icmp_unsigned("!=", ranked, before)
        group = b.add(group, b.zext(new, I64))
        began = b.select(new, f.i64(i.index), began)
        leader = b.select(new, at, leader)
        f.store(group, int64_pointer(f, inverse, at))
        f.store(leader, int64_pointer(f, first, group))
        often = b.add(b.sub(f.i64(i.index), began), f.i64(1))
        f.store(often, int64_pointer(f, counts, group))
        if values is not None:
            with f.when(new):
                to = f.at(values, (group, 1), dtype=spec.dtype)
                f.store(_value(f, spec.dtype, x, at), to)
        i.next([group, ranked, began, leader])
    return b.add(i.results[0], f.i64(1))


def _in_order(
    f: FunctionBuilder, spec: UniqueSpec, firsts: ir.Value, often: ir.Value, numbers: ir.Value
) -> ir.Value:
    """Number the groups again, by first appearance."""
    b = f.b
    x, _, values, first, inverse, counts, _ = f.args
    with f.loop(spec.size, carry=[f.i64(0)]) as i:
        (count,) = i.values
        group = f.load(int64_pointer(f, inverse, i.index), "int64", lanes=0)
        leader = f.load(int64_pointer(f, firsts, group), "int64", lanes=0)
        new = b.icmp_unsigned("==", leader, f.i64(i.index))
        with f.when(new):
            f.store(count, int64_pointer(f, numbers, group))
            f.store(leader, int64_pointer(f, first, count))
            f.store(
                f.load(int64_pointer(f, often, group), "int64", lanes=0),
                int64_pointer(f, counts, count),
            )
            to = f.at(values, (count, 1), dtype=spec.dtype)
            f.store(_value(f, spec.dtype, x, i.index), to)
        group_number = f.load(int64_pointer(f, numbers, group), "int64", lanes=0)
        f.store(group_number, int64_pointer(f, inverse, i.index))
        i.next([b.add(count, b.zext(new, I64))])
    return i.results[0]
