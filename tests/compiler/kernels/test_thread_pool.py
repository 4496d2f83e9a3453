"""The thread pool executes every item exactly once, parks, stops, and survives what may happen."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import numpy as np
import pytest

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I64, PTR, VOID, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.llvm.thread_pool import emit_thread_pool
from verax.compiler.kernels.target import Target
from verax.runtime.engine import LoadedObject, load_object
from verax.runtime.threads import ThreadPool


@pytest.fixture(scope="module")
def library() -> LoadedObject:
    """many: adds 1 to each item; chunks: writes the end of each chunk to where it begins; turns:
    adds 1 to each of as many items as it is told and to those of the next run, in turns."""
    module = ModuleBuilder("pool", Target.host())
    f = module.kernel(("count",), 1)
    with f.items() as item:
        place = f.at(f.args[0], (item.index, 1), dtype="int64")
        f.store(f.b.add(f.load(place, "int64", lanes=0), f.i64(1)), place)
    kernel = f.finish(1)
    g = module.kernel(("note",), 1)
    g.store(g.i64(g.end), g.at(g.args[0], (g.begin, 1), dtype="int64"))
    note = g.finish(1)
    run = emit_thread_pool(module)
    emit_runs(module, run, "many", kernel)
    emit_runs(module, run, "chunks", note)
    emit_runs(module, run, "turns", kernel, sizes=2)
    return load_object(object_code(module))


def emit_runs(
    module: ModuleBuilder, run: ir.Function, name: str, kernel: Kernel, sizes: int = 1
) -> None:
    """void name(pool, args, runs, items, ...): so often runs of the kernel, one of each size."""
    fn = module.function(name, VOID, [PTR, PTR, I64, *[I64] * sizes])
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    loop, end = fn.append_basic_block("loop"), fn.append_basic_block("end")
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(I64)
    i.add_incoming(ir.Constant(I64, 0), fn.blocks[0])
    pool, args, runs, *counts = fn.args
    for items in counts:
        b.call(run, [pool, module.module.globals[kernel.name], args, items])
    following = b.add(i, ir.Constant(I64, 1))
    i.add_incoming(following, loop)
    b.cbranch(b.icmp_signed("<", following, runs), loop, end)
    b.position_at_end(end)
    b.ret_void()


def count(
    library: LoadedObject, pool: ThreadPool | None, runs: int, items: int, name: str = "many"
) -> np.ndarray:
    many = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2)(
        library.address(name)
    )
    counts = np.zeros(items + 8, np.int64)
    table = np.array([counts.ctypes.data], np.uint64)
    many(pool and pool.handle, table.ctypes.data, runs, items)
    assert not counts[items:].any()
    return counts[:items]


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_item_runs_exactly_once(library: LoadedObject, threads: int) -> None:
    pool = ThreadPool(library, threads)
    for items in (1, 2, 5, 64, 1000):
        assert (count(library, pool, 300, items) == 300).all()
    pool.close()


@pytest.mark.parametrize("threads", [2, 3])
def test_a_thread_has_neighbouring_items_in_ever_smaller_chunks(
    library: LoadedObject, threads: int
) -> None:
    pool = ThreadPool(library, threads)
    ends = count(library, pool, 3, 32 * threads, "chunks")
    pool.close()
    found = {int(b): int(ends[b]) for b in np.flatnonzero(ends)}
    share = ((0, 16), (16, 24), (24, 28), (28, 30), (30, 32))
    assert found == {32 * t + a: 32 * t + b for t in range(threads) for a, b in share}


@pytest.mark.parametrize(
    ("threads", "few", "many"), [(2, 1, 64), (2, 33, 2), (3, 2, 50), (6, 1, 64)]
)
def test_who_claims_nothing_does_not_work_on_the_next_run(
    library: LoadedObject, threads: int, few: int, many: int
) -> None:
    """Most chunks of a few items are empty. A thread that had claimed such a one and came to read
    how many items there are only in the next run executed items of that run, which nobody had given
    it: the run never ended (found by benchmarks of tiny networks that stood still) or too early."""
    runs, pool = 60_000, ThreadPool(library, threads)
    turns = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)(
        library.address("turns")
    )
    counts = np.zeros(72, np.int64)
    table = np.array([counts.ctypes.data], np.uint64)
    given = pool.handle, table.ctypes.data, runs, few, many
    caller = threading.Thread(target=turns, args=given, daemon=True)
    caller.start()
    caller.join(60)
    assert not caller.is_alive(), "a run never ended"
    pool.close()
    at = np.arange(len(counts))
    assert np.array_equal(counts, runs * ((at < few).astype(int) + (at < many)))


def test_without_a_pool_the_caller_does_everything(library: LoadedObject) -> None:
    for items in (0, 1, 5, 64):
        assert (count(library, None, 30, items) == 30).all()


def test_no_wake_up_is_lost_around_parking(library: LoadedObject) -> None:
    pool = ThreadPool(library, 3)
    for pause in (0.0, 0.00002, 0.00005, 0.0001, 0.001) * 40:
        time.sleep(pause)
        assert (count(library, pool, 3, 37) == 3).all()
    pool.close()


def test_a_pool_serves_many_runs(library: LoadedObject) -> None:
    pool = ThreadPool(library, 2)
    assert (count(library, pool, 70_000, 3) == 70_000).all()
    pool.close()


def test_an_idle_pool_burns_no_processor_time(library: LoadedObject) -> None:
    pool = ThreadPool(library, 4)
    count(library, pool, 10, 64)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.4)
    assert time.process_time() - before < 0.05
    pool.close()


def test_workers_end_with_the_pool(library: LoadedObject) -> None:
    def alive() -> int:
        return len(os.listdir("/proc/self/task"))

    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted through /proc, which this system lacks")
    before = alive()
    pool = ThreadPool(library, 5)
    assert alive() == before + 4
    pool.close()
    pool.close()
    assert alive() == before


def test_pools_of_several_callers_do_not_meet(library: LoadedObject) -> None:
    wrong: list[int] = []

    def work(items: int) -> None:
        pool = ThreadPool(library, 2)
        for _ in range(20):
            if not (count(library, pool, 50, items) == 50).all():
                wrong.append(items)
        pool.close()

    callers = [threading.Thread(target=work, args=(n,)) for n in (3, 17, 40)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(c.is_alive() for c in callers)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("parked", [True, False])
def test_a_forked_child_does_the_work_alone(library: LoadedObject, parked: bool) -> None:
    pool = ThreadPool(library, 3)
    count(library, pool, 10, 20)
    time.sleep(0.05 if parked else 0.0)
    child = os.fork()
    if not child:
        signal.alarm(20)
        right = (count(library, pool, 5, 33) == 5).all()
        pool.close()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (count(library, pool, 5, 33) == 5).all()
    pool.close()


def test_the_pool_can_be_emitted_for_other_machines() -> None:
    module = ModuleBuilder("pool", Target.aarch64())
    emit_thread_pool(module)
    assert int.from_bytes(object_code(module)[18:20], "little") == 183
