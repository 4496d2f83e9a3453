"""Student's distribution against published tables and the normal limit."""

import math

import pytest

from verax.numerics.student import upper_tail

TABLE = [(0.025, 10, 2.228139), (0.05, 5, 2.015048), (0.005, 30, 2.749996), (0.0005, 20, 3.849516)]
"""NIST/SEMATECH e-Handbook, 1.3.6.7.2: critical values of Student's t."""


@pytest.mark.parametrize(("chance", "freedom", "value"), TABLE)
def test_published_critical_values(chance: float, freedom: int, value: float) -> None:
    assert upper_tail(value, freedom) == pytest.approx(chance, rel=1e-5)


def test_one_degree_of_freedom_is_cauchys() -> None:
    for x in (0.7, 3.0, 40.0):
        assert upper_tail(x, 1) == pytest.approx(0.5 - math.atan(x) / math.pi, rel=1e-9)


def test_many_degrees_of_freedom_are_normal() -> None:
    for x in (1.0, 4.0, 6.0):
        normal = 0.5 * math.erfc(x / math.sqrt(2))
        assert upper_tail(x, 10**7) == pytest.approx(normal, rel=1e-4)
