"""Variables behind handles are state: filled once, assigned by one call, read by the next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.resource_cases import FIRST, ONCE, delayed, filling, handle, stream
from tests.frontends.from_tflite.tflite_peer import litert_calls
from tests.frontends.from_tflite.tflite_writer import Op, T

import verax
from verax.base.errors import UnsupportedError, UsageError
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind
from verax.runners.litert import LiteRtRunner


def calls(count: int = 5) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(62)
    return [{"x": rng.standard_normal((1, 2, 3)).astype(np.float32)} for _ in range(count)]


@pytest.mark.parametrize("level", [0, 1, 3])
def test_a_stream_remembers_as_litert_does(level: int) -> None:
    data, given = stream(), calls()
    found = load_tflite(data)
    assert found.graph.state == {"past": "past.next"}
    assert np.array_equal(found.graph.initial["past"], FIRST)
    exe = verax.compile(found, opt_level=level, threads=1)
    right = [answer["y"] for answer in litert_calls(data, given)]
    made = [exe.run(one)["y"] for one in given]
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-6)
    assert np.array_equal(exe.state["past"], np.concatenate([g["x"] for g in given[-2:]], 1))


def test_bytes_are_remembered_as_they_are() -> None:
    rng = np.random.default_rng(63)
    given = [{"x": rng.integers(-128, 128, (1, 2, 3)).astype(np.int8)} for _ in range(3)]
    exe = verax.compile(load_tflite(delayed()), threads=1)
    for one, right in zip(given, litert_calls(delayed(), given)):
        assert np.array_equal(exe.run(one)["y"], right["y"])


@pytest.mark.parametrize("kernels", ["default", "builtin"])
def test_litert_is_judged_over_consecutive_runs(tmp_path: Path, kernels: str) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(stream())
    runner = LiteRtRunner(path, kernels=kernels, isolated=False)
    found = verax.check(verax.load(path), runner)
    assert found.kind in (Kind.rounding, Kind.identical)
    wrong = tmp_path / "wrong.tflite"
    wrong.write_bytes(stream(more=filling(FIRST + np.float32(0.01))))
    runner = LiteRtRunner(wrong, kernels=kernels, isolated=False)
    assert verax.check(verax.load(path), runner).kind is Kind.mistake


def test_another_state_cannot_be_given_to_litert(tmp_path: Path) -> None:
    path = tmp_path / "stream.tflite"
    path.write_bytes(stream())
    graph = load_tflite(stream()).graph
    runner = LiteRtRunner(path, isolated=False)
    (found,) = runner.run_steps(graph, calls(1), {"past": FIRST})
    assert found["y"].shape == (1, 3)
    with pytest.raises((UnsupportedError, UsageError), match="nobody access"):
        runner.run_steps(graph, calls(1), {"past": FIRST * 2})


def test_a_variable_that_is_only_read_is_a_constant() -> None:
    ops = [ONCE, handle("past", 1), Op("READ_VARIABLE", [1], [2])]
    ops += [Op("CONCATENATION", [2, 0], [3], {"axis": 1}), Op("MUL", [3, 7], [8])]
    data = stream([*ops, Op("SUM", [8, 9], [10], {"keep_dims": False})])
    found = load_tflite(data)
    assert not found.graph.state
    (given,) = calls(1)
    right = litert_calls(data, [given])[0]["y"]
    np.testing.assert_allclose(verax.compile(found, threads=1).run(given)["y"], right, rtol=1e-5)


def test_a_variable_is_what_was_assigned_before_in_the_same_call() -> None:
    ops = [handle("past", 1), Op("SLICE", [7, 4, 5], [6]), Op("ASSIGN_VARIABLE", [1, 6], [])]
    ops += [Op("READ_VARIABLE", [1], [2]), Op("CONCATENATION", [2, 0], [3], {"axis": 1})]
    data = stream([*ops, Op("MUL", [3, 7], [8]), Op("SUM", [8, 9], [10], {"keep_dims": False})])
    found, (given,) = load_tflite(data), calls(1)
    assert not found.graph.state
    right = litert_calls(data, [given])[0]["y"]
    np.testing.assert_allclose(verax.compile(found, threads=1).run(given)["y"], right, rtol=1e-5)


def test_what_is_filled_with_more_than_constants_is_refused() -> None:
    tensors, ops, *_ = filling()
    computed = ([*tensors, T((1, 4, 3))], [ops[0], Op("NEG", [1], [2])], [], [])
    computed[1].append(Op("ASSIGN_VARIABLE", [0, 2], []))
    with pytest.raises(UnsupportedError, match="it runs NEG once"):
        load_tflite(stream(more=computed))


def test_a_variable_that_nothing_fills_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="a variable that nothing has filled"):
        load_tflite(stream(more=filling(name="other")))
