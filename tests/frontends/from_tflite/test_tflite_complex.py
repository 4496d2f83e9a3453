"""Fourier transforms and the complex numbers behind them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.resource_cases import transformed
from tests.frontends.from_tflite.tflite_peer import litert

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.tflite import load_tflite
from verax.records.verdict import Kind

TAKEN = {"COMPLEX_ABS": np.abs, "REAL": np.real, "IMAG": np.imag, "CAST": np.real}


@pytest.mark.parametrize("kind", TAKEN)
@pytest.mark.parametrize("size", [2, 16, 256])
def test_a_transform_of_rows_is_numpy_s(kind: str, size: int) -> None:
    x = np.random.default_rng(66).standard_normal((2, 3, 1, size)).astype(np.float32)
    right = TAKEN[kind](np.fft.rfft(x.astype(np.float64)))[:, :, 0].transpose(2, 0, 1)
    found = load_tflite(transformed(kind, size))
    made = verax.compile(found, opt_level=1, threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-6 * size)


@pytest.mark.parametrize("kind", ["COMPLEX_ABS", "REAL", "IMAG"])
def test_litert_is_not_accused(kind: str) -> None:
    """It transforms by another algorithm. Its TRANSPOSE takes no complex numbers: none is asked."""
    x = np.random.default_rng(67).standard_normal((2, 3, 1, 64)).astype(np.float32)
    data = transformed(kind, 64, moved=False)
    found = load_tflite(data)
    assert verax.check(found, litert(data, {"x": x}), {"x": x}).kind is Kind.rounding
    wrong = litert(data, {"x": np.roll(x, 1, -1)})
    if kind != "COMPLEX_ABS":  # sizes do not see a shift
        assert verax.check(found, wrong, {"x": x}).kind is Kind.mistake


def test_other_operators_and_sizes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="NEG of complex numbers"):
        load_tflite(transformed("NEG"))
    for sizes in ((1, 32), (1, 8), (2, 16)):
        with pytest.raises(UnsupportedError, match="a transform of sizes"):
            load_tflite(transformed("REAL", sizes=sizes))
