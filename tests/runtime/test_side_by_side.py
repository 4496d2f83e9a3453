"""Callers in several threads run one program side by side, and get the bits of one at a time."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.program import MAX_CONTEXTS


def network(threads: int) -> Executable:
    """Two products with a node in between that runs in Python, so that runs are interleaved; nor do
    kernels count."""
    random = np.random.default_rng(6201)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[46, 72]"))
    w = b.constant(random.standard_normal((72, 58)).astype(np.float32), "w")
    v = b.constant(random.standard_normal((58, 31)).astype(np.float32), "v")
    y = b.add(REGISTRY["MatMul"](), [x, w])
    y = b.add(REGISTRY["MatMul"](), [b.add(REGISTRY["Relu"](), [y]), v], ["y"])
    b.add(REGISTRY["NonZero"](), [y], ["places"])
    return compile(b.graph(["y", "places"]), Settings(threads=threads, open_sizes=False))


def given(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((46, 72)).astype(np.float32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_many_callers_get_the_bits_of_one(threads: int) -> None:
    exe = network(threads)
    wanted = [exe.run(given(seed))["y"].tobytes() for seed in range(12)]
    wrong: list[int] = []
    together = threading.Barrier(6)

    def work(first: int) -> None:
        together.wait()
        for i in range(60):
            seed = (first + i) % 12
            if exe.run(given(seed))["y"].tobytes() != wanted[seed]:
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_two_callers_are_inside_at_the_same_time() -> None:
    """Each waits within its run until the other is within its own: one by one would never end."""
    exe = network(1)
    program = exe.specialized.program
    together, seen = threading.Barrier(2, timeout=60), []
    context = type(program._contexts[0])
    plain = context._run

    def meeting(self: object, arrays: object) -> object:
        together.wait()
        seen.append(self)
        return plain(self, arrays)  # type: ignore[arg-type]

    context._run = meeting  # type: ignore[method-assign]
    try:
        workers = [threading.Thread(target=exe.run, args=(given(n),)) for n in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        context._run = plain  # type: ignore[method-assign]
    assert len({id(s) for s in seen}) == 2


def test_arenas_are_made_when_they_are_needed_and_are_few() -> None:
    exe = network(1)
    program = exe.specialized.program
    for seed in range(5):
        exe.run(given(seed))
    assert len(program._contexts) == 1
    workers = [
        threading.Thread(target=lambda: [exe.run(given(n)) for n in range(20)]) for _ in range(20)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(program._contexts) <= MAX_CONTEXTS
    assert len(program._free) == len(program._contexts)
    assert program._free[-1] is program._contexts[0]  # the one with the worker threads is next


@pytest.mark.parametrize("threads", [1, 2])
def test_an_arena_whose_taker_was_interrupted_is_found_again(threads: int) -> None:
    """Ctrl-C may come after the arena was taken and before anybody knows it."""
    exe = network(threads)
    wanted, program = exe.run(given(1))["y"].tobytes(), exe.specialized.program
    for _ in range(MAX_CONTEXTS - 1):
        program._free.pop()
        assert exe.run(given(1))["y"].tobytes() == wanted
    assert len(program._contexts) == len(program._free) == 1


def test_an_arena_that_somebody_uses_is_not_taken_for_lost() -> None:
    exe = network(1)
    program = exe.specialized.program
    held = [program.acquire() for _ in range(3)]
    exe.run(given(1))
    assert len({id(context) for context in held}) == 3
    assert len(program._contexts) == 4
    assert all(context not in program._free for context in held)
    for context in held:
        program.release(context)
    del context, held
    program._free.clear()
    exe.run(given(1))
    assert sorted(map(id, program._free)) == sorted(map(id, program._contexts))
    assert program._free[-1] is program._contexts[0]


def test_closing_waits_for_those_who_run() -> None:
    exe = network(2)
    wanted = exe.run(given(1))["y"].tobytes()
    found: list[bytes] = []

    def work() -> None:
        found.extend(exe.run(given(1))["y"].tobytes() for _ in range(30))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(5):
        exe.specialized.program.close()
    for worker in workers:
        worker.join()
    assert set(found) == {wanted} and len(found) == 90


def test_a_program_is_freed_as_soon_as_nobody_holds_it() -> None:
    exe = network(2)
    exe.run(given(3))
    freed = weakref.ref(exe.specialized.program)
    gc.disable()
    try:
        del exe
        assert freed() is None
    finally:
        gc.enable()


def test_closing_waits_for_whoever_runs_and_lets_others_go_on() -> None:
    """Workers are stopped while nobody uses them, and whoever came meanwhile runs afterwards."""
    exe = network(2)
    wanted = [exe.run(given(seed))["y"].tobytes() for seed in range(3)]
    wrong: list[int] = []

    def work(first: int) -> None:
        for i in range(200):
            seed = (first + i) % 3
            if exe.run(given(seed))["y"].tobytes() != wanted[seed]:
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(MAX_CONTEXTS + 2)]
    for worker in workers:
        worker.start()
    for _ in range(20):
        exe.specialized.program.close()
    for worker in workers:
        worker.join()
    assert not wrong
