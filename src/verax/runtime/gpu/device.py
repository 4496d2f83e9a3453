"""`Device`: what programs ask of a GPU. Addresses are those of the device, as integers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from verax.runtime.gpu.code import GpuCode


class PreparedLaunch:
    """A kernel with the numbers of one launch.

    pointers: what its parameter points to, an array of addresses on the device; whoever launches
    may write other addresses into it between two launches, and says so (`LaunchSequence.changed`).
    parameters: addresses of the kernel's two parameters, `pointers` by value and the items.
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
        # The parameter has room for the table of sizes, whether or not the kernel reads it.
        self.pointers = (ctypes.c_uint64 * (len(pointers) + 1))(*pointers)
        self._items = ctypes.c_int64(items)
        addresses = ctypes.addressof(self.pointers), ctypes.addressof(self._items)
        self.parameters = (ctypes.c_void_p * 2)(*addresses)


class LaunchSequence:
    """Launches that follow one another each time that they run.

    runs: how often they did. handle: whatever the device has made of them, such as a graph.
    changed: indices of launches whose pointers were written since the last run.
    """

    def __init__(self) -> None:
        self.launches: list[PreparedLaunch] = []
        self.runs = 0
        self.handle: Any = None
        self.changed: set[int] = set()


class Device(Protocol):
    """A GPU that one process uses. Work of one stream is done in the order in which it is asked
    for.

    index: of the card. own_stream: the stream of all work outside of `use`.
    """

    name: str
    index: int
    own_stream: int

    def allocate(self, nbytes: int) -> int:
        """The address of so much memory, aligned to 256 bytes, all zero. Raises `InputError` where
        there is not enough."""

    def free(self, address: int) -> None:
        """Give memory back, when nothing uses it any more."""

    def write(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous array to the device; it may be changed afterwards."""

    def read(self, array: np.ndarray, address: int) -> None:
        """Copy from the device into a contiguous array, when all work before it is done."""

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device, between two places that have no byte in common."""

    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros."""

    def load(self, code: GpuCode) -> dict[str, Any]:
        """Handles of a program's kernels by name, for `PreparedLaunch`. Raises `CompileError`, or
        `DeviceError` where the driver refuses them."""

    def with_machine_code(self, code: GpuCode) -> GpuCode:
        """The code with this device's machine code of every kernel, where it keeps any."""

    def launch(self, sequence: LaunchSequence) -> None:
        """Run kernels, one after the other. A sequence that is launched again is the same one, but
        for the pointers of those that are `changed`."""

    def prepare(self, sequence: LaunchSequence) -> None:
        """Do what the next `launch` of a sequence would do before it launches."""

    def elapsed(self, work: Callable[[], None]) -> float:
        """Seconds by the device's own clock that it is at `work`, which asks it for some, and for
        nothing of which the host waits if the time is to be the device's alone. It waits until all
        is done. Raises as `synchronize`."""

    def synchronize(self) -> None:
        """Wait until all work is done. Raises `VeraxError` where a kernel failed."""

    def use(self, stream: int | None = None) -> AbstractContextManager[None]:
        """Inside, what this thread asks for is work of that stream, by default the device's own."""

    def order(self, before: int, after: int) -> None:
        """Work that is asked of the stream `after` from now on waits for all of `before`."""

    def owns(self, address: int, nbytes: int) -> bool:
        """Whether memory, of whoever says that it lies on this device, can be used there."""
