"""Runs kernels of blocks in emulation, in every order, and the CPU's kernel of the same spec."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.compiler.kernels import (
    gpu,  # noqa: F401  (registers the emitters)
    registry,
)
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.emulated import LATE, REVERSED
from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.sizes import value
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

ORDERS = (0, REVERSED, LATE, REVERSED | LATE)
_LAUNCH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)


@dataclasses.dataclass
class Emulated:
    """A kernel for the emulated GPU. edit: what is done to its IR first, to plant a fault."""

    spec: Any
    schedule: Any
    edit: Any = None

    def __post_init__(self) -> None:
        module = ModuleBuilder("test", Target.emulated_gpu())
        self.kernel: Kernel = registry.emit(module, self.spec, self.schedule)
        text = module.ir_text()
        if self.edit is not None:
            edited = self.edit(text)
            assert edited != text, "nothing was planted"
            text = edited
        self.library = load_object(code_of(text, module.target))

    def run(
        self, arrays: Sequence[np.ndarray | int], order: int, table: Sequence[int] = ()
    ) -> None:
        """arrays: arguments, or their addresses; table: of dims."""
        sizes = np.array(table, np.int64)
        pointers = [a if isinstance(a, int) else a.ctypes.data for a in arrays]
        pointers += [sizes.ctypes.data] * bool(table)
        args = (ctypes.c_void_p * len(pointers))(*pointers)
        items, blocks = (value(n, table) for n in (self.kernel.items, self.kernel.blocks))
        function = _LAUNCH(self.library.address(self.kernel.name))
        function(ctypes.addressof(args), items, blocks, order)


def ptx(spec: Any, schedule: Any, architecture: str = "sm_80") -> str:
    """The kernel's code for a GPU."""
    module = ModuleBuilder("test", Target.cuda(architecture))
    registry.emit(module, spec, schedule)
    return code_of(module.ir_text(), module.target).decode()
