"""Rsqrt against exact arithmetic and PyTorch, and TensorFlow's own error within the model."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from witness import evaluation, meaning

from verax.ops.pointwise.reciprocal_root import Rsqrt

NUMBERS = np.array([0.25, 0.3, 1, 2, 7.5, 1e-30, 1e30], np.float32)


def test_its_square_times_the_number_is_one() -> None:
    (found,) = meaning(Rsqrt(), NUMBERS)
    for x, y in zip(NUMBERS, found):
        rest = Fraction(float(y)) ** 2 * Fraction(float(x)) - 1
        assert abs(rest) <= 4 * Fraction(2) ** -53


def test_borders() -> None:
    with np.errstate(all="ignore"):
        (found,) = meaning(Rsqrt(), np.array([0.0, -1.0, np.inf, np.nan], np.float32))
    assert np.isinf(found[0]) and np.isnan(found[1]) and found[2] == 0 and np.isnan(found[3])


def test_pytorch_means_the_same() -> None:
    torch = pytest.importorskip("torch")
    (found,) = meaning(Rsqrt(), NUMBERS.astype(np.float64))
    want = torch.rsqrt(torch.from_numpy(NUMBERS.astype(np.float64))).numpy()
    assert np.array_equal(found.astype(np.float32), want.astype(np.float32))


def test_promised_bits_are_a_root_and_a_division() -> None:
    found = np.asarray(Rsqrt().canonical(evaluation(Rsqrt(), (NUMBERS,)), NUMBERS))
    assert np.array_equal(found, np.float32(1) / np.sqrt(NUMBERS))
