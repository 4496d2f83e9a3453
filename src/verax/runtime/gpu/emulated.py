"""A GPU whose threads run on this processor, for tests of what real ones compute.

Its memory is apart from the caller's, as that of a GPU: what is not copied is not there. The
environment variable VERAX_GPU_ORDER ("reversed", "late" or both, with a comma between) changes the
order in which threads run and copies happen; no order may change a bit. With "fenced" in it, what
is read or written outside of an array ends the process (`fences`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from verax.base.errors import CompileError, UsageError
from verax.runtime.clocks import thread_clock
from verax.runtime.engine import load_object
from verax.runtime.execution_context import aligned_zeros
from verax.runtime.gpu.code import GpuCode
from verax.runtime.gpu.device import LaunchSequence
from verax.runtime.gpu.fences import Fenced
from verax.runtime.gpu.launches import launches

VARIABLE = "VERAX_GPU_ORDER"
ORDERS = {"reversed": 1, "late": 2, "fenced": 4}
"""Bits of the last argument of every launch (`compiler.kernels.llvm.emulated`), and `FENCED`."""
FENCED = ORDERS["fenced"]
ALIGNMENT = 256
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3)


def order_from_environment() -> int:
    """The order that VERAX_GPU_ORDER asks for. Raises `UsageError` for another word."""
    words = [w for w in os.environ.get(VARIABLE, "").replace(" ", "").split(",") if w]
    for word in words:
        if word not in ORDERS:
            raise UsageError(
                f"{VARIABLE} has {word!r}", next_step=f"choose from {', '.join(ORDERS)}"
            )
    return sum(ORDERS[word] for word in set(words))


class EmulatedDevice:
    """See the module's docstring, and `Device`.

    bytes_written, bytes_read: what was copied from the host and to it so far, for tests.
    """

    name = "a GPU emulated on this processor"
    index = 0
    own_stream = 0

    def __init__(self) -> None:
        self._memory: dict[int, np.ndarray | Fenced] = {}
        self.bytes_written = self.bytes_read = 0

    def allocate(self, nbytes: int) -> int:
        order = order_from_environment()
        if order & FENCED:
            fenced = Fenced(nbytes, at_end=not order & ORDERS["reversed"])
            self._memory[fenced.address] = fenced
            return fenced.address
        memory = aligned_zeros(nbytes + ALIGNMENT)
        address = memory.ctypes.data + -memory.ctypes.data % ALIGNMENT
        self._memory[address] = memory
        return int(address)

    def free(self, address: int) -> None:
        memory = self._memory.pop(address, None)
        if isinstance(memory, Fenced):
            memory.free()

    def write(self, address: int, array: np.ndarray) -> None:
        self.bytes_written += array.nbytes
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def read(self, array: np.ndarray, address: int) -> None:
        self.bytes_read += array.nbytes
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def zero(self, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0, nbytes)

    def load(self, code: GpuCode) -> dict[str, Any]:
        library = load_object(code.object_code)
        names = {launch.kernel for steps in code.segments.values() for launch in launches(steps)}
        return {name: _Kernel(library, name) for name in names}

    def with_machine_code(self, code: GpuCode) -> GpuCode:
        return code

    def launch(self, sequence: LaunchSequence) -> None:
        order = order_from_environment() & ~FENCED
        for one in sequence.launches:
            one.kernel(ctypes.addressof(one.pointers), one.items, one.blocks, order)

    def prepare(self, sequence: LaunchSequence) -> None:
        """There is nothing to do."""

    def elapsed(self, work: Callable[[], None]) -> float:
        """By the clock of the processor, whose caller's thread all threads of the GPU are."""
        clock = thread_clock()
        start = clock()
        work()
        return (clock() - start) / 1e9

    def synchronize(self) -> None:
        """Nothing is ever under way."""

    def use(self, stream: int | None = None) -> contextlib.AbstractContextManager[None]:
        """There is one stream."""
        return contextlib.nullcontext()

    def order(self, before: int, after: int) -> None:
        """Nothing is ever under way."""

    def owns(self, address: int, nbytes: int) -> bool:
        """Whether it is memory that this device allocated: no other lies on it."""
        return any(
            start <= address and address + nbytes <= start + memory.nbytes
            for start, memory in list(self._memory.items())
        )


class _Kernel:
    """A function of a library, which lives as long."""

    def __init__(self, library: Any, name: str) -> None:
        self._library, self._name = library, name
        self._function = _LAUNCH(library.address(name))

    def __call__(self, *arguments: int) -> None:
        if self._function(*arguments):
            raise CompileError(
                "threads of a block wait at different barriers, where a GPU would hang",
                place=self._name,
                next_step="this is a defect of Verax: report it with the model",
            )
