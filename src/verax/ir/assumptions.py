"""Sizes that symbols have for now, and the conditions on them that decisions rest on.

A network of open sizes is compiled once for many: whoever compares two dimensions under
`assuming(sizes)` gets the answer that holds for these sizes, and what was asked is recorded as a
`Condition`. The result serves all sizes for which every condition holds. A dimension that is needed
as a number is one, under the condition that it stays so: what knows nothing of open sizes is right
under them, for fewer of them.
"""

from __future__ import annotations

import contextlib
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
    """`difference` stands in `relation` to zero."""

    difference: Polynomial
    relation: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it does for these sizes of symbols."""
        return RELATIONS[self.relation](self.difference.value(sizes))

    def __str__(self) -> str:
        return f"{self.difference} {self.relation} 0"


@dataclass
class Assumptions:
    """sizes: of every symbol, at least 1. conditions: what was decided by them, in order, with the
    line of code that asked first, if `traced`."""

    sizes: Mapping[str, int]
    traced: bool = False
    conditions: dict[Condition, str] = field(default_factory=dict)

    def require(self, difference: Polynomial, relation: str) -> None:
        """What follows holds only if `difference` stands in `relation` to zero."""
        condition = Condition(difference, relation)
        if condition not in self.conditions:
            self.conditions[condition] = _asked_at() if self.traced else ""

    def is_zero(self, difference: Polynomial) -> bool:
        """Whether it is zero; decided for now where that depends on sizes."""
        lowest = difference.lowest()
        if lowest is not None and lowest > 0:
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
        """`dim` as a number, which it has to stay."""
        value = dim.value(self.sizes)
        self.require(dim - value, "==")
        return value


_current: ContextVar[Assumptions | None] = ContextVar("assumptions", default=None)


def assumptions() -> Assumptions | None:
    """Those that hold here; None where sizes are open."""
    return _current.get()


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
