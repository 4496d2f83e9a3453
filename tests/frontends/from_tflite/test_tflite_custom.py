"""MediaPipe's transposed convolution with bias: LiteRT's own operator gives the same."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.resource_cases import upsampled
from tests.frontends.from_tflite.tflite_peer import litert

import verax
from verax.base.errors import UnsupportedError
from verax.frontends.tflite import load_tflite


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(
    ("kernel", "strides"), [((2, 2), (2, 2)), ((3, 2), (2, 1)), ((4, 5), (2, 3)), ((3, 3), (1, 2))]
)
def test_a_transposed_convolution_is_litert_s(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str
) -> None:
    x = np.random.default_rng(65).standard_normal((2, 4, 6, 3)).astype(np.float32)
    right = litert(upsampled(kernel, strides, padding, own=False), {"x": x})["y"]
    found = load_tflite(upsampled(kernel, strides, padding, own=True))
    (made,) = verax.compile(found, threads=1).run({"x": x}).values()
    assert made.shape == right.shape
    np.testing.assert_allclose(made, right, rtol=1e-5, atol=1e-5)


def test_options_that_nobody_knows_are_refused() -> None:
    assert load_tflite(upsampled((2, 2), (2, 2), "SAME", own=True, more=bytes(8)))
    for more in (b"\1\0\0\0", b"\0"):
        with pytest.raises(UnsupportedError, match="custom_options"):
            load_tflite(upsampled((2, 2), (2, 2), "SAME", own=True, more=more))
    with pytest.raises(UnsupportedError, match="strides larger than the windows"):
        load_tflite(upsampled((2, 1), (2, 2), "SAME", own=True))
