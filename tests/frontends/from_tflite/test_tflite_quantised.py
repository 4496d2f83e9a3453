"""Quantised operators and networks give the very integers of LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.frontends.from_tflite.quantised_cases import IMAGE, data, quantised_cases, result
from tests.frontends.from_tflite.tflite_peer import drawn, litert, shared_folder
from tests.frontends.from_tflite.tflite_writer import T, const, one

import verax
from verax import load
from verax.base.errors import UnsupportedError, VeraxError
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind

CASES = dict(quantised_cases())
REFERENCE_IS_WRONG = {"SUM int8", "SUM int16"}
"""LiteRT's reference kernel reads these operands as uint8; its optimized one does not."""


@pytest.mark.parametrize("label", CASES)
def test_an_operator_gives_the_integers_of_the_reference_kernels(label: str) -> None:
    loaded = load_tflite(CASES[label])
    inputs = drawn(loaded)
    if "SQRT int16" in label:  # below zero LiteRT stops
        inputs = {name: np.maximum(x, 0) for name, x in inputs.items()}
    given = litert(CASES[label], inputs, reference=label not in REFERENCE_IS_WRONG)
    for name, want in verax.reference(loaded, inputs).items():
        np.testing.assert_array_equal(given[name], want.astype(given[name].dtype))
    assert {n: t.shape for n, t in loaded.outputs.items()} == {n: a.shape for n, a in given.items()}


@pytest.mark.parametrize("label", ["CONV_2D int8 RELU6", "ADD uint8 NONE", "MEAN int8 0"])
def test_a_quantum_that_is_off_is_a_mistake(label: str) -> None:
    loaded = load_tflite(CASES[label])
    inputs = drawn(loaded)
    given = {
        k: v.astype(loaded.outputs[k].dtype.numpy) for k, v in litert(CASES[label], inputs).items()
    }
    assert verax.check(loaded, given, inputs=inputs).kind is Kind.identical
    assert verax.check(loaded, "verax:O1", inputs=inputs).kind is Kind.identical
    ((name, array),) = given.items()
    middle = tuple(n // 2 for n in array.shape)
    array[middle] = array[middle] + 1 if array[middle] < 1 else array[middle] - 1
    assert verax.check(loaded, {name: array}, inputs=inputs).kind is Kind.mistake


def resnet8() -> bytes:
    path = shared_folder() / "models" / "resnet8" / "pretrainedResnet_quant.tflite"
    return path.read_bytes()


def test_a_quantised_network_gives_every_integer_of_the_reference_kernels() -> None:
    made = resnet8()
    loaded = load_tflite(made, shapes={"input_1_int8": (3, 32, 32, 3)})
    inputs = drawn(loaded)
    given = litert(made, inputs)
    np.testing.assert_array_equal(
        given["Identity_int8"], verax.reference(loaded, inputs)["Identity_int8"]
    )


def stored() -> tuple[Path, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The file, its input, and what LiteRT gave."""
    path = shared_folder() / "models" / "resnet8" / "pretrainedResnet_quant.tflite"
    with np.load(next(path.parent.glob(f"{path.name}.*.npz"))) as arrays:
        inputs = {"input_1_int8": arrays["in:input_1_int8"]}
        return path, inputs, {"Identity_int8": arrays["out:Identity_int8"]}


def test_a_quantised_network_gives_its_stored_answers_compiled() -> None:
    path, inputs, given = stored()
    found = verax.compile(load(path)).run(inputs)["Identity_int8"]
    np.testing.assert_array_equal(found, given["Identity_int8"])


@pytest.mark.slow
def test_a_quantised_network_is_judged_identical() -> None:
    path, inputs, given = stored()
    model = load(path)
    assert verax.check(model, given, inputs=inputs).kind is Kind.identical
    assert verax.check(model, "verax:O1", inputs=inputs).kind is Kind.identical


def test_scales_along_another_axis_are_refused() -> None:
    weights = const(np.ones((4, 3, 2, 3), np.int8), [0.1, 0.2, 0.3], [0, 0, 0], axis=3)
    made = one("CONV_2D", [data(IMAGE, "int8"), weights, None], result((2, 7, 6, 4), "int8"),
               stride_h=1, stride_w=1)  # fmt: skip
    with pytest.raises(UnsupportedError, match="per output channel"):
        load_tflite(made)


def test_data_that_would_change_its_scale_by_being_moved_is_refused() -> None:
    shape = const(np.array([3, 2], np.int32))
    with pytest.raises(UnsupportedError, match="quantized differently"):
        load_tflite(one("RESHAPE", [data((2, 3), "int8"), shape], result((3, 2), "int8")))


@pytest.mark.parametrize("scale", [0.0, -0.5, float("nan"), float("inf")])
def test_impossible_scales_are_refused(scale: float) -> None:
    made = one("RELU", [data((2, 3), "int8")], T((2, 3), "int8", scale=[scale], zero=[0]))
    with pytest.raises(VeraxError):
        load_tflite(made)


def cat(size: int = 32) -> np.ndarray:
    """The middle square of the photo, [1, size, size, 3], each pixel the mean of its area."""
    with Image.open(shared_folder() / "photos" / "chelsea.png") as picture:
        side = min(picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        square = picture.convert("RGB").crop((left, top, left + side, top + side))
        small = square.resize((size, size), Image.Resampling.BOX)
    return np.asarray(small, np.float32)[None]


def test_both_forms_of_resnet8_see_the_cat() -> None:
    models, pixels = shared_folder() / "models" / "resnet8", cat()
    exact = verax.reference(load(models / "pretrainedResnet.tflite"), {"input_1": pixels})
    whole = verax.reference(
        load(models / "pretrainedResnet_quant.tflite"),
        {"input_1_int8": (pixels - 128).astype(np.int8)},
    )
    assert exact["Identity"].argmax() == whole["Identity_int8"].argmax() == 3
