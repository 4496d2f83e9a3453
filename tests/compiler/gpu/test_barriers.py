"""Threads of a block that do not come to the same barriers are noticed: a GPU would hang there."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, ModuleBuilder
from verax.compiler.kernels.llvm.emulated import DIVERGENT, LATE, REVERSED
from verax.compiler.kernels.llvm.gpu import block_kernel
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

THREADS = 64


def status(kind: str, order: int) -> tuple[int, np.ndarray]:
    """What a launch gives whose threads exchange their numbers, and what they left."""
    module = ModuleBuilder("barriers", Target.emulated_gpu())
    f = block_kernel(module, ("barriers", kind), 1, THREADS, 4 * THREADS)
    b, thread = f.b, f.b.zext(f.thread, I64)
    b.store(f.thread, f.at(f.shared, thread, dtype="int32"), align=4)
    few = b.icmp_signed("<", f.thread, ir.Constant(I32, 7))
    if kind == "same":
        f.barrier()
    elif kind == "some at none":
        with f.when(few):
            f.barrier()
    elif kind == "two":
        with b.if_else(few) as sides:
            for side in sides:
                with side:
                    f.barrier()
    else:  # as many times as the thread's number says
        with f.loop(b.add(b.and_(thread, f.i64(1)), f.i64(1))):
            f.barrier()
    partner = b.sub(f.i64(THREADS - 1), thread)
    value = b.load(f.at(f.shared, partner, dtype="int32"), typ=I32, align=4)
    b.store(value, f.at(f.args[0], thread, dtype="int32"), align=4)
    kernel = f.finish(3)
    library = load_object(object_code(module))
    results = np.zeros(THREADS, np.int32)
    pointers = (ctypes.c_void_p * 1)(results.ctypes.data)
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *[ctypes.c_int64] * 3)(
        library.address(kernel.name)
    )
    return launch(ctypes.addressof(pointers), 3, 3, order), results


@pytest.mark.parametrize("order", [0, REVERSED, LATE, REVERSED | LATE])
def test_threads_exchange_at_a_barrier(order: int) -> None:
    given, results = status("same", order)
    assert given == 0 and results.tolist() == list(range(THREADS))[::-1]


@pytest.mark.parametrize("order", [0, REVERSED])
@pytest.mark.parametrize("kind", ["some at none", "two", "not as often"])
def test_different_barriers_are_noticed(kind: str, order: int) -> None:
    assert status(kind, order)[0] == DIVERGENT
