"""Every row means what Keras on TensorFlow computes, from both kinds of file, by our own judge."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_keras.keras_graphs import GRAPHS
from tests.frontends.from_keras.keras_models import (
    BY_DEVIATION,
    LAYERS,
    MERGES,
    of,
    sequential,
    shared_and_nested,
    with_weights,
)
from tests.frontends.from_keras.keras_operations import NOT_IN_H5
from tests.frontends.from_keras.test_keras_answers import holds

import verax
from verax import load
from verax.frontends.keras.table import TABLE
from verax.frontends.keras.unsupported import REFUSED
from verax.frontends.keras.wrappers import WRAPPERS
from verax.frontends.model import Model
from verax.ops.common import draw
from verax.records.verdict import Kind

HONEST = (Kind.identical, Kind.rounding)


@pytest.fixture(scope="module")
def keras() -> Any:
    """Keras on TensorFlow, whose padding rules the format's are."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    pytest.importorskip("tensorflow")
    return pytest.importorskip("keras")


def saved(model: Any, folder: Path, suffix: str) -> Path:
    path = folder / f"net{suffix}"
    model.save(path)
    return path


def inputs_of(model: Model) -> dict[str, np.ndarray]:
    """Drawn inputs; open sizes are a batch of two."""
    rng = np.random.default_rng(3)
    return {
        name: draw(rng, tuple(d if isinstance(d, int) else 2 for d in t.dims), t.dtype)
        for name, t in model.inputs.items()
    }


def answers(keras_model: Any, model: Model, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """What Keras gives, by our names of the outputs."""
    given = keras_model(list(inputs.values()) if len(inputs) > 1 else next(iter(inputs.values())),
                        training=False)  # fmt: skip
    given = given if isinstance(given, list) else [given]
    return {name: np.asarray(g) for name, g in zip(model.outputs, given, strict=True)}


@pytest.mark.parametrize("label", [*LAYERS, *MERGES, *GRAPHS])
def test_a_layer_means_what_keras_computes(keras: Any, tmp_path: Path, label: str) -> None:
    made = of(keras, label)
    for suffix in (".keras",) if label in NOT_IN_H5 else (".keras", ".h5"):
        model = load(saved(made, tmp_path, suffix))
        inputs = inputs_of(model)
        holds(f"graph {label}", model, inputs, answers(made, model, inputs))


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("maker", [sequential, shared_and_nested])
def test_a_model_means_what_keras_computes(
    keras: Any, tmp_path: Path, maker: Any, suffix: str
) -> None:
    made = maker(keras)
    model = load(saved(made, tmp_path, suffix))
    inputs = inputs_of(model)
    assert verax.check(model, answers(made, model, inputs), inputs=inputs).kind in HONEST
    assert verax.check(model, "verax:O1", inputs=inputs).kind in HONEST


def test_layer_normalization_by_the_deviation(keras: Any, tmp_path: Path) -> None:
    """An error of the mean hardly changes a variance: the judge would call this check blind."""
    shape, maker = BY_DEVIATION
    x = keras.Input(shape)
    made = with_weights(keras.Model(x, maker(keras.layers)(x)))
    model = load(saved(made, tmp_path, ".keras"))
    inputs = inputs_of(model)
    given, want = answers(made, model, inputs), verax.reference(model, inputs)
    roundings = len(model.graph.nodes)
    for name, value in want.items():
        np.testing.assert_allclose(given[name], value, rtol=roundings * np.finfo(np.float32).eps)


def test_every_layer_of_keras_is_imported_or_refused_for_a_reason(keras: Any) -> None:
    classes = [getattr(keras.layers, name) for name in dir(keras.layers)]
    public = {c.__name__ for c in classes if inspect.isclass(c)}
    imported = {name for domain, name in TABLE if not domain} | set(WRAPPERS) | {"InputLayer"}
    assert not imported & set(REFUSED)
    assert public - imported - set(REFUSED) == set()
