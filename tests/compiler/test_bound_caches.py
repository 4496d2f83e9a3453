"""Caches that are bound: `past` and `present` are one buffer, and the bits are those of the unbound
network, which is handed its caches back at each call."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.compiler.decoder_graphs import CACHES, VOCABULARY, Arrays, decoder
from verax.base.errors import InputError, UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.caches import bind_caches
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.frontends.onnx.importer import load_onnx
from verax.ir.graph import Graph, specialize
from verax.runtime.state_buffers import StateBuffers

ROOM = 40
KINDS = ("grouped", "scattered")


@functools.cache
def graph(kind: str) -> Graph:
    sizes = {"past_length": ROOM} | ({"total": ROOM} if kind == "grouped" else {})
    return specialize(load_onnx(decoder(kind)).graph, sizes)


@functools.cache
def executables(kind: str, level: int, threads: int, target: str) -> tuple[Executable, Executable]:
    """The network as it is, and bound."""
    exe = compile(graph(kind), Settings(threads=threads, opt_level=level, target=target))
    return exe, exe.bind(CACHES)


def tokens(kind: str, seen: int, count: int, seed: int) -> Arrays:
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, (1, count))
    if kind == "scattered":
        return {"input_ids": ids, "first": np.array([seen])}
    return {"input_ids": ids, "attention_mask": (np.arange(ROOM) < seen + count)[None] * 1}


def stream(kind: str, counts: tuple[int, ...]) -> Iterator[Arrays]:
    seen = 0
    for turn, count in enumerate(counts):
        yield tokens(kind, seen, count, turn)
        seen += count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("level", "threads", "target"),
    [(0, 1, "host"), (1, 2, "host"), (2, 1, "avx2"), (3, 1, "host")],
)
def test_it_has_the_bits_of_the_network_that_is_handed_its_caches(
    kind: str, level: int, threads: int, target: str
) -> None:
    exe, bound = executables(kind, level, threads, target)
    bound.reset()
    caches = {v: np.zeros(exe.inputs[v].shape, np.float32) for v in CACHES}
    assert not bound.inputs.keys() & CACHES.keys()
    for given in stream(kind, (5, 1, 1, 5, 1)):
        want, found = exe.run({**given, **caches}), bound.run(given)
        assert found["logits"].tobytes() == want["logits"].tobytes()
        caches = {v: want[o] for v, o in CACHES.items()}
        assert {v: a.tobytes() for v, a in bound.state.items()} == {
            v: a.tobytes() for v, a in caches.items()
        }
    assert all(s.in_place for s in bound.specialized.binary.state) or not level


@pytest.mark.parametrize("kind", KINDS)
def test_only_new_rows_are_written(kind: str) -> None:
    _, bound = executables(kind, 1, 1, "host")
    bound.reset()
    for given in stream(kind, (1, 1)):
        bound.run(given)
    buffers = bound.specialized.state_buffers
    assert isinstance(buffers, StateBuffers)
    before, after = buffers._sets
    assert all(before[v] is after[v] for v in CACHES)
    for v in CACHES:
        after[v][:, :, 30:] = 77  # in the room behind: neither read nor written
    want = executables(kind, 1, 1, "host")[0]
    given = tokens(kind, 2, 1, 9)
    caches = {v: np.where(a == 77, np.float32(0), a) for v, a in bound.state.items()}
    logits = want.run({**given, **caches})["logits"]
    assert bound.run(given)["logits"].tobytes() == logits.tobytes()
    assert all((after[v][:, :, 30:] == 77).all() for v in CACHES)


@pytest.mark.parametrize("kind", KINDS)
def test_more_tokens_than_there_is_room_are_refused_and_change_nothing(kind: str) -> None:
    _, bound = executables(kind, 1, 1, "host")
    bound.reset()
    for given in stream(kind, (5, 1)):
        bound.run(given)
    before = bound.state
    given = tokens(kind, 6, 1, 3)
    if kind == "grouped":
        given["attention_mask"] = np.full((1, ROOM), 2)  # so many tokens that none fits
    else:
        given["first"] = np.array([ROOM])
    with pytest.raises(InputError, match="lies outside"):
        bound.run(given)
    assert {v: a.tobytes() for v, a in before.items()} == {
        v: a.tobytes() for v, a in bound.state.items()
    }
    assert np.isfinite(bound.run(tokens(kind, 6, 1, 3))["logits"]).all()


@pytest.mark.parametrize(
    ("caches", "initial", "message"),
    [
        ({"past": "present.0.key"}, None, "no input 'past'"),
        ({"past_key_values.0.key": "present"}, None, "no output 'present'"),
        ({"past_key_values.0.key": "logits"}, None, "one type with known sizes"),
        (dict.fromkeys(CACHES, "present.0.key"), None, "one output"),
        (CACHES, {"input_ids": np.zeros(1)}, "no cache 'input_ids'"),
        (CACHES, {"past_key_values.1.key": np.zeros((1, 2, 3))}, "its first value is float64"),
    ],
)
def test_what_cannot_be_bound_is_said(caches: Any, initial: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bind_caches(graph("grouped"), caches, initial)


def test_a_cache_of_unknown_room_is_refused() -> None:
    with pytest.raises(UsageError, match="known sizes") as caught:
        bind_caches(load_onnx(decoder("grouped")).graph, CACHES)
    assert "past_sequence_length" in str(caught.value)


def test_it_goes_on_from_given_caches() -> None:
    exe, bound = executables("grouped", 1, 1, "host")
    bound.reset()
    for given in stream("grouped", (5, 1)):
        bound.run(given)
    state, given = bound.state, tokens("grouped", 6, 1, 8)
    again = exe.bind(CACHES, state)
    assert again.run(given)["logits"].tobytes() == bound.run(given)["logits"].tobytes()


def test_programs_for_prompts_and_tokens_share_one_buffer() -> None:
    exe = compile(graph("grouped"), Settings(threads=1, opt_level=1)).bind(CACHES)
    want = compile(graph("grouped"), Settings(threads=1, opt_level=1))
    caches = {v: np.zeros(want.inputs[v].shape, np.float32) for v in CACHES}
    buffers, name = [], "past_key_values.1.value"
    for given in stream("grouped", (5, 1, 5, 1)):
        exe.run(given)
        outputs = want.run({**given, **caches})
        caches = {v: outputs[o] for v, o in CACHES.items()}
        buffers.append(exe._state[name])
    assert all(b is buffers[0] for b in buffers)
    assert exe.state[name].tobytes() == caches[name].tobytes()
    assert type(exe.state[name]) is np.ndarray
    exe.reset()
    first = next(stream("grouped", (5,)))
    zeros = {v: np.zeros_like(a) for v, a in caches.items()}
    assert exe.run(first)["logits"].tobytes() == want.run({**first, **zeros})["logits"].tobytes()
    mine = {name: np.full_like(caches[name], 3)}
    exe.state = mine
    exe.run(tokens("grouped", 5, 1, 2))
    assert (mine[name] == 3).all() and (exe.state[name][:, :, 6:] == 3).all()


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_all_lengths_have_one_program(kind: str) -> None:
    """And a mask may be as long as there are tokens."""
    open_graph = specialize(load_onnx(decoder(kind)).graph, {"past_length": ROOM})
    exe, _ = executables(kind, 1, 1, "host")
    bound = compile(open_graph, Settings(threads=1, opt_level=1)).bind(CACHES)
    caches, seen = {v: np.zeros(exe.inputs[v].shape, np.float32) for v in CACHES}, 0
    for turn, count in enumerate((5, 1, 1, 7, 1, 3, 6, 1, 2)):
        given = tokens(kind, seen, count, turn)
        want = exe.run({**given, **caches})
        seen += count
        if kind == "grouped":
            given["attention_mask"] = given["attention_mask"][:, :seen]
        assert bound.run(given)["logits"].tobytes() == want["logits"].tobytes()
        caches = {v: want[o] for v, o in CACHES.items()}
        assert all(a.tobytes() == caches[v].tobytes() for v, a in bound.state.items())
    # For prompts, and for one token; another for a first prompt, which is as long as its mask.
    programs = bound._open.programs
    assert not bound._programs and len(programs) == (3 if kind == "grouped" else 2)
    assert all(s.in_place for program in programs for s in program.binary.state)
    before = bound.state
    given = tokens(kind, ROOM - 2, 6, 4)
    if kind == "grouped":
        given["attention_mask"] = np.ones((1, ROOM + 4), np.int64)
    with pytest.raises(InputError, match="lies outside"):
        bound.run(given)
    assert all(a.tobytes() == before[v].tobytes() for v, a in bound.state.items())
