"""Caches that grow, past in and present out, as exporters write them: no program per token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.compiler.decoder_graphs import CACHES, VOCABULARY, Arrays, decoder
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.frontends.onnx.importer import load_onnx


def stream(kind: str, exe: Executable, counts: tuple[int, ...]) -> list[Arrays]:
    """Outputs for so many tokens each, the caches of one run handed to the next."""
    random = np.random.default_rng(17)
    shapes = {v: exe.inputs[v].dims for v in CACHES}
    caches = {v: np.zeros((1, s[1], 0, s[3]), np.float32) for v, s in shapes.items()}
    outputs, seen = [], 0
    for count in counts:
        seen += count
        given: Arrays = {"input_ids": random.integers(0, VOCABULARY, (1, count))}
        if kind == "grouped":
            given["attention_mask"] = np.ones((1, seen), np.int64)
        outputs.append(exe.run({**given, **caches}))
        caches = {v: outputs[-1][o] for v, o in CACHES.items()}
        assert {a.shape[2] for a in caches.values()} == {seen}
    return outputs


@pytest.mark.parametrize("kind", ["grouped", "many"])
@pytest.mark.parametrize("level", [1, 3])
def test_a_token_more_has_the_program_of_the_one_before(kind: str, level: int) -> None:
    graph, settings = load_onnx(decoder(kind)).graph, Settings(threads=1, opt_level=level)
    counts = (5, *[1] * 20)
    exe = compile(graph, settings)
    found = stream(kind, exe, counts)
    assert (len(exe._open.programs), len(exe._programs)) == (1, 1)
    each = compile(graph, dataclasses.replace(settings, open_sizes=False, programs=2))
    with pytest.warns(UserWarning, match="more than 2 sets"):
        want = stream(kind, each, counts[:7])
    for one, other in zip(want, found, strict=False):
        assert one.keys() == other.keys()
        assert all(a.tobytes() == other[v].tobytes() for v, a in one.items())
