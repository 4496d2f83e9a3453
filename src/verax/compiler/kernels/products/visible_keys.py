"""What lets an attention kernel stop early: how many keys each query of a mask sees, and whether
all values are finite."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.products.gemm import Matrix
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, minimum, numbers
from verax.compiler.kernels.target import LANES


@dataclasses.dataclass(frozen=True)
class VisibleKeysSpec:
    """By row of a bool mask [rows, m], the end of the keys that it shows, in whole sixteens: a
    multiple of 16 or m; 16 at least, or m.

    Arguments of the kernel: the mask, dense; an int64 for each row.
    """

    rows: Size
    m: Size

    def __str__(self) -> str:
        return f"visible keys of {self.rows} x {self.m}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the mask."""
        return ("bool",)


@emits(VisibleKeysSpec, dtypes=("bool",), settle=all_open)
def emit_visible_keys(module: ModuleBuilder, spec: VisibleKeysSpec) -> Kernel:
    """Items: rows."""
    f = module.kernel(spec, 2, hint="visible_keys")
    if f.kernel is not None:
        return f.kernel
    full, remainder = spec.m // LANES, spec.m % LANES
    with f.items() as row:
        pointer = f.at(f.args[0], (row.index, spec.m), dtype="bool")
        end: ir.Value = f.i64(minimum(LANES, spec.m))
        if full != 0:
            with f.loop(full, carry=[end]) as vector:
                start = f.imul(vector.index, LANES)
                lanes = f.load(f.at(pointer, start, dtype="bool"), "bool")
                after = f.iadd(start, LANES)
                vector.next([_later(f, lanes, after, vector.values[0])])
            (end,) = vector.results
        if remainder != 0:
            start = f.imul(full, LANES)
            lanes = f.load_first(f.at(pointer, start, dtype="bool"), remainder, "bool")
            end = _later(f, lanes, spec.m, end)
        f.store(end, f.at(f.args[1], row.index, dtype="int64"))
    return f.finish(spec.rows, 0, spec.rows * spec.m)


def _later(f: FunctionBuilder, lanes: ir.Value, after: Index, end: ir.Value) -> ir.Value:
    """`after`, where these keys end, if one of them is visible; else `end`."""
    bits = f.b.bitcast(lanes, ir.IntType(8 * LANES))
    is_visible = f.b.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
    return f.b.select(is_visible, f.i64(after), end)


@dataclasses.dataclass(frozen=True)
class UnusualSpec:
    """By matrix [rows, columns] of outer * inner that lie as `at` says: 1 if an element is not
    finite, else 0. Columns are neighbors.

    Arguments of the kernel: the matrices; an int64 for each.
    """

    outer: Size
    inner: Size
    rows: Size
    columns: int
    at: Matrix
    dtype: str

    def __str__(self) -> str:
        count = self.outer * self.inner
        return f"infinite {self.dtype} of {count} x [{self.rows}, {self.columns}]"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of the elements."""
        return (self.dtype,)


def _with_known_columns(spec: UnusualSpec) -> UnusualSpec:
    return dataclasses.replace(spec, columns=numbers(spec.columns))


@emits(UnusualSpec, dtypes=("float32", "float64"), settle=_with_known_columns)
def emit_unusual(module: ModuleBuilder, spec: UnusualSpec) -> Kernel:
    """Items: matrices."""
    f = module.kernel(spec, 2, hint="unusual")
    if f.kernel is not None:
        return f.kernel
    at, zero = spec.at, f.constant(0.0, spec.dtype)
    with f.items() as item:
        outer, inner = f.split(item.index, spec.inner)
        pointer = f.at(f.args[0], (outer, at.outer), (inner, at.inner), dtype=spec.dtype)
        with f.loop(spec.rows, carry=[zero]) as row:
            source = f.at(pointer, (row.index, at.row), dtype=spec.dtype)
            (differences,) = row.values
            for start in range(0, spec.columns, LANES):
                count = spec.columns - start
                address = f.at(source, start, dtype=spec.dtype)
                x = (
                    f.load(address, spec.dtype)
                    if count >= LANES
                    else f.load_first(address, count, spec.dtype)
                )
                # x - x is 0, or NaN; so is the sum.
                differences = f.b.fadd(differences, f.b.fsub(x, x))
            row.next([differences])
        (differences,) = row.results
        lanes = f.b.bitcast(f.b.fcmp_unordered("!=", differences, zero), ir.IntType(LANES))
        is_unusual = f.b.icmp_unsigned("!=", lanes, ir.Constant(lanes.type, 0))
        flag = f.b.select(is_unusual, f.i64(1), f.i64(0))
        f.store(flag, f.at(f.args[1], item.index, dtype="int64"))
    elements = spec.outer * spec.inner * spec.rows * spec.columns
    return f.finish(spec.outer * spec.inner, 0, ELEMENT_SIZES[spec.dtype] * elements)
