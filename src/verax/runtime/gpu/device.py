"""`Device`: what programs ask of a GPU. Addresses are those of the device, as integers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from verax.runtime.gpu.code import GpuCode


class PreparedLaunch:
    """A kernel with the numbers of one launch.

    pointers: what its parameter points to, an array of addresses on the device; whoever launches
    may write other addresses into it between two launches.
    """

    def __init__(
        self,
        kernel: Any,
        items: int,
        blocks: int,
        threads: int,
        shared: int,
        pointers: Sequence[int],
    ) -> None:
        self.kernel, self.items, self.blocks = kernel, items, blocks
        self.threads, self.shared = threads, shared
        self.pointers = (ctypes.c_uint64 * max(len(pointers), 1))(*pointers)


class LaunchSequence:
    """Launches that follow one another each time that they run.

    handle: whatever the device has made of them, such as a graph.
    """

    def __init__(self) -> None:
        self.launches: list[PreparedLaunch] = []
        self.handle: Any = None


class Device(Protocol):
    """A GPU that one process uses. Work is done in the order in which it is asked for."""

    name: str

    def allocate(self, nbytes: int) -> int:
        """The address of so much memory, aligned to 256 bytes, all zero. Raises `InputError` where
        there is not enough."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def write(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous array to the device."""

    def read(self, array: np.ndarray, address: int) -> None:
        """Copy from the device into a contiguous array, when all work before it is done."""

    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros."""

    def load(self, code: GpuCode) -> dict[str, Any]:
        """Handles of a program's kernels by name, for `PreparedLaunch`. Raises `CompileError`."""

    def launch(self, sequence: LaunchSequence) -> None:
        """Run kernels, one after the other. A sequence that is launched again is the same one."""

    def synchronize(self) -> None:
        """Wait until all work is done. Raises `VeraxError` where a kernel failed."""
