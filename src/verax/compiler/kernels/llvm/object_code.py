"""LLVM IR into the bytes of object files, several at a time, and LLVM when this process forks.

llvmlite lets one thread at a time into LLVM. LLVM itself asks for no more than a context for each
thread, and every call here has its own; so its longest call, which makes the code, is made beside
that lock (LLVM Programmer's Manual, "Threads and LLVM").
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

from verax.base.errors import CompileError
from verax.base.process.forks import on_fork
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.library import binding as llvm
from verax.compiler.kernels.llvm.library import ffi
from verax.compiler.kernels.target import Target

AT_A_TIME = 4
"""Objects that LLVM may be making at a time in this process."""
FORK_SECONDS = 60.0
"""How long a fork waits for a call into LLVM to end."""
COROUTINE = "presplitcoroutine"
"""The attribute of functions that are coroutines."""
ASSEMBLY, OBJECT = 0, 1
"""What LLVM is asked for (llvm-c/TargetMachine.h, LLVMCodeGenFileType)."""
LSR_OPTION = range(15, 23)
"""Major versions of LLVM whose option `-disable-lsr` may be set again and again. One that LLVM does
not know would end the process."""
_making = threading.Semaphore(AT_A_TIME)
_slots_acquired = 0
_inside, _inside_lock = 0, threading.Lock()
_llvm_lock: Any = None
_llvm_is_quiet = False


def _lock_of_llvm() -> Any:
    """llvmlite's lock; None where nobody imported it, as then nobody is inside LLVM."""
    lib = getattr(sys.modules.get(ffi.__name__), "lib", None)
    return getattr(getattr(lib, "_lock", None), "_lock", None)


def _await_quiet() -> None:
    """Before a fork: wait until no thread is inside LLVM, whose own locks cannot be made anew."""
    global _llvm_is_quiet, _llvm_lock, _slots_acquired
    _llvm_lock = _lock_of_llvm()
    _slots_acquired = sum(_making.acquire(timeout=FORK_SECONDS) for _ in range(AT_A_TIME))
    _llvm_is_quiet = _llvm_lock is not None and _llvm_lock.acquire(timeout=FORK_SECONDS)


def _go_on() -> None:
    if _llvm_is_quiet:
        _llvm_lock.release()
    _making.release(_slots_acquired)


def _go_on_in_child() -> None:
    global _making, _inside, _inside_lock
    _making = threading.Semaphore(AT_A_TIME)
    _inside, _inside_lock = 0, threading.Lock()
    if _llvm_is_quiet:
        _llvm_lock.release()
    elif _llvm_lock is not None:
        ffi.lib._lock._lock = threading.RLock()


on_fork(_go_on_in_child, before=_await_quiet, parent=_go_on)


@cache
def _emit_to_memory() -> Any:
    """LLVM's function that makes code, called without llvmlite's lock."""
    function = ctypes.CDLL(ffi.lib._name).LLVMPY_TargetMachineEmitToMemory
    function.argtypes = [
        ffi.LLVMTargetMachineRef, ffi.LLVMModuleRef, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p),
    ]  # fmt: skip
    function.restype = ffi.LLVMMemoryBufferRef
    return function


@contextlib.contextmanager
def _addresses_as_written() -> Iterator[None]:
    """LLVM leaves out loop strength reduction, for which it takes up to four fifths of its time
    over a kernel whose sizes are read at run time, and which gains nothing there: emitters write
    addresses so that the loops inside have few (measured on four networks: same speed).

    The option is the process's, so others have theirs back as soon as no kernel is being made.
    Only with a slot of `_making`, which a fork waits for.
    """
    global _inside
    with _inside_lock:
        _inside += 1
        if _inside == 1:
            _disable_lsr(True)
    try:
        yield
    finally:
        with _inside_lock:
            _inside -= 1
            if not _inside:
                _disable_lsr(False)


def _disable_lsr(is_disabled: bool) -> None:
    if llvm.llvm_version_info[0] in LSR_OPTION:
        llvm.set_option("", f"-disable-lsr={str(is_disabled).lower()}")


def object_code(module: ModuleBuilder) -> bytes:
    """The relocatable object file of `module`, for its own target, which need not be this one.

    CompileError: LLVM refuses the code.
    """
    return code_of(module.ir_text(), module.target)


def code_of(text: str, target: Target) -> bytes:
    """The relocatable object file of a module's IR, or its PTX if that is what the target takes.
    Threads may call this side by side.

    LLVM's memory for the module is freed before this returns. CompileError: LLVM refuses the code.
    """
    machine = target.machine()
    context = llvm.create_context()
    try:
        with llvm.parse_assembly(text, context) as parsed:
            parsed.triple = machine.triple
            parsed.data_layout = str(machine.target_data)
            if target.gpu == "emulated" and COROUTINE in text:
                _split_coroutines(machine, parsed)
            return _emitted(machine, parsed, OBJECT if target.gpu != "cuda" else ASSEMBLY)
    except RuntimeError as error:
        raise CompileError(
            f"LLVM refused the generated code: {error}",
            place=machine.triple,
            next_step="this is a defect of Verax: report it with the model",
        ) from error


def _split_coroutines(machine: llvm.TargetMachine, parsed: llvm.ModuleRef) -> None:
    """The passes without which LLVM makes no code of coroutines. They change no bit: nothing
    allows them to."""
    options = llvm.PipelineTuningOptions(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)


def _emitted(machine: llvm.TargetMachine, parsed: llvm.ModuleRef, kind: int) -> bytes:
    """What `machine.emit_object(parsed)` gives, or `emit_assembly`."""
    with ffi.OutputString() as error:
        with _making, _addresses_as_written():
            buffer = _emit_to_memory()(machine, parsed, kind, error)
        if not buffer:
            raise RuntimeError(str(error))
    try:
        start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
