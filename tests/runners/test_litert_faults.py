"""Real faults of LiteRT's kernels, confirmed against float64 by hand, and which kernels have them.

Its XNNPACK delegate had none on any operator of the importer's tests, three kinds of inputs each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.float_cases import float_cases

import verax
from verax.base.optional import installed_version
from verax.frontends.model import Model
from verax.judge.bisect import bisect
from verax.judge.regions.coverage import ACCEPTED
from verax.records.verdict import Kind
from verax.runners.litert import LiteRtRunner

KNOWN = (2, 3)
"""The version that the fault was met in."""


def written(label: str, folder: Path) -> tuple[Model, Path]:
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    path = folder / "net.tflite"
    path.write_bytes(dict(float_cases())[label])
    model = verax.load(path)
    assert isinstance(model, Model)
    return model, path


def test_reference_kernels_that_are_wrong_are_told_from_those_that_mend_it(tmp_path: Path) -> None:
    """The reference kernel of local response normalisation leaves out the window's last channel."""
    model, path = written("LOCAL_RESPONSE_NORMALIZATION", tmp_path)
    (name,) = model.graph.inputs
    shape = tuple(int(n) for n in model.graph.types[name].dims)
    given = {name: np.random.default_rng(43).standard_normal(shape).astype(np.float32)}
    reference = LiteRtRunner(path, kernels="reference", threads=1, isolated=False)
    kind = verax.check(model, reference, given, explain=False).kind
    version = installed_version("ai-edge-litert") or "0"
    if kind in ACCEPTED and tuple(int(n) for n in version.split(".")[:2]) > KNOWN:
        pytest.skip(f"LiteRT {version} is right here")
    assert kind is Kind.mistake
    whole = LiteRtRunner(path, threads=1, isolated=False)
    record = bisect(model.graph, whole, given).record
    assert record.verdict.kind in ACCEPTED
    found = record.optimizations
    assert found is not None
    assert found.guilty == ""
    assert found.words == (
        "no optimization is guilty: it is wrong at 'reference kernels', and right from "
        "'built-in kernels' on"
    )


@pytest.mark.parametrize(("low", "high"), [(-60.0, -20.0), (20.0, 88.0)])
def test_exp_by_powers_of_two_is_rounding(tmp_path: Path, low: float, high: float) -> None:
    """XNNPACK's is 50 units in the last place off, as one rounding of X log2(e) makes it."""
    model, path = written("EXP", tmp_path)
    (name,) = model.graph.inputs
    shape = tuple(int(n) for n in model.graph.types[name].dims)
    x = np.linspace(low, high, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    whole = LiteRtRunner(path, threads=1, isolated=False)
    assert verax.check(model, whole, {name: x}, explain=False).kind in ACCEPTED
    off = {"y": (np.exp(x.astype(np.float64)) * (1 + 2e-4)).astype(np.float32)}
    assert verax.check(model, off, inputs={name: x}, explain=False).kind is Kind.mistake
