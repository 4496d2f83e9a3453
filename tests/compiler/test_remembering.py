"""Executables that remember: run, step, state, reset, .vx, threads."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from verax.base.errors import InputError, UnsupportedError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Graph
from verax.ir.printer import content_hash
from verax.ir.text import parse_graph
from verax.reference.evaluate import evaluate

CACHE = """graph "cache"
input %k: float32[2, 1, 3]
state %place: int64[1] = [1]
state %cache: float32[2, 5, 3] = sha256:large
const %one: int64[1] = [1]
const %axis: int64[1] = [1]
const %shape: int64[2] = [1, 2]
%places: int64[1] = Add()(%place, %one)
%turned: float32[5, 2, 3] = Transpose(perm=(1, 0, 2))(%cache)
%row: float32[1, 2, 3] = Transpose(perm=(1, 0, 2))(%k)
%where: int64[1, 1] = Unsqueeze()(%place, %axis)
%written: float32[5, 2, 3] = ScatterND()(%turned, %where, %row)
%cache.next: float32[2, 5, 3] = Transpose(perm=(1, 0, 2))(%written)
%sums: float32[2, 3] = ReduceSum(keepdims=False)(%cache.next, %axis)
output %sums
output %places -> %place
output %cache.next -> %cache
"""
ONE = Settings(threads=1)


def cached() -> Graph:
    """A cache of five rows: each run writes one at `place` and sums them all."""
    table = np.random.default_rng(21).standard_normal((2, 5, 3)).astype(np.float32)
    text = CACHE.replace("sha256:large", f"sha256:{content_hash(table)}")
    return parse_graph(text, {"cache": table})


def rows(count: int) -> list[np.ndarray]:
    random = np.random.default_rng(22)
    return [random.standard_normal((2, 1, 3)).astype(np.float32) for _ in range(count)]


def expected(graph: Graph, given: list[np.ndarray]) -> list[np.ndarray]:
    """Sums after each row, in plain NumPy."""
    cache, found = np.array(graph.initial["cache"]), []
    for i, k in enumerate(given):
        cache[:, 1 + i] = k[:, 0]
        found.append(cache.sum(1))
    return found


@pytest.fixture(params=["compiled", "O0", "saved"])
def exe(request: Any, tmp_path: Path) -> Executable | SavedExecutable:
    level = 0 if request.param == "O0" else 1
    made = compile(cached(), Settings(threads=1, opt_level=level, checked=True))
    if request.param != "saved":
        return made
    save(made, tmp_path / "cache.vx")
    return SavedExecutable(tmp_path / "cache.vx", threads=1)


def test_what_a_run_writes_the_next_one_reads(exe: Executable | SavedExecutable) -> None:
    given = rows(3)
    assert (list(exe.inputs), list(exe.outputs)) == (["k"], ["sums"])
    for k, want in zip(given, expected(cached(), given), strict=True):
        found = exe.run({"k": k})
        assert list(found) == ["sums"]
        np.testing.assert_allclose(found["sums"], want, rtol=1e-5, atol=1e-6)
    assert exe.state["place"] == [4]
    np.testing.assert_array_equal(exe.state["cache"][:, 1:4], np.concatenate(given, 1))


def test_reset_begins_again_with_the_same_bits(exe: Executable | SavedExecutable) -> None:
    k, *others = rows(3)
    first = exe(k)
    for other in others:
        assert not np.array_equal(exe(other), first)
    exe.reset()
    assert exe.state["place"] == [1]
    np.testing.assert_array_equal(exe(k), first)


def test_a_step_is_a_pure_function_of_inputs_and_state(exe: Executable | SavedExecutable) -> None:
    first, second = rows(2)
    before = exe.state
    outputs, state = exe.step({"k": first})
    again, after = exe.step({"k": second}, state)
    assert {v: a.tobytes() for v, a in exe.state.items()} == {
        v: a.tobytes() for v, a in before.items()
    }
    np.testing.assert_array_equal(exe(first), outputs["sums"])
    np.testing.assert_array_equal(exe(second), again["sums"])
    np.testing.assert_array_equal(exe.state["cache"], after["cache"])


def test_state_is_copied_out_and_in(exe: Executable | SavedExecutable) -> None:
    (k,) = rows(1)
    exe.state["cache"][:] = 7
    assert exe.state["cache"].max() < 7
    mine = {"place": np.array([3]), "cache": np.zeros((2, 5, 3), np.float32)}
    exe.state = mine
    mine["cache"][:] = 7
    np.testing.assert_array_equal(exe(k), k[:, 0])
    exe.state = {"place": np.array([0])}
    np.testing.assert_array_equal(exe(k), 2 * k[:, 0])


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"plac": np.array([1])}, "no state 'plac'"),
        ({"place": np.array([1], np.int32)}, r"int32\[1\]"),
        ({"cache": np.zeros((2, 5, 4), np.float32)}, r"float32\[2, 5, 4\]"),
    ],
)
def test_state_that_does_not_fit_is_refused_and_changes_nothing(
    exe: Executable | SavedExecutable, state: dict[str, np.ndarray], words: str
) -> None:
    (k,) = rows(1)
    with pytest.raises(InputError, match=words):
        exe.state = state
    with pytest.raises(InputError, match=words):
        exe.step({"k": k}, state)
    assert exe.state["place"] == [1]


def test_state_is_no_input(exe: Executable | SavedExecutable) -> None:
    with pytest.raises(InputError, match="is state of the network"):
        exe.run({"k": rows(1)[0], "place": np.array([1])})


def test_a_run_that_fails_leaves_the_state(exe: Executable | SavedExecutable) -> None:
    """The sixth row has no place in the cache."""
    for k in rows(4):
        exe.run({"k": k})
    before = exe.state
    with pytest.raises(InputError, match="an index lies outside of the tensor it indexes"):
        exe.run({"k": rows(1)[0]})
    assert exe.state["place"] == before["place"] == [5]
    np.testing.assert_array_equal(exe.state["cache"], before["cache"])


def test_runs_in_several_threads_each_take_one_place() -> None:
    graph = cached()
    exe = compile(graph, ONE)
    given = rows(4)
    threads = [threading.Thread(target=exe.run, args=({"k": k},)) for k in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert exe.state["place"] == [5]
    found = {row.tobytes() for row in exe.state["cache"][:, 1:].transpose(1, 0, 2)}
    assert found == {np.ascontiguousarray(k[:, 0]).tobytes() for k in given}


def test_a_network_without_state_has_none() -> None:
    graph = parse_graph('graph "g"\ninput %x: float32[2]\n%y: float32[2] = Neg()(%x)\noutput %y\n')
    exe = compile(graph, ONE)
    assert exe.state == {}
    exe.reset()
    outputs, state = exe.step({"x": np.ones(2, np.float32)})
    assert (outputs["y"].tolist(), state) == ([-1, -1], {})


LENGTH = """graph "length"
input %x: float32[4]
state %length: int64[1] = [1]
const %one: int64[1] = [1]
const %zero: int64[1] = [0]
%more: int64[1] = Add()(%length, %one)
%y: float32[_l] = Slice()(%x, %zero, %length, %zero)
output %y
output %more -> %length
"""


def test_state_may_decide_sizes_and_is_then_not_saved(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    exe = compile(parse_graph(LENGTH), ONE)
    for length in (1, 2, 3):
        assert exe(x).tolist() == x[:length].tolist()
    with pytest.raises(UnsupportedError, match="decides the sizes"):
        save(exe, tmp_path / "net.vx")


def test_the_reference_gives_the_new_state_as_outputs() -> None:
    graph = cached()
    (k,) = rows(1)
    found = evaluate(graph, {"k": k})
    assert list(found) == ["sums", "places", "cache.next"]


def stepped(graph: Graph, given: list[np.ndarray]) -> list[np.ndarray]:
    """Sums after each row by `step`, which has no memory of its own."""
    exe, state, found = compile(graph, ONE), None, []
    for k in given:
        outputs, state = exe.step({"k": k}, state)
        found.append(outputs["sums"])
    return found


def test_a_stream_goes_on_in_two_sets_of_memory() -> None:
    """No array of state is made between runs, and whatever comes in between is followed."""
    graph, given = cached(), rows(4)
    exe, wanted = compile(graph, ONE), stepped(graph, given)
    program = exe.specialized.program
    with patch.object(type(program), "run_if_exact", side_effect=AssertionError):
        (sums,) = exe.run({"k": given[0]}).values()
        first = exe._state["cache"].ctypes.data
        np.testing.assert_array_equal(sums, wanted[0])
        exe.run({"k": given[1]})
        second = exe._state["cache"].ctypes.data
        exe.state = exe.state  # a copy, as a user keeps it
        np.testing.assert_array_equal(exe.run({"k": given[2]})["sums"], wanted[2])
        assert exe._state["cache"].ctypes.data in {first, second} and first != second
    kept = exe.state
    np.testing.assert_array_equal(exe.step({"k": given[3]}, kept)[0]["sums"], wanted[3])
    np.testing.assert_array_equal(exe.run({"k": given[3]})["sums"], wanted[3])
    for v, array in kept.items():
        assert not np.shares_memory(array, exe._state[v])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_goes_on_with_a_copy() -> None:
    graph, given = cached(), rows(3)
    exe, wanted = compile(graph, Settings(threads=2)), stepped(graph, given)
    exe.run({"k": given[0]})
    child = os.fork()
    if not child:
        right = False
        try:
            right = bool((exe.run({"k": given[1]})["sums"] == wanted[1]).all())
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(exe.run({"k": given[1]})["sums"], wanted[1])


MIXED = """graph "mixed"
input %small: float32[3, 2]
input %large: float32[600]
input %shift: float32[2]
state %sum: float32[2] = [1, 2]
const %axis: int64[1] = [0]
const %half: float32[1] = [0.5]
%rows: float32[2] = ReduceSum(keepdims=False)(%small, %axis)
%next: float32[2] = Add()(%sum, %rows)
%halved: float32[600] = Mul()(%large, %half)
%shifted: float32[2] = Add()(%next, %shift)
output %shifted
output %halved
output %next -> %sum
"""
"""Small and large inputs and outputs, which a stream hands over in different ways."""


def test_small_and_large_arrays_of_a_stream_stay_the_callers() -> None:
    """Outputs do not change with later runs, and strided inputs are read as they are."""
    exe, random = compile(parse_graph(MIXED), ONE), np.random.default_rng(23)
    inputs, outputs, sums = [], [], [np.float32([1, 2])]
    for _ in range(4):
        small = random.integers(-99, 99, (2, 3)).astype(np.float32).T  # whose sums are exact
        large, shift = random.standard_normal(1200).astype(np.float32)[::2], sums[-1] * 2
        inputs.append({"small": small, "large": large, "shift": shift})
        outputs.append(exe.run(inputs[-1]))
        sums.append(sums[-1] + small.sum(0))
        np.testing.assert_array_equal(exe.state["sum"], sums[-1])
    for one, made, total in zip(inputs, outputs, sums[1:], strict=True):
        assert list(made) == ["shifted", "halved"]
        np.testing.assert_array_equal(made["halved"], one["large"] / 2)
        np.testing.assert_array_equal(made["shifted"], total + one["shift"])
    with pytest.raises(InputError, match="shift"):
        exe.run({**inputs[0], "shift": np.zeros(3, np.float32)})
    np.testing.assert_array_equal(exe.state["sum"], sums[-1])
