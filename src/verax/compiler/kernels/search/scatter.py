"""Updates written, or combined, where indices say: ScatterND, ScatterElements.

Where updates meet, they come in the order of the walked dims: of the last one, or combined one by
one. Outer dims and the inner one lead to different elements and are shared out and vectorized.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    I32,
    I64,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.emit import store_count
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.target import LANES

COMBINED = ("none", "add", "mul", "min", "max")


@dataclasses.dataclass(frozen=True)
class ScatterSpec:
    """For every index of `outer`, `walked` and `inner`: y[place] = combine(y[place], update).

    Strides are in elements, one per dim of outer, walked and inner together. lookups: (size,
    stride) of the axes that indices point into; their indices are `lookup_stride` elements apart.
    Arguments of the kernel: indices, updates, y, and the int32 that is set to 1 when an index lies
    outside; negative ones count from the end if it `wraps`. Different indices of outer and inner
    must lead to different places."""

    outer: tuple[int, ...]
    walked: tuple[int, ...]
    inner: int
    index: tuple[int, ...]
    update: tuple[int, ...]
    y: tuple[int, ...]
    lookups: tuple[tuple[int, int], ...]
    lookup_stride: int
    combine: str
    index_dtype: str
    dtype: str
    wraps: bool = True

    def __str__(self) -> str:
        combination = "" if self.combine == "none" else f" by {self.combine}"
        dims = "x".join(map(str, (*self.outer, *self.walked, self.inner)))
        return f"{self.dtype} scatter{combination} of {dims}, {len(self.lookups)} indices each"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of elements and of indices."""
        return self.dtype, self.index_dtype


@emits(ScatterSpec, dtypes=ELEMENT_TYPES)
def emit_scatter(module: ModuleBuilder, spec: ScatterSpec) -> Kernel:
    """Items: indices of the outer dims."""
    f = module.kernel(spec, 4, hint="scatter")
    if f.kernel is not None:
        return f.kernel
    n = len(spec.outer)
    dims = (*spec.outer, *spec.walked)
    with f.items() as item:
        shared = f.split(item.index, *spec.outer[1:]) if spec.outer else []
        with f.loop(math.prod(spec.walked)) as position_loop:
            indices = [
                *shared,
                *(f.split(position_loop.index, *spec.walked[1:]) if spec.walked else []),
            ]
            assert len(indices) == len(dims) and n <= len(indices)

            def base(argument: int, strides: Sequence[int], dtype: str) -> ir.Value:
                return f.at(f.args[argument], *zip(indices, strides), dtype=dtype)

            index = base(0, spec.index, spec.index_dtype)
            update, y = base(1, spec.update, spec.dtype), base(2, spec.y, spec.dtype)
            if spec.index[-1] == 0:  # one place for the whole inner dim
                good, offset = _checked_offset(f, spec, index)
                with f.when(good):
                    target = f.at(y, (offset, 1), dtype=spec.dtype)
                    _row(f, spec, update, target)
            else:
                with f.loop(spec.inner) as k:
                    at = f.at(index, (k.index, spec.index[-1]), dtype=spec.index_dtype)
                    good, offset = _checked_offset(f, spec, at)
                    with f.when(good):
                        target = f.at(y, (offset, 1), (k.index, spec.y[-1]), dtype=spec.dtype)
                        source = f.at(update, (k.index, spec.update[-1]), dtype=spec.dtype)
                        _one(f, spec, source, target)
    count = math.prod(dims) * spec.inner
    elements = count * (3 * ELEMENT_SIZES[spec.dtype] + len(spec.lookups) * 8)
    return f.finish(math.prod(spec.outer), count, elements)


def _checked_offset(
    f: FunctionBuilder, spec: ScatterSpec, index: ir.Value
) -> tuple[ir.Value, Index]:
    """Whether all indices at `index` lie inside, and the offset that they give."""
    b = f.b
    good: ir.Value | None = None
    offset: Index = 0
    for j, (size, stride) in enumerate(spec.lookups):
        raw = f.load(
            f.at(index, j * spec.lookup_stride, dtype=spec.index_dtype), spec.index_dtype, lanes=0
        )
        position = raw if spec.index_dtype == "int64" else b.sext(raw, I64)
        if spec.wraps:
            negative = b.icmp_signed("<", position, f.i64(0))
            position = b.select(negative, b.add(position, f.i64(size)), position)
        inside = b.icmp_unsigned("<", position, f.i64(size))
        good = inside if good is None else b.and_(good, inside)
        offset = f.iadd(offset, b.mul(position, f.i64(stride)))
    assert good is not None
    with f.when(b.not_(good)):
        b.store(ir.Constant(I32, 1), f.args[-1], align=4)
    return good, offset


def _row(f: FunctionBuilder, spec: ScatterSpec, update: ir.Value, y: ir.Value) -> None:
    """The inner dim, all of it to one place: a vector at a time where elements are neighbors."""
    if spec.inner == 1 or spec.update[-1] != 1 or spec.y[-1] != 1:
        with f.loop(spec.inner) as k:
            source = f.at(update, (k.index, spec.update[-1]), dtype=spec.dtype)
            _one(f, spec, source, f.at(y, (k.index, spec.y[-1]), dtype=spec.dtype))
        return
    full, remainder = divmod(spec.inner, LANES)

    def vector(start: Index, count: int) -> None:
        source = f.at(update, (start, 1), dtype=spec.dtype)
        target = f.at(y, (start, 1), dtype=spec.dtype)

        def load(pointer: ir.Value) -> ir.Value:
            if count == LANES:
                return f.load(pointer, spec.dtype)
            return f.load_first(pointer, count, spec.dtype)

        new = load(source)
        if spec.combine != "none":
            new = _combined(LlvmArith(f), spec, load(target), new)
        store_count(f, new, target, count, spec.dtype)

    if full:
        with f.loop(full * LANES, step=LANES) as k:
            vector(k.index, LANES)
    if remainder:
        vector(full * LANES, remainder)


def _one(f: FunctionBuilder, spec: ScatterSpec, update: ir.Value, y: ir.Value) -> None:
    new = f.load(update, spec.dtype, lanes=0)
    if spec.combine != "none":
        new = _combined(LlvmArith(f, lanes=0), spec, f.load(y, spec.dtype, lanes=0), new)
    f.store(new, y)


def _combined(m: LlvmArith, spec: ScatterSpec, old: ir.Value, new: ir.Value) -> ir.Value:
    """As NumPy's `at` combines: NaN stays, and of two that are equal the new one is taken."""
    a, b = m.bind(old, spec.dtype), m.bind(new, spec.dtype)
    result: Typed
    if spec.combine in ("add", "mul"):
        result = getattr(m, spec.combine)(a, b)
    else:
        ahead = m.lt(a, b) if spec.combine == "min" else m.gt(a, b)
        if spec.dtype.startswith("float"):
            ahead = m.or_(ahead, m.is_nan(a))
        result = m.select(ahead, a, b)
    return m.unbind(result)
