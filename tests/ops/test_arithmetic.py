"""Integer arithmetic, exact arithmetic, powers and remainders; arithmetic of sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness import evaluation, exactly, meaning

from verax.ir.dim import floordiv, maximum, symbol
from verax.ir.graph import Builder
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.ops.movement.shape import Shape
from verax.ops.pointwise.arithmetic import Add, Div, Max, Mean, Min, Mod, Mul, Pow, Sub, Sum
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.comparison import Equal, Greater
from verax.ops.pointwise.logic import BitShift
from verax.ops.pointwise.rounding import Floor
from verax.ops.pointwise.where import Where
from verax.ops.sums.reduction import ReduceProd

INT8 = st.integers(-128, 127)
FLOAT = st.floats(-100, 100, width=32)


def both(op: Operator, *xs: Any) -> list[np.ndarray]:
    """Meaning and promised bits, which agree on integers."""
    found = np.asarray(op.canonical(evaluation(op, xs), *xs))
    (meant,) = meaning(op, *xs)
    np.testing.assert_array_equal(found, meant)
    return [np.asarray(meant), found]


def wrap(value: int) -> int:
    return (value + 128) % 256 - 128


@given(a=INT8, b=INT8)
def test_integers_wrap_and_divide_toward_zero(a: int, b: int) -> None:
    x, y = np.array([a], np.int8), np.array([b], np.int8)
    quotient = 0 if b == 0 else int(Fraction(a, b))
    for op, expected in (
        (Add(), a + b),
        (Sub(), a - b),
        (Mul(), a * b),
        (Div(), quotient),
        (Mod(fmod=True), a - quotient * b),
        (Mod(), a if b == 0 else a % b),
    ):
        assert both(op, x, y)[0][0] == wrap(expected), op


@given(a=INT8, b=st.integers(-3, 9))
def test_integer_powers_wrap_and_negative_exponents_truncate(a: int, b: int) -> None:
    exact = a**b if b >= 0 else int(Fraction(1, a) ** -b) if a else 0
    got = meaning(Pow(), np.array([a], np.int32), np.array([b], np.int64))[0][0]
    assert got == (exact + 2**31) % 2**32 - 2**31


@given(a=st.integers(-(2**31), 2**31 - 1), n=st.integers(-2, 40))
def test_shifts_by_any_count(a: int, n: int) -> None:
    x, y = np.array([a], np.int32), np.array([n], np.int32)
    inside = 0 <= n < 32
    right = a >> n if inside else -1 if a < 0 else 0
    left = (((a << n) + 2**31) % 2**32 - 2**31) if inside else 0
    assert both(BitShift(direction="RIGHT"), x, y)[0][0] == right
    assert both(BitShift(direction="LEFT"), x, y)[0][0] == left


@given(st.lists(FLOAT, min_size=3, max_size=3))
def test_sums_and_products_are_exact_in_rational_arithmetic(values: list[float]) -> None:
    a, b, c = (np.array([v], np.float32) for v in values)
    x, y, z = map(Fraction, values)
    assert exactly(Add(), a, b)[0] == x + y
    assert exactly(Sub(), a, b)[0] == x - y
    assert exactly(Mul(), a, b)[0] == x * y
    assert exactly(Sum(), a, b, c)[0] == x + y + z
    assert exactly(Mean(), a, b, c)[0] == (x + y + z) / 3
    assert exactly(Max(), a, b, c)[0] == max(x, y, z)
    if y:
        assert exactly(Div(), a, b)[0] == x / y


@pytest.mark.parametrize("fmod", [False, True])
def test_float_remainders_of_zeros_and_infinities(fmod: bool) -> None:
    x = np.array([-0.0, 3.0, -3.0, np.inf, 2.0, -6.0, 5.5, np.nan], np.float32)
    y = np.array([2.0, np.inf, np.inf, 2.0, 0.0, 3.0, -2.0, 1.0], np.float32)
    op = Mod(fmod=fmod)
    with np.errstate(invalid="ignore"):
        expected = (np.fmod if fmod else np.mod)(x, y)
    np.testing.assert_array_equal(op.canonical(evaluation(op, (x, y)), x, y), expected)
    np.testing.assert_array_equal(meaning(op, x, y)[0], expected)


def shape_of(text: str) -> tuple[Builder, str]:
    b = Builder("sizes")
    x = b.input("x", TensorType.parse(text))
    return b, b.add(Shape(), [x])


def test_sizes_are_computed_over_symbols() -> None:
    b, dims = shape_of("float32[n, 6, h]")
    n, h = symbol("n"), symbol("h")
    two = b.constant(np.array([2, 2, 2], np.int64))
    expected = {
        Add(): [n + 2, 8, h + 2],
        Mul(): [n * 2, 12, h * 2],
        Sub(): [n - 2, 4, h - 2],
        Div(): [floordiv(n, 2), 3, floordiv(h, 2)],
        Max(): [maximum(n, 2), 6, maximum(h, 2)],
    }
    for op, sizes in expected.items():
        assert list(b.known[b.add(op, [dims, two])]) == sizes
    assert b.known[b.add(ReduceProd(keepdims=False), [dims])].item() == n * h * 6
    assert list(b.known[b.add(Cast(to="int32"), [dims])]) == [n, 6, h]


def test_comparisons_of_sizes_are_known_only_when_all_sizes_agree() -> None:
    b, dims = shape_of("float32[n, 6]")
    minus, six = (b.constant(np.array([v, v], np.int64)) for v in (-1, 6))
    assert not b.known[b.add(Equal(), [dims, minus])].any()
    assert b.add(Equal(), [dims, six]) not in b.known  # n may be 6
    assert b.known[b.add(Greater(), [dims, minus])].all()
    chosen = b.add(Where(), [b.add(Equal(), [dims, minus]), six, dims])
    assert list(b.known[chosen]) == [symbol("n"), 6]
    least = b.add(Min(), [dims, minus])
    assert list(b.known[least]) == [-1, -1]


def test_sizes_scaled_in_float_are_followed() -> None:
    b, dims = shape_of("float32[2, 3, 7]")
    scaled = b.add(
        Mul(),
        [b.add(Cast(to="float32"), [dims]), b.constant(np.array([1, 1, 2.5], np.float32))],
    )
    back = b.add(Cast(to="int64"), [b.add(Floor(), [scaled])])
    assert list(b.known[back]) == [2, 3, 17]
