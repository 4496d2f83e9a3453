"""Machine code as bytes, loaded into this process and addressed by name.

The object code of a network (`compiler.kernels.llvm.object_code`) is position independent, needs no
compiler or linker to be loaded, and is what a `.vx` file holds. Nothing here knows what the code
does. On systems whose object files are ELF it is linked by `runtime.linker`, elsewhere by LLVM.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Protocol

from verax.base.errors import CompileError
from verax.runtime.elf import ObjectError, check_object
from verax.runtime.linker import LinkedObject
from verax.runtime.llvm_linker import LlvmObject

ELF_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}


class _Linked(Protocol):
    def address(self, name: str) -> int | None: ...

    def close(self) -> None: ...


class LoadedObject:
    """Code in this process. It must outlive every call into it; `close` unmaps it."""

    def __init__(self, data: bytes) -> None:
        try:
            self._linked = _link(bytes(data))
        except (ObjectError, RuntimeError, OSError) as error:
            raise CompileError(
                f"object code could not be loaded: {error}",
                next_step="compile the model again on this machine",
            ) from error

    def address(self, name: str) -> int:
        """Address of the function or global called `name`; CompileError if there is none."""
        address = self._linked.address(name)
        if not address:
            raise CompileError(f"the object code has no symbol {name!r}")
        return address

    def close(self) -> None:
        """Unmap the code. Nothing may run in it any more."""
        self._linked.close()


def load_object(data: bytes) -> LoadedObject:
    """Load an object file made by `object_code` for this kind of machine.

    CompileError: the bytes are no object file, or one for another machine.
    """
    return LoadedObject(data)


def _link(data: bytes) -> _Linked:
    """Link what is a sound object file for this machine, and refuse anything else.

    Integrity is the container's task: a `.vx` file carries a digest of its code.
    """
    machine = platform.machine().lower()
    if data[:4] == b"\x7fELF" and len(data) >= 64:
        if int.from_bytes(data[18:20], "little") == ELF_MACHINES.get(machine, -1):
            check_object(data, lambda name: _address(name) is not None)
            return LinkedObject(data, lambda name: _address(name) or 0)
        cause = "the object code was made for another kind of processor"
    elif data[:4] == b"\xcf\xfa\xed\xfe" or data[:2] in (b"\x64\x86", b"\x64\xaa"):
        # Mach-O and COFF: only their own systems produce and meet them.
        return LlvmObject(data)
    else:
        cause = "this is no object code"
    raise CompileError(cause, place=machine, next_step="compile the model on this machine")


def _address(name: str) -> int | None:
    """Where this process has the function of that name; None where it has none."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    except (AttributeError, ValueError):
        return None
