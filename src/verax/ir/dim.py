"""Dimensions: integers, symbols, and expressions over symbols.

A `Dim` is a polynomial with integer coefficients over atoms; an atom is a symbol, or a floor or
ceiling division of two dimensions. Polynomials are kept in a normal form, so equal expressions
compare equal, and an expression without symbols is a plain `int`. The text form is Python's:
`2*n + (h - 1)//2 + ceildiv(w, 2)`.

Comparisons that depend on sizes are undecided, except where sizes are assumed (`assumptions`):
there a `Dim` may stand wherever a number does.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from numbers import Integral
from typing import ClassVar, Union

from verax.base.errors import GraphError
from verax.ir import dim_bounds as ends
from verax.ir import dim_limits as limits
from verax.ir.assumptions import assumptions, deciding

DimLike = Union[int, "Dim"]


@dataclass(frozen=True)
class Symbol:
    """A dimension known only when the network is run."""

    name: str
    depth: ClassVar[int] = 0
    written: ClassVar[int] = 1

    may_be_negative: ClassVar[bool] = False

    @property
    def lower_bound(self) -> int:
        """Inputs have at least one element per axis; of what is counted there may be none."""
        assumed = assumptions()
        return 1 if assumed is None else assumed.bounds_of(self.name)[0]

    @property
    def upper_bound(self) -> int | None:
        assumed = assumptions()
        return None if assumed is None else assumed.bounds_of(self.name)[1]

    def value(self, sizes: Mapping[str, int]) -> int:
        return sizes[self.name]

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Division:
    """Floor or ceiling division of two dimensions that could not be carried out."""

    numerator: DimLike
    denominator: DimLike
    ceiling: bool
    depth: int = field(default=0, compare=False)
    written: int = field(default=1, compare=False)

    @property
    def lower_bound(self) -> int:
        """Sizes that are divided are never negative."""
        return ends.lowest_quotient(self.numerator, self.denominator, self.ceiling)

    @property
    def upper_bound(self) -> int | None:
        return ends.highest_quotient(self.numerator, self.denominator, self.ceiling)

    @property
    def may_be_negative(self) -> bool:
        return ends.may_be_negative(self.numerator)

    def value(self, sizes: Mapping[str, int]) -> int:
        numerator, denominator = (
            evaluated(self.numerator, sizes),
            evaluated(self.denominator, sizes),
        )
        return -(-numerator // denominator) if self.ceiling else numerator // denominator

    def __str__(self) -> str:
        if self.ceiling:
            return f"ceildiv({self.numerator}, {self.denominator})"
        return f"{_wrap(self.numerator)}//{_wrap(self.denominator)}"


@dataclass(frozen=True)
class Maximum:
    """The larger of two dimensions that could not be compared."""

    left: DimLike
    right: DimLike
    depth: int = field(default=0, compare=False)
    written: int = field(default=1, compare=False)

    @property
    def lower_bound(self) -> int:
        sides = (ends.lowest_of(self.left), ends.lowest_of(self.right))
        return max((low for low in sides if low is not None), default=0)

    @property
    def upper_bound(self) -> int | None:
        sides = (ends.highest_of(self.left), ends.highest_of(self.right))
        return None if None in sides else max(sides)  # type: ignore[type-var]

    @property
    def may_be_negative(self) -> bool:
        return ends.may_be_negative(self.left, self.right)

    def value(self, sizes: Mapping[str, int]) -> int:
        return max(evaluated(self.left, sizes), evaluated(self.right, sizes))

    def __str__(self) -> str:
        return f"max({self.left}, {self.right})"


Atom = Symbol | Division | Maximum
Monomial = tuple[tuple[Atom, int], ...]


def _wrap(dim: DimLike) -> str:
    simple = isinstance(dim, int) or (
        len(dim.terms) == 1
        and dim.terms[0][1] == 1
        and len(dim.terms[0][0]) == 1
        and dim.terms[0][0][0][1] == 1
        and isinstance(dim.terms[0][0][0][0], Symbol | Maximum)
    )
    return str(dim) if simple else f"({dim})"


@dataclass(frozen=True, eq=False)
class Dim:
    """A polynomial in normal form: `terms` maps monomials to non-zero coefficients, sorted."""

    terms: tuple[tuple[Monomial, int], ...]

    @cached_property
    def _hash(self) -> int:
        return hash(tuple((m, str(n)) for m, n in self.terms))  # hash(-1) is hash(-2)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether both are one expression; where sizes are assumed, whether both are one size."""
        if isinstance(other, Dim):
            if self._hash == other._hash and self.terms == other.terms:
                return True
        elif not isinstance(other, int | Integral):  # NumPy's, too
            return NotImplemented
        if assumptions() is None:
            return False
        difference = self - (other if isinstance(other, Dim) else int(other))
        assumed = deciding(difference)
        return assumed is not None and equal(difference, 0)

    def __lt__(self, other: DimLike) -> bool:
        return less(self, other)

    def __le__(self, other: DimLike) -> bool:
        return not less(other, self)

    def __gt__(self, other: DimLike) -> bool:
        return less(other, self)

    def __ge__(self, other: DimLike) -> bool:
        return not less(self, other)

    def __bool__(self) -> bool:
        lowest = self.lowest()
        return (lowest is not None and lowest > 0) or not equal(self, 0)

    def __add__(self, other: DimLike) -> DimLike:
        terms = dict(self.terms)
        for monomial, factor in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + factor
        return _make(terms)

    __radd__ = __add__

    def __neg__(self) -> DimLike:
        return self * -1

    def __sub__(self, other: DimLike) -> DimLike:
        return self + (-other)

    def __rsub__(self, other: DimLike) -> DimLike:
        return (-self) + other

    def __mul__(self, other: DimLike) -> DimLike:
        if isinstance(other, int):  # no term changes its place
            scaled = tuple([(monomial, factor * other) for monomial, factor in self.terms])
            return Dim(scaled) if other else 0
        limits.require_bounded(len(self.terms) * len(_terms(other)), limits.MAX_TERMS)
        limits.require_bounded(
            limits.degree(self.terms) + limits.degree(_terms(other)), limits.MAX_DEGREE
        )
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                powers = dict(left)
                for atom, power in right:
                    powers[atom] = powers.get(atom, 0) + power
                key: Monomial = tuple(powers.items())
                if len(key) > 1:
                    key = tuple(sorted(key, key=lambda item: str(item[0])))
                terms[key] = terms.get(key, 0) + a * b
        return _make(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: DimLike) -> DimLike:
        return floordiv(self, other)

    def __rfloordiv__(self, other: DimLike) -> DimLike:
        return floordiv(other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        return self - floordiv(self, other) * other

    def __rmod__(self, other: DimLike) -> DimLike:
        return other - floordiv(other, self) * self

    def __divmod__(self, other: DimLike) -> tuple[DimLike, DimLike]:
        return self // other, self % other

    def __rdivmod__(self, other: DimLike) -> tuple[DimLike, DimLike]:
        return other // self, other % self

    def __lshift__(self, bits: int) -> int:
        return int(self) << bits

    def __rshift__(self, bits: int) -> int:
        return int(self) >> bits

    def __truediv__(self, other: float | Dim) -> float:
        return int(self) / (int(other) if isinstance(other, Dim) else other)

    def __rtruediv__(self, other: float) -> float:
        return other / int(self)

    def __int__(self) -> int:
        assumed = deciding(self)
        if assumed is None:
            raise UndecidedError(f"the dimension {self} is not known yet")
        return assumed.as_int(self)

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    def value(self, sizes: Mapping[str, int]) -> int:
        """The number that it is for these sizes of all its symbols."""
        total = 0
        for monomial, factor in self.terms:
            for atom, power in monomial:
                factor *= atom.value(sizes) ** power
            total += factor
        return total

    @cached_property
    def names(self) -> frozenset[str]:
        """Of its symbols."""
        return symbols(self)

    def lowest(self) -> int | None:
        """A number that it is never below, for sizes within bounds; None where none is seen."""
        return ends.lowest_sum(self.terms, 1)

    def highest(self) -> int | None:
        """A number that it is never above, for sizes within bounds; None where none is seen."""
        return None if (low := ends.lowest_sum(self.terms, -1)) is None else -low

    def __str__(self) -> str:
        text = ""
        for monomial, factor in self.terms:
            factors = [
                str(atom)
                if isinstance(atom, Symbol | Maximum)
                or (len(monomial) == 1 == power and (factor == 1 or (factor == -1 and text)))
                else f"({atom})"
                for atom, power in monomial
                for _ in range(power)
            ]
            if abs(factor) != 1 or not factors:
                factors.insert(0, str(abs(factor)))
            sign = (" - " if text else "-") if factor < 0 else (" + " if text else "")
            text += sign + "*".join(factors)
        return text

    __repr__ = __str__


def _terms(dim: DimLike) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Dim):
        return dim.terms
    if isinstance(dim, float):
        raise TypeError("dimensions are whole numbers")
    return (((), int(dim)),) if int(dim) else ()


