"""Integers of 32 bits, in which a GPU divides and multiplies several times faster than in 64."""

from __future__ import annotations

from typing import TypeAlias

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, FunctionBuilder, Index
from verax.compiler.kernels.sizes import Size

Int: TypeAlias = "int | ir.Value"
"""A number, or an i32 that the kernel computes."""


class Index32:
    """Writes arithmetic at the position of `f.b`; what is known is computed now."""

    def __init__(self, f: FunctionBuilder) -> None:
        self.f = f

    def value(self, a: Int) -> ir.Value:
        return ir.Constant(I32, a) if isinstance(a, int) else a

    def of(self, size: Size) -> Int:
        """A size that fits 31 bits."""
        return size if isinstance(size, int) else self.f.b.trunc(self.f.i64(size), I32)

    def truncated(self, a: Index) -> Int:
        """An index that fits 31 bits."""
        return self.f.b.trunc(a, I32) if isinstance(a, ir.Value) else self.of(a)

    def wide(self, a: Int) -> Index:
        """The same as `FunctionBuilder` has it."""
        return a if isinstance(a, int) else self.f.b.sext(a, I64)

    def anew(self, a: Int) -> Int:
        """The same number, from which LLVM computes again what it has computed from `a`: across a
        loop that needs all registers."""
        if isinstance(a, int):
            return a
        return self.f.b.call(ir.InlineAsm(ir.FunctionType(I32, [I32]), "", "=r,0"), [a])

    def add(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x == 0:
                return y
        return self.f.b.add(self.value(a), self.value(b))

    def sub(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if isinstance(b, int) and b == 0 else self.f.b.sub(self.value(a), self.value(b))

    def mul(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        for x, y in ((a, b), (b, a)):
            if isinstance(x, int) and x in (0, 1):
                return y if x else 0
        return self.f.b.mul(self.value(a), self.value(b))

    def divmod(self, a: Int, b: Int) -> tuple[Int, Int]:
        """Quotient and remainder of what is not negative."""
        if isinstance(b, int) and b == 1:
            return a, 0
        if isinstance(a, int) and isinstance(b, int):
            return divmod(a, b)
        quotient = self.f.b.udiv(self.value(a), self.value(b))
        return quotient, self.sub(a, self.mul(quotient, b))

    def split(self, index: Int, *extents: Int) -> list[Int]:
        """Row-major coordinates of `index`, as `FunctionBuilder.split` gives them."""
        coordinates: list[Int] = []
        for extent in reversed(extents):
            index, coordinate = self.divmod(index, extent)
            coordinates.append(coordinate)
        return [index, *reversed(coordinates)]

    def and_(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a & b
        return self.f.b.and_(self.value(a), self.value(b))

    def or_(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a | b
        return self.f.b.or_(self.value(a), self.value(b))

    def xor(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return a ^ b
        return self.f.b.xor(self.value(a), self.value(b))

    def less(self, a: Int, b: Int) -> ir.Value:
        """i1: a < b."""
        return self.f.b.icmp_signed("<", self.value(a), self.value(b))

    def select(self, condition: ir.Value, yes: Int, no: Int) -> Int:
        return self.f.b.select(condition, self.value(yes), self.value(no))

    def minimum(self, a: Int, b: Int) -> Int:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.select(self.less(a, b), a, b)

    def clamp(self, a: Int, low: int, high: int) -> Int:
        """`a` brought into [low, high]."""
        if isinstance(a, int):
            return max(low, min(a, high))
        a = self.select(self.less(a, low), low, a)
        return self.minimum(a, high)
