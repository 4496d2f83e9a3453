"""The most multiply-adds that this machine does: what a share of the peak is a share of.

A loop of independent float32 multiply-adds that lives in registers, made by the same code generator
as every kernel. Measured when it is asked for, as clocks differ between machines and hours.
"""

from __future__ import annotations

import ctypes
import threading
import time

import numpy as np

from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

TRIPS = 20_000
"""Multiply-adds of one chain in a call: about a tenth of a millisecond."""


def peak_gflops(target: Target, threads: int = 1, seconds: float = 0.02) -> float:
    """Billions of float32 operations a second on `threads` threads that begin together, a
    multiply-add counting as two: those of the fastest calls in so many seconds."""
    chains = max(4, target.registers // target.physical - 4)
    module = ModuleBuilder("peak", target)
    f = module.kernel(("peak",), 1)
    x = f.broadcast(f.args[0])
    with f.loop(TRIPS, carry=[f.constant(float(i)) for i in range(chains)]) as loop:
        loop.next([f.fma(v, x, x) for v in loop.values])
    total = loop.results[0]
    for value in loop.results[1:]:
        total = f.b.fadd(total, value)
    f.store(total, f.args[0])
    kernel = f.finish(1)
    code = load_object(object_code(module))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call = kind(code.address(kernel.name))
    begin, fastest = threading.Barrier(threads), [float("inf")] * threads

    def work(number: int) -> None:
        raw = np.full(48, 0.5, np.float32)
        first = -raw.ctypes.data % 64 // 4
        table = np.array([raw[first:].ctypes.data], np.uint64)
        begin.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            call(table.ctypes.data, 0, 1)
            fastest[number] = min(fastest[number], time.perf_counter() - start)

    others = [threading.Thread(target=work, args=(n,)) for n in range(1, threads)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    code.close()
    return sum(32 * chains * TRIPS / 1e9 / least for least in fastest)
