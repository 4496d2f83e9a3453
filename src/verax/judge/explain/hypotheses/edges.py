"""The first or the last index along an axis multiplied by another number, as where a block's edge
is weighted twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect, axis_name, pointwise
from verax.judge.explain.hypotheses.fitting import factor
from verax.numerics import statistics as st


def edges(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield, for the edges whose errors stand out from the others', their factor."""
    actual, expected = suspect.wide, suspect.expected
    if actual.shape != expected.shape or not (np.isfinite(actual) & np.isfinite(expected)).all():
        return
    squares = np.square(actual - expected)
    for axis, n in enumerate(expected.shape):
        for index, name in ((n - 1, "last"), (0, "first")) if n > 2 else ():
            at_edge, elsewhere = np.take(squares, index, axis), np.delete(squares, index, axis)
            if at_edge.mean() <= st.STANDS_OUT**2 * elsewhere.mean():
                continue
            times = factor(np.take(expected, index, axis), np.take(actual, index, axis))
            if times is None or times in (0.0, 1.0):
                continue
            along = axis_name(axis, expected.ndim)
            yield Hypothesis(
                f"{name} along the {along} axis scaled",
                f"the {name} of {n} along the {along} axis is {times:.6g} times what it should be",
                Prior.anything,
                after=pointwise(
                    lambda y, a=axis, k=index, t=times: _scaled(y, a, k, t), max(1.0, abs(times))
                ),
                fitted=1,
            )


def _scaled(y: np.ndarray, axis: int, index: int, times: float) -> np.ndarray:
    """`y` with what lies at an index of an axis multiplied."""
    scaled = y.copy()
    selection: list[int | slice] = [slice(None)] * y.ndim
    selection[axis] = index
    scaled[tuple(selection)] *= times
    return scaled
