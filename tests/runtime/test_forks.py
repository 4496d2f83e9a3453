"""A forked child works whatever other threads were at: running, compiling, judging."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.pointwise.activation import Relu, Softsign
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.runners.own import ReferenceRunner

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def network(layers: int = 1) -> Graph:
    """Large enough that its kernels are shared out among threads."""
    random = np.random.default_rng(11)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[52, 96]"))
    for n in range(layers):
        w = random.standard_normal((96, 96)).astype(np.float32) / 8
        x = b.add(Relu() if n % 2 else Softsign(), [b.add(MatMul(), [x, b.constant(w, f"w{n}")])])
    return b.graph([x])


def drawn() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(12).standard_normal((52, 96)).astype(np.float32)}


def in_child(act: Callable[[], bool], seconds: int = 30) -> bool:
    """Whether `act` says yes in a forked child, within a time limit."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            code = 0 if act() else 1
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


@contextmanager
def meanwhile(act: Callable[[], object]) -> Iterator[None]:
    """`act` again and again in another thread."""
    end, begun = threading.Event(), threading.Event()

    def loop() -> None:
        while not end.is_set():
            begun.set()
            act()

    thread = threading.Thread(target=loop)
    thread.start()
    begun.wait(30)
    try:
        yield
    finally:
        end.set()
        thread.join(60)


def threads_alive() -> int:
    return len(os.listdir("/proc/self/task"))


def test_a_child_runs_an_executable_that_another_thread_was_running() -> None:
    exe, inputs = compile(network(), Settings(threads=3)), drawn()
    expected = exe.run(inputs)

    def same() -> bool:
        return all(a.tobytes() == expected[v].tobytes() for v, a in exe.run(inputs).items())

    with meanwhile(lambda: exe.run(inputs)):
        for _ in range(5):
            time.sleep(0.01)
            assert in_child(same)
    assert same()


def test_a_child_has_workers_of_its_own() -> None:
    if not os.path.isdir("/proc/self/task"):
        pytest.skip("threads are counted through /proc, which this system lacks")
    exe, inputs = compile(network(), Settings(threads=3)), drawn()
    exe.run(inputs)

    def works() -> bool:
        before = threads_alive()
        exe.run(inputs)
        during = threads_alive()
        exe.specialized.program.close()
        exe.run(inputs)
        return (before, during, threads_alive()) == (1, 3, 1)

    assert in_child(works)
    exe.run(inputs)


def test_a_child_compiles_while_another_thread_of_the_parent_compiled() -> None:
    inputs = drawn()
    (expected,) = compile(network(3), Settings(threads=2)).run(inputs).values()

    def compiles() -> bool:
        (given,) = compile(network(3), Settings(threads=2)).run(inputs).values()
        return given.tobytes() == expected.tobytes() and gc.isenabled()

    with meanwhile(lambda: compile(network(3), Settings(threads=2))):
        for pause in (0.0, 0.02, 0.05, 0.1):
            time.sleep(pause)
            assert in_child(compiles, 60)


def test_a_child_judges_while_another_thread_of_the_parent_judged() -> None:
    graph, inputs = network(2), drawn()

    def judges() -> bool:
        return check(graph, ReferenceRunner(), inputs).kind is Kind.rounding

    with meanwhile(judges):
        for pause in (0.0, 0.05, 0.1):
            time.sleep(pause)
            assert in_child(judges, 60)
