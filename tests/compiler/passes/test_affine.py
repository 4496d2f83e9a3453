"""The formulas by which a scale and a shift pass an operator, in exact rational numbers.

Each formula is tried on fractions of every sign and on zero: it holds exactly where its condition
does, and for each condition there is a number outside of it for which it does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from verax.compiler.passes.affine import SMALLEST_NORMAL, AffineMap, rounded

Numbers = Sequence[Fraction]
F = Fraction
SIGNED = st.fractions(min_value=-9, max_value=9, max_denominator=64)
SEVERAL = st.lists(SIGNED, min_size=3, max_size=3)


def relu(x: Numbers) -> list[Fraction]:
    return [max(v, F(0)) for v in x]


def leaky(slope: Fraction) -> Callable[[Numbers], list[Fraction]]:
    return lambda x: [v if v >= 0 else v * slope for v in x]


def maximum(x: Numbers) -> list[Fraction]:
    return [max(x)]


def mean(x: Numbers) -> list[Fraction]:
    return [sum(x, F(0)) / len(x)]


def mean_with_padding(x: Numbers) -> list[Fraction]:
    return [sum(x, F(0)) / (len(x) + 2)]


def mapped(x: Numbers, a: Fraction, b: Fraction) -> list[Fraction]:
    return [v * a + b for v in x]


RULES: dict[str, tuple[Callable[[Numbers], list[Fraction]], Callable[..., bool]]] = {
    "Relu": (relu, lambda a, b: a >= 0 and b == 0),
    "LeakyRelu": (leaky(F(-3, 7)), lambda a, b: a >= 0 and b == 0),
    "PRelu": (leaky(F(2, 5)), lambda a, b: a >= 0 and b == 0),
    "MaxPool": (maximum, lambda a, b: a >= 0),
    "AveragePool": (mean, lambda a, b: True),
    "AveragePool that counts padding": (mean_with_padding, lambda a, b: b == 0),
}


@pytest.mark.parametrize("name", RULES)
@given(x=SEVERAL, a=SIGNED, b=SIGNED)
def test_a_formula_holds_where_its_condition_does(
    name: str, x: Numbers, a: Fraction, b: Fraction
) -> None:
    f, holds = RULES[name]
    for scale, shift in ((a, b), (a, F(0)), (abs(a), b), (abs(a), F(0)), (F(0), b)):
        if holds(scale, shift):
            assert mapped(f(x), scale, shift) == f(mapped(x, scale, shift))


@pytest.mark.parametrize("name", RULES)
def test_no_condition_is_more_than_is_needed(name: str) -> None:
    f, holds = RULES[name]
    x = [F(-2), F(1), F(5)]
    for scale, shift in ((F(-1), F(0)), (F(2), F(3)), (F(-1), F(3)), (F(0), F(-4))):
        if not holds(scale, shift):
            others = ([F(-2)], [F(-5), F(2)], x)
            assert any(mapped(f(v), scale, shift) != f(mapped(v, scale, shift)) for v in others), (
                scale,
                shift,
            )


@given(x=SIGNED, low=SIGNED, high=SIGNED, a=SIGNED, b=SIGNED)
def test_clip_moves_its_bounds(x: F, low: F, high: F, a: F, b: F) -> None:
    low, high, a = min(low, high), max(low, high), abs(a)
    clipped = min(max(x, low), high)
    assert clipped * a + b == min(max(x * a + b, low * a + b), high * a + b)


@given(x=SIGNED, first=st.tuples(SIGNED, SIGNED), second=st.tuples(SIGNED, SIGNED))
def test_two_maps_are_one(x: F, first: tuple[F, F], second: tuple[F, F]) -> None:
    def of(pair: tuple[F, F]) -> AffineMap:
        return AffineMap(1, *(np.array([v], object) for v in pair))

    both = AffineMap(1, *(np.array([v], object) for v in second)).after(of(first))
    assert both is not None
    one = x * first[0] + first[1]
    assert x * both.scale[0] + both.shift[0] == one * second[0] + second[1]


def test_maps_along_different_axes_are_not_one() -> None:
    one, other = (AffineMap(a, np.ones(3), np.zeros(3)) for a in (1, 2))
    assert one.after(other) is None
    scalar = AffineMap(None, np.array(2.0), np.array(1.0))
    both = one.after(scalar)
    assert both is not None and both.axis == 1 and both.scale.tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ([1.5, -2.0, 0.0], True),
        ([1e39, 1.0], False),
        ([-1e39, 1.0], False),
        ([np.inf], False),
        ([np.nan], False),
        ([SMALLEST_NORMAL, 1.0], True),
        ([SMALLEST_NORMAL / 2, 1.0], True),  # subnormal, and exact
        ([SMALLEST_NORMAL / 3, 1.0], False),
        ([1e-60], False),
    ],
)
def test_numbers_are_rounded_once_or_not_folded(numbers: list[float], kept: bool) -> None:
    found = rounded(np.array(numbers))
    assert (found is not None) is kept
