"""Which fast algorithms a subject may have used.

The errors of Strassen's algorithm are told by their size alone, and mistakes come in every size.
So they acquit only a subject that says that it uses it (`Capabilities.fast_algorithms`); of one
that says nothing they leave open what it did, and of one that does not use it they say nothing.
Winograd's algorithm and Fourier transforms are what many runtimes take, without telling.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar

from verax.numerics import strassen

P = ParamSpec("P")
R = TypeVar("R")
WINOGRAD, FFT = "Winograd", "FFT"
ALL = frozenset({WINOGRAD, strassen.NAME, FFT})
_used: ContextVar[frozenset[str] | None] = ContextVar("algorithms of the subject", default=ALL)


def used() -> frozenset[str] | None:
    """The algorithms that the subject being judged says it uses; None when it says nothing."""
    return _used.get()


@contextlib.contextmanager
def using(algorithms: frozenset[str] | None) -> Iterator[None]:
    """Judge a subject that says so of itself."""
    token = _used.set(algorithms)
    try:
        yield
    finally:
        _used.reset(token)


def knowing_the_subject(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function of a graph and a subject: it knows which algorithms that uses."""

    @functools.wraps(function)
    def act(*args: P.args, **options: P.kwargs) -> R:
        subject: Any = args[1] if len(args) > 1 else options["subject"]
        with using(subject.capabilities.fast_algorithms):
            return function(*args, **options)

    return act


def is_possible(algorithm: str) -> bool:
    """Whether the subject may have used it."""
    said = _used.get()
    return said is None or algorithm in said


def is_claimed(algorithm: str) -> bool:
    """Whether errors of its size acquit the subject."""
    said = _used.get()
    return algorithm != strassen.NAME if said is None else algorithm in said


UNCLAIMED = (
    "the errors have the size that {} would give, but the subject does not say that it uses it, "
    "and a size alone proves nothing"
)
