"""Recordings of emitted code are equal for equal programs, and say what differs for others."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.describe.pass_example import two_convolutions

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("emitted_code")


def test_it_is_deterministic_and_sees_every_change(tool: Any) -> None:
    graph = two_convolutions()
    asked = Settings(1, threads=1, target="avx2")
    with tool.without_llvm():
        one = tool.digests_of(graph, asked)
        for quiet in (asked, Settings(1, threads=1, target="avx2", checked=True)):
            assert tool.differences({"run": one}, {"run": tool.digests_of(graph, quiet)}) == []
        apart = {
            "disable": Settings(1, threads=1, target="avx2", disable=("fuse_elementwise",)),
            "target": Settings(1, threads=1, target="avx512"),
            "threads": Settings(1, threads=2, target="avx2"),
        }
        others = {name: tool.digests_of(graph, other) for name, other in apart.items()}
        weights = {**graph.constants, "w2": graph.constants["w2"] * np.float32(2)}
        other = tool.digests_of(dataclasses.replace(graph, constants=weights), asked)
    for name, digests in others.items():
        (line,) = tool.differences({"run": one}, {"run": digests})
        assert line.startswith("run: code"), name
    assert "weights" in tool.differences({"run": one}, {"run": other})[0]
    assert tool.differences({"run": one}, {}) == ["run: only in one of the two"]


def test_programs_are_made_as_ever_afterwards(tool: Any) -> None:
    with tool.without_llvm():
        tool.digests_of(two_convolutions(), Settings(1, threads=1))
    exe = compile(two_convolutions(), Settings(1, threads=1))
    x = np.random.default_rng(6).standard_normal((2, 3, 9, 7)).astype(np.float32)
    assert exe.run({"x": x})["c2"].shape == (2, 5, 6, 6)
