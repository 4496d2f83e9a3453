"""The arithmetic of the meaning: as `NumpyArith`, with the functions of NumPy and the C library.

Which of the two an operator's `reference` computes with is said by whoever evaluates it
(`Evaluation.arith`): the meaning with this one, what is promised with `NumpyArith`. They agree
within a few float64 ulps, and are independent of each other.
"""

from __future__ import annotations

import numpy as np

from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.functions_meaning import FUNCTIONS


class MeaningArith(NumpyArith):
    """Named functions of float64 arrays (or whatever arrays NumPy's take) by NumPy and libm."""

    def call(self, function: str, *args: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[function](*args))
