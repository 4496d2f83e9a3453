"""What an error looks like, said in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from verax.judge.explain.structure import structure
from verax.numerics.formats import BFLOAT16, round_to


def border(y: np.ndarray) -> np.ndarray:
    y[:, :, -1] *= 2
    return y


def corner(y: np.ndarray) -> np.ndarray:
    y[:, :, 0] *= 2
    y[..., -1] *= 2
    return y


def zeros(y: np.ndarray) -> np.ndarray:
    y[:, 3:5] = 0
    return y


def per_channel(y: np.ndarray) -> np.ndarray:
    y[:, 2] = y[:, 2] * 1.5 + 0.25
    return y


def all_but_one(y: np.ndarray) -> np.ndarray:
    y[:, np.arange(6) != 3] += 2
    return y


def negatives(y: np.ndarray) -> np.ndarray:
    return np.where(y < 0, y * 0.3, y)


def nan(y: np.ndarray) -> np.ndarray:
    y[1, :, 2] = np.nan
    return y


def one(y: np.ndarray) -> np.ndarray:
    y[1, 4, 2, 3] += 1
    return y


CASES: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "last row": (border, "the last row"),
    "border": (corner, "only the border is wrong (top, right)"),
    "zeros": (zeros, "every wrong element is 0"),
    "channels": (zeros, "channels 3 to 4"),
    "affine": (lambda y: y * 1.25 + 0.5, "1.25 times what it should be, plus 0.5"),
    "factor": (lambda y: y * 1.25, "everywhere the result is 1.25 times what it should be"),
    "offset": (lambda y: y - 0.5, "everywhere the result is 0.5 less than it should be"),
    "all but one": (all_but_one, "every channel but 3"),
    "per channel": (per_channel, "2: 1.5 times what it should be, plus 0.25"),
    "negatives": (negatives, "only numbers that should be negative are wrong"),
    "sign": (np.negative, "-1 times what it should be"),
    "absolute": (np.abs, "the right size and the wrong sign"),
    "shift": (lambda y: np.roll(y, 2, 3), "shifted by 2 along the column"),
    "transposed": (lambda y: y.swapaxes(2, 3), "row and column exchanged"),
    "shuffled": (lambda y: np.random.default_rng(1).permutation(y.ravel()).reshape(y.shape),
                 "the right numbers in another order"),
    "cut off": (lambda y: np.minimum(y, 1), "every wrong element is 1 and should be more"),
    "bfloat16": (lambda y: round_to(y, BFLOAT16), "the grid of bfloat16"),
    "NaN": (nan, "elements are NaN, all of them in the last batch, row 2"),
    "one element": (one, "only 1 of 672 elements is wrong: (1, 4, 2, 3)"),
}  # fmt: skip
"""What -> (change, what a sentence must say)."""


@pytest.mark.parametrize("what", CASES)
def test_the_error_is_described(what: str) -> None:
    change, words = CASES[what]
    expected = np.random.default_rng(0).standard_normal((2, 6, 7, 8))
    if what == "transposed":
        expected = expected[..., :7]
    given = change(expected.copy()).astype(np.float32)
    sigma = np.abs(expected) * 2.0**-24 + 2.0**-26
    found = structure(given, expected, sigma)
    assert any(words in sentence for sentence in found), found


def test_honest_rounding_has_no_structure() -> None:
    expected = np.random.default_rng(0).standard_normal((2, 6, 7, 8))
    assert structure(expected.astype(np.float32), expected, np.abs(expected) * 2.0**-24) == ()


def test_exact_integers() -> None:
    expected = np.arange(24).reshape(2, 3, 4)
    given = expected.copy()
    given[:, 1] += 2
    (first, *_) = structure(given, expected, None)
    assert "only 8 of 24 elements are wrong, all of them in channel 1" in first
