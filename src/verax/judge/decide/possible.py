"""Which fast algorithms a subject may have used.

The errors of Strassen's algorithm are told by their size alone, and mistakes come in every size.
So they acquit only a subject that says that it uses it (`fast_algorithms`); of one that says
nothing they leave open what it did, and of one that does not use it they say nothing. Winograd's
algorithm and Fourier transforms are what many runtimes take, without telling.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from verax.numerics import strassen

P = ParamSpec("P")
R = TypeVar("R")
WINOGRAD, FFT = "Winograd", "FFT"
ALL = frozenset({WINOGRAD, strassen.NAME, FFT})
_used: ContextVar[frozenset[str] | None] = ContextVar("algorithms of the subject", default=ALL)


def algorithms_of(subject: Any) -> frozenset[str] | None:
    """Names of the fast algorithms that a runner states; None when it states nothing."""
    names: Collection[str] | None = getattr(subject, "fast_algorithms", None)
    return None if names is None else frozenset(names)


def used() -> frozenset[str] | None:
    """The algorithms that the subject being judged says it uses; None when it says nothing."""
    return _used.get()


@contextlib.contextmanager
def using(algorithms: frozenset[str] | None) -> Iterator[None]:
    """Set the algorithms that the subject being judged states."""
    token = _used.set(algorithms)
    try:
        yield
    finally:
        _used.reset(token)


def knowing_the_subject(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function of a graph and a subject: sets the algorithms that it states."""

    @functools.wraps(function)
    def act(*args: P.args, **options: P.kwargs) -> R:
        subject = args[1] if len(args) > 1 else options.get("subject")
        with using(algorithms_of(subject)):
            return function(*args, **options)

    return act


def is_possible(algorithm: str) -> bool:
    """True if the subject may have used the algorithm."""
    names = _used.get()
    return names is None or algorithm in names


def is_claimed(algorithm: str) -> bool:
    """True if errors of the algorithm's size count as `precision`."""
    names = _used.get()
    return algorithm != strassen.NAME if names is None else algorithm in names


UNCLAIMED = (
    "the errors have the size that {} would give, but the subject does not say that it uses it, "
    "and a size alone proves nothing"
)