def _make(terms: Mapping[Monomial, int]) -> DimLike:
    nonzero = {monomial: factor for monomial, factor in terms.items() if factor}
    if not nonzero:
        return 0
    if list(nonzero) == [()]:
        return nonzero[()]
    limits.require_bounded(len(nonzero), limits.MAX_TERMS)
    limits.require_bounded(sum(map(limits.length, nonzero)), limits.MAX_WRITTEN)
    if len(nonzero) == 1:
        return Dim(tuple(nonzero.items()))
    # Symbols first, the constant last: "n + 1", not "1 + n".
    return Dim(tuple(sorted(nonzero.items(), key=lambda item: (not item[0], _text_of(item[0])))))


@lru_cache(maxsize=1 << 14)
def _text_of(monomial: Monomial) -> str:
    """What terms are ordered by: kernels compute with the same few sizes over and over."""
    return str(monomial)


def _nested(*dims: DimLike) -> tuple[int, int]:
    """Depth and length of an atom that is made of `dims`."""
    depth = 1 + max(limits.depth_within(_terms(dim)) for dim in dims)
    limits.require_bounded(depth, limits.MAX_DEPTH)
    written = 1 + sum(limits.length(monomial) for dim in dims for monomial, _ in _terms(dim))
    limits.require_bounded(written, limits.MAX_WRITTEN)
    return depth, written


