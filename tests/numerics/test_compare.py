"""Figures that people quote: what lies beyond a relative tolerance, and how small it is."""

import numpy as np

from verax.numerics.compare import QUOTED_RTOL, plain_figures


def test_elements_beyond_the_quoted_tolerance_are_counted_and_sized() -> None:
    expected = np.array([3.0, -4.0, 0.001, 0.002, 0.0])
    given = expected + np.array([0.0, 1e-5, 1e-6, -4e-6, 0.0])
    found = plain_figures(given, expected)
    typical = np.sqrt(np.mean(expected**2))
    assert (found.beyond, found.beyond_rtol) == (2, QUOTED_RTOL)
    assert found.beyond_size == 0.002 / typical
    np.testing.assert_allclose(found.beyond_abs, 4e-6, rtol=1e-9)
    assert found.max_abs > found.beyond_abs


def test_nothing_beyond_is_nothing() -> None:
    x = np.array([1.0, -2.0])
    assert plain_figures(x, x).beyond == 0
    assert plain_figures(x * 0, x * 0).beyond_size == 0
    assert plain_figures(np.array([np.nan]), np.array([np.nan])).beyond == 0
