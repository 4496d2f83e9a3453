"""Helpers of the kernel tests: compile a module, call a kernel on NumPy arrays, compare bits."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels.gpu import families
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.emulated import LATE, REVERSED
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.registry import Spec, emit, schedules
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

assert families.FAMILIES, "registered by the import"
TARGETS = [t for t in (Target.avx512(), Target.avx2(), Target.aarch64()) if t.runs_here()]
TARGETS.append(Target.emulated_gpu())
"""Targets whose code this machine can run."""


def written(module: ModuleBuilder, spec: Spec) -> Kernel:
    """The kernel of `spec` for the module's target, as rules schedule it."""
    return emit(module, spec, schedules(spec, module.target)[0])


class Native:
    """The compiled kernels of a module."""

    def __init__(self, module: ModuleBuilder) -> None:
        self.loaded = load_object(object_code(module))
        self.is_gpu = bool(module.target.gpu)

    def run(
        self, kernel: Kernel, arrays: Sequence[np.ndarray | int], splits: Sequence[int] = ()
    ) -> None:
        """Run all items, in the pieces that `splits` cuts; arrays may also be addresses. An
        emulated GPU runs all, where there are splits with its threads in reverse and late copies.
        """
        addresses = [a if isinstance(a, int) else a.ctypes.data for a in arrays]
        table = (ctypes.c_void_p * len(addresses))(*addresses)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        function = kind(self.loaded.address(kernel.name))
        if self.is_gpu:
            launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3)(
                self.loaded.address(kernel.name)
            )
            order = REVERSED | LATE if splits else 0
            assert launch(ctypes.addressof(table), kernel.items, kernel.blocks, order) == 0
            return
        edges = [0, *splits, kernel.items]
        for begin, end in itertools.pairwise(edges):
            function(ctypes.addressof(table), begin, end)


_PAGE = mmap.PAGESIZE
GUARDS = sys.platform.startswith("linux")
"""Whether `guarded` works here."""


def guarded(array: np.ndarray, at_start: bool = False) -> np.ndarray:
    """A copy whose memory touches a page that may not be accessed: behind it, or before it."""
    pages = -(-max(array.nbytes, 1) // _PAGE)
    region = mmap.mmap(-1, (pages + 1) * _PAGE)
    whole = np.frombuffer(region, np.uint8)
    guard = whole.ctypes.data + (0 if at_start else pages * _PAGE)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if mprotect(guard, _PAGE, 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    first = _PAGE if at_start else pages * _PAGE - array.nbytes
    view = whole[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal shapes, dtypes and bits; any NaN equals any NaN."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if got.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):
            g, e = (x.astype(np.float64) for x in (got, expected))
        assert np.array_equal(np.isnan(g), np.isnan(e)), "NaN in different places"
        got, expected = (np.where(np.isnan(x), 0.0, x) for x in (g, e))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_array_equal(got, expected)
