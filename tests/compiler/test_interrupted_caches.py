"""Ctrl-C while buffers change hands leaves bound caches that the next run goes on from."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tests.compiler.decoder_graphs import CACHES, VOCABULARY, Arrays, decoder
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.frontends.onnx.importer import load_onnx
from verax.ir.graph import specialize

ROOM, PROMPT = 40, 7
FUNCTIONS = ("_copied", "_adopt", "use")
"""Where buffers are handed from program to program, and memory changes its place."""


def interrupted(exe: Executable, inputs: Arrays, line: int) -> bool:
    """Whether a run was interrupted: at the given one of the lines that it runs here."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if frame.f_code.co_name not in FUNCTIONS:
            return None
        if event == "line":
            count += 1
            if count == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        exe.run(inputs)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def tokens(kind: str, count: int) -> Arrays:
    """So many behind the prompt."""
    ids = np.random.default_rng(4).integers(0, VOCABULARY, (1, 12))[:, :count]
    if kind == "scattered":
        return {"input_ids": ids, "first": np.array([PROMPT])}
    return {"input_ids": ids, "attention_mask": np.ones((1, PROMPT + count), np.int64)}


def after_prompt(kind: str) -> tuple[Executable, dict[str, np.ndarray]]:
    """A bound executable that has read the prompt, and its caches then."""
    graph = specialize(load_onnx(decoder(kind)).graph, {"past_length": ROOM})
    exe = compile(graph, Settings(threads=1, opt_level=1)).bind(CACHES)
    first: Arrays = {"input_ids": np.arange(PROMPT)[None] % VOCABULARY}
    if kind == "scattered":
        first["first"] = np.array([0])
    else:
        first["attention_mask"] = np.ones((1, PROMPT), np.int64)
    exe.run(first)
    return exe, exe.state


@pytest.mark.parametrize("kind", ["grouped", "scattered"])
@pytest.mark.parametrize("is_reset", [False, True])
def test_the_next_run_goes_on_from_the_caches(kind: str, is_reset: bool) -> None:
    exe, state = after_prompt(kind)
    counts = (1, 3, 1, 5)
    want = {n: exe.step(tokens(kind, n), state)[0]["logits"].tobytes() for n in counts}
    line, was_interrupted = 0, True
    while was_interrupted:
        line += 1
        # The program for one token has buffers of its own: they are handed over again.
        exe.run(tokens(kind, 3))
        for bound in list(exe._programs.values()):
            bound.specialized.__dict__.pop("state_buffers", None)
        for program in exe._open.programs:
            program._state_buffers.clear()
        was_interrupted = interrupted(exe, tokens(kind, 1), line)
        if is_reset:
            exe.state = state
        for n in counts:
            assert exe.run(tokens(kind, n))["logits"].tobytes() == want[n], line
        for v, old in state.items():
            assert exe.state[v][:, :, :PROMPT].tobytes() == old[:, :, :PROMPT].tobytes(), line
    assert line > 20
