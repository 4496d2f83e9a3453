"""The child that lives through a check: what runs do to themselves stays with them.

The runtimes are packages of one file that these tests write; no real one is needed.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verax.base.process.helpers import helper_scope
from verax.base.process.processes import SubjectError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.sums.linear import MatMul
from verax.runners.children.child import run_in_child
from verax.runners.children.forking import ForkServer
from verax.runners.subjects.factory import runner_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks for every run")

WHO = "raise RuntimeError(f'[{os.getppid()}, {os.getpid()}]')\n"
"""Refuses the run, with the numbers of the child and of the fork."""
Write = Callable[..., None]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes a package of a runtime's name, which does something when it is imported."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(body: str, name: str = "onnxruntime") -> None:
        head = "import ctypes, os, signal, sys, threading, time\n"
        head += f"here = {str(tmp_path)!r}\n"
        (tmp_path / f"{name}.py").write_text(head + body)

    return write


def ask(task: str = "onnx_runtime", fill: int | None = None, timeout: float = 60) -> str:
    """What a run fails with."""
    with pytest.raises(SubjectError) as caught:
        run_in_child(
            task, {"model": b""}, {"x": np.zeros((2, 3))}, name="fake", timeout=timeout, fill=fill
        )
    return caught.value.cause


def who(task: str = "onnx_runtime") -> tuple[int, int]:
    """The numbers of the child and of the fork that a run was done by."""
    child, fork = ask(task).partition("[")[2].partition("]")[0].split(",")
    return int(child), int(fork)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end and not condition():
        time.sleep(0.01)
    return condition()


def test_inside_keeping_runs_are_forks_of_one_child_which_ends_with_it(package: Write) -> None:
    package(WHO)
    with helper_scope():
        (first, a), (second, b) = who(), who()
        with helper_scope():
            assert who()[0] == first
        assert alive(first)
    assert first == second
    assert a != b
    assert not alive(first)
    assert who()[0] not in (first, os.getpid())


def test_a_run_that_dies_is_named_and_the_next_one_goes_well(package: Write) -> None:
    package(
        "print('x' * 5_000_000)\n"
        "if not os.path.exists(f'{here}/died'):\n"
        "    open(f'{here}/died', 'w').close()\n"
        "    os.write(2, b'the last words'); os.kill(os.getpid(), signal.SIGSEGV)\n" + WHO
    )
    with helper_scope():
        cause = ask()
        assert "process died (signal SIGSEGV)" in cause
        assert cause.endswith("the last words")
        assert who()[0] == who()[0]


def test_what_a_run_left_behind_is_ended_with_it(package: Write, tmp_path: Path) -> None:
    package(
        "if not os.fork():\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        "    open(f'{here}/orphan', 'w').write(str(os.getpid()))\n"
        "    time.sleep(60)\n"
        "while not os.path.exists(f'{here}/orphan') or not open(f'{here}/orphan').read():\n"
        "    time.sleep(0.01)\n" + WHO
    )
    with helper_scope():
        child, _ = who()
        assert not alive(int((tmp_path / "orphan").read_text()))
        assert alive(child)


def test_a_run_that_takes_too_long_is_ended_and_the_next_one_goes_well(
    package: Write, tmp_path: Path
) -> None:
    package("if os.path.exists(f'{here}/hang'):\n    time.sleep(60)\n" + WHO)
    with helper_scope():
        child, _ = who()
        (tmp_path / "hang").touch()
        assert "no answer in 0.5 s and was stopped" in ask(timeout=0.5)
        assert not alive(child)
        (tmp_path / "hang").unlink()
        assert who()[0] == who()[0] != child


@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_an_end_in_the_middle_of_a_run(package: Write, tmp_path: Path, how: str) -> None:
    package(
        "open(f'{here}/pids', 'w').write(f'{os.getpid()} {os.getppid()}')\n"
        "time.sleep(0 if os.path.exists(f'{here}/go') else 60)\n" + WHO
    )

    def pids() -> list[int]:
        path = tmp_path / "pids"
        return [int(w) for w in path.read_text().split()] if path.exists() else []

    def end() -> None:
        until(lambda: len(pids()) == 2)
        os.kill(pids()[1] if how == "killed" else os.getpid(), 9 if how == "killed" else 2)

    thread = threading.Thread(target=end)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with helper_scope():
            thread.start()
            if how == "killed":
                assert "process died (signal SIGKILL)" in ask()
            else:
                with pytest.raises(KeyboardInterrupt):
                    ask()
            thread.join()
            assert until(lambda: not any(map(alive, pids())))
            (tmp_path / "go").touch()
            assert who()[0] == who()[0]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_child_that_dies_before_a_run_is_started_once_more(
    package: Write, tmp_path: Path
) -> None:
    package(WHO)
    with helper_scope():
        first, _ = who()
        os.kill(first, signal.SIGKILL)
        second, _ = who()
        assert second != first
        assert who()[0] == second
    package(
        "open(f'{here}/starts', 'a').write('.')\n"
        "os.write(1, b'cannot be loaded'); os.kill(os.getpid(), signal.SIGABRT)\n",
        "torch",
    )
    with helper_scope():
        assert ask("torch_file").endswith("process died (signal SIGABRT): cannot be loaded")
        assert (tmp_path / "starts").read_text() == ".."


def test_a_package_that_starts_threads_is_not_forked(package: Write) -> None:
    package("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n" + WHO, "torch")
    with helper_scope():
        first, second = who("torch_file"), who("torch_file")
        assert first[0] != second[0]


def test_forks_draw_other_random_numbers(package: Write) -> None:
    package(
        "__version__, drawn = '2', None\n"
        "def seed():\n    global drawn\n    drawn = os.getpid()\n"
        "class export:\n    def load(path):\n"
        "        raise RuntimeError(f'[{os.getppid()}, {os.getpid() - drawn}]')\n",
        "torch",
    )
    with helper_scope(), pytest.raises(SubjectError) as caught:
        run_in_child(
            "torch_file", {"path": "", "threads": 0, "device": ""}, {}, name="fake", timeout=60
        )
    assert caught.value.cause.endswith(", 0]")


def test_small_pieces_of_memory_are_poisoned_in_the_fork_that_asks_for_it(package: Write) -> None:
    package(
        "c = ctypes.CDLL(None)\n"
        "c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]\n"
        "c.free.argtypes = [ctypes.c_void_p]\n"
        "pieces = [c.malloc(200) for _ in range(5)]\n"
        "for p in pieces:\n    ctypes.memset(p, 1, 200)\n"
        "for p in pieces:\n    c.free(p)\n"
        "again = [ctypes.string_at(c.malloc(200), 200) for _ in range(9)]\n"
        "raise RuntimeError(all(p == bytes([0x7f]) * 200 for p in again))\n"
    )
    with helper_scope():
        assert ask(fill=0x7F).endswith("RuntimeError: True")
        assert ask().endswith("RuntimeError: False")
        assert ask(fill=0x7F).endswith("RuntimeError: True")
    assert ask(fill=0x7F).endswith("RuntimeError: True")


def test_another_thread_and_a_forked_process_do_without(package: Write) -> None:
    package("time.sleep(1)\n" + WHO)
    with contextlib.ExitStack() as stack:
        stack.enter_context(helper_scope())
        mine, _ = who()
        other = os.fork()
        if other == 0:
            stack.close()  # must leave the parent's child alone
            os._exit(0)
        os.waitpid(other, 0)
        assert who()[0] == mine
        context, found = contextvars.copy_context(), []
        thread = threading.Thread(target=lambda: context.run(lambda: found.append(who()[0])))
        thread.start()
        found.append(who()[0])
        thread.join()
        assert mine in found
        assert len({*found, os.getpid()}) == 3


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[5, 7]"))
    w = np.random.default_rng(11).standard_normal((7, 3)).astype(np.float32)
    return b.graph([b.add(MatMul(), [x, b.constant(w, "w")], ["y"], "matmul")])


def test_a_check_starts_one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    starts, runs = [], []
    start, run = ForkServer._start, ForkServer.run
    monkeypatch.setattr(ForkServer, "_start", lambda *a: (starts.append(a), start(*a))[1])
    monkeypatch.setattr(ForkServer, "run", lambda *a, **o: (runs.append(a), run(*a, **o))[1])
    verdict = check(network(), runner_of("onnxruntime", threads=1))
    assert verdict.exit_code == 0
    assert verdict.repeat is not None
    assert verdict.repeat.same_bits
    assert (len(starts), len(runs)) == (1, 3)
