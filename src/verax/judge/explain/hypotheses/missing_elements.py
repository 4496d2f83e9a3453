"""A parameter of which single elements were left out: the bias of one channel is missing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect
from verax.judge.explain.hypotheses.parameters import (
    LARGEST_OUTPUT,
    LISTED,
    NodeParameter,
    evaluated_with,
    slopes,
    vectors_of,
)
from verax.numerics import statistics as st


def missing_elements(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield, for each vector among the inputs, that those elements were 0 without which the error
    is mostly gone where they are read, and where it stands out from the others'."""
    actual, expected = suspect.wide, suspect.expected
    if actual.shape != expected.shape or not 0 < actual.size <= LARGEST_OUTPUT:
        return
    if actual.dtype.kind != "f" or not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        return
    for vector in vectors_of(suspect):
        missing = _missing(suspect, vector)
        if missing is None:
            continue
        name = suspect.node.inputs[vector.index] if suspect.node.inputs else None
        label = f"input {vector.index}, {name!r}," if name else f"input {vector.index}"
        listed = ", ".join(map(str, missing[:LISTED]))
        more = f" and {len(missing) - LISTED} more" if len(missing) > LISTED else ""
        values = vector.values.copy()
        values[missing] = 0.0
        yield Hypothesis(
            f"input {vector.index} 0 at {listed}{more}",
            f"{label} was taken as 0 at {listed}{more}, as if it were missing there",
            Prior.common,
            inputs=vector.edit(values),
        )


def _missing(suspect: Suspect, vector: NodeParameter) -> np.ndarray | None:
    """Which elements of a vector seem to be 0 in the subject; None for none, or for a quarter of
    them and more."""
    sloped = slopes(suspect, vector)
    without = evaluated_with(suspect, vector, np.zeros_like(vector.values))
    if sloped is None or without is None or without.shape != suspect.expected.shape:
        return None
    reader = sloped[1]
    use = reader >= 0
    error = suspect.wide - suspect.expected

    def per_element(squares: np.ndarray) -> np.ndarray:
        totals = np.bincount(reader[use], squares[use], vector.values.size)
        return np.asarray(totals / np.maximum(np.bincount(reader[use], minlength=totals.size), 1))

    before, left = per_element(error**2), per_element((suspect.wide - without) ** 2)
    stands_out = before > st.STANDS_OUT**2 * np.median(before)
    missing = np.flatnonzero(stands_out & (left <= st.NEAR_EXPLAINED**2 * before))
    return missing if 0 < len(missing) <= vector.values.size // 4 else None
