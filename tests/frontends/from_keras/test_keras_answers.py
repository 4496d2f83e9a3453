"""Every layer and small networks against stored answers of Keras on TensorFlow: no Keras needed."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.frontends.keras import load_keras
from verax.frontends.model import Model
from verax.records.verdict import Kind

HONEST = (Kind.identical, Kind.rounding)
Stored = dict[str, dict[str, np.ndarray]]


@cache
def stored() -> Stored:
    """Arrays by label and what they are (see `make_answers`)."""
    found: Stored = {}
    with np.load(Path(__file__).with_name("answers.npz")) as file:
        for name in file.files:
            label, _, what = name.partition("|")
            found.setdefault(label, {})[what] = file[name]
    return found


LABELS = sorted(stored())
NETWORKS = [x for x in LABELS if x.startswith(("graph", "network"))]
LONG = ("graph Bi", "graph GRU", "graph LSTM", "graph TimeD", "graph movement", "graph pictures",
        "graph nested", "graph arith", "graph Multi", "graph Att", "network seq")  # fmt: skip
"""Networks of many nodes: what takes them apart is slow."""
FILES = [(label, w) for label in LABELS for w in stored()[label] if w.startswith("file")]


def slow_if_long(labels: list[str]) -> list[Any]:
    """The labels as parameters, those of long networks marked."""
    return [pytest.param(x, marks=pytest.mark.slow if x.startswith(LONG) else ()) for x in labels]


def case(label: str, form: str) -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The model of a file, its inputs, and Keras's answers."""
    arrays = stored()[label]
    model = load_keras(arrays[form].tobytes())
    inputs = [v for w, v in arrays.items() if w.startswith("in:")]
    answers = [arrays[f"out:{i}"] for i in range(len(model.outputs))]
    assert f"out:{len(answers)}" not in arrays
    return (
        model,
        dict(zip(model.inputs, inputs, strict=True)),
        dict(zip(model.outputs, answers, strict=True)),
    )


def holds(label: str, model: Model, inputs: dict[str, Any], given: dict[str, Any]) -> None:
    """Assert that the answers are the model's, by the judge; where it has to leave that undecided,
    by the reference: every bit (the nearest pixel is a choice, some values are infinite), or up to
    a rounding per node (of a variance, in which an error of the mean cannot be seen)."""
    verdict = verax.check(model, given, inputs=inputs)
    if verdict.kind is not Kind.undecided:
        assert verdict.kind in HONEST, verdict.reasons
        return
    rounding = len(model.graph.nodes) * np.finfo(np.float32).eps
    for name, want in verax.reference(model, inputs).items():
        if label == "graph scattered":
            np.testing.assert_allclose(given[name], want, rtol=rounding)
        else:
            np.testing.assert_array_equal(given[name], want.astype(given[name].dtype))


@pytest.mark.parametrize(("label", "form"), FILES)
def test_a_file_means_what_keras_computes(label: str, form: str) -> None:
    model, inputs, given = case(label, form)
    holds(label, model, inputs, given)


@pytest.mark.parametrize("label", slow_if_long(NETWORKS))
def test_a_network_compiled_means_the_same(label: str) -> None:
    model, inputs, _ = case(label, "file.keras")
    verdict = verax.check(model, "verax:O1", inputs=inputs, watch=False)
    if verdict.kind is Kind.undecided:
        holds(label, model, inputs, verax.compile(model).run(inputs))
    else:
        assert verdict.kind in HONEST, verdict.reasons


@pytest.mark.parametrize("label", [x for x in NETWORKS if "file.h5" in stored()[x]])
def test_both_forms_of_a_file_are_one_network(label: str) -> None:
    new, inputs, _ = case(label, "file.keras")
    old, _, _ = case(label, "file.h5")
    found = zip(verax.reference(new, inputs).values(), verax.reference(old, inputs).values())
    assert all(np.array_equal(a, b) for a, b in found)
