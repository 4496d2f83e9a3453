"""Errors that an approximate function makes inside a region: a GPU's tanh in recurrent networks.

Its error depends on the argument alone, so a table of it can be fitted to what a subject gave. What
that table explains is no mistake; what it leaves is judged as rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.precision import to_float64
from verax.judge.decide.recurrent_precision import (
    KNOTS,
    RECURRENT,
    TABLE,
    fit_table,
    recurrent_outputs,
)
from verax.judge.regions.sampler import Sampler
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.ops.recurrent.recurrent import Recurrent
from verax.records.verdict import Kind


def table_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `precision` where a table of tanh in the region's recurrent networks explains the
    error of an observed value; None where there is none, or where it explains too little."""
    if not any(isinstance(n.op, Recurrent) for n in sampler.region.nodes):
        return None
    if KNOTS * sum(a.size for a in sampler.inner.values()) > st.REFINING_WORK:
        return None

    def run(table: np.ndarray | None) -> np.ndarray:
        def after(node: Node, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
            if not isinstance(node.op, Recurrent):
                return sampler.evaluate(node, arrays).outputs
            wide = [to_float64(a) for a in arrays]
            ev = sampler.wide_evaluation(node, wide)
            return recurrent_outputs(node.op, ev, wide, RECURRENT[0], table)

        return sampler.run(after)[value]

    fitted = fit_table(run, error)
    if fitted is None:
        return None
    left = st.group_test(st.standardised(error - fitted, sigma + TINY))
    share = st.root_mean_square(error - fitted) / st.root_mean_square(error)
    if left.statistic > st.CALIBRATED_T:
        return None
    return Decision(
        Kind.precision,
        f"one table of relative errors of tanh, the same for equal arguments and below 2^-15 as in "
        f"{TABLE}, explains all but {share:.1g} of the error",
        TABLE,
        left.statistic / st.CALIBRATED_T,
        left.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )
