"""How much a wrong answer says, so that a hypothesis which agrees by chance is not named.

Of three small integers one hypothesis among a hundred agrees with any. What speaks for one that
agrees is counted in bits: which elements are wrong, and the numbers that those have. The rarer a
mistake is, the more of them it needs.
"""

from __future__ import annotations

import math

import numpy as np

from verax.judge.explain.hypotheses.base import Prior, Suspect
from verax.numerics import statistics as st

FLOAT_BITS = {2: 7, 4: 20, 8: 40}
"""Bits of a float of so many bytes that an agreeing hypothesis predicts; the last are rounding."""


def needed_bits(prior: Prior) -> float:
    """Bits that have to speak for a hypothesis: enough to choose one of the library's, and more
    for what happens rarely."""
    return st.CHANCE_BITS + st.PRIOR_BITS * int(prior)


def telling_bits(suspect: Suspect) -> float:
    """Bits that the wrong elements of a suspect tell: their choice among all, and the number of
    each pair of expected and actual value that occurs, or of each truth. Infinite for an answer of
    another shape, whose size tells more."""
    actual, expected = suspect.wide, suspect.expected
    if actual.shape != expected.shape:
        return math.inf
    with np.errstate(all="ignore"):
        expected = expected.astype(suspect.actual.dtype).astype(np.float64)
        rounding = suspect.meaning.roundings[suspect.output]
        sigma = np.zeros(()) if rounding is None else rounding.sigma
        right = (np.abs(actual - expected) <= st.DISTINCT * sigma) | (actual == expected)
        wrong = ~(right | (np.isnan(actual) & np.isnan(expected)))
    n, k = wrong.size, int(wrong.sum())
    if k == 0:
        return 0.0
    choice = (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)
    if suspect.actual.dtype == bool:
        return choice + k  # there are two pairs, however many truths are wrong
    pair_count = np.unique(np.stack([expected[wrong], actual[wrong]]), axis=1).shape[1]
    return choice + pair_count * _bits_of_element(suspect.actual, actual, expected)


def _bits_of_element(declared: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> float:
    """Bits of one number: of those between the extremes where all are whole numbers."""
    values = np.concatenate([actual.ravel(), expected.ravel()])
    values = values[np.isfinite(values)]
    full = float(FLOAT_BITS.get(declared.dtype.itemsize, 3))
    if declared.dtype.kind in "iu":
        full = 8.0 * declared.dtype.itemsize
    if values.size and not (values == np.rint(values)).all():
        return full
    return min(full, math.log2(2 * float(np.abs(values).max(initial=0.0)) + 2))
