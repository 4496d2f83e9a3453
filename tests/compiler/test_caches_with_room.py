"""Caches that grow, bound: one buffer with room in which new rows are written behind the old ones,
with the bits of the network that is handed its caches back."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import verax
from tests.compiler.decoder_graphs import CACHES as JOINED_CACHES
from tests.compiler.decoder_graphs import FEATURES as JOINED_FEATURES
from tests.compiler.decoder_graphs import HEADS as JOINED_HEADS
from tests.compiler.decoder_graphs import decoder
from tests.compiler.growing_decoder import CACHES, SHARED, WORDS, empty, growing_decoder
from tests.compiler.growing_decoder import given as inputs_of
from verax.base.errors import InputError, UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.growing_executable import GrowingExecutable
from verax.frontends.onnx.importer import load_onnx
from verax.ir.dim import symbol
from verax.ir.graph import Graph, specialize
from verax.runtime.cache_rows import SMALLEST_ROOM
from verax.runtime.execution_context import ExecutionContext

Arrays = dict[str, np.ndarray]


@functools.cache
def graph(kind: str) -> Graph:
    total = symbol("length") + symbol("tokens")
    return specialize(load_onnx(growing_decoder(kind)).graph, {"total": total})


@functools.cache
def executables(
    kind: str = "plain", level: int = 2, threads: int = 1, target: str = "host"
) -> tuple[Executable, GrowingExecutable]:
    """The network as it is, and bound."""
    chosen = Settings(threads=threads, opt_level=level, target=target, background=False)
    exe = compile(graph(kind), chosen)
    bound = exe.bind(CACHES)
    assert isinstance(bound, GrowingExecutable)
    return exe, bound


def same(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(
        a.shape == right[v].shape and a.tobytes() == right[v].tobytes() for v, a in left.items()
    )


class Stream:
    """A bound executable and the unbound one side by side."""

    def __init__(self, exe: Executable, bound: GrowingExecutable, batch: int) -> None:
        self.exe, self.bound, self.batch = exe, bound, batch
        bound.reset()
        self.caches, self.turn = empty(batch), 0

    @property
    def seen(self) -> int:
        return next(iter(self.caches.values())).shape[2]

    def next(self, count: int) -> Arrays:
        self.turn += 1
        return inputs_of(self.batch, self.seen, count, self.turn)

    def agrees_after(self, count: int) -> bool:
        """Whether both give the same bits for further tokens."""
        inputs = self.next(count)
        want, found = self.exe.run({**inputs, **self.caches}), self.bound.run(inputs)
        self.caches = {v: want.pop(o) for v, o in CACHES.items()}
        return same(found, want) and same(self.bound.state, self.caches)


@pytest.mark.parametrize("kind", ["plain", "read"])
@pytest.mark.parametrize(
    ("level", "threads", "target"),
    [(0, 1, "host"), (1, 2, "host"), (2, 1, "avx2"), (3, 1, "host")],
)
def test_it_has_the_bits_of_the_network_that_is_handed_its_caches(
    kind: str, level: int, threads: int, target: str
) -> None:
    stream = Stream(*executables(kind, level, threads, target), batch=2)
    assert not stream.bound.inputs.keys() & CACHES.keys()
    assert not stream.bound.outputs.keys() & set(CACHES.values())
    assert stream.bound.updates == CACHES
    for count in (1, 5, 1, 1, 20, 1, SMALLEST_ROOM, 1):  # the room is doubled on the way
        assert stream.agrees_after(count)
        assert (stream.bound._last_roomy is None) == (stream.turn == 1)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_steps_have_the_bits_of_the_unbound_network(data: st.DataObject) -> None:
    """Runs, resets, other batches, other states, and steps that leave the state alone."""
    exe, bound = executables()
    stream = Stream(exe, bound, data.draw(st.integers(1, 3)))
    for _ in range(data.draw(st.integers(3, 9))):
        action = data.draw(st.sampled_from(["run"] * 5 + ["reset", "set", "step", "exchange"]))
        if action == "reset":
            stream = Stream(exe, bound, data.draw(st.integers(1, 3)))
        elif action == "set":
            length = data.draw(st.integers(0, 140))
            random = np.random.default_rng(length)
            stream.caches = {
                v: random.standard_normal((*a.shape[:2], length, a.shape[3])).astype(np.float32)
                for v, a in empty(stream.batch).items()
            }
            bound.state = stream.caches
        elif action == "step":
            inputs = stream.next(data.draw(st.integers(1, 3)))
            want = exe.run({**inputs, **stream.caches})
            state = {v: want.pop(o) for v, o in CACHES.items()}
            found, longer = bound.step(inputs, stream.caches)
            assert same(found, want) and same(longer, state)
        elif action == "exchange" and stream.seen:
            held = bound.exchange_state(
                {v: np.ones((1, SHARED, 3, a.shape[3]), np.float32) for v, a in empty(1).items()}
            )
            bound.run(inputs_of(1, 3, 2, 5))
            assert same(dict(held), stream.caches)
            bound.exchange_state(held)
        assert stream.agrees_after(data.draw(st.sampled_from([1, 1, 1, 2, 17, 40])))


def test_rows_are_written_in_place_and_read_where_they_lie() -> None:
    stream = Stream(*executables(), batch=2)
    for count in (3, 1):
        stream.agrees_after(count)
    before = stream.bound._rows
    for _ in range(4):
        assert stream.agrees_after(1)
    after = stream.bound._rows
    assert all(after.buffers[v] is before.buffers[v] for v in CACHES)
    assert before.length == 4 and after.length == 8 and after.room == SMALLEST_ROOM
    text = str(stream.bound.plan)
    assert "attention" in text and "not packed" in text and "to plain" not in text
    for array in after.buffers.values():
        array[:, :, 8:] = np.nan  # the room behind is not read
    assert stream.agrees_after(1) and stream.agrees_after(19)
    assert all(np.isnan(a[:, :, 28:]).all() for a in after.buffers.values())


def test_the_room_doubles_and_few_programs_serve_all_lengths() -> None:
    stream = Stream(*executables(), batch=2)
    rooms = set()
    for count in (30, *[1] * 8, 28, 25, *[1] * 3, 41, 1):
        assert stream.agrees_after(count)
        rooms.add(stream.bound._rows.room)
    assert rooms == {SMALLEST_ROOM, 2 * SMALLEST_ROOM, 4 * SMALLEST_ROOM}
    assert len(stream.bound._roomy.programs) <= 4  # one token, few, many; and for a batch of one


def test_a_run_that_fails_or_is_interrupted_keeps_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(*executables(), batch=2)
    for count in (2, 1):
        stream.agrees_after(count)
    bad = stream.next(1)
    bad["ids"] = bad["ids"] + WORDS
    with pytest.raises(InputError, match="lies outside"):
        stream.bound.run(bad)
    assert same(stream.bound.state, stream.caches) and stream.agrees_after(1)
    run = ExecutionContext.run_prepared

    def interrupted(self: ExecutionContext, *arguments: Any) -> None:
        run(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ExecutionContext, "run_prepared", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.bound.run(stream.next(7))
    monkeypatch.undo()
    assert same(stream.bound.state, stream.caches)
    assert stream.agrees_after(1) and stream.agrees_after(7)


def test_heads_of_multi_head_attention() -> None:
    exe = compile(load_onnx(decoder("many")).graph, Settings(threads=1, opt_level=2))
    bound = exe.bind(JOINED_CACHES)
    assert isinstance(bound, GrowingExecutable)
    shape = (1, JOINED_HEADS, 0, JOINED_FEATURES)
    caches = {v: np.zeros(shape, np.float32) for v in JOINED_CACHES}
    for turn, count in enumerate((4, 1, 1, 6, 1)):
        ids = np.random.default_rng(turn).integers(0, 23, (1, count))
        want = exe.run({"input_ids": ids, **caches})
        caches = {v: want[o] for v, o in JOINED_CACHES.items()}
        assert bound.run({"input_ids": ids})["logits"].tobytes() == want["logits"].tobytes()
        assert same(bound.state, caches)
    assert "to plain" not in str(bound.plan) and bound._last_roomy is not None


def drawn(seed: int, length: int) -> dict[str, np.ndarray]:
    """Caches of so many rows."""
    random = np.random.default_rng(seed)
    return {
        v: random.standard_normal((2, SHARED, length, a.shape[3])).astype(np.float32)
        for v, a in empty(2).items()
    }


def test_it_goes_on_from_given_caches_and_begins_with_them_again() -> None:
    exe, _ = executables()
    first = drawn(2, 9)
    bound = exe.bind(CACHES, first)
    for _ in range(2):
        assert same(bound.state, first)
        for count in (1, 3):
            bound.run(inputs_of(2, bound.state["past.0.key"].shape[2], count, 4))
        bound.reset()
    inputs = inputs_of(2, 9, 1, 8)
    want = exe.run({**inputs, **first})["logits"]
    assert bound.run(inputs)["logits"].tobytes() == want.tobytes()
    assert bound.specialized.inputs == exe.graph.inputs  # of these sizes alone, without room


def test_what_does_not_fit_is_said() -> None:
    exe, bound = executables()
    stream = Stream(exe, bound, 2)
    stream.agrees_after(2)
    inputs = stream.next(1)
    with pytest.raises(InputError, match="state of the network, not an input"):
        bound.run({**inputs, "past.0.key": empty(2)["past.0.key"]})
    with pytest.raises(InputError, match="missing"):
        bound.run({"ids": inputs["ids"]})
    with pytest.raises(InputError, match="axis 0 has size 3"):
        bound.run(inputs_of(3, 2, 1, 0))
    with pytest.raises(InputError, match="no state 'keys'"):
        bound.state = {**stream.caches, "keys": np.zeros(1)}
    with pytest.raises(InputError, match="axis 2 has size 0"):
        bound.state = {"past.1.key": empty(2)["past.1.key"]}
    with pytest.raises(InputError, match="float64"):
        bound.state = {v: a.astype(np.float64) for v, a in stream.caches.items()}
    with pytest.raises(UsageError, match="no state"):
        exe.bind(CACHES, {"keys": np.zeros(1)})
    with pytest.raises(UsageError, match="one type with known sizes"):
        compile(graph("behind"), Settings(threads=1, opt_level=2)).bind(CACHES)
    assert same(bound.state, stream.caches) and stream.agrees_after(1)


def test_state_that_was_given_is_written_by_no_later_run() -> None:
    """Nor is the first one, nor what one state became when it is handed back twice."""
    exe, _ = executables()
    first = drawn(31, 4)
    bound = exe.bind(CACHES, first)
    bound.run(inputs_of(2, 4, 2, 1))
    state = bound.state
    held = bound.exchange_state({})
    bound.run(inputs_of(2, 4, 3, 2))
    assert same(dict(held), state)
    bound.exchange_state(held)
    bound.run(inputs_of(2, 6, 1, 3))
    longer = bound.state
    held_longer = bound.exchange_state(held)
    bound.run(inputs_of(2, 6, 2, 4))
    assert same(dict(held_longer), longer) and same(dict(held), state)
    stepped, _ = bound.step(inputs_of(2, 4, 1, 5))
    want = exe.run({**inputs_of(2, 4, 1, 5), **first})["logits"]
    assert stepped["logits"].tobytes() == want.tobytes()


def test_networks_with_different_caches_bound_have_programs_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where programs are found by the file that a network was read from."""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "growing.onnx"
    onnx.save(growing_decoder(), path)
    some = {v: o for v, o in CACHES.items() if v.startswith("past.0")}
    for _ in range(2):  # made, then read from the disk
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            exe = verax.compile(path, threads=1, opt_level=2, background=False)
        all_bound, some_bound = exe.bind(CACHES), exe.bind(some)
        caches = empty(2)
        for turn, count in enumerate((1, 2, 1)):
            inputs = inputs_of(2, caches["past.0.key"].shape[2], count, turn)
            unbound = {v: a for v, a in caches.items() if v not in some}
            want = exe.run({**inputs, **caches})
            found = some_bound.run({**inputs, **unbound})
            caches = {v: want[o] for v, o in CACHES.items()}
            assert found["logits"].tobytes() == want["logits"].tobytes()
            assert all_bound.run(inputs)["logits"].tobytes() == want["logits"].tobytes()
            assert found["present.1.key"].tobytes() == caches["past.1.key"].tobytes()
        assert all(b._last_roomy is not None for b in (all_bound, some_bound))  # type: ignore[attr-defined]
