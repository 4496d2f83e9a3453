"""Ranks, intervals and the test of two accuracies, against published or exact values."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from verax.evaluation.figures import choices, mcnemar, ranks, share


def test_the_interval_is_wilsons() -> None:
    # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
    for right, of, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = share(right, of)
        assert (round(found.low, 4), round(found.high, 4)) == (low, high)
    assert share(20, 20).high == 1.0


@pytest.mark.parametrize(("a", "b"), [(0, 0), (3, 0), (5, 12), (12, 5), (9, 9), (700, 810)])
def test_mcnemar_is_the_exact_binomial_tail(a: int, b: int) -> None:
    tail = sum(Fraction(comb(a + b, i), 2 ** (a + b)) for i in range(min(a, b) + 1))
    assert mcnemar(a, b) == float(min(Fraction(1), 2 * tail))


def test_a_rank_says_how_many_come_before_the_label() -> None:
    scores = np.random.default_rng(30).integers(0, 6, (200, 7)).astype(np.float32)  # many ties
    labels = np.random.default_rng(31).integers(0, 7, 200)
    order = np.argsort(-scores, axis=1, kind="stable")
    expected = [list(row).index(label) for row, label in zip(order, labels)]
    assert ranks(scores, labels).tolist() == expected
    assert choices(scores).tolist() == order[:, 0].tolist()


def test_a_nan_is_never_right() -> None:
    scores = np.array([[np.nan, 1, 2], [np.nan, np.nan, np.nan]], np.float32)
    assert choices(scores)[0] == 2
    assert ranks(scores, np.array([0, 0])).tolist() == [2, 2]
