"""A counted loop of a kernel that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, TypeAlias

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.sizes import Size

_I64 = ir.IntType(64)
Index: TypeAlias = "Size | ir.Value"
"""A number, a size of the table of dims, or what the kernel computes."""


class LoopBuilder(Protocol):
    """What writes a loop: `builder.FunctionBuilder`."""

    b: ir.IRBuilder

    def block(self, name: str) -> ir.Block: ...

    def i64(self, value: Index) -> ir.Value: ...


class EmittedLoop:
    """A counted loop, tested at the bottom; see `FunctionBuilder.loop`.

    Inside: `index`, `values` (carried); `next(values)` says what the next trip gets.
    After: `results`, the carried values at the end.
    """

    def __init__(
        self, fb: LoopBuilder, start: Index, stop: Index, step: int, carry: Sequence[ir.Value]
    ) -> None:
        self._fb, self._start, self._stop, self._step = fb, start, stop, step
        self._initial = list(carry)
        self._once, self._guard = False, True
        if isinstance(start, int) and isinstance(stop, int):
            if stop <= start:
                raise ValueError(f"a loop from {start} to {stop} never runs")
            self._once, self._guard = stop - start <= step, False

    def __enter__(self) -> EmittedLoop:
        fb, b = self._fb, self._fb.b
        if self._once:
            self.index: Index = self._start
            self.values: list[ir.Value] = list(self._initial)
            self._next = list(self._initial)
            return self
        start, stop = fb.i64(self._start), fb.i64(self._stop)
        self._before = b.block
        self._body = fb.block("loop")
        self._end = fb.block("end")
        if self._guard:
            b.cbranch(b.icmp_signed("<", start, stop), self._body, self._end)
        else:
            b.branch(self._body)
        b.position_at_end(self._body)
        self._phi = b.phi(_I64)
        self._phi.add_incoming(start, self._before)
        self.index = self._phi
        self._carried = [b.phi(value.type) for value in self._initial]
        for phi, value in zip(self._carried, self._initial):
            phi.add_incoming(value, self._before)
        self.values = [*self._carried]
        self._next = list(self.values)
        return self

    def next(self, values: Sequence[ir.Value]) -> None:
        """The carried values for the next trip."""
        assert len(values) == len(self._initial)
        self._next = list(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return
        if self._once:
            self.results = self._next
            return
        fb, b = self._fb, self._fb.b
        following = b.add(self._phi, fb.i64(self._step), flags=("nsw",))
        last = b.block
        again = b.icmp_signed("<", following, fb.i64(self._stop))
        b.cbranch(again, self._body, self._end)
        self._phi.add_incoming(following, last)
        for carried, value in zip(self._carried, self._next, strict=True):
            carried.add_incoming(value, last)
        b.position_at_end(self._end)
        self.results = list(self._next)
        if self._guard:
            for i, (initial, value) in enumerate(zip(self._initial, self._next, strict=True)):
                phi = b.phi(value.type)
                phi.add_incoming(initial, self._before)
                phi.add_incoming(value, last)
                self.results[i] = phi
