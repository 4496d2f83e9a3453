"""Quantiles of sums of squares, against drawn ones and the table in every textbook."""

import numpy as np
import pytest

from verax.numerics.chi_square import chi_square_quantile
from verax.numerics.statistics import CLAIMED, least_share, most_share


@pytest.mark.parametrize(
    ("freedom", "probability", "value"),
    [(1, 0.01, 0.000157), (2, 0.01, 0.0201), (4, 0.99, 13.277), (10, 0.01, 2.558),
     (100, 0.01, 70.065), (59, 0.99, 87.166)],
)  # fmt: skip
def test_quantiles_are_those_of_the_table(freedom: int, probability: float, value: float) -> None:
    assert chi_square_quantile(freedom, probability) == pytest.approx(value, rel=2e-3)


@pytest.mark.parametrize("directions", [1, 3, 17, 83])
def test_drawn_vectors_are_as_long_as_is_claimed(directions: int) -> None:
    draws = np.random.default_rng(31).standard_normal((20_011, directions))
    sizes = np.sqrt(np.mean(draws**2, axis=1))
    assert np.mean(sizes > least_share(directions)) == pytest.approx(CLAIMED, abs=0.003)
    assert np.mean(sizes < most_share(directions)) == pytest.approx(CLAIMED, abs=0.003)
