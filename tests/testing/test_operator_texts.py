"""Operators as texts: attributes as people write them, and what is wrong with others."""

from __future__ import annotations

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("pads", "words"),
    [
        ("(1, 2, 3, 4)", "all begins and then all ends are ((1, 3), (2, 4))"),
        ("[1, 2]", "the same on both sides is ((1, 1), (2, 2))"),
    ],
)
def test_pads_in_a_row_are_shown_as_pairs(pads: str, words: str) -> None:
    x, w = normal(91, 2, 5, 11, 9), normal(92, 4, 5, 3, 2)
    with pytest.raises(VeraxError) as caught:
        verax.assert_correct(x, f"Conv(pads={pads})", (x, w))
    assert words in str(caught.value)


def test_attributes_may_be_written_as_onnx_writes_them() -> None:
    x = normal(93, 2, 5, 11)
    verax.assert_correct(x.astype(np.float16), "Cast(to='float16')", x)
    verax.assert_correct(x.max(1, keepdims=True), "ReduceMax(keepdims=1)", (x, np.array([1])))
