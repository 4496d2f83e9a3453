"""Derived bounds of plain functions: a sample of the campaign, and the parts that it rests on."""

from __future__ import annotations

import numpy as np
import pytest
from tests.testing.derived_bound_figures import LIBRARIES, measure
from tests.testing.derived_bound_functions import FAMILIES, functions

import verax
from verax.base.errors import UsageError, VeraxError
from verax.numerics import statistics as st
from verax.numerics.error_model import U
from verax.records.verdict import Kind
from verax.testing.derived_bound import DerivedBound, decide_by, derive
from verax.testing.random_rounding import RoundingNoise
from verax.testing.random_rounding_numpy import NumpyFunction, RoundedArray, rounding_at_random

FLOAT32 = np.dtype(np.float32)


def test_the_campaign_has_200_functions() -> None:
    names = [f.name for f in functions()]
    assert len(names) == 200 and len(set(names)) == len(FAMILIES) == 25


def test_one_draw_of_each_family_has_no_false_answer() -> None:
    figures = measure(functions(draws=1))
    assert sum(figures.cases.values()) == 52 + 75 + 4
    false = {k: v for k, v in figures.named.items() if k[0] != "unstable"}
    assert not false and not figures.undecided.total()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2026, 2027])
def test_the_whole_campaign_keeps_its_claim(seed: int) -> None:
    figures = measure(functions(seed=seed))
    assert figures.cases.total() == 416 + 600 + 32
    correct = sum(n for (group, _), n in figures.false.items() if group == "correct")
    faulty = sum(n for (group, _), n in figures.false.items() if group == "faulty")
    assert correct <= 2 and faulty == 0 and not figures.undecided.total()


def noise(seed: int, unit: float = U) -> RoundingNoise:
    return RoundingNoise(np.random.default_rng(seed), unit, unit)


def spread(function: object, *arrays: np.ndarray) -> np.ndarray:
    """Root mean square of the noise in a function's result, in float32's units."""
    exact = np.asarray(function(*arrays))  # type: ignore[operator]
    runs = []
    for seed in range(40):
        with rounding_at_random(noise(seed)):
            runs.append(np.asarray(function(*(a.view(RoundedArray) for a in arrays))))  # type: ignore[operator]
    return np.sqrt(np.mean(np.square(np.stack(runs) - exact), 0)) / U


def test_exact_operations_are_not_rounded() -> None:
    x = np.random.default_rng(1).standard_normal((7, 5))
    for exact in (np.negative, np.abs, np.floor, np.sign, np.sort, np.transpose, np.ravel):
        assert not spread(exact, x).any(), exact
    assert not spread(lambda x: x[::-1, 2:], x).any()
    assert not spread(lambda x: np.maximum(x, 0).max(-1), x).any()


def test_every_other_operation_is_rounded_once() -> None:
    x = np.random.default_rng(2).uniform(1, 2, (60, 50))
    for rounded in (np.exp, np.sqrt, np.tanh, lambda x: x * x, lambda x: x + 1, lambda x: 1 / x):
        relative = spread(rounded, x) / np.abs(rounded(x))  # type: ignore[operator]
        assert 0.5 < np.sqrt(np.mean(relative**2)) < 0.65  # uniform: 1 / sqrt(3)


def test_sums_are_rounded_as_sums_are() -> None:
    random = np.random.default_rng(3)
    x, y = random.standard_normal((2, 80, 90))
    for function in (
        lambda x, y: x @ y.T,
        lambda x, y: np.dot(x, y.T),
        lambda x, y: x.dot(y.T),
        lambda x, y: np.einsum("ij,kj->ik", x, y),
        lambda x, y: np.tensordot(x, y, ([1], [1])),
    ):
        measured = st.root_mean_square(spread(function, x, y))
        # kappa sqrt(n S^2 / 3 + n Q^2 / 6 + Q^2 + ...) with S^2 about Q^2 about n
        assert 25 < measured < 40
    steps = spread(lambda x, y: np.cumsum(x, -1), x, y)
    assert st.root_mean_square(steps[:, -9:]) > 5 * st.root_mean_square(steps[:, :9])
    assert st.root_mean_square(spread(lambda x, y: x.mean(-1), x, y)) < 1


def test_loops_over_elements_are_seen() -> None:
    def total(x: np.ndarray) -> np.ndarray:
        y = 0.0
        for i in range(len(x)):
            y = y + x[i] * x[i]
        return np.asarray(y)

    assert spread(total, np.random.default_rng(4).standard_normal(30)).all()
    assert spread(lambda x: np.stack([r + 1 for r in x]), np.ones((3, 2))).all()


