"""Sizes that symbols have for now, and the conditions on them that decisions rest on.

A network of open sizes is compiled once for many: whoever compares two dimensions under
`assuming(sizes)` gets the answer that holds for these sizes, and what was asked is recorded as a
`Condition`. The result serves all sizes for which every condition holds. A dimension that is needed
as a number is one, under the condition that it stays so: what knows nothing of open sizes is right
under them, for fewer of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from verax.base.errors import GraphError


class Polynomial(Protocol):
    """What is asked of a dimension (`ir.dim.Dim`)."""

    def value(self, sizes: Mapping[str, int]) -> int: ...

    def lowest(self) -> int | None: ...

    def highest(self) -> int | None: ...

    @property
    def names(self) -> frozenset[str]: ...

    def __sub__(self, other: int) -> Any: ...


RELATIONS: Mapping[str, Callable[[int], bool]] = {
    "==": lambda n: n == 0,
    "!=": lambda n: n != 0,
    "<": lambda n: n < 0,
    ">=": lambda n: n >= 0,
}
"""What a condition may say of a number beside zero."""


class NotOpenError(GraphError):
    """Something cannot be made for open sizes, whatever is assumed of them."""


@dataclass(frozen=True)
class Condition:
    """`difference` stands in `relation` to zero. elements: how many are computed by what rests on
    it; it need not hold where there are none. None: it has to hold always."""

    difference: Polynomial
    relation: str
    elements: Polynomial | None = None

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it does for these sizes of symbols."""
        if self.elements is not None and self.elements.value(sizes) == 0:
            return True
        return RELATIONS[self.relation](self.difference.value(sizes))

    def __str__(self) -> str:
        unless = "" if self.elements is None else f" unless {self.elements} == 0"
        return f"{self.difference} {self.relation} 0{unless}"


TYPICAL_COUNT = 37
"""What is assumed of a count that only data decide, until a run has counted: a number that hardly
any other size is, nor a multiple of a vector's length."""


