"""A batch divided where it must not be, or handed on wrongly: a mistake, and its maker is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.place import program
from verax.compiler.place.binary import emit
from verax.compiler.plan import batch
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.bisect import bisect
from verax.judge.check import check
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner

EMIT_PARTS = emit.emit_chunk_loop
RUNNER = VeraxRunner(Settings(1, threads=1))


def shares_of_images(patch: pytest.MonkeyPatch) -> None:
    """Softmax over the images, of one at a time: all ones."""
    patch.setitem(batch.RULES, "Softmax", lambda given: True)


def always_the_first(patch: pytest.MonkeyPatch) -> None:
    """Every part reads the first images."""

    def emit_parts(module: Any, segments: Any, steps: Sequence[int], parts: int) -> str:
        return EMIT_PARTS(module, segments, [0, *steps[1:]], parts)

    patch.setattr(emit, "emit_chunk_loop", emit_parts)


def part_is_a_block(patch: pytest.MonkeyPatch) -> None:
    """What a caller gives moves on by half of a part."""

    def emit_parts(module: Any, segments: Any, steps: Sequence[int], parts: int) -> str:
        return EMIT_PARTS(module, segments, [steps[0] // 2, *steps[1:]], parts)

    patch.setattr(emit, "emit_chunk_loop", emit_parts)


def network(axis: int) -> Graph:
    rng = np.random.default_rng(83)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[6, 3, 8, 5]"))
    weights = b.constant(rng.standard_normal((7, 3, 3, 2)).astype(np.float32))
    y = b.add(REGISTRY["Conv"](), [x, weights], [], "conv")
    return b.graph([b.add(REGISTRY["Softmax"](axis=axis), [y], [], "shares")])


PLANTED = [(shares_of_images, 0), (always_the_first, 1), (part_is_a_block, 1)]


@pytest.mark.parametrize(("plant", "axis"), PLANTED, ids=[p.__name__ for p, _ in PLANTED])
def test_the_decision_is_named(plant: Any, axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "best_part", lambda graph: 2)
    plant(monkeypatch)
    record = bisect(network(axis), RUNNER, seed=3).record
    found = record.optimizations
    assert record.verdict.kind is Kind.mistake
    assert found is not None
    assert found.guilty == "divide_batch: 2 of 6 images at a time"
    assert found.cured is True
    assert found.steps[0].exact and found.steps[0].before != found.steps[0].after


@pytest.mark.parametrize("axis", [0, 1])
def test_without_a_mistake_it_is_right(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "best_part", lambda graph: 2)
    assert check(network(axis), RUNNER, seed=3).kind in (Kind.identical, Kind.rounding)
