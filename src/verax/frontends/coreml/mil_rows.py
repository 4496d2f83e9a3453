"""Reading the arguments of ML program operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.conversion import Conversion, ValueNeededError
from verax.frontends.coreml.rows import row

MIL = "mil"


def mil(*operators: str) -> Any:
    """Enter a function as the row of operations of ML programs."""
    return row(*operators, domain=MIL)


def arg(c: Conversion, name: str) -> str | None:
    """The graph value of an argument, computed or constant; None when it is not given."""
    bound = c.attributes.get("inputs", ())
    if name in bound:
        return c.required(bound.index(name))
    value = c.attributes.get(name)
    return None if value is None else c.constant(np.asarray(value))


def needed(c: Conversion, name: str) -> str:
    """The graph value of an argument that must be given."""
    found = arg(c, name)
    if found is None:
        raise ModelError(f"the argument {name!r} is missing", place=c.node.place)
    return found


def several(c: Conversion, name: str) -> list[str]:
    """The graph values of an argument that takes a list."""
    bound = c.attributes.get("inputs", ())
    found = [c.required(i) for i, n in enumerate(bound) if n == name]
    return found or [needed(c, name)]


def known(c: Conversion, name: str, default: Any = None) -> Any:
    """The value of an argument that must be constant: an array, a text, or `default`.

    Raises `ValueNeededError` when it is computed while the network runs.
    """
    bound = c.attributes.get("inputs", ())
    if name in bound:
        value = c.known(bound.index(name))
        if value is None or value.dtype == object:
            raise ValueNeededError(
                f"the argument {name!r} is computed while the network runs",
                place=c.node.place,
                next_step="convert the model with fixed shapes",
            )
        return value
    return c.attributes.get(name, default)


def numbers(c: Conversion, name: str, default: Any = None) -> Any:
    """A constant list of integers as a tuple."""
    value = known(c, name)
    if value is None:
        return default
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise ModelError(f"{name} should be integers, not {array.dtype}", place=c.node.place)
    return tuple(int(v) for v in array.ravel())


def integer(c: Conversion, name: str, default: int | None = None) -> int:
    found = numbers(c, name)
    if found is None and default is not None:
        return default
    if found is None or len(found) != 1:
        raise ModelError(f"{name} should be one integer, not {found}", place=c.node.place)
    return int(found[0])


def flag(c: Conversion, name: str, default: bool = False) -> bool:
    return bool(integer(c, name, int(default)))


def number(c: Conversion, name: str, default: float | None = None) -> float:
    """A constant number; absent, `default`."""
    value = known(c, name)
    if value is None and default is not None:
        return default
    array = np.asarray(value)
    if value is None or array.size != 1 or isinstance(value, str):
        raise ModelError(f"{name} should be one number, not {value}", place=c.node.place)
    return float(array.ravel()[0])


def text(c: Conversion, name: str, default: str) -> str:
    value = known(c, name, default)
    if not isinstance(value, str):
        raise ModelError(f"{name} should be a text, not {value}", place=c.node.place)
    return value


def refuse(c: Conversion, name: str, why: str) -> None:
    """Refuse the value of a constant argument by name."""
    c.attributes.refuse(name, why)


def dtype_of(c: Conversion, value: str) -> np.dtype:
    return c.builder.types[value].dtype.numpy


def rank_of(c: Conversion, value: str) -> int:
    return c.builder.types[value].rank


def like(c: Conversion, x: str, value: Any) -> str:
    """A constant in the element type of a graph value."""
    return c.constant(np.asarray(value, dtype_of(c, x)))


def pairs(flat: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(b0, e0, b1, e1, ...) as ((b0, e0), (b1, e1), ...)."""
    return tuple(zip(flat[::2], flat[1::2]))


def positions(c: Conversion, name: str) -> str:
    """The graph value of an argument of indices, int64."""
    found = needed(c, name)
    if c.builder.types[found].dtype == "int64":
        return found
    return c.add("Cast", [found], to="int64")


def named(c: Conversion, values: Sequence[str], **casts: str) -> tuple[str, ...]:
    """Nodes that give values the names of the operation's outputs; to: their element type."""
    kind = "Cast" if casts else "Identity"
    return tuple(
        c.builder.add(c.operator(kind, **casts), [v], [name], c.node.name)
        for v, name in zip(values, c.node.outputs)
    )
