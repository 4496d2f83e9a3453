"""Updates written, or combined, where indices say: ScatterND, ScatterElements; and what state
that is written in place needs besides: a copy that is left out where source and target are one
array, and old elements saved before they are overwritten, to be restored after a failed run.

Where updates meet, they come in the order of the walked dims: of the last one, or combined one by
one. Outer dims and the inner one lead to different elements and are shared out and vectorized.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

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
from verax.compiler.kernels.sizes import Size, numbers
from verax.compiler.kernels.target import LANES

COMBINED = ("none", "add", "mul", "min", "max")
SAVE = "save"
"""Instead of a combination: the elements of y are written to where the updates would be read."""
COPY_CHUNK = 1 << 14
"""Elements of an item of a copy."""


@dataclasses.dataclass(frozen=True)
class ScatterSpec:
    """For every index of `outer`, `walked` and `inner`: y[place] = combine(y[place], update).

    Strides are in elements, one per dim of outer, walked and inner together. lookups: (size,
    stride) of the axes that indices point into; their indices are `lookup_stride` elements apart.
    Arguments of the kernel: indices, updates, y, and the int32 that is set to 1 when an index lies
    outside; negative ones count from the end if it `wraps`. Different indices of outer and inner
    must lead to different places.

    checks: the kernel takes one pointer more, to so many int32, and does nothing unless one of them
    is set; 0: it always runs."""

    outer: tuple[Size, ...]
    walked: tuple[Size, ...]
    inner: int
    index: tuple[Size, ...]
    update: tuple[Size, ...]
    y: tuple[Size, ...]
    lookups: tuple[tuple[Size, Size], ...]
    lookup_stride: int
    combine: str
    index_dtype: str
    dtype: str
    wraps: bool = True
    checks: int = 0

    def __str__(self) -> str:
        combination = "" if self.combine == "none" else f" by {self.combine}"
        if self.checks:
            combination = " back after a failed check"
        dims = "x".join(map(str, (*self.outer, *self.walked, self.inner)))
        return f"{self.dtype} scatter{combination} of {dims}, {len(self.lookups)} indices each"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of elements and of indices."""
        return self.dtype, self.index_dtype


def _with_known_inner(spec: ScatterSpec) -> ScatterSpec:
    """All but the inner dim may be read at run time."""
    last: dict[str, Any] = {
        name: (*strides[:-1], numbers(strides[-1]))
        for name in ("index", "update", "y")
        if (strides := getattr(spec, name))
    }
    return dataclasses.replace(spec, inner=numbers(spec.inner), **last)


@emits(ScatterSpec, dtypes=ELEMENT_TYPES, settle=_with_known_inner)
def emit_scatter(module: ModuleBuilder, spec: ScatterSpec) -> Kernel:
    """Items: indices of the outer dims."""
    f = module.kernel(spec, 4 + bool(spec.checks), hint="scatter")
    if f.kernel is not None:
        return f.kernel
    if spec.checks:
        with f.when(_any_failed(f, spec.checks)):
            _emit_items(f, spec)
    else:
        _emit_items(f, spec)
    count = math.prod((*spec.outer, *spec.walked)) * spec.inner
    elements = count * (3 * ELEMENT_SIZES[spec.dtype] + len(spec.lookups) * 8)
    # What is restored after a failure is no work of a run that succeeds.
    work = (0, 0) if spec.checks else (count, elements)
    return f.finish(math.prod(spec.outer), *work)


def _any_failed(f: FunctionBuilder, checks: int) -> ir.Value:
    """Whether one of the status flags, the last argument, is set."""
    zero = ir.Constant(I32, 0)
    with f.loop(checks, carry=[zero]) as check:
        flag = f.load(f.at(f.args[-1], check.index, dtype="int32"), "int32", lanes=0)
        check.next([f.b.or_(check.values[0], flag)])
    return f.b.icmp_unsigned("!=", check.results[0], zero)


def _emit_items(f: FunctionBuilder, spec: ScatterSpec) -> None:
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

            def base(argument: int, strides: Sequence[Size], dtype: str) -> ir.Value:
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
        b.store(ir.Constant(I32, 1), f.args[3], align=4)
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

        if spec.combine == SAVE:
            store_count(f, load(target), source, count, spec.dtype)
            return
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
    if spec.combine == SAVE:
        f.store(f.load(y, spec.dtype, lanes=0), update)
        return
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


@dataclasses.dataclass(frozen=True)
class StateCopySpec:
    """`count` elements copied, unless source and target are one array. Arguments: source,
    target."""

    count: int
    dtype: str

    def __str__(self) -> str:
        return f"copy {self.count} {self.dtype} unless written in place"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of what is copied."""
        return (self.dtype,)


@emits(StateCopySpec, dtypes=ELEMENT_TYPES)
def emit_state_copy(module: ModuleBuilder, spec: StateCopySpec) -> Kernel:
    """Items: chunks of `COPY_CHUNK` elements."""
    f = module.kernel(spec, 2)
    if f.kernel is not None:
        return f.kernel
    source, target = f.args
    with f.when(f.b.icmp_unsigned("!=", source, target)), f.items() as item:
        begin = f.imul(item.index, COPY_CHUNK)
        left = f.clamp(f.iadd(spec.count, f.imul(begin, -1)), 0, COPY_CHUNK)
        full = f.imul(f.idiv(left, LANES), LANES)

        def at(pointer: ir.Value, index: Index) -> ir.Value:
            return f.at(pointer, begin, index, dtype=spec.dtype)

        with f.loop(full, step=LANES) as k:
            f.store(f.load(at(source, k.index), spec.dtype), at(target, k.index))
        with f.loop(left, start=full) as k:
            f.store(f.load(at(source, k.index), spec.dtype, lanes=0), at(target, k.index))
    size = ELEMENT_SIZES[spec.dtype]
    return f.finish(-(-spec.count // COPY_CHUNK), 0, 2 * size * spec.count)
