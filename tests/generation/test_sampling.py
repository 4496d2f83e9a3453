"""Sampling: exact shares, the same on every machine, and the random numbers that are stated."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.errors import InputError, UsageError
from verax.base.option_groups.generation_options import SamplingOptions
from verax.generation.sampling import (
    LOWEST,
    ONE,
    candidates,
    exponential,
    log_probability,
    logarithm,
    next_token,
    random_word,
    weights,
)
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.functions_double import exp_d

LOGITS = np.random.default_rng(5).standard_normal(37).astype(np.float32) * 2


STATED = [13, 9, 9, 4, 13, 9, 4, 4, 13, 13, 13, 8]


def drawn(options: SamplingOptions, count: int = 2000) -> Counter[int]:
    return Counter(next_token(LOGITS, options, 0, position) for position in range(count))


def philox(key: tuple[int, int], counter: int) -> int:
    """The first word of Philox-4x64-10, as its paper states it."""
    words, low = [counter, 0, 0, 0], (1 << 64) - 1
    for round_ in range(10):
        keys = [k + round_ * w & low for k, w in zip(key, (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B))]
        a, b = words[0] * 0xD2E7470EE14C6C93, words[2] * 0xCA5A826395121157
        words = [(b >> 64) ^ words[1] ^ keys[0], b & low, (a >> 64) ^ words[3] ^ keys[1], a & low]
    return words[0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 40), st.integers(0, 9000))
def test_random_numbers_are_philox(seed: int, row: int, position: int) -> None:
    assert random_word(seed, row, position) == philox((seed, row), position + 1)


def test_the_tokens_of_a_seed_are_stated() -> None:
    """On every machine, and in every later version."""
    options = SamplingOptions(temperature=0.8, top_k=20, top_p=0.95, seed=2026)
    assert [next_token(LOGITS, options, 1, p) for p in range(12)] == STATED


def test_weights_are_exponentials_rounded_once() -> None:
    for temperature in (0.3, 1.0, 2.5):
        below = [(float(x) - float(LOGITS.max())) / temperature for x in LOGITS]
        exact = np.array([math.exp(b) * ONE for b in below])
        assert np.abs(weights(LOGITS, temperature) - exact).max() <= 1


def test_exponentials_have_the_bits_that_kernels_promise() -> None:
    x = np.concatenate([np.random.default_rng(2).uniform(-29, 0, 5000), [0.0, -28.5, -1e-300]])
    assert exponential(x).tobytes() == exp_d(NumpyArith(), x).tobytes()
    assert np.rint(math.exp(LOWEST) * ONE) == 0


def test_logarithms_are_within_four_units_of_the_last_place() -> None:
    random = np.random.default_rng(2)
    values = np.concatenate([np.exp(random.uniform(-3, 20, 900)), 1 + random.uniform(0, 1e-3, 90)])
    with mpmath.workprec(120):
        for x in values.tolist():
            exact = mpmath.log(x)
            assert abs(logarithm(x) - exact) <= 4 * math.ulp(float(exact)), x
    assert logarithm(1.0) == 0


def test_a_log_probability_is_within_its_bound() -> None:
    wide = LOGITS.astype(np.longdouble)
    exact = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    found = np.array([log_probability(LOGITS, i) for i in range(LOGITS.size)])
    assert np.abs(found - exact).max() <= LOGITS.size * 2.0**-41


@given(st.integers(0, 40), st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_candidates_are_the_likeliest_by_id(count: int, values: list[int]) -> None:
    logits = np.array(values, np.float32)
    expected = sorted(range(len(values)), key=lambda i: (-values[i], i))
    assert candidates(logits, count).tolist() == expected[: count or None]


def test_top_k_leaves_the_others_out() -> None:
    assert set(drawn(SamplingOptions(top_k=5, temperature=3.0))) == set(candidates(LOGITS, 5))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_top_p_takes_the_fewest_tokens_of_that_probability(share: float) -> None:
    order = candidates(LOGITS, 0)
    parts = [Fraction(int(w)) for w in weights(LOGITS[order], 1.0)]
    needed = next(
        n for n in range(1, len(parts) + 1) if sum(parts[:n]) >= Fraction(share) * sum(parts)
    )
    found = set(drawn(SamplingOptions(top_p=share)))
    assert found <= set(order[:needed].tolist())
    assert len(found) > needed // 2


def test_tokens_come_as_often_as_they_are_likely() -> None:
    count = 4000
    found = drawn(SamplingOptions(temperature=0.9, seed=1), count)
    parts = weights(LOGITS, 0.9) / weights(LOGITS, 0.9).sum()
    often = parts * count > 20
    counts = np.array([found[i] for i in range(LOGITS.size)])
    statistic = ((counts - parts * count) ** 2 / (parts * count))[often].sum()
    degrees = int(often.sum())
    assert statistic < degrees + 5 * math.sqrt(2 * degrees)  # five sigma


def test_temperature_zero_is_the_likeliest_of_the_smallest_id() -> None:
    tied = np.array([1.0, 4.0, 4.0, -2.0], np.float32)
    assert next_token(tied, SamplingOptions(temperature=0.0, seed=5), 0, 0) == 1
    assert next_token(tied, SamplingOptions(), 0, 0) == 1
    assert next_token(tied, SamplingOptions(temperature=1e-300), 0, 0) in (1, 2)


def test_what_is_hidden_is_never_chosen() -> None:
    logits = np.array([-np.inf, 0.5, -np.inf, 0.25], np.float32)
    found = {next_token(logits, SamplingOptions(seed=s), 0, 0) for s in range(60)}
    assert found == {1, 3}


def test_logits_that_are_none_are_refused() -> None:
    for value, word in ((np.nan, "NaN"), (np.inf, "inf")):
        logits = np.array([0.5, value, 1.0], np.float32)
        with pytest.raises(InputError, match=f"logits are {word}"):
            next_token(logits, SamplingOptions(top_k=2), 1, 7)


@pytest.mark.parametrize(
    "field", [{"top_p": 0.0}, {"top_p": 1.5}, {"temperature": -1.0}, {"top_k": -2}, {"seed": -1}]
)
def test_options_that_make_no_sense(field: dict[str, float]) -> None:
    (name,) = field
    with pytest.raises(UsageError, match=name):
        SamplingOptions(**field)  # type: ignore[arg-type]
