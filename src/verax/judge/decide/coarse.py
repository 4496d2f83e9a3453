"""A value as a coarser arithmetic gives it, and whether a subject's numbers are that."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, Rounding
from verax.numerics.formats import FloatFormat, round_to

FIRST = 64
"""Numbers of an array that are looked at before all of them."""


@dataclass(frozen=True)
class Coarse:
    """A value under a coarser arithmetic: float64, how far float32 rounding may move it, and the
    format that it is stored in (None: float32). added: what is added to it once it is stored, and
    stored again; zero where nothing is."""

    name: str
    expected: np.ndarray
    rounding: Rounding
    grid: FloatFormat | None = None
    added: np.ndarray | float = 0.0

    def test(self, actual: np.ndarray, flushed: np.ndarray | None = None) -> st.GroupTest:
        """T, at most 1 when `actual` is this value within rounding; `flushed` elements do not
        count."""
        wide = actual.astype(np.float64)
        if flushed is not None:
            wide = np.where(flushed, self.expected + self.added, wide)
        if self.grid is None:
            z = st.standardised(wide - self.expected, self.rounding.sigma + TINY)
            return st.group_test(z)
        inside = bool(self.given_by_rounding(wide, self.grid).all())
        return st.GroupTest(0.0 if inside else math.inf, "all")

    def given_by_rounding(self, wide: np.ndarray, grid: FloatFormat) -> np.ndarray:
        """Mask of the elements of `wide` (float64) that this value, stored in `grid`, gives
        wherever float32 rounding may have left it before."""
        reach = st.GRID_REACH * self.rounding.sigma
        low, high = (
            round_to(round_to(self.expected + s * reach, grid) + self.added, grid) for s in (-1, 1)
        )
        return np.asarray((low <= wide) & (wide <= high))


def on_grid(actual: np.ndarray, fmt: FloatFormat) -> bool:
    """Whether every number is one of the format's."""
    for array in (actual.reshape(-1)[:FIRST], actual):  # the first numbers tell nearly always
        wide = array.astype(np.float64)
        if not (round_to(wide, fmt) == wide).all():
            return False
    return True
