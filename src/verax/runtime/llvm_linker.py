"""Loads object files by LLVM, on systems where they are not ELF.

Sections are mapped one by one there; see `runtime.linker` for what that costs where memory is
crowded.
"""

from __future__ import annotations

import threading

from verax.base.optional import optional
from verax.base.process.forks import on_fork

_lock = threading.Lock()
_ready = False


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


on_fork(_renew_lock)


class LlvmObject:
    """Code in this process. RuntimeError: LLVM refuses it."""

    def __init__(self, data: bytes) -> None:
        global _ready
        llvm = optional("llvmlite.binding", "to load code that is not in an ELF object file")
        with _lock:
            if not _ready:
                llvm.initialize_native_target()
                llvm.initialize_native_asmprinter()
                _ready = True
            # MCJIT consumes the machine and the module that it is given: these are throw-away.
            machine = llvm.Target.from_default_triple().create_target_machine(
                codemodel="jitdefault", jit=True
            )
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            self._engine.finalize_object()

    def address(self, name: str) -> int | None:
        """Where the function or constant of that name is; None if there is none."""
        find = (self._engine.get_function_address, self._engine.get_global_value_address)
        return next((int(a) for look in find if (a := look(name))), None)

    def close(self) -> None:
        """Unmap everything; nothing may run in it any more."""
        self._engine.close()