def bound(function: object, *arrays: np.ndarray) -> DerivedBound:
    ready = NumpyFunction(function, arrays, "f")  # type: ignore[arg-type]
    return derive(ready, [FLOAT32], U, U, 5)[0]


def test_integers_are_exact_but_where_rounding_decides() -> None:
    x = np.random.default_rng(6).standard_normal((40, 9)).astype(np.float32)
    x[3, 4] = x[3].max()  # a tie that no rounding of the inputs makes
    x[3, 5] = np.nextafter(x[3, 4], 0, dtype=np.float32)
    arg = bound(lambda x: np.argmax(x * 1.1, -1), x)
    answer = np.argmax(x * 1.1, -1)
    assert decide_by(answer, arg).kind is Kind.identical
    other = answer.copy()
    other[3] = 5 if answer[3] == 4 else 4
    assert decide_by(other, arg).kind is Kind.rounding
    other[7] = (other[7] + 1) % 9
    assert decide_by(other, arg).kind is Kind.mistake


def test_an_edge_excuses_few_elements_alone() -> None:
    x = np.random.default_rng(7).standard_normal((50, 40)).astype(np.float32)
    x[5, 6] = 1 / 3
    cut = bound(lambda x: np.floor(3 * x), x)
    right = np.floor(np.float32(3) * x)
    right[5, 6] = 0
    assert decide_by(right, cut).kind in (Kind.rounding, Kind.identical)
    assert decide_by(right + np.float32(1), cut).kind is Kind.mistake
    right[8, 8] += 1
    assert decide_by(right, cut).kind is Kind.mistake


def test_where_most_elements_lie_at_an_edge_nothing_is_decided() -> None:
    x = np.full((6, 7), (1 + 16 * U) / 3, np.float32)  # nearer than 64 roundings, not than one
    cut = bound(lambda x: np.floor(3 * x), x)
    assert decide_by(np.zeros((6, 7)), cut).kind is Kind.undecided
    assert decide_by(np.full((6, 7), 5.0), cut).kind is Kind.mistake


def test_a_smooth_function_excuses_no_single_element() -> None:
    x = np.random.default_rng(8).standard_normal((50, 40)).astype(np.float32)
    smooth = bound(lambda x: np.exp(x), x)
    assert smooth.sigma is not None
    right = np.exp(x.astype(np.float64))
    assert decide_by(right.astype(np.float32), smooth).kind is Kind.rounding
    right[5, 6] += 40 * smooth.sigma[5, 6]
    assert decide_by(right, smooth).kind is Kind.mistake


def test_what_overflows_in_the_meaning_too_is_undecided() -> None:
    x = np.array([[1, 2, 90], [3, 4, 5]], np.float32)
    square = bound(lambda x: np.exp(x) ** 2 / 1e40, x)
    with np.errstate(all="ignore"):
        own = np.exp(x) ** 2 / np.float32(1e30) / np.float32(1e10)
    assert not np.isfinite(own[0, 2])
    assert decide_by(own, square).kind is Kind.undecided
    own[1, 1] = np.nan
    assert decide_by(own, square).kind is Kind.mistake


def test_what_does_not_run_under_random_rounding_is_said_in_words() -> None:
    def picky(x: np.ndarray) -> np.ndarray:
        if type(x) is not np.ndarray:
            raise TypeError("plain arrays alone")
        return 2 * x

    with pytest.raises(VeraxError, match="TypeError under random rounding: plain arrays alone"):
        bound(picky, np.ones(3, np.float32))


def test_a_random_meaning_is_refused_by_name() -> None:
    x = np.random.default_rng(95).standard_normal((3, 50)).astype(np.float32)
    random = np.random.default_rng(96)
    with pytest.raises(UsageError, match="other numbers when it is called again"):
        verax.assert_correct(x, lambda a: a * (random.random(a.shape) > 0.5), x)


def test_a_number_is_an_answer() -> None:
    x = np.random.default_rng(97).standard_normal((4, 30)).astype(np.float32)
    verax.assert_correct(float(np.square(x).sum()), lambda a: (a * a).sum(), x)
    verax.assert_correct(float(x.astype(float).sum()), np.sum, x.astype(float))
    with pytest.raises(AssertionError):
        verax.assert_correct(float(x[:, 1:].sum()), np.sum, x)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_meanings_of_other_libraries_are_the_same_code(library: str) -> None:
    pytest.importorskip(library)
    for function in functions(draws=1, seed=98):
        want = LIBRARIES["numpy"](function, list(function.inputs)).exact()
        got = LIBRARIES[library](function, list(function.inputs)).exact()
        assert len(want) == len(got)
        for a, b in zip(want, got):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=function.name)
