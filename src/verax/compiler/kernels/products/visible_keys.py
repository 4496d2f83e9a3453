"""How many keys each query of a mask sees: where an attention kernel may stop."""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import FunctionBuilder, Index, Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, minimum
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
