"""TensorFlow's stored answers: the suite of convolutions and two real networks, judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.frontends.tensorflow import load_tensorflow
from verax.records.verdict import Kind

SHARED = Path(__file__).parents[4] / "shared"
SUITE = SHARED / "suites" / "tf_conv"
CASES = json.loads((SUITE / "manifest.json").read_text()) if SUITE.exists() else []
FINE = (Kind.identical, Kind.rounding, Kind.precision)


def judged(model: Any, inputs: dict[str, np.ndarray], outputs: dict[str, np.ndarray]) -> None:
    """The stored answers and our compiled ones against the meaning."""
    for subject in (outputs, "verax:O1"):
        verdict = verax.check(model, subject, inputs, twice=False)
        assert verdict.kind in FINE, verdict.reasons


@pytest.mark.skipif(not CASES, reason="../shared/suites is missing")
def test_the_suite_is_whole() -> None:
    assert len(CASES) == 30


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["name"])
def test_a_convolution_of_tensorflows(case: dict[str, Any]) -> None:
    with np.load(SUITE / f"{case['name']}.tensorflow-2.21.0.npz") as stored:
        x, y = stored["x"], stored["y"]
    model = load_tensorflow(SUITE / f"{case['name']}.pb")
    (given,), (answer,) = model.inputs, model.outputs
    judged(model, {given: x}, {answer: y})


@pytest.mark.parametrize(
    "name",
    ["mtcnn_rnet/rnet_cut.pb", pytest.param("pose_cpm/model.pb", marks=pytest.mark.slow)],
)
def test_a_real_network(name: str) -> None:
    path = SHARED / "models" / name
    if not path.exists():
        pytest.skip("../shared/models is missing")
    with np.load(f"{path}.tensorflow-2.21.0.npz") as stored:
        inputs = {k[3:].removesuffix(":0"): stored[k] for k in stored.files if k[:3] == "in:"}
        outputs = {k[4:].removesuffix(":0"): stored[k] for k in stored.files if k[:4] == "out:"}
    model = verax.load(path, shapes={k: v.shape for k, v in inputs.items()})
    judged(model, inputs, outputs)