@dataclass
class Assumptions:
    """sizes: of every symbol, at least 1; those that data decide follow as they are met, as
    `counts` has them by name. conditions: what was decided by them, in order, with the line of code
    that asked first, if `traced`. counted: the name that type rules gave to a size that data
    decide, by its symbol. elements: see `while_there_are`; counts_are_open: see `counts_open`.
    bounds: (lowest, highest) that symbols are stated to have, which decide without a condition;
    stated: the conditions that sizes are within them, which hold from the outset."""

    sizes: dict[str, int]
    traced: bool = False
    conditions: dict[Condition, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    counted: dict[str, str] = field(default_factory=dict)
    elements: Polynomial | None = None
    counts_are_open: bool = False
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    stated: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        for condition in self.stated:
            self.conditions.setdefault(condition, "")

    def bounds_of(self, symbol: str) -> tuple[int, int | None]:
        """Sizes between which a symbol lies. Of what is counted there may be none."""
        low, high = self.bounds.get(symbol, (1, None))
        return (0 if symbol in self.counted else max(low, 1)), high

    def counted_symbol(self, name: str) -> str:
        """The symbol of a size that data decide, which type rules call `name`."""
        for symbol, counted_name in self.counted.items():
            if counted_name == name:
                return symbol
        new = f"d{len(self.sizes)}"
        self.sizes[new] = max(1, self.counts.get(name, TYPICAL_COUNT))
        self.counted[new] = name
        return new

    def renewed(self) -> Assumptions:
        """The same sizes, of which nothing has been decided yet."""
        return dataclasses.replace(
            self, sizes=dict(self.sizes), counted=dict(self.counted), conditions={}, elements=None
        )

    def is_counted(self, dim: object) -> bool:
        """Whether data decide what `dim` is."""
        names: frozenset[str] = getattr(dim, "names", frozenset())
        return not self.counted.keys().isdisjoint(names)

    def require(self, difference: Polynomial, relation: str) -> None:
        """What follows holds only if `difference` stands in `relation` to zero."""
        condition = Condition(difference, relation, self.elements)
        if condition not in self.conditions:
            self.conditions[condition] = _asked_at() if self.traced else ""

    def is_zero(self, difference: Polynomial) -> bool:
        """Whether it is zero; decided for now where that depends on sizes."""
        lowest, highest = difference.lowest(), difference.highest()
        if (lowest is not None and lowest > 0) or (highest is not None and highest < 0):
            return False
        answer = difference.value(self.sizes) == 0
        self.require(difference, "==" if answer else "!=")
        return answer

    def is_negative(self, difference: Polynomial) -> bool:
        """Whether it is less than zero; decided for now where that depends on sizes."""
        lowest, highest = difference.lowest(), difference.highest()
        if lowest is not None and lowest >= 0:
            return False
        if highest is not None and highest < 0:
            return True
        answer = difference.value(self.sizes) < 0
        self.require(difference, "<" if answer else ">=")
        return answer

    def as_int(self, dim: Polynomial) -> int:
        """`dim` as a number, which it has to stay. Raises `NotOpenError` where data decide it."""
        if self.is_counted(dim):
            raise NotOpenError(f"the size {dim}, which data decide, is needed as a number")
        value = dim.value(self.sizes)
        self.require(dim - value, "==")
        return value


_current: ContextVar[Assumptions | None] = ContextVar("assumptions", default=None)


def assumptions() -> Assumptions | None:
    """Those that hold here; None where sizes are open."""
    return _current.get()


def deciding(*dims: object) -> Assumptions | None:
    """Those that decide what these numbers and dimensions are; None where one is open."""
    assumed = _current.get()
    if assumed is not None and assumed.counts_are_open and any(map(assumed.is_counted, dims)):
        return None
    return assumed


@contextlib.contextmanager
def counts_open() -> Iterator[None]:
    """Sizes that data decide are open inside, as they are where nothing is assumed: what decides
    numbers is decided alike, whether kernels count or the reference does."""
    assumed = _current.get()
    if assumed is None:
        yield
        return
    assumed.counts_are_open = True
    try:
        yield
    finally:
        assumed.counts_are_open = False


def assumed_sizes() -> Mapping[str, int]:
    """The sizes of symbols that are assumed here, for what may be decided by them without a
    condition: because it decides speed alone."""
    assumed = _current.get()
    return {} if assumed is None else assumed.sizes


@contextlib.contextmanager
def assuming(assumed: Assumptions | None) -> Iterator[None]:
    """Decide comparisons of dimensions by `assumed`; None leaves them open."""
    token = _current.set(assumed)
    try:
        yield
    finally:
        _current.reset(token)


def is_counted(*dims: object) -> bool:
    """Whether data decide what one of these numbers and dimensions is."""
    assumed = _current.get()
    return assumed is not None and bool(assumed.counted) and any(map(assumed.is_counted, dims))


@contextlib.contextmanager
def while_there_are(elements: object) -> Iterator[None]:
    """Conditions that are recorded inside need not hold where there are no `elements`, a number or
    a dimension: nothing that rests on them is then computed. None: they have to hold always."""
    assumed = _current.get()
    if assumed is None:
        yield
        return
    before = assumed.elements
    assumed.elements = elements if assumed.is_counted(elements) else None  # type: ignore[assignment]
    try:
        yield
    finally:
        assumed.elements = before


def require_nonzero(elements: object) -> None:
    """What follows holds only if there are any `elements`, a number or a dimension."""
    assumed = _current.get()
    if assumed is not None and assumed.is_counted(elements):
        assumed.require(elements, "!=")  # type: ignore[arg-type]


def _asked_at() -> str:
    """The code outside of this room that asked, innermost first."""
    frame = sys._getframe(2)
    locations: list[str] = []
    while frame is not None and len(locations) < 6:
        name = frame.f_globals.get("__name__", "")
        if name.rpartition(".")[0] != __package__:
            locations.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(locations)
