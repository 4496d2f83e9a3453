"""Dimensions behave like the integers they will be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.errors import GraphError
from verax.ir.assumptions import Assumptions, assuming
from verax.ir.dim import (
    DimLike,
    ceildiv,
    floordiv,
    maximum,
    symbol,
    symbols,
)
from verax.ir.dim_forms import parse_dim, substitute

SIZES = {"n": 3, "h": 11, "w": 8}


def _build(draw: st.DrawFn, depth: int) -> tuple[DimLike, int]:
    """A dimension and the number it must become for SIZES."""
    if depth == 0 or draw(st.booleans()):
        if draw(st.booleans()):
            value = draw(st.integers(-4, 9))
            return value, value
        name = draw(st.sampled_from(sorted(SIZES)))
        return symbol(name), SIZES[name]
    (a, x), (b, y) = _build(draw, depth - 1), _build(draw, depth - 1)
    kind = draw(st.sampled_from(["+", "-", "*", "//", "ceil", "max"]))
    if kind == "+":
        return a + b, x + y
    if kind == "-":
        return a - b, x - y
    if kind == "*":
        return a * b, x * y
    if kind == "max":
        # A maximum is asked only of sizes, which are never negative.
        return (maximum(a, b), max(x, y)) if x >= 0 and y >= 0 else (a, x)
    divisor = draw(st.integers(1, 5))
    if kind == "//":
        return floordiv(a, divisor), x // divisor
    return ceildiv(a, divisor), -(-x // divisor)


@st.composite
def dims(draw: st.DrawFn) -> tuple[DimLike, int]:
    return _build(draw, 4)


@given(dims())
def test_a_dimension_becomes_the_number_it_stands_for(case: tuple[DimLike, int]) -> None:
    dim, number = case
    assert substitute(dim, SIZES) == number


@given(dims())
def test_the_text_form_reads_back_to_an_equal_dimension(case: tuple[DimLike, int]) -> None:
    dim, number = case
    again = parse_dim(str(dim))
    assert again == dim
    assert substitute(again, SIZES) == number


@given(dims(), dims())
def test_sums_do_not_depend_on_the_order(a: tuple[DimLike, int], b: tuple[DimLike, int]) -> None:
    assert a[0] + b[0] == b[0] + a[0]
    assert (a[0] - b[0]) + b[0] == a[0]


def test_a_size_that_becomes_known_is_a_plain_int() -> None:
    h = symbol("h")
    out = floordiv(h + 2 - 3, 2) + 1
    assert str(out) == "(h - 1)//2 + 1"
    assert substitute(out, {"h": 7}) == 4
    assert symbols(out) == {"h"}


def test_whole_multiples_leave_a_division() -> None:
    h, n = symbol("h"), symbol("n")
    assert floordiv(4 * h + 2, 2) == 2 * h + 1
    assert floordiv(n * h, h) == n


@pytest.mark.parametrize("text", ["", "h +", "__import__('os')", "h ** 2", "f(h)", "'h'", "h/2"])
def test_what_is_no_dimension_is_refused(text: str) -> None:
    with pytest.raises(GraphError, match="not a dimension"):
        parse_dim(text)


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(GraphError, match="zero"):
        floordiv(symbol("h"), 0)


def test_expressions_that_no_network_has_are_refused():
    """A small file could square a size until its expression fills the memory."""
    square, nested, total = symbol("n"), symbol("n"), symbol("n")
    for grown, step in (
        (square, lambda d: d * d),
        (nested, lambda d: (d + 1) // 2 * symbol("m") // 3),
        (total, lambda d: d * (d + symbol("m"))),
    ):
        with pytest.raises(GraphError, match="absurdly long"):
            for _ in range(100):
                grown = step(grown)


def test_dims_that_differ_by_one_have_hashes_of_their_own() -> None:
    """Equal ones would have sizes compared that are assumed, or that nobody knows."""
    hashes = [hash(symbol("n") * factor + shift) for factor in (-2, -1, 3) for shift in (-2, -1)]
    assert len(set(hashes)) == len(hashes)
    with assuming(Assumptions({"n": 7})):
        assert {symbol("m") - 1: "first"}.get(symbol("m") - 2) is None


@given(dims(), st.integers(-3, 3))
def test_times_a_number_is_as_many_summands(case: tuple[DimLike, int], times: int) -> None:
    dim, _ = case
    total: DimLike = 0
    for _ in range(abs(times)):
        total = total + dim
    expected = total if times >= 0 else 0 - total
    assert str(dim * times) == str(times * dim) == str(expected)
    assert dim * times == expected
