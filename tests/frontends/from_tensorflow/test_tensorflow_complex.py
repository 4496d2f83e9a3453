"""Networks on sound of TensorFlow (stft, its size, phases and way back, Mel scales, MFCC) against
TensorFlow's stored answers, and complex numbers where they cannot be followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tensorflow.tf_graphs import empty, node, placeholder

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.tensorflow import load_tensorflow

with np.load(Path(__file__).with_name("sound.npz")) as stored:
    STORED = {key: stored[key] for key in stored.files}
NAMES = sorted({key.partition("|")[0] for key in STORED})


@pytest.mark.parametrize("name", NAMES)
def test_a_front_end_for_sound_is_tensorflow_s(name: str) -> None:
    model = load_tensorflow(STORED[f"{name}|graph"].tobytes())
    inputs = {"x0": STORED[f"{name}|x0"]}
    found = verax.compile(model, threads=1).run(inputs)
    wanted = {k.partition("|")[2]: v for k, v in STORED.items() if k.startswith(f"{name}|y")}
    assert wanted
    for value, array in wanted.items():
        bound = 2e-5 if name == "sound_phases" else 2e-6  # it divides by small sizes
        most = np.abs(array).max()
        np.testing.assert_allclose(found[value], array, rtol=0, atol=bound * most, err_msg=value)


@pytest.mark.parametrize("name", ["complex_axes", "complex_powers_of_zero"])
def test_zeros_keep_their_signs_and_powers_of_zero_their_infinities(name: str) -> None:
    with np.load(Path(__file__).with_name("operators.npz")) as stored:
        model = load_tensorflow(stored[f"{name}|graph"].tobytes())
        inputs = {k: stored[f"{name}|{k}"] for k in model.inputs}
        expected = {k: stored[f"{name}|{k}"] for k in model.outputs}
    results = verax.compile(model, threads=1).run(inputs)
    for value, array in expected.items():
        np.testing.assert_allclose(results[value], array, rtol=4e-7, err_msg=value)
        is_number = ~np.isnan(array)
        signs = np.signbit(results[value]) == np.signbit(array)
        assert name != "complex_axes" or signs[is_number].all()


def complex_graph() -> Any:
    graph = empty()
    a, b = (placeholder(graph, name, (2, 3)) for name in "ab")
    node(graph, "z", "Complex", a, b)
    return graph


def test_what_is_not_done_to_complex_numbers_is_refused_by_name() -> None:
    graph = complex_graph()
    node(graph, "y", "Sinh", "z")
    with pytest.raises(UnsupportedError, match="Sinh of complex numbers") as caught:
        load_tensorflow(graph.SerializeToString())
    assert "tf.math.real" in caught.value.next_step and "'y'" in str(caught.value.place)
    graph = complex_graph()
    node(graph, "y", "FFTND", "z", "z", "z")
    with pytest.raises(UnsupportedError, match="FFTND") as caught:
        load_tensorflow(graph.SerializeToString())
    assert "rfft2d" in caught.value.next_step


def test_a_complex_input_is_refused_with_what_to_do() -> None:
    graph = empty()
    placeholder(graph, "z", (2, 3), 8)
    node(graph, "y", "ComplexAbs", "z", T=8)
    with pytest.raises(UnsupportedError, match="complex64") as caught:
        load_tensorflow(graph.SerializeToString())
    assert "two inputs" in caught.value.next_step


def test_types_that_contradict_complex_operands_are_refused() -> None:
    for stated in (1, 18):
        graph = complex_graph()
        node(graph, "y", "Neg", "z", T=stated)
        with pytest.raises(UnsupportedError, match="the operands are complex64"):
            load_tensorflow(graph.SerializeToString())
    graph = complex_graph()
    node(graph, "y", "Neg", "z", T=8)
    assert load_tensorflow(graph.SerializeToString()).outputs["y"].dims == (2, 3, 2)
