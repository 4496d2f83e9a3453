"""Factors in sentences: three digits, no powers of ten, and no digits beyond a million."""

from __future__ import annotations

import math

import pytest

from verax.base.figures import times


@pytest.mark.parametrize(
    ("factor", "text"),
    [
        (0.0, "0"),
        (0.55671, "0.557"),
        (12.5, "12.5"),
        (309_123.0, "309,000"),
        (999_999.0, "a million"),
        (1e6, "over a million"),
        (1.14e43, "over a million"),
        (math.inf, "over a million"),
        (math.nan, "nan"),
    ],
)
def test_times(factor: float, text: str) -> None:
    assert times(factor) == text
