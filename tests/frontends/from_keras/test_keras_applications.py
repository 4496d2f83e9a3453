"""The families of `keras.applications`, from both kinds of file, without Keras: judged layer by
layer against Keras on TensorFlow, and compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_keras.keras_applications import FAMILIES, application, pictures
from tests.frontends.from_keras.test_keras_layers import HONEST, keras, saved

import verax
from verax import load

assert keras  # the fixture
WATCHED = 40
"""Layers whose values are given to the judge, about."""


def layer_values(keras: Any, made: Any, x: np.ndarray) -> dict[str, np.ndarray]:
    """Values of layers from the first to the last, by name."""
    layers = made.layers[1:]
    chosen = {layer.name: layer for layer in (*layers[:: 1 + len(layers) // WATCHED], layers[-1])}
    values = keras.Model(made.inputs, [layer.output for layer in chosen.values()])(x)
    return {name: np.asarray(value) for name, value in zip(chosen, values)}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_means_what_keras_computes(keras: Any, tmp_path: Path, name: str) -> None:
    made, x = application(keras, name), pictures(name, 2)
    model = load(saved(made, tmp_path, ".keras"))
    inputs = dict.fromkeys(model.inputs, x)
    given = layer_values(keras, made, x)
    assert set(model.outputs) <= set(given)
    verdict = verax.check(model, given, inputs=inputs)
    assert verdict.kind in HONEST, verdict.reasons
    assert verax.check(model, "verax:O1", inputs=inputs).kind in HONEST
    old = load(saved(made, tmp_path, ".h5"))
    found = zip(verax.reference(model, inputs).values(), verax.reference(old, inputs).values())
    assert all(np.array_equal(a, b) for a, b in found)
