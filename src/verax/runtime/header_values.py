"""Values of one type each, out of JSON that nobody vouches for.

`location` names the entry in errors. What is no such value is a `HeaderError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeVar

T = TypeVar("T")

MAX_RANK = 64
MAX_BYTES = 1 << 46
"""Most bytes of one tensor, and of the arena; more is on no machine."""
MAX_NAME = 1 << 16


class HeaderError(ValueError):
    """What is wrong, in a clause."""


def members(
    value: object, location: str, names: set[str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """An object with exactly these members."""
    if not isinstance(value, dict):
        raise HeaderError(f"{location} is no object")
    for name in sorted(names - optional - value.keys()):
        raise HeaderError(f"{location} lacks {name!r}")
    for name in sorted(value.keys() - names):
        raise HeaderError(f"{location} has {name[:80]!a}, which is not known")
    return value


def integer(value: object, location: str, minimum: int = 0, maximum: int = MAX_BYTES) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise HeaderError(f"{location} is no whole number from {minimum} to {maximum}")
    return value


def text(value: object, location: str, limit: int = MAX_NAME) -> str:
    if not isinstance(value, str) or len(value) > limit:
        raise HeaderError(f"{location} is no text of at most {limit} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise HeaderError(f"{location} is no valid text") from None
    return value


def flag(value: object, location: str) -> bool:
    if not isinstance(value, bool):
        raise HeaderError(f"{location} is neither true nor false")
    return value


def items(value: object, location: str, read: Callable[[Any, str], T]) -> tuple[T, ...]:
    """What `read` makes of every item of a list."""
    if not isinstance(value, list):
        raise HeaderError(f"{location} is no list")
    return tuple(read(item, f"{location}[{i}]") for i, item in enumerate(value))


def one_of(value: object, location: str, choices: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise HeaderError(f"{location} is none of {', '.join(choices)}")
    return value


def shape(value: object, location: str, itemsize: int) -> tuple[int, ...]:
    dims = items(value, location, integer)
    if len(dims) > MAX_RANK:
        raise HeaderError(f"{location} has {len(dims)} dimensions")
    if prod(max(d, 1) for d in dims) * itemsize > MAX_BYTES:
        raise HeaderError(f"{location} is absurdly large")
    return dims
