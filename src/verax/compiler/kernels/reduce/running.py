"""Running sums and products along an axis, one rounded operation per step, from the first element.

Neighboring rows are the lanes of a vector where they lie side by side; otherwise a few rows are
walked together, so that one's operation need not wait for the other's.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed
from verax.compiler.kernels.llvm.builder import (
    ELEMENT_SIZES,
    ELEMENT_TYPES,
    FunctionBuilder,
    Index,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.loops.emit import store_count
from verax.compiler.kernels.loops.spec import Access
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import Size, all_open, ceil_div
from verax.compiler.kernels.target import LANES
from verax.ir.dim import Dim, same
from verax.numerics.formats import FLOATS

WAYS = 4
"""Rows that are walked together when they are no vector."""


@dataclasses.dataclass(frozen=True)
class RunningSpec:
    """y[row, k] = x[row, 0] op ... op x[row, k]; up to k - 1 when `exclusive`.

    kind: "sum" or "prod". outer: dims of the rows; accesses have a stride for each and one along
    the row. Halves are added in float32 and each result is rounded. Arguments: x, y.
    """

    outer: tuple[Size, ...]
    length: Size
    x: Access
    y: Access
    kind: str
    exclusive: bool

    def __str__(self) -> str:
        rows = math.prod(self.outer)
        return f"{self.x.dtype} running {self.kind}, {rows} rows of {self.length}"

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Of what is read and written."""
        return self.x.dtype, self.y.dtype

    @property
    def work(self) -> str:
        """What is added or multiplied in."""
        return {"float16": "float32", "bfloat16": "float32"}.get(self.x.dtype, self.x.dtype)

    @property
    def start(self) -> float | int:
        """What the first step begins with: -0 + x is x, +0 + x is not when x is -0."""
        if self.kind == "prod":
            return 1
        return -0.0 if self.work in FLOATS and not self.exclusive else 0


@emits(RunningSpec, dtypes=ELEMENT_TYPES, settle=all_open)
def emit_running(module: ModuleBuilder, spec: RunningSpec) -> Kernel:
    """Items: 16 neighboring rows, or a few."""
    f = module.kernel(spec, 2, hint="running")
    if f.kernel is not None:
        return f.kernel
    side = [
        d
        for d, n in enumerate(spec.outer)
        if (isinstance(n, Dim) or n > 3)
        and same(spec.x.strides[d], 1)
        and same(spec.y.strides[d], 1)
    ]
    items = _across(f, spec, side[0]) if side else _along(f, spec)
    count = math.prod(spec.outer) * spec.length
    return f.finish(items, count, 2 * count * ELEMENT_SIZES[spec.x.dtype])


def _across(f: FunctionBuilder, spec: RunningSpec, side: int) -> Size:
    other_dims = [d for d in range(len(spec.outer)) if d != side]
    full, remainder = divmod(spec.outer[side], LANES)
    strips = ceil_div(spec.outer[side], LANES)
    dims = [*(spec.outer[d] for d in other_dims), strips]
    with f.items() as item:
        *indices, strip = f.split(item.index, *dims[1:])
        terms = [*zip(indices, other_dims), (f.imul(strip, LANES), side)]

        def emit_lanes(lane_count: int) -> None:
            def store(value: ir.Value, pointer: ir.Value) -> None:
                store_count(f, value, pointer, lane_count, spec.y.dtype)

            def load(pointer: ir.Value) -> ir.Value:
                if lane_count == LANES:
                    return f.load(pointer, spec.x.dtype)
                return f.load_first(pointer, lane_count, spec.x.dtype)

            _rows(f, spec, [terms], LlvmArith(f), load, store)

        def emit_last_rows() -> None:
            """One by one, as many as there are."""
            with f.loop(remainder) as lane:
                row = [*terms[:-1], (f.iadd(f.imul(full, LANES), lane.index), side)]
                _one_by_one(f, spec, [row])

        if isinstance(remainder, Dim):
            is_full = f.b.icmp_signed("<", f.i64(strip), f.i64(full))
            with f.b.if_else(is_full) as (long, short):
                with long:
                    emit_lanes(LANES)
                with short:
                    emit_last_rows()
        elif isinstance(full, Dim) and not remainder:
            emit_lanes(LANES)
        elif full and remainder:
            last = f.b.icmp_signed("==", f.i64(strip), f.i64(full))
            with f.b.if_else(last) as (short, long):
                with short:
                    emit_lanes(remainder)
                with long:
                    emit_lanes(LANES)
        else:
            emit_lanes(remainder or LANES)
    return math.prod(dims)


def _along(f: FunctionBuilder, spec: RunningSpec) -> Size:
    rows: Size = math.prod(spec.outer)
    rows_together = WAYS if same(rows % WAYS, 0) else 1
    with f.items() as item:
        together = []
        for row_offset in range(rows_together):
            row = f.iadd(f.imul(item.index, rows_together), row_offset)
            indices = f.split(row, *spec.outer[1:]) if spec.outer else []
            together.append(list(zip(indices, range(len(spec.outer)))))
        _one_by_one(f, spec, together)
    return rows // rows_together


def _one_by_one(
    f: FunctionBuilder, spec: RunningSpec, rows: Sequence[Sequence[tuple[Index, int]]]
) -> None:
    """`_rows` without vectors."""

    def load(pointer: ir.Value) -> ir.Value:
        return f.load(pointer, spec.x.dtype, lanes=0)

    _rows(f, spec, rows, LlvmArith(f, lanes=0), load, f.store)


def _rows(
    f: FunctionBuilder,
    spec: RunningSpec,
    rows: Sequence[Sequence[tuple[Index, int]]],
    m: LlvmArith,
    load: Callable[[ir.Value], ir.Value],
    store: Callable[[ir.Value, ir.Value], None],
) -> None:
    """Rows, or vectors of them, walked together; each says its index along the outer dims."""

    def base(argument: int, access: Access, row: Sequence[tuple[Index, int]]) -> ir.Value:
        terms = [(i, access.strides[d]) for i, d in row]
        return f.at(f.args[argument], access.offset, *terms, dtype=access.dtype)

    sources = [base(0, spec.x, row) for row in rows]
    targets = [base(1, spec.y, row) for row in rows]
    step = m.add if spec.kind == "sum" else m.mul
    start = m.const(spec.start, spec.work).value
    with f.loop(spec.length, carry=[start] * len(rows)) as loop:
        states = []
        for source, target, before in zip(sources, targets, loop.values):
            at = (loop.index, spec.x.strides[-1])
            x = m.bind(load(f.at(source, at, dtype=spec.x.dtype)), spec.x.dtype)
            state = Typed(before, spec.work)
            after = step(state, m.convert(x, spec.work))
            result = m.convert(state if spec.exclusive else after, spec.y.dtype)
            to = (loop.index, spec.y.strides[-1])
            store(m.unbind(result), f.at(target, to, dtype=spec.y.dtype))
            states.append(after.value)
        loop.next(states)
