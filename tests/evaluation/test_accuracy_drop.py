"""The step at which the accuracy on labelled samples falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.evaluation.accuracy_drop import find_accuracy_drop
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.activation import Relu
from verax.records.bisection import Bisection

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "examples" / "digits" / "scales.onnx"
HELD_OUT = ROOT / "examples" / "digits" / "scales.npz"
BROKEN = [str(ROOT / "examples" / "broken_fold_scale_axis.py")]
COUNT, CLASSES = 170, 7


def scores() -> Graph:
    """What comes in are the scores."""
    b = Builder("scores")
    return b.graph([b.add(Relu(), [b.input("x", TensorType.parse(f"float32[n, {CLASSES}]"))])])


class Stepped:
    """Wrong on so many samples after each step; the class is what the input says, otherwise."""

    name, capabilities, stored_inputs = "stepped", Capabilities(), None

    def __init__(self, wrong: Sequence[int], at: int = -1) -> None:
        self.wrong, self.at = wrong, at if at >= 0 else len(wrong) - 1

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        found = inputs["x"].copy()
        worse = found[:, 0] > 10 - self.wrong[self.at]  # column 0 numbers the samples down from 10
        found[:, 0] = np.where(worse, 99, 0)
        return {graph.outputs[0]: found}

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, Stepped]]:
        return [(f"step {i}", Stepped(self.wrong, i)) for i in range(len(self.wrong))]


def samples() -> tuple[np.ndarray, np.ndarray]:
    labels = np.random.default_rng(3).integers(1, CLASSES, COUNT)
    data = np.eye(CLASSES, dtype=np.float32)[labels]
    data[:, 0] = 10 - np.arange(COUNT)
    return data, labels


def test_the_step_is_found_at_which_accuracy_falls() -> None:
    data, labels = samples()
    fall = find_accuracy_drop(scores(), Stepped([0, 1, 1, 60, 60, 61, 61]), data, labels)
    assert fall.search.guilty == "step 3"
    assert fall.search.words.startswith("accuracy falls with 'step 3'")
    said = {t.name: t.words for t in fall.search.tried}
    assert said["step 0"] == "right on 170 of 170 (100.0%)"
    assert said["step 6"] == "right on 109 of 170 (64.1%)"
    assert fall.names == ("sample 0", "sample 1")
    assert (fall.inputs["x"] == data[:2]).all()


def test_a_few_choices_either_way_are_no_fall() -> None:
    data, labels = samples()
    found = find_accuracy_drop(scores(), Stepped([0, 1, 4, 5]), data, labels).search
    assert found.guilty == ""
    assert found.words.startswith("accuracy does not fall: right on 170 of 170")


def test_a_fall_in_two_parts_is_laid_to_the_one_that_crosses_the_middle() -> None:
    data, labels = samples()
    found = find_accuracy_drop(scores(), Stepped([0, 0, 30, 30, 90]), data, labels).search
    assert found.guilty == "step 4"


def test_a_subject_without_steps_is_refused() -> None:
    data, labels = samples()
    plain = Stepped([0])
    with pytest.raises(UsageError, match="no optimization to search"):
        find_accuracy_drop(scores(), plain, data, labels)
    with pytest.raises(UsageError, match="cannot be run one by one"):
        verax.bisect(MODEL, "reference", images=HELD_OUT)


def test_both_oracles_name_the_broken_pass() -> None:
    record = verax.bisect(MODEL, "verax:O2", images=HELD_OUT, inject=BROKEN)
    assert record.accuracy is not None and record.optimizations is not None
    assert record.accuracy.guilty == "fold_scale_axis: node 'norm2' (BatchNormalization)"
    assert record.accuracy.guilty == record.optimizations.guilty
    assert record.accuracy.cured is True
    assert record.accuracy.steps[0].region == ("conv2", "relu2", "norm2")
    (judged,) = record.verdict.inputs
    assert judged.origin.startswith("samples: sample ")
    assert Bisection.from_json(record.to_json()) == record


def test_healthy_passes_cost_nothing() -> None:
    record = verax.bisect(MODEL, "verax:O2", images=HELD_OUT)
    assert record.exit_code == 0
    assert record.accuracy is not None
    assert record.accuracy.guilty == ""


def test_samples_and_inputs_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        inputs = {"image": np.ones((1, 1, 8, 8), np.float32)}
        verax.bisect(MODEL, "verax:O2", inputs, images=HELD_OUT)
    with pytest.raises(UsageError, match="nothing says which class"):
        verax.bisect(MODEL, "verax:O2", images=np.ones((3, 1, 8, 8), np.float32))
