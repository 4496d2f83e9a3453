"""Which fast algorithms a subject may have used, whether it may have run on a GPU, and in which 16
bits it says that it stores float32 values.

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
_formats: ContextVar[frozenset[str]] = ContextVar(
    "16-bit formats that the subject says it stores float32 values in", default=frozenset()
)


def used() -> frozenset[str] | None:
    """The algorithms that the subject being judged says it uses; None when it says nothing."""
    return _used.get()


@contextlib.contextmanager
def using(
    algorithms: frozenset[str] | None,
    any_device: bool = False,
    formats: frozenset[str] = frozenset(),
) -> Iterator[None]:
    """Set the algorithms that the subject being judged states, whether a GPU may have computed its
    numbers, and the 16-bit formats in which it says that it stores float32 values."""
    token, device, stored = _used.set(algorithms), _device.set(any_device), _formats.set(formats)
    try:
        yield
    finally:
        _used.reset(token)
        _device.reset(device)
        _formats.reset(stored)


def may_be_device() -> bool:
    """True if a GPU may have computed the subject's numbers, in matrix units that round factors."""
    return _device.get()


def stated_formats() -> frozenset[str]:
    """The 16-bit formats in which the subject being judged says that it stores float32 values."""
    return _formats.get()


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
