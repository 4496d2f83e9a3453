"""Expressions with elementary functions on several vectors at a time, in step.

A polynomial is a chain: each multiply-add waits for the one before it. A processor looks about one
such chain ahead, so chains that stand one after the other leave its units half idle; written in
step they fill them (GELU on AVX2 in 0.7 of the time). LLVM would put them one after the other
again, as that takes fewer registers: every few operations an instruction that is none takes the
values of all vectors. Each element has the operations that it has by itself, hence its bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.arith import LlvmArith, Typed, concatenated
from verax.compiler.kernels.llvm.builder import FunctionBuilder
from verax.compiler.kernels.target import LANES, Target
from verax.numerics import functions
from verax.numerics.arith import PRIMITIVES, Arith
from verax.numerics.expr import Apply, Expr, evaluate_all, nodes
from verax.numerics.functions_short import SHORT_WAYS

MOST = 4
"""Vectors in step, at most: more was no faster, and is more code."""
OPERATIONS = 3
"""Multiply-adds and the like between two places where the vectors are in step."""
_COUNTED = frozenset({"add", "sub", "mul", "div", "fma"})


def in_step(target: Target) -> int:
    """How many vectors of 16 lanes: with two numbers of each at hand, and a few constants. One on a
    GPU, where other threads run while one waits."""
    if target.gpu:
        return 1
    return max(1, min(MOST, target.registers * 3 // 8 // target.physical))


def is_chain(exprs: Iterable[Expr]) -> bool:
    """Whether there is an elementary function of float32, without branches, in the expressions."""
    return any(
        isinstance(n, Apply)
        and n.function not in PRIMITIVES
        and n.function not in SHORT_WAYS
        and n.dtype == "float32"
        for e in exprs
        for n in nodes(e)
    )


def equal_groups(count: int, max_size: int) -> list[tuple[int, int, int]]:
    """(first, how many, size) of the groups of about equal size that `count` vectors are taken in,
    at most `most` each."""
    size = -(-count // -(-count // max_size))
    full, remainder = divmod(count, size)
    return [(0, full, size), (full * size, 1, remainder)] if remainder else [(0, full, size)]


@dataclass(frozen=True)
class Several:
    """One value of each of the vectors in step."""

    values: tuple[Typed, ...]
    dtype: str


class SideBySide(Arith[Several]):
    """Emits code at the position of `fb.b` for `count` vectors of 16 lanes."""

    def __init__(self, fb: FunctionBuilder, count: int) -> None:
        self.fb, self.count, self._one, self._since = fb, count, LlvmArith(fb), 0

    def bind(self, raw: Sequence[ir.Value], dtype: str) -> Several:
        return Several(tuple(self._one.bind(v, dtype) for v in raw), dtype)

    def unbind(self, value: Several) -> list[ir.Value]:
        return [self._one.unbind(v) for v in value.values]

    def dtype(self, x: Several) -> str:
        return x.dtype

    def const(self, value: float | int | bool, dtype: str) -> Several:
        return Several((self._one.const(value, dtype),) * self.count, dtype)

    def call(self, function: str, *args: Several) -> Several:
        if function not in SHORT_WAYS:
            return functions.call(self, function, args)
        argument_rows = zip(*(a.values for a in args), strict=True)
        values = tuple(self._one.call(function, *one) for one in argument_rows)
        return Several(values, values[0].dtype)

    def primitive(self, name: str, args: tuple[Several, ...], target: str | None = None) -> Several:
        argument_rows = zip(*(a.values for a in args), strict=True)
        values = tuple(self._one.primitive(name, one, target) for one in argument_rows)
        result = Several(values, values[0].dtype)
        self._since += name in _COUNTED
        if self._since < OPERATIONS or result.dtype != "float32":
            return result
        self._since = 0
        return self.bind(_tied(self.fb, self.unbind(result)), result.dtype)


def _tied(fb: FunctionBuilder, values: list[ir.Value]) -> list[ir.Value]:
    """The same values; what is computed from one of them comes after all."""
    target = fb.module.target
    register_lanes = LANES // target.physical
    firsts = range(0, LANES, register_lanes)
    pieces = [fb.shuffle(v, range(i, i + register_lanes)) for v in values for i in firsts]
    register = "w" if target.name == "neon" else "v"
    code = ",".join([*["=" + register] * len(pieces), *map(str, range(len(pieces)))])
    types = [p.type for p in pieces]
    kind = ir.FunctionType(ir.LiteralStructType(types), types)
    tied = fb.b.call(ir.InlineAsm(kind, "", code), pieces)
    results = [fb.b.extract_value(tied, i) for i in range(len(pieces))]
    return [
        concatenated(fb, results[i : i + len(firsts)]) for i in range(0, len(results), len(firsts))
    ]


def evaluate_each(
    fb: FunctionBuilder, exprs: Sequence[Expr], inputs: Sequence[Sequence[ir.Value | None]]
) -> list[list[ir.Value]]:
    """The values of `exprs` for several vectors: inputs and results of each by their number.

    As many are in step as the target has registers for, where there is a chain."""
    if len(inputs) < 2 or not is_chain(exprs):
        return [evaluate_all(exprs, LlvmArith(fb), one) for one in inputs]
    results: list[list[ir.Value]] = []
    for first, count, size in equal_groups(len(inputs), in_step(fb.module.target)):
        for start in range(first, first + count * size, size):
            together = [list(v) for v in zip(*inputs[start : start + size], strict=True)]
            group_results = evaluate_all(exprs, SideBySide(fb, size), together)
            results += [list(v) for v in zip(*group_results, strict=True)]
    return results
