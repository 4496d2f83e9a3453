"""Which fast algorithms a subject may have used, and whether it may have run on a GPU.

The errors of Strassen's algorithm are told by their size alone, and mistakes come in every size.
So they acquit only a subject that says that it uses it (`Capabilities.fast_algorithms`); of one
that says nothing they leave open what it did, and of one that does not use it they say nothing.
Winograd's algorithm and Fourier transforms are what many runtimes take, without telling.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from verax.numerics import strassen

WINOGRAD, FFT = "Winograd", "FFT"
ALL = frozenset({WINOGRAD, strassen.NAME, FFT})
_used: ContextVar[frozenset[str] | None] = ContextVar("algorithms of the subject", default=ALL)
_device: ContextVar[bool] = ContextVar(
    "a GPU may have computed the subject's numbers", default=False
)


def used() -> frozenset[str] | None:
    """The algorithms that the subject being judged says it uses; None when it says nothing."""
    return _used.get()


@contextlib.contextmanager
def using(algorithms: frozenset[str] | None, any_device: bool = False) -> Iterator[None]:
    """Set the algorithms that the subject being judged states, and whether a GPU may have computed
    its numbers."""
    token, device = _used.set(algorithms), _device.set(any_device)
    try:
        yield
    finally:
        _used.reset(token)
        _device.reset(device)


def may_be_device() -> bool:
    """True if a GPU may have computed the subject's numbers, in matrix units that round factors."""
    return _device.get()


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
