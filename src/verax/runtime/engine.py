"""Machine code as bytes: made from LLVM IR, loaded into this process, addressed by name.

The object code of a network is position independent, needs no compiler or linker to be loaded,
and is what a `.vx` file holds. Nothing here knows what the code does.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Protocol

from llvmlite import binding as llvm
from llvmlite.binding import ffi

from verax.base.errors import CompileError
from verax.base.forks import on_fork
from verax.runtime.address_space import mapped_together
from verax.runtime.elf import ObjectError, check_object

_lock = threading.Lock()
_ready = False
FORK_SECONDS = 60.0
"""How long a fork waits for a call into LLVM to end."""
_llvm_lock: Any = getattr(getattr(ffi.lib, "_lock", None), "_lock", None)
_llvm_is_quiet = False


def _await_quiet() -> None:
    """Before a fork: wait until no thread is inside LLVM, whose own locks cannot be made anew."""
    global _llvm_is_quiet
    _llvm_is_quiet = _llvm_lock is not None and _llvm_lock.acquire(timeout=FORK_SECONDS)


def _go_on() -> None:
    if _llvm_is_quiet:
        _llvm_lock.release()


def _go_on_in_child() -> None:
    global _lock, _llvm_lock
    _lock = threading.Lock()
    if _llvm_is_quiet:
        _llvm_lock.release()
    elif _llvm_lock is not None:
        ffi.lib._lock._lock = _llvm_lock = threading.RLock()


on_fork(_go_on_in_child, before=_await_quiet, parent=_go_on)


class EmitsCode(Protocol):
    """What `object_code` needs to know of a target (`compiler.kernels.target.Target`)."""

    def machine(self) -> llvm.TargetMachine: ...


class HoldsModule(Protocol):
    """What `object_code` needs to know of a module (`compiler.kernels.builder.ModuleBuilder`)."""

    @property
    def target(self) -> EmitsCode: ...

    def ir_text(self) -> str: ...


def object_code(module: HoldsModule) -> bytes:
    """The relocatable object file of `module`, for its own target, which need not be this one.

    LLVM's memory for the module is freed before this returns. CompileError: LLVM refuses the code.
    """
    machine = module.target.machine()
    context = llvm.create_context()
    try:
        with llvm.parse_assembly(module.ir_text(), context) as parsed:
            parsed.triple = machine.triple
            parsed.data_layout = str(machine.target_data)
            return bytes(machine.emit_object(parsed))
    except RuntimeError as error:
        raise CompileError(
            f"LLVM refused the generated code: {error}",
            place=machine.triple,
            next_step="this is a defect of Verax: report it with the model",
        ) from error


SLACK = 1 << 20
"""Bytes beyond twice the object's size that its sections take in memory at most."""


class LoadedObject:
    """Code in this process. It must outlive every call into it; `close` unmaps it."""

    def __init__(self, data: bytes) -> None:
        _initialise()
        _check_header(data)
        with _lock:
            try:
                # MCJIT consumes the machine and the module that it is given: these are throw-away.
                machine = llvm.Target.from_default_triple().create_target_machine(
                    codemodel="jitdefault", jit=True
                )
                # llvmlite's own memory manager (use_lmm) would need none of this, but ends the
                # process for some objects: "All memory must be pre-allocated".
                self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
                with mapped_together(2 * len(data) + SLACK):
                    self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
                    self._engine.finalize_object()
            except RuntimeError as error:
                raise CompileError(
                    f"object code could not be loaded: {error}",
                    next_step="compile the model again on this machine",
                ) from error

    def address(self, name: str) -> int:
        """Address of the function or global called `name`; CompileError if there is none."""
        found = self._engine.get_function_address(name) or self._engine.get_global_value_address(
            name
        )
        if not found:
            raise CompileError(f"the object code has no symbol {name!r}")
        return int(found)

    def close(self) -> None:
        """Unmap the code. Nothing may run in it any more."""
        self._engine.close()


def load_object(data: bytes) -> LoadedObject:
    """Load an object file made by `object_code` for this kind of machine.

    CompileError: the bytes are no object file, or one for another machine.
    """
    return LoadedObject(data)


_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "arm64": 183}


def _check_header(data: bytes) -> None:
    """Refuse what is no sound object file for this machine; LLVM would crash on it.

    Integrity is the container's task: a `.vx` file carries a digest of its code.
    """
    machine = llvm.get_default_triple().split("-")[0]
    if data[:4] == b"\x7fELF" and len(data) >= 64:
        if int.from_bytes(data[18:20], "little") == _ELF_MACHINES.get(machine, -1):
            try:
                return check_object(data, _is_known)
            except ObjectError as error:
                raise CompileError(
                    f"the object code is damaged: {error}",
                    next_step="compile the model again on this machine",
                ) from error
        cause = "the object code was made for another kind of processor"
    elif data[:4] == b"\xcf\xfa\xed\xfe" or data[:2] in (b"\x64\x86", b"\x64\xaa"):
        return  # Mach-O and COFF: only their own systems produce and meet them
    else:
        cause = "this is no object code"
    raise CompileError(cause, place=machine, next_step="compile the model on this machine")


def _is_known(name: str) -> bool:
    """Whether this process has a function of that name, or LLVM makes it when it loads code."""
    return name == "_GLOBAL_OFFSET_TABLE_" or hasattr(ctypes.CDLL(None), name)


def _initialise() -> None:
    global _ready
    with _lock:
        if not _ready:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _ready = True
