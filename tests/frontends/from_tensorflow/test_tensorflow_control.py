"""Branches and loops of TensorFlow: functions (If, While), frames of nodes (Switch, Merge, Enter)
as freezing makes them and as TensorFlow 1 built them, lists of tensors, Case; against its own
answers (make_control.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tensorflow.messages import CLASSES

STORED = Path(__file__).with_name("control.npz")
NETWORKS = ("choice", "within", "until", "counted", "nested", "mapped")
KEPT = {"choice": {"If"}, "within": {"If"}, "until": {"Loop"}, "cases": {"If"}}
"""What only running decides; the others are unrolled."""
FORMS = [f"{name}.{form}" for name in NETWORKS for form in ("functions", "frames", "old")]


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(STORED) as file:
        return dict(file)


@pytest.mark.parametrize("name", [*FORMS, "arrays.old", "cases.functions"])
def test_it_gives_what_tensorflow_gives(name: str) -> None:
    network = name.partition(".")[0]
    found = load_tensorflow(stored()[name].tobytes())
    kinds = {n.op.kind for n in found.graph.nodes} & {"If", "Loop"}
    assert kinds == KEPT.get(network, set())
    exe = verax.compile(found, opt_level=1, threads=1)
    assert not exe.plan.on_reference
    assert list(found.inputs) == ["x"]
    for number, given in enumerate(stored()["inputs"]):
        right = stored()[f"{network}.answer{number}"]
        for made in (exe.run({"x": given}), verax.reference(found, {"x": given})):
            fitting = [a for a in made.values() if a.shape == right.shape]
            assert len(fitting) == 1, {k: v.shape for k, v in made.items()}
            np.testing.assert_allclose(fitting[0], right, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["functions", "frames", "old"])
def test_a_branch_of_two_results_has_both(form: str) -> None:
    found = load_tensorflow(stored()[f"both.{form}"].tobytes())
    exe = verax.compile(found, opt_level=1, threads=1)
    for number, given in enumerate(stored()["inputs"]):
        made = list(exe.run({"x": given}).values())
        right = [stored()[f"both.{part}{number}"] for part in ("first", "answer")]
        assert len(made) == 2
        for array, meant in zip(made, right, strict=True):
            np.testing.assert_allclose(array, meant, rtol=2e-5, atol=1e-5)


def test_a_mark_of_a_branch_that_marks_nothing_is_damage() -> None:
    graph = CLASSES["Graph"].FromString(stored()["choice.frames"].tobytes())
    for node in graph.node:
        if node.op == "Identity":
            del node.input[:]
    with pytest.raises(VeraxError, match="not supported"):
        load_tensorflow(graph.SerializeToString())
