"""Counting: ranks of labels, shares with their intervals, whether two shares differ by chance."""

from __future__ import annotations

import math

import numpy as np

from verax.records.evaluation import Share

Z95 = 1.959963984540054
"""Quantile 0.975 of the normal distribution."""


def choices(scores: np.ndarray) -> np.ndarray:
    """The class with the largest score of each row; the first of equal ones, NaN never."""
    return np.asarray(_comparable(scores).argmax(axis=1))


def ranks(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many classes come before the label's in each row [n, classes]; 0: it is the choice.

    A class comes before the label's when its score is larger, or equal and its number smaller, as
    `choices` has it; a label whose score is NaN comes last.
    """
    rows = _comparable(scores)
    own = rows[np.arange(len(rows)), labels][:, None]
    before = np.arange(rows.shape[1])[None] < labels[:, None]
    rank = ((rows > own) | ((rows == own) & before)).sum(axis=1)
    lost = np.isnan(scores[np.arange(len(rows)), labels])
    return np.where(lost, rows.shape[1] - 1, rank)


def _comparable(scores: np.ndarray) -> np.ndarray:
    if scores.dtype.kind != "f":
        return scores
    return np.where(np.isnan(scores), -np.inf, scores)


def share(right: int, of: int) -> Share:
    """`right` of `of` with its Wilson interval (E. B. Wilson, 1927): it holds for small numbers
    and near 0 and 1, too."""
    p, z2 = right / of, Z95 * Z95
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z95 / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of * of))
    low = 0.0 if right == 0 else max(0.0, middle - half)
    high = 1.0 if right == of else min(1.0, middle + half)
    return Share(right, of, low, high)


def mcnemar(only_first: int, only_second: int) -> float:
    """McNemar's exact test: the probability that chance splits the samples that only one of two
    has right at least as unevenly; 1 when there are none."""
    total, fewer = only_first + only_second, min(only_first, only_second)
    term = below = 1  # binomial coefficients, as exact integers
    for i in range(fewer):
        term = term * (total - i) // (i + 1)
        below += term
    return min(1.0, 2 * below / (1 << total))
