"""Which tap of a convolution's kernel an answer leaves out."""

from __future__ import annotations

import itertools

import numpy as np

from verax.base.arrays import as_array
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.judge.decide.local import stored
from verax.judge.decide.precision import to_float64
from verax.numerics import statistics as st
from verax.testing.operator_meaning import OperatorCase

CONVOLUTIONS = ("Conv", "ConvTranspose")
MAX_TAPS = 64
"""Kernel positions that are tried."""


def missing_tap(case: OperatorCase, actual: np.ndarray) -> str:
    """ "tap (0, 1) missing" for an answer that a kernel without that position gives; else ""."""
    if case.op.kind not in CONVOLUTIONS or actual.dtype.kind not in "fV":
        return ""
    arrays = [None if v is None else np.asarray(as_array(v)) for v in case.inputs.values()]
    inputs = [to_float64(a) for a in arrays]
    kernel = inputs[1].shape[2:]
    types = tuple(None if a is None else TensorType.of(a) for a in arrays)
    kind = case.graph.types[case.graph.outputs[0]]
    if np.prod(kernel) > MAX_TAPS or actual.shape != kind.shape:
        return ""
    ev = Evaluation(types, (kind,))
    wide = actual.astype(np.float64)
    for tap in itertools.product(*map(range, kernel)):
        weights = inputs[1].copy()
        weights[(..., *tap)] = 0
        changed = [inputs[0], weights, *inputs[2:]]
        with np.errstate(all="ignore"):
            y = np.asarray(case.op.reference(ev, *changed))
            rounding = stored(case.op.error(ev, changed, (y,))[0], y, kind.dtype)
        if rounding is None:
            return ""
        z = st.standardised(wide - y, rounding.sigma)
        if st.group_test(z).statistic <= st.ROUNDING_T:
            return f"tap {tap} missing"
    return ""
