"""Quantised weights on floating-point data mean what LiteRT's hybrid kernels compute."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.hybrid_cases import hybrid_cases
from tests.frontends.from_tflite.quantised_cases import packed
from tests.frontends.from_tflite.tflite_peer import drawn, litert
from tests.frontends.from_tflite.tflite_writer import T, const, one

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind
from verax.reference.evaluate import promised

CASES = dict(hybrid_cases())
HONEST = (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("label", CASES)
def test_a_hybrid_operator_means_what_litert_computes(label: str) -> None:
    loaded = load_tflite(CASES[label])
    inputs = drawn(loaded)
    given = litert(CASES[label], inputs)
    verdict = verax.check(loaded, given, inputs=inputs)
    assert verdict.kind in HONEST, verdict.reasons
    assert verax.check(loaded, "verax:O1", inputs=inputs).kind is Kind.identical
    if label.startswith("TRANSPOSE_CONV"):
        return  # LiteRT adds up scaled products in an order of its own
    for name, bits in promised(loaded.graph, inputs).items():
        np.testing.assert_array_equal(bits, given[name])


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        (const(np.ones((4, 3), np.int8), [0.1], [3]), "zero_point"),
        (const(np.ones((4, 3), np.uint8), [0.1], [0]), "uint8"),
        (const(np.ones((4, 3), np.int8), [0.1, 0.2, 0.3], [0] * 3, axis=1), "per output channel"),
    ],
)
def test_weights_that_litert_would_misread_are_refused(weights: T, why: str) -> None:
    made = one("FULLY_CONNECTED", [T((2, 3)), weights, None], T((2, 4)))
    with pytest.raises(UnsupportedError, match=why):
        load_tflite(made)


@pytest.mark.parametrize(("kind", "size"), [("int4", 7), ("int2", 6)])
def test_embeddings_whose_rows_end_within_a_byte_are_refused(kind: str, size: int) -> None:
    """LiteRT reads other numbers there than were packed."""
    places = const(np.array([1, 3, 4], np.int32))
    table = packed((5, size), [1.0], kind=kind)
    made = one("EMBEDDING_LOOKUP", [places, table], T((3, size)), 4)
    with pytest.raises(UnsupportedError, match="end within a byte") as caught:
        load_tflite(made)
    assert kind in str(caught.value)


def test_one_scale_on_groups_is_refused() -> None:
    """LiteRT's kernel reads a scale per channel there, past the end of the only one."""
    weights = const(np.ones((4, 2, 2, 3), np.int8), [0.1], [0])
    made = one("CONV_2D", [T((2, 5, 4, 6)), weights, None], T((2, 5, 4, 4)), stride_h=1, stride_w=1)
    with pytest.raises(UnsupportedError, match="one scale per channel"):
        load_tflite(made)


def test_a_scale_of_the_wrong_image_is_a_mistake() -> None:
    """The images differ a hundredfold in size, so that their scales do too."""
    label = "CONV_2D hybrid scales"
    loaded = load_tflite(CASES[label])
    inputs = drawn(loaded)
    inputs["x0"] = inputs["x0"] * np.float32([1, 0.01]).reshape(2, 1, 1, 1)
    given = litert(CASES[label], inputs)
    assert verax.check(loaded, given, inputs=inputs).kind in HONEST
    swapped = {"x0": inputs["x0"][::-1].copy()}
    assert verax.check(loaded, given, inputs=swapped).kind is Kind.mistake