def _atom(atom: Atom) -> Dim:
    return Dim(((((atom, 1),), 1),))


def symbol(name: str) -> Dim:
    """The dimension that is called `name`; names are Python identifiers with dots."""
    return _atom(Symbol(name))


def _divide(left: DimLike, right: DimLike, ceiling: bool) -> DimLike:
    if isinstance(right, int):
        if right == 0:
            raise GraphError(f"division of the dimension {left} by zero")
        if isinstance(left, int):
            return -(-left // right) if ceiling else left // right
        # Whole multiples leave the division: (4n + h)//2 == 2n + h//2.
        multiples = {m: f // right for m, f in left.terms if f % right == 0}
        remainder = _make({m: f for m, f in left.terms if f % right})
        if multiples:
            return _make(multiples) + _divide(remainder, right, ceiling)
    if same(left, right):
        return 1
    if same(left, 0):
        return 0
    if isinstance(left, Dim) and all(factor < 0 for _, factor in left.terms):
        return _divide(-left, right, not ceiling) * -1  # what is divided is never negative
    quotient = _exact_quotient(left, right)
    if quotient is None and not ceiling:
        quotient = _nested_quotient(left, right)
    if quotient is not None:
        return quotient
    return _atom(Division(left, right, ceiling, *_nested(left, right)))


def _nested_quotient(left: DimLike, right: DimLike) -> DimLike | None:
    """(a//b + c)//right as (a + b*c)//(b*right), for numbers b, c and right."""
    if not isinstance(right, int) or right < 1 or not isinstance(left, Dim):
        return None
    *_, (constant_of, constant) = left.terms
    shift, terms = (constant, left.terms[:-1]) if not constant_of else (0, left.terms)
    if len(terms) != 1 or terms[0][1] != 1 or len(terms[0][0]) != 1:
        return None
    ((atom, power),) = terms[0][0]
    if power != 1 or not isinstance(atom, Division) or atom.ceiling:
        return None
    below = atom.denominator
    if not isinstance(below, int) or below < 1:
        return None
    return _divide(atom.numerator + shift * below, below * right, ceiling=False)


def _exact_quotient(left: DimLike, right: DimLike) -> DimLike | None:
    """left / right when right is one monomial that divides every term of left."""
    if len(_terms(right)) != 1:
        return None
    (divisor, factor), terms = _terms(right)[0], {}
    for monomial, coefficient in _terms(left):
        powers = dict(monomial)
        for atom, power in divisor:
            powers[atom] = powers.get(atom, 0) - power
        if coefficient % factor or any(p < 0 for p in powers.values()):
            return None
        terms[tuple((a, p) for a, p in powers.items() if p)] = coefficient // factor
    return _make(terms)


def floordiv(left: DimLike, right: DimLike) -> DimLike:
    """floor(left / right)."""
    return _divide(left, right, ceiling=False)


def ceildiv(left: DimLike, right: DimLike) -> DimLike:
    """ceil(left / right)."""
    return _divide(left, right, ceiling=True)


def maximum(left: DimLike, right: DimLike) -> DimLike:
    """The larger one; symbols stand for sizes, which are never negative."""
    difference = left - right
    if isinstance(difference, int):
        return left if difference >= 0 else right
    for a, b in ((left, right), (right, left)):
        if same(b, 0) and all(
            f > 0 and all(isinstance(x, Symbol) for x, _ in m) for m, f in _terms(a)
        ):
            return a
    return _atom(Maximum(left, right, *_nested(left, right)))


class UndecidedError(GraphError):
    """A comparison of dimensions whose result depends on sizes not known yet."""


def is_known(dim: object) -> bool:
    """Whether a dimension is a number, or stands for one where sizes are assumed."""
    return isinstance(dim, int) or (isinstance(dim, Dim) and deciding(dim) is not None)


def same(left: DimLike, right: DimLike) -> bool:
    """Whether both are one expression: equal for all sizes, and no condition on any."""
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int) and isinstance(right, int) and left == right
    return left.terms == right.terms


def evaluated(dim: DimLike, sizes: Mapping[str, int]) -> int:
    """The number that a dimension is for these sizes of all its symbols."""
    return dim if isinstance(dim, int) else dim.value(sizes)


def less(left: DimLike, right: DimLike) -> bool:
    """Whether left < right for all sizes (never negative); `UndecidedError` if for some only,
    unless sizes are assumed."""
    difference = right - left
    if isinstance(difference, int):
        return difference > 0
    assumed = deciding(difference)
    if assumed is not None:
        return assumed.is_negative(difference * -1)  # type: ignore[arg-type]
    factors = [f for _, f in difference.terms]
    if all(isinstance(x, Symbol) for m, _ in difference.terms for x, _ in m):
        constant = dict(difference.terms).get((), 0)
        if constant > 0 and all(f > 0 for f in factors):
            return True
        if constant <= 0 and all(f < 0 for f in factors):
            return False
    raise UndecidedError(f"whether {left} < {right} is not known yet")


def equal(left: DimLike, right: DimLike) -> bool:
    """Whether left == right for all sizes; `UndecidedError` if for some only, unless sizes are
    assumed."""
    difference = left - right
    if isinstance(difference, int):
        return difference == 0
    assumed = deciding(difference)
    if assumed is not None:
        return assumed.is_zero(difference)
    for a, b in ((left, right), (right, left)):
        with suppress(UndecidedError):
            if less(a, b):
                return False
    raise UndecidedError(f"whether {left} == {right} is not known yet")


def product(dims: tuple[DimLike, ...] | list[DimLike]) -> DimLike:
    """The number of elements of a tensor with these dimensions."""
    return reduce(lambda a, b: a * b, dims, 1)


def symbols(dim: DimLike) -> frozenset[str]:
    """Names of the symbols in `dim`."""
    names: set[str] = set()
    for monomial, _ in _terms(dim):
        for atom, _ in monomial:
            if isinstance(atom, Symbol):
                names.add(atom.name)
            elif isinstance(atom, Maximum):
                names |= symbols(atom.left) | symbols(atom.right)
            else:
                names |= symbols(atom.numerator) | symbols(atom.denominator)
    return frozenset(names)
