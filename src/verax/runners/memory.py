"""Fresh memory filled with a byte, so that a subject which reads what nobody wrote shows it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verax.base.printing import Named
from verax.ir.graph import Graph
from verax.judge.protocol import Capabilities

_M_PERTURB = -6
"""glibc's `mallopt` parameter: the byte that freed memory gets, its complement is for fresh one."""

_TUNABLES, _NO_CACHE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"


def perturbing(fill: int) -> dict[str, str]:
    """Environment for a child process whose fresh memory shall hold the byte `fill` (glibc).

    The complement is given, which is what freed memory gets.
    """
    return {"MALLOC_PERTURB_": str(fill ^ 0xFF)}


def poisonable() -> dict[str, str]:
    """Environment for a child process that may call `poison`: glibc fills no memory that it hands
    out from a thread's cache of small pieces, so there shall be none."""
    tunables = os.environ.get(_TUNABLES)
    return {_TUNABLES: f"{tunables}:{_NO_CACHE}" if tunables else _NO_CACHE}


def poison(fill: int | None) -> None:
    """From now on memory from `malloc` comes filled with the byte `fill`, and freed memory is
    overwritten; None ends that. Does nothing where the C library has no such switch."""
    switch = getattr(ctypes.CDLL(None), "mallopt", None)
    if switch is not None:
        switch(_M_PERTURB, 0 if fill is None else fill ^ 0xFF)


@contextlib.contextmanager
def poisoned_memory(fill: int) -> Iterator[None]:
    """Inside, memory is as after `poison(fill)`."""
    poison(fill)
    try:
        yield
    finally:
        poison(None)


class InProcess(Named, ABC):
    """A Runner whose subject lives in this process: its `run_poisoned` fills fresh memory."""

    stored_inputs: Mapping[str, np.ndarray] | None = None
    capabilities = Capabilities(poison="fresh memory of this process")

    @abstractmethod
    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """As `judge.protocol.Runner.run`."""

    def run_poisoned(
        self,
        graph: Graph,
        inputs: Mapping[str, np.ndarray],
        keep: Sequence[str] | None = None,
        *,
        fill: int,
    ) -> dict[str, np.ndarray]:
        """As `judge.protocol.Poisonable.run_poisoned`."""
        with self._poisoned(fill):
            return self.run(graph, inputs, keep)

    def _poisoned(self, fill: int) -> contextlib.AbstractContextManager[None]:
        """Context in which the memory that `capabilities` names holds the byte `fill`."""
        return poisoned_memory(fill)
