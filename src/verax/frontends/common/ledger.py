"""The attribute ledger: what became of every attribute of every foreign node.

A converter reads attributes only through `Attributes`. When it is done, whatever it has not read
is refused, so nothing that a file says can be dropped in silence. The ledger stays on the model
and `verax inspect` prints it.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError


class AttributeOutcome(enum.StrEnum):
    """Consumed: the converter used the value. Irrelevant: it cannot change what is computed."""

    consumed = "consumed"
    irrelevant = "irrelevant"


@dataclass(frozen=True)
class LedgerEntry:
    """One attribute of one foreign node; `reason` says why an irrelevant one is irrelevant."""

    node: str
    operator: str
    attribute: str
    value: str
    outcome: AttributeOutcome
    reason: str = ""


@dataclass
class Ledger:
    """All entries of one import, in the order of the nodes."""

    entries: list[LedgerEntry] = field(default_factory=list)

    def attributes(self, node: str, operator: str, values: Mapping[str, Any]) -> Attributes:
        """The attributes of a node about to be converted."""
        return Attributes(self, node, operator, values)

    def counts(self) -> dict[str, int]:
        """How many attributes had each outcome."""
        return dict(Counter(str(entry.outcome) for entry in self.entries))


def show(value: object) -> str:
    """An attribute's value in a few words."""
    if isinstance(value, np.ndarray):
        if value.size > 8:
            return f"{value.dtype}{list(value.shape)} tensor"
        return f"{value.dtype} {value.tolist()}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Attributes:
    """Typed reading of one node's attributes; every reading is entered in the ledger.

    A reader returns `default` when the attribute is absent and raises `ModelError` when its value
    is of another type.
    """

    def __init__(self, ledger: Ledger, node: str, operator: str, values: Mapping[str, Any]) -> None:
        self.ledger, self.node, self.operator = ledger, node, operator
        self.values = dict(values)
        self.done: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the node carries the attribute; this is not yet a reading."""
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:
        """The value, of whatever type, or `default`."""
        if name not in self.values:
            return default
        self._enter(name, AttributeOutcome.consumed, "")
        return self.values[name]

    def integer(self, name: str, default: Any = None) -> Any:
        return self._typed(name, default, "an integer", lambda v: type(v) is int)

    def scalar(self, name: str, default: Any = None) -> Any:
        """A number; as in the file, it is a float32 (the default is rounded to one, too)."""
        value = self._typed(name, default, "a number", lambda v: type(v) in (float, int))
        return value if value is None else float(np.float32(value))

    def text(self, name: str, default: Any = None) -> Any:
        return self._typed(name, default, "a string", lambda v: isinstance(v, str))

    def flag(self, name: str, default: bool = False) -> bool:
        """A flag stored as 0 or 1."""
        return bool(self._typed(name, int(default), "0 or 1", lambda v: v in (0, 1)))

    def integers(self, name: str, default: Any = None) -> Any:
        """A tuple of integers."""
        return self._typed(
            name, default, "integers", lambda v: _all(v, lambda item: type(item) is int)
        )

    def numbers(self, name: str, default: Any = None) -> Any:
        """A tuple of numbers."""
        return self._typed(
            name, default, "numbers", lambda v: _all(v, lambda item: type(item) in (float, int))
        )

    def texts(self, name: str, default: Any = None) -> Any:
        """A tuple of strings."""
        return self._typed(
            name, default, "strings", lambda v: _all(v, lambda item: isinstance(item, str))
        )

    def tensor(self, name: str, default: Any = None) -> Any:
        return self._typed(name, default, "a tensor", lambda v: isinstance(v, np.ndarray))

    def irrelevant(self, name: str, reason: str) -> None:
        """State that the attribute, if present, cannot change what is computed, and why."""
        if name in self.values:
            self._enter(name, AttributeOutcome.irrelevant, reason)

    def expect(self, name: str, *allowed: Any, reason: str = "") -> None:
        """Consume an attribute that may only have one of the `allowed` values; refuse others."""
        if name in self.values:
            if self.values[name] not in allowed:
                self.refuse(name, reason)
            self._enter(name, AttributeOutcome.consumed, reason)

    def refuse(self, name: str, reason: str = "") -> None:
        """Raise `UnsupportedError` naming node, attribute and value."""
        raise UnsupportedError(
            f"{self.operator}: the attribute {name} = {show(self.values.get(name))} is not "
            f"supported{': ' + reason if reason else ''}",
            place=self.node,
            next_step="export the model without it, or report the model to Verax",
        )

    def close(self) -> None:
        """Refuse whatever was neither read nor stated irrelevant."""
        for name in self.values:
            if name not in self.done:
                self.refuse(name, "no rule of the importer reads it")

    def _typed(self, name: str, default: Any, expected: str, fits: Any) -> Any:
        if name not in self.values:
            return default
        value = self.values[name]
        if not fits(value):
            raise ModelError(
                f"{self.operator}: the attribute {name} = {show(value)} should be {expected}",
                place=self.node,
            )
        self._enter(name, AttributeOutcome.consumed, "")
        return value

    def _enter(self, name: str, outcome: AttributeOutcome, reason: str) -> None:
        if name not in self.done:
            self.done.add(name)
            value = show(self.values[name])
            self.ledger.entries.append(
                LedgerEntry(self.node, self.operator, name, value, outcome, reason)
            )


def _all(value: object, fits: Any) -> bool:
    return isinstance(value, tuple) and all(fits(item) for item in value)
