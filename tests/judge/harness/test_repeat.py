"""The same question twice: what changes, and why."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.harness.repeat import CHANCE, FILL, ORDER, UNINITIALISED, repeat
from verax.judge.protocol import Poisonable, Runner
from verax.ops.sums.linear import MatMul
from verax.ops.windows.pooling import MaxPool
from verax.records.verdict import Repeat
from verax.runners.arrays import ArraysRunner
from verax.runners.functions import FunctionRunner
from verax.runners.subjects.factory import runner_of

X = np.random.default_rng(5).standard_normal((37, 67)).astype(np.float32)
W = np.random.default_rng(6).standard_normal((67, 29)).astype(np.float32)


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[n, 67]"))
    return b.graph([b.add(MatMul(), [x, b.constant(W, "w")], ["y"], "matmul")])


def again(subject: Runner) -> Repeat:
    first = subject.run(network(), {"x": X})
    found = repeat(subject, network(), {"x": X}, first)
    assert found is not None
    return found


def function(call: Callable[[np.ndarray], np.ndarray]) -> FunctionRunner:
    return FunctionRunner(call, "subject")


def test_a_steady_subject_keeps_its_bits_in_poisoned_memory() -> None:
    found = again(function(lambda x: x @ W))
    assert found == Repeat(2, True, "bytes 0x7f (fresh memory of this process)")


@pytest.mark.parametrize("name", ["verax:O0", "verax:O1", "onnxruntime", "openvino"])
def test_runtimes_read_nothing_that_they_did_not_write(name: str) -> None:
    if not name.startswith("verax"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    runner = runner_of(name, threads=1)
    assert isinstance(runner, Poisonable)
    found = again(runner)
    assert (found.same_bits, found.runs) == (True, 2)
    assert runner.capabilities.poison in found.poisoned


def test_memory_that_nobody_wrote_shows() -> None:
    def forgets_a_row(x: np.ndarray) -> np.ndarray:
        y = np.empty((x.shape[0], W.shape[1]), np.float32)
        y[:-1] = (x @ W)[:-1]
        return y

    found = again(function(forgets_a_row))
    assert found.cause == UNINITIALISED
    assert found.differing["y"] > 1e30


def test_memory_that_nobody_wrote_shows_in_a_program(tmp_path: Path) -> None:
    program = tmp_path / "forgets.py"
    program.write_text(
        "import sys, numpy as np\n"
        "x = np.load(sys.argv[1])['x']\n"
        f"y = np.empty((x.shape[0], {W.shape[1]}), np.float32)\n"
        "y[1:] = x[1:, :1]\n"
        "np.savez(sys.argv[2], y=y)\n"
    )
    found = again(runner_of(f"cmd:{sys.executable} {program}"))
    assert (found.cause, found.runs) == (UNINITIALISED, 3)


def test_another_order_of_summation_is_told_from_chance() -> None:
    orders: Iterator[int] = iter((1, -1, 1, -1))

    def reorders(x: np.ndarray) -> np.ndarray:
        step = next(orders)
        return np.add.reduce((x[:, :, None] * W)[:, ::step], axis=1)

    found = again(function(reorders))
    assert (found.cause, found.runs, found.same_bits) == (ORDER, 2, False)
    dropout = np.random.default_rng(0)
    found = again(function(lambda x: (x * (dropout.random(x.shape) < 0.9)).astype("f") @ W))
    assert found.cause == CHANCE


def test_a_subject_that_fails_the_second_time_is_said_so() -> None:
    turns = iter((X @ W,))

    def once(x: np.ndarray) -> np.ndarray:
        return next(turns)

    found = again(function(once))
    assert not found.same_bits
    assert "StopIteration" in found.cause


def test_other_names_are_no_other_answer() -> None:
    subject = FunctionRunner(lambda x: {"y:0": x @ W}, "renaming")
    found = check(network(), subject, {"x": X}).repeat
    assert found is not None
    assert found.same_bits


def test_recorded_answers_cannot_be_asked_again() -> None:
    arrays = {"x": X, "y": X @ W}
    assert repeat(ArraysRunner(arrays), network(), {"x": X}, {"y": X @ W}) is None


def test_zero_borders_survive_poison() -> None:
    """A padded pool reads its border: poison must not reach what has to stay zero."""
    b = Builder("borders")
    x = b.input("x", TensorType.parse("float32[2, 19, 13, 17]"))
    pool = MaxPool(kernel_shape=(3, 3), pads=((1, 1), (1, 1)))
    h = b.add(pool, [x], ["h"], "first")
    graph = b.graph([b.add(pool, [h], ["y"], "second")])
    x = np.random.default_rng(7).standard_normal((2, 19, 13, 17))
    inputs = {"x": x.astype(np.float32)}  # type: ignore[attr-defined]
    runner = runner_of("verax:O1", threads=1)
    assert isinstance(runner, Poisonable)
    plain = runner.run(graph, inputs)
    for fill in (FILL, 0xFF, 0x5A):
        poisoned = runner.run_poisoned(graph, inputs, fill=fill)
        assert poisoned["y"].tobytes() == plain["y"].tobytes()


def test_the_record_survives_a_refusal() -> None:
    class Refusing(FunctionRunner):
        def run_poisoned(self, *_: object, **__: object) -> dict[str, np.ndarray]:
            raise UsageError("no more")

    found = again(Refusing(lambda x: x @ W, "refusing"))
    assert "no more" in found.cause
