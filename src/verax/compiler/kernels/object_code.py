"""LLVM IR into the bytes of an object file, and LLVM's own locks when this process is forked."""

from __future__ import annotations

import threading
from typing import Any

from llvmlite import binding as llvm
from llvmlite.binding import ffi

from verax.base.errors import CompileError
from verax.base.forks import on_fork
from verax.compiler.kernels.builder import ModuleBuilder

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
    global _llvm_lock
    if _llvm_is_quiet:
        _llvm_lock.release()
    elif _llvm_lock is not None:
        ffi.lib._lock._lock = _llvm_lock = threading.RLock()


on_fork(_go_on_in_child, before=_await_quiet, parent=_go_on)


def object_code(module: ModuleBuilder) -> bytes:
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
