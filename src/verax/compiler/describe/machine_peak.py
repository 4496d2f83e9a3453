"""What this machine can do: the most multiply-adds, and how soon one core sees what another wrote.

The first is what a share of the peak is a share of: a loop of independent float32 multiply-adds
that lives in registers. The second tells whether two threads share a cache: the processors of a
virtual machine do for a while, and then for seconds or minutes they do not, and every network on
two threads is slower. Both are made by the same code generator as every kernel, and measured when
they are asked for, as clocks and places differ between machines and hours.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time

import numpy as np

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I64, PTR, VOID, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object

TRIPS = 20_000
"""Multiply-adds of one chain in a call: about a tenth of a millisecond."""
ROUND_TRIPS, PATIENCE = 20_000, 1_000_000_000
"""Round trips of one measurement; looks at the number before a thread gives up."""


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

    def work(thread_index: int) -> None:
        raw = np.full(48, 0.5, np.float32)
        first = -raw.ctypes.data % 64 // 4
        table = np.array([raw[first:].ctypes.data], np.uint64)
        begin.wait()
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            call(table.ctypes.data, 0, 1)
            fastest[thread_index] = min(fastest[thread_index], time.perf_counter() - start)

    threads_started = [threading.Thread(target=work, args=(n,)) for n in range(1, threads)]
    for thread in threads_started:
        thread.start()
    work(0)
    for thread in threads_started:
        thread.join()
    code.close()
    return sum(32 * chains * TRIPS / 1e9 / min_seconds for min_seconds in fastest)


def round_trip_ns(target: Target, repeats: int = 5) -> float:
    """Nanoseconds in which a number that two threads hand to and fro comes back: the least of
    `repeats` measurements. nan where the threads never ran side by side.

    About 50 to 100 where the two cores share a cache, several hundred where they do not.
    """
    module = ModuleBuilder("round_trip", target)
    _emit_play(module)
    code = load_object(object_code(module))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
    play, nanoseconds = kind(code.address("play")), []
    for _ in range(repeats):
        counter, barrier = np.zeros(16, np.int64), threading.Barrier(2)  # cache lines of its own

        def answer(counter: np.ndarray = counter, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            play(counter.ctypes.data, 1)

        partner = threading.Thread(target=answer)
        partner.start()
        barrier.wait()
        start = time.perf_counter()
        play(counter.ctypes.data, 0)
        elapsed = time.perf_counter() - start
        partner.join()
        if counter[0] == 2 * ROUND_TRIPS:
            nanoseconds.append(1e9 * elapsed / ROUND_TRIPS)
    code.close()
    return min(nanoseconds, default=math.nan)


def _emit_play(module: ModuleBuilder) -> None:
    """void play(ptr counter, i64 me): increment the counter whenever it is the turn of `me` (0 or
    1), ROUND_TRIPS times; returns early after waiting too long."""
    fn = module.function("play", VOID, [PTR, I64])
    (counter, me), one = fn.args, ir.Constant(I64, 1)
    names = ("entry", "wait", "again", "turn", "end")
    entry, wait, again, turn, end = map(fn.append_basic_block, names)
    b = ir.IRBuilder(entry)
    last = b.add(me, ir.Constant(I64, 2 * ROUND_TRIPS))
    b.branch(wait)
    b.position_at_end(wait)
    awaited, looks = b.phi(I64), b.phi(I64)
    awaited.add_incoming(me, entry)
    looks.add_incoming(ir.Constant(I64, 0), entry)
    seen = b.load_atomic(counter, "seq_cst", 8, typ=I64)
    b.cbranch(b.icmp_signed("==", seen, awaited), turn, again)
    b.position_at_end(again)
    looked = b.add(looks, one)
    awaited.add_incoming(awaited, again)
    looks.add_incoming(looked, again)
    b.cbranch(b.icmp_signed("<", looked, ir.Constant(I64, PATIENCE)), wait, end)
    b.position_at_end(turn)
    b.atomic_rmw("xchg", counter, b.add(awaited, one), "seq_cst")
    following = b.add(awaited, ir.Constant(I64, 2))
    awaited.add_incoming(following, turn)
    looks.add_incoming(looks, turn)
    b.cbranch(b.icmp_signed("<", following, last), wait, end)
    b.position_at_end(end)
    b.ret_void()
