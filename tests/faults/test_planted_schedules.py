"""A schedule whose code computes other numbers: found before it is timed, never taken, named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels import registry
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.place.binary.assembly import COMPILED_KERNELS
from verax.compiler.tune.history import History
from verax.compiler.tuner import Searching, tune
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.records.tuning import TUNED


def test_a_candidate_with_other_bits_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(611)
    b = Builder("net")
    feeds = {"x": rng.standard_normal((2, 18, 9, 11)).astype(np.float32)}
    w = b.constant(rng.standard_normal((33, 18, 3, 2)).astype(np.float32))
    graph = b.graph([b.add(REGISTRY["Conv"](), [b.input("x", TensorType.of(feeds["x"])), w])])
    key = ConvSpec, registry.ANY_TARGET
    honest = registry.EMITTERS[key]
    assert honest.space is not None

    def emit(module: Any, spec: Any, schedule: Any) -> Any:
        """With an unrolling of 8 the last column of the kernel is read one to the left."""
        if schedule.unroll == 8:
            spec = dataclasses.replace(spec, dilations=(1, 1, 0))
        return honest.emit(module, spec, schedule)

    def stages(spec: Any, target: Any) -> Any:
        return (lambda best: (dataclasses.replace(best, unroll=n) for n in (2, 8, 16)),)

    space = dataclasses.replace(honest.space, stages=stages)
    monkeypatch.setitem(registry.EMITTERS, key, dataclasses.replace(honest, emit=emit, space=space))
    COMPILED_KERNELS.forget()
    history = History(tmp_path / "tuning.jsonl")
    try:
        record = tune(graph, Settings(threads=1), feeds, history, Searching(clock=lambda: 0.0))
    finally:
        COMPILED_KERNELS.forget()
    assert len(record.faults) == 1
    assert "it writes other bits with" in record.faults[0]
    assert "unrolled by 8" in record.faults[0]
    assert record.equal_bits, "it was never in the network"
    assert not any("unrolled by 8" in k.schedule for k in record.kernels if k.outcome == TUNED)
    lines = [json.loads(line) for line in history.path.read_text().splitlines()]
    faults = [line for line in lines if line["kind"] == "fault"]
    assert [line["schedule"][1]["unroll"] for line in faults] == [8]
    assert faults[0]["bits"] == "it writes other bits"
    assert faults[0]["microseconds"] == []
    assert {line["kind"] for line in lines} <= {"workload", "measured", "fault", "chosen"}
