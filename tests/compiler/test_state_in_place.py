"""Caches that a program writes in place: what it computes, what it touches, what a failed run
leaves."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Graph
from verax.ir.printer import content_hash
from verax.ir.text import parse_graph
from verax.runtime.state_buffers import StateBuffers

HEADS, ROOM, FEATURES, NEW = 2, 7, 5, 3
BODY = """graph "caches"
input %k: float32[2, 3, 5]
input %v: float32[2, 3, 5]
input %first: int64[3]
input %second: int64[3]
state %keys: float32[2, 7, 5] = sha256:keys
state %values: float32[7, 2, 5] = sha256:values
const %shape: int64[3] = [1, 3, 1]
const %wide: int64[3] = [2, 3, 5]
const %tuples: int64[2] = [3, 1]
const %axis: int64[1] = [1]
%column: int64[1, 3, 1] = Reshape()(%first, %shape)
%places: int64[2, 3, 5] = Expand()(%column, %wide)
%written: float32[2, 7, 5] = ScatterElements(axis=1)(%keys, %places, %k)
%keys.next: float32[2, 7, 5] = Identity()(%written)
%where: int64[3, 1] = Reshape()(%second, %tuples)
%rows: float32[3, 2, 5] = Transpose(perm=(1, 0, 2))(%v)
%values.next: float32[7, 2, 5] = ScatterND()(%values, %where, %rows)
%sums: float32[2, 5] = ReduceSum(keepdims=False)(%written, %axis)
output %sums
output %keys.next -> %keys
output %values.next -> %values
"""
Arrays = dict[str, np.ndarray]


def graph(text: str = BODY) -> Graph:
    random = np.random.default_rng(31)
    tables = {
        "keys": random.standard_normal((HEADS, ROOM, FEATURES)).astype(np.float32),
        "values": random.standard_normal((ROOM, HEADS, FEATURES)).astype(np.float32),
    }
    for name, table in tables.items():
        text = text.replace(f"sha256:{name}", f"sha256:{content_hash(table)}")
    return parse_graph(text, tables)


def inputs(seed: int, first: list[int], second: list[int]) -> Arrays:
    random = np.random.default_rng(seed)
    k, v = (random.standard_normal((HEADS, NEW, FEATURES)).astype(np.float32) for _ in range(2))
    return {"k": k, "v": v, "first": np.array(first), "second": np.array(second)}


def written(state: Arrays, given: Arrays) -> Arrays:
    """The state after a run, in plain NumPy: of rows that meet the last one stays."""
    keys, values = state["keys"].copy(), state["values"].copy()
    for i in range(NEW):
        keys[:, given["first"][i]] = given["k"][:, i]
        values[given["second"][i]] = given["v"][:, i]
    return {"keys": keys, "values": values}


@pytest.fixture(params=["compiled", "O0", "saved", "two threads"])
def exe(request: Any, tmp_path: Path) -> Executable | SavedExecutable:
    level, threads = int(request.param != "O0"), 1 + (request.param == "two threads")
    made = compile(graph(), Settings(threads=threads, opt_level=level, checked=True))
    if request.param != "saved":
        return made
    save(made, tmp_path / "caches.vx")
    return SavedExecutable(tmp_path / "caches.vx", threads=1)


def equal(found: Any, want: Arrays) -> None:
    assert found.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_each_run_writes_its_rows(exe: Executable | SavedExecutable) -> None:
    state = exe.state
    for turn in range(4):
        one = inputs(turn, [turn, turn + 1, turn + 3], [6 - turn, -7, turn])
        state = written(state, one)
        outputs = exe.run(one)
        assert outputs["sums"].tobytes() == exe.step(one, exe.state)[0]["sums"].tobytes()
        equal(exe.state, state)


def test_both_values_of_a_state_are_one_buffer() -> None:
    """And only those rows of it are written that are new."""
    made = compile(graph(), Settings(threads=1, opt_level=1))
    assert [s.in_place for s in made.specialized.binary.state] == [True, True]
    made.run(inputs(0, [0, 1, 2], [3, 4, 5]))
    buffers = made.specialized.state_buffers
    assert isinstance(buffers, StateBuffers)
    before, after = buffers._sets
    assert all(before[v] is after[v] for v in ("keys", "values"))
    after["keys"][:, 6] = 1234  # nobody copies it
    made.run(inputs(1, [0, 1, 2], [3, 4, 5]))
    assert (after["keys"][:, 6] == 1234).all()


@functools.cache
def shared() -> Executable:
    return compile(graph(), Settings(threads=1, opt_level=1))


@given(
    first=st.lists(st.integers(-ROOM - 2, ROOM + 1), min_size=NEW, max_size=NEW),
    second=st.lists(st.integers(-ROOM - 2, ROOM + 1), min_size=NEW, max_size=NEW),
)
def test_a_run_that_fails_brings_back_what_it_overwrote(
    first: list[int], second: list[int]
) -> None:
    """Whichever index is the wrong one, and however rows meet."""
    exe = shared()
    exe.reset()
    exe.run(inputs(3, [0, 1, 2], [2, 3, 4]))
    before = exe.state
    one = inputs(4, first, second)
    if all(-ROOM <= i < ROOM for i in (*first, *second)):
        exe.run(one)
        equal(exe.state, written(before, one))
        return
    with pytest.raises(InputError):
        exe.run(one)
    equal(exe.state, before)
    good = inputs(5, [4, 5, 6], [1, 1, 0])
    exe.run(good)
    equal(exe.state, written(before, good))


@pytest.mark.parametrize(
    "reader",
    [
        "%other: float32[2, 5] = ReduceMax(keepdims=False)(%keys, %axis)\noutput %other",
        "%other: float32[2, 7, 5] = Relu()(%keys)\noutput %other",
    ],
)
def test_state_whose_old_value_is_read_elsewhere_is_not_written_in_place(reader: str) -> None:
    text = BODY.replace("output %sums", f"{reader}\noutput %sums")
    made = compile(graph(text), Settings(threads=1, opt_level=1))
    assert [s.in_place for s in made.specialized.binary.state] == [False, True]
    before, one = made.state, inputs(6, [1, 2, 4], [0, 6, 3])
    outputs = made.run(one)
    axis = {"axis": 1} if "Max" in reader else {}
    old = before["keys"].max(**axis) if axis else np.maximum(before["keys"], 0)
    np.testing.assert_array_equal(outputs["other"], old)
    equal(made.state, written(before, one))


def test_state_may_be_set_between_runs(exe: Executable | SavedExecutable) -> None:
    exe.run(inputs(7, [0, 1, 2], [3, 4, 5]))
    mine = {"keys": np.full((HEADS, ROOM, FEATURES), 7, np.float32)}
    exe.state = mine
    state, one = exe.state, inputs(8, [3, 4, 5], [0, 1, 2])
    exe.run(one)
    equal(exe.state, written(state, one))
    assert (mine["keys"] == 7).all()
    exe.reset()
    equal(exe.state, dict(graph().initial))
