"""Runs kernels of blocks in emulation, in every order, and the CPU's kernel of the same spec."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.compiler.kernels.native import Native, assert_same_bits

from verax.compiler.kernels import (
    gpu,  # noqa: F401  (registers the emitters)
    registry,
)
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.emulated import LATE, REVERSED
from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.sizes import value, with_dims
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

ORDERS = (0, REVERSED, LATE, REVERSED | LATE)
UNTOUCHED = 12345.0
"""What results hold before."""
_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3)
Edit = Callable[[str], str]
Packed = Callable[[Any, Any], np.ndarray]
"""Weights for a spec of known sizes, and a schedule."""


class Emulated:
    """A kernel for the emulated GPU. edit: what is done to its IR first, to inject a fault."""

    def __init__(self, spec: Any, schedule: Any, edit: Edit | None = None) -> None:
        module = ModuleBuilder("test", Target.emulated_gpu())
        self.kernel: Kernel = registry.emit(module, spec, schedule)
        text = module.ir_text()
        if edit is not None:
            edited = edit(text)
            assert edited != text, "nothing was injected"
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
        assert function(ctypes.addressof(args), items, blocks, order) == 0, "barriers differ"


@dataclasses.dataclass
class Problem:
    """A spec with data. packed(spec, schedule): its weights. arguments: before them, and between
    them and the result; result: memory, of which the kernel writes some, and where it begins.
    table: of dims. ignored: indices of the memory that may hold anything, as spare lanes do."""

    spec: Any
    packed: Packed
    before: list[np.ndarray | int]
    after: list[np.ndarray | int]
    result: np.ndarray
    origin: int = 0
    table: tuple[int, ...] = ()
    ignored: np.ndarray | None = None

    def on_cpu(self) -> np.ndarray:
        """The memory of the result as the CPU's kernel leaves it."""
        target = Target.host()
        spec = with_dims(self.spec, self.table)
        schedule = registry.schedules(spec, target)[0]
        module = ModuleBuilder("test", target)
        kernel = registry.emit(module, spec, schedule)
        weights = self.packed(spec, schedule)
        return self._run(weights, lambda arrays: Native(module).run(kernel, arrays))

    def emulated(self, schedule: Any, edit: Edit | None = None) -> list[np.ndarray]:
        """The same as the GPU's kernel leaves it, in every order."""
        kernel = Emulated(self.spec, schedule, edit)
        weights = aligned(self.packed(with_dims(self.spec, self.table), schedule))
        return [
            self._run(weights, lambda arrays, o=order: kernel.run(arrays, o, self.table))
            for order in ORDERS
        ]

    def _run(self, weights: np.ndarray, run: Callable[[list[Any]], None]) -> np.ndarray:
        memory = aligned(self.result)
        first = memory.ctypes.data + self.origin * memory.itemsize
        run([*self.before, weights, *self.after, first])
        if self.ignored is not None:
            memory[self.ignored] = 0
        return memory

    def compare(self, schedule: Any) -> None:
        """The GPU's kernel must leave the bits of the CPU's, and touch nothing else."""
        expected = self.on_cpu()
        for memory in self.emulated(schedule):
            assert_same_bits(memory, expected)

    def differs(self, schedule: Any, edit: Edit | None = None) -> bool:
        """Whether the bits differ in some order."""
        expected = self.on_cpu()
        return any(not _same(memory, expected) for memory in self.emulated(schedule, edit))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        assert_same_bits(a, b)
    except AssertionError:
        return False
    return True


def aligned(array: np.ndarray, offset: int = 0) -> np.ndarray:
    """A copy that begins `offset` elements behind a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + 128 + offset * array.itemsize, np.uint8)
    start = -memory.ctypes.data % 64 + offset * array.itemsize
    view = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


SPECIAL = np.array([0.0, -0.0, 1e-40, -3e-39, np.inf, np.nan, 3e38, -1e-20], np.float32)


def numbers(rng: np.random.Generator, *shape: int, special: float = 0.0) -> np.ndarray:
    """float32 of both signs whose sums round; of `special` values that share."""
    values = rng.standard_normal(shape).astype(np.float32)
    chosen = rng.random(shape) < special
    return np.where(chosen, rng.choice(SPECIAL, shape), values).astype(np.float32)


def ptx(spec: Any, schedule: Any, architecture: str = "sm_80") -> str:
    """The kernel's code for a GPU."""
    module = ModuleBuilder("test", Target.cuda(architecture))
    registry.emit(module, spec, schedule)
    return code_of(module.ir_text(), module.target).decode()
