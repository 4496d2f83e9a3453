"""Sizes and strides of specs: numbers, or values that are read when a kernel runs.

A `Size` is an int where it is known, else a `KernelSize`: a polynomial over the entries of a
table of dims, an i64 array that the kernel is handed (see `builder`). Arithmetic on numbers stays a
number and costs nothing in the code, so one emitter serves programs made for one size and programs
made for all. Equal polynomials are equal objects: dims of unknown extent still merge where strides
fit. What cannot be known is refused, not guessed: a `KernelSize` is neither true nor false, with no
order; emitters ask `isinstance(size, int)` where they decide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

Data = TypeVar("Data")


@dataclasses.dataclass(frozen=True)
class Atom:
    """What polynomials are made of. kind: "entry", one of the table, args its number; or "quotient"
    (rounded down), "least", "greatest", "equal" (1 or 0) of args. Sizes are never negative where
    they are divided."""

    kind: str
    args: tuple[Size, ...]

    def __str__(self) -> str:
        if self.kind == "entry":
            return f"d{self.args[0]}"
        return f"{self.kind}({', '.join(map(str, self.args))})"

    def value(self, table: Sequence[int]) -> int:
        """The number that it is, for the entries of `table`."""
        if self.kind == "entry":
            return int(table[value(self.args[0], ())])
        args = [value(a, table) for a in self.args]
        if self.kind == "quotient":
            return args[0] // args[1]
        if self.kind == "equal":
            return int(args[0] == args[1])
        return min(args) if self.kind == "least" else max(args)


Monomial: TypeAlias = "tuple[Atom, ...]"


@dataclasses.dataclass(frozen=True)
class KernelSize:
    """A size that is known when the kernel runs: the sum of coefficient * product of atoms."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        return " + ".join(
            "*".join([*([str(c)] if c != 1 or not atoms else []), *map(str, atoms)])
            for atoms, c in self.terms
        )

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self} is zero is known when it runs")

    def __add__(self, other: Size) -> Size:
        return _polynomial([*self.terms, *_terms(other)])

    __radd__ = __add__

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: Size) -> Size:
        return self * -1 + other

    def __mul__(self, other: Size) -> Size:
        return _polynomial(
            [
                (tuple(sorted((*a, *b), key=str)), c * d)
                for a, c in self.terms
                for b, d in _terms(other)
            ]
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Size) -> Size:
        if isinstance(other, int) and all(c % other == 0 for _, c in self.terms):
            return _polynomial([(atoms, c // other) for atoms, c in self.terms])
        return _atom("quotient", self, other)

    def __rfloordiv__(self, other: int) -> Size:
        return _atom("quotient", other, self)

    def __mod__(self, other: Size) -> Size:
        return self - self // other * other

    def __rmod__(self, other: int) -> Size:
        return other - other // self * self

    def __divmod__(self, other: Size) -> tuple[Size, Size]:
        return self // other, self % other

    def value(self, table: Sequence[int]) -> int:
        """The number that it is, for the entries of `table`."""
        return sum(c * math.prod(a.value(table) for a in atoms) for atoms, c in self.terms)


Size: TypeAlias = "int | KernelSize"
"""A number, or what is read at run time."""


def _terms(size: Size) -> Sequence[tuple[Monomial, int]]:
    return size.terms if isinstance(size, KernelSize) else [((), size)]


def _polynomial(terms: Sequence[tuple[Monomial, int]]) -> Size:
    """The sum of `terms` in its one form: a number if nothing is read."""
    sums: dict[Monomial, int] = {}
    for atoms, c in terms:
        sums[atoms] = sums.get(atoms, 0) + c
    nonzero = sorted(((a, c) for a, c in sums.items() if c), key=str)
    if all(not atoms for atoms, _ in nonzero):
        return sum(c for _, c in nonzero)
    return KernelSize(tuple(nonzero))


def _atom(kind: str, *args: Size) -> KernelSize:
    return KernelSize((((Atom(kind, args),), 1),))


def entry(index: int) -> KernelSize:
    """The size that is read at run time from entry `index` of the table of dims."""
    return _atom("entry", index)


def ceil_div(a: Size, b: Size) -> Size:
    """a / b rounded up."""
    return -(-a // b) if isinstance(a, int) and isinstance(b, int) else (a + b - 1) // b


def minimum(*sizes: Size) -> Size:
    """The smallest of `sizes`; an int if all are."""
    return _extreme("least", sizes)


def maximum(*sizes: Size) -> Size:
    """The largest of `sizes`; an int if all are."""
    return _extreme("greatest", sizes)


def _extreme(kind: str, sizes: Sequence[Size]) -> Size:
    numbers = [s for s in sizes if isinstance(s, int)]
    read = list(dict.fromkeys(s for s in sizes if isinstance(s, KernelSize)))
    if numbers:
        constant = min(numbers) if kind == "least" else max(numbers)
        return _atom(kind, constant, *read) if read else constant
    return read[0] if len(read) == 1 else _atom(kind, *read)


def equal(a: Size, b: Size) -> Size:
    """1 where they are equal, 0 where not."""
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return int(a == b)
    return _atom("equal", a, b)


def value(size: Size, table: Sequence[int]) -> int:
    """The number that a size is, for the entries of `table`."""
    return size if isinstance(size, int) else size.value(table)


def static_size(size: Size) -> int:
    """`size` as an int, for kernels without symbolic sizes. Raises `ValueError` when it is read at
    run time."""
    if isinstance(size, KernelSize):
        raise ValueError(f"this kernel is made for known sizes, and {size} is read at run time")
    return size


def with_dims(data: Data, table: Sequence[int]) -> Data:
    """A spec with the sizes that it has for the entries of `table`: what a program made for these
    sizes would carry. Tuples and dataclasses are entered."""
    return _with_dims(data, table)  # type: ignore[no-any-return]


def _with_dims(data: Any, table: Sequence[int]) -> Any:
    if isinstance(data, KernelSize):
        return data.value(table)
    if isinstance(data, tuple):
        return tuple(_with_dims(item, table) for item in data)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        old = {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
        new = {name: _with_dims(item, table) for name, item in old.items()}
        changed = {name: item for name, item in new.items() if item is not old[name]}
        changed = {n: i for n, i in changed.items() if i != old[n]}
        return dataclasses.replace(data, **changed) if changed else data
    return data


def entries(data: Any) -> int:
    """How many entries of the table a spec reads: one more than the last; 0 when all is known."""
    if isinstance(data, KernelSize):
        return max(map(entries, (a for atoms, _ in data.terms for a in atoms)))
    if isinstance(data, Atom):
        return int(data.args[0]) + 1 if data.kind == "entry" else max(map(entries, data.args))  # type: ignore[arg-type]
    if isinstance(data, tuple):
        return max(map(entries, data), default=0)
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return max((entries(getattr(data, f.name)) for f in dataclasses.fields(data)), default=0)
    return 0
