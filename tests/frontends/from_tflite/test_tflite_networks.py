"""Networks that TensorFlow's converter wrote in every kind of quantisation, against what LiteRT's
reference kernels gave (networks.npz, by make_networks.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import verax
from verax.frontends.model import Model
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind

STORED = np.load(Path(__file__).with_name("networks.npz"))
NETWORKS = sorted(name.removesuffix(".tflite") for name in STORED if name.endswith(".tflite"))
WHOLE = [name for name in NETWORKS if STORED[f"{name}.out"].dtype.kind == "i"]
REAL = [name for name in NETWORKS if name not in WHOLE]
QUICK = ("detector/dynamic",)


def stored(name: str) -> tuple[Model, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The network, its input, and what LiteRT gave for it."""
    model = load_tflite(STORED[f"{name}.tflite"].tobytes())
    (x,), (y,) = model.inputs, model.outputs
    return model, {x: STORED[f"{name}.in"]}, {y: STORED[f"{name}.out"]}


@pytest.mark.parametrize("name", WHOLE)
def test_an_integer_network_gives_every_integer(name: str) -> None:
    model, inputs, outputs = stored(name)
    for key, found in verax.reference(model, inputs).items():
        np.testing.assert_array_equal(found, outputs[key])


@pytest.mark.parametrize("name", ["mobile_swish/int16", "painter/int8", "reader/int8"])
def test_an_integer_network_gives_every_integer_compiled(name: str) -> None:
    model, inputs, outputs = stored(name)
    for key, found in verax.compile(model).run(inputs).items():
        np.testing.assert_array_equal(found, outputs[key])


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in REAL]
)
def test_a_network_on_floats_is_judged_honest(name: str) -> None:
    model, inputs, outputs = stored(name)
    verdict = verax.check(model, outputs, inputs=inputs)
    assert verdict.kind is Kind.rounding, verdict.reasons
    assert verax.check(model, "verax:O1", inputs=inputs).kind in (Kind.identical, Kind.rounding)


def test_the_batch_is_open_and_can_be_given() -> None:
    model, inputs, _ = stored("painter/int8")
    ((name, array),) = inputs.items()
    assert not model.inputs[name].is_static
    data = STORED["painter/int8.tflite"].tobytes()
    (output,) = load_tflite(data, shapes={name: (5, *array.shape[1:])}).outputs.values()
    assert output.shape == (5, 12, 16, 4)
