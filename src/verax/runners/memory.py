"""Fresh memory filled with a byte, so that a subject which reads what nobody wrote shows it."""

from __future__ import annotations

import contextlib
import ctypes
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph

_M_PERTURB = -6
"""glibc's `mallopt` parameter: the byte that freed memory gets, its complement is for fresh one."""


def perturbing(fill: int) -> dict[str, str]:
    """Environment for a child process whose fresh memory shall hold the byte `fill` (glibc).

    The complement is given, which is what freed memory gets.
    """
    return {"MALLOC_PERTURB_": str(fill ^ 0xFF)}


@contextlib.contextmanager
def poisoned_memory(fill: int) -> Iterator[None]:
    """Inside, memory from `malloc` comes filled with the byte `fill`; freed memory is overwritten.

    Does nothing where the C library has no such switch.
    """
    library = ctypes.CDLL(None)
    switch = getattr(library, "mallopt", None)
    if switch is not None:
        switch(_M_PERTURB, fill ^ 0xFF)
    try:
        yield
    finally:
        if switch is not None:
            switch(_M_PERTURB, 0)


class InProcess(ABC):
    """A Runner whose subject lives in this process: its `run_poisoned` fills fresh memory."""

    stored_inputs: Mapping[str, np.ndarray] | None = None
    poison = "fresh memory of this process"

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
        with poisoned_memory(fill):
            return self.run(graph, inputs, keep)
