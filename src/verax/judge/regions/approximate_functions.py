"""Errors that an approximate function makes inside a region: a GPU's tanh in recurrent networks.

Its error depends on the argument alone, so a table of it can be fitted to what a subject gave. What
that table explains is no mistake; what it leaves is judged as rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.possible import may_be_device
from verax.judge.decide.precision import to_float64
from verax.judge.decide.recurrent_precision import (
    KNOTS,
    RECURRENT,
    TABLE,
    drawn_table,
    fit_table,
    recurrent_outputs,
    with_table,
)
from verax.judge.regions.sampler import Sampler
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.ops.recurrent.recurrent import Recurrent
from verax.records.verdict import Kind

FEWEST_STEPS = 3
"""Tanhs and sigmoids from which nodes are taken for a recurrent network's."""


def table_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `precision` where a table of tanh in the region's recurrent networks explains the
    error of an observed value; None where there is none, or where it explains too little."""
    cells = _unrolled_cells(sampler.region.nodes)
    if not cells and not any(isinstance(n.op, Recurrent) for n in sampler.region.nodes):
        return None

    def run(table: np.ndarray | None) -> np.ndarray:
        def after(node: Node, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
            if table is not None and node.outputs[0] in cells:
                y = np.tanh(to_float64(arrays[0]))
                return (with_table(y, to_float64(arrays[0]), table),)
            if not isinstance(node.op, Recurrent):
                return sampler.evaluate(node, arrays).outputs
            wide = [to_float64(a) for a in arrays]
            ev = sampler.wide_evaluation(node, wide)
            return recurrent_outputs(node.op, ev, wide, RECURRENT[0], table)

        return sampler.run(after)[value]

    if KNOTS * sum(a.size for a in sampler.inner.values()) > st.REFINING_WORK:
        return _by_size(sampler.random, run, error, sigma)
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


def _by_size(
    random: np.random.Generator,
    run: Callable[[np.ndarray | None], np.ndarray],
    error: np.ndarray,
    sigma: np.ndarray,
) -> Decision | None:
    """Decision `precision` where errors are no larger than tables make them, in a region that is
    too large to fit one."""
    exact = run(None)
    if exact.shape != error.shape:
        return None
    squares = np.mean(
        [np.square(run(drawn_table(random)) - exact) for _ in range(st.SAMPLES_MANY)], axis=0
    )
    fit = st.group_test(st.standardised(error, np.hypot(sigma, st.sampled_sigma(squares)) + TINY))
    if fit.statistic > st.ROUNDING_T:
        return None
    return Decision(
        Kind.precision,
        f"the errors are no larger than {TABLE} makes them, whose relative errors reach 2^-16.5; "
        "the region is too large to fit its table",
        TABLE,
        fit.statistic,
        fit.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _unrolled_cells(nodes: Sequence[Node]) -> frozenset[str]:
    """The tanhs of recurrent networks that are written out step by step, as gradients are: where a
    GPU may have computed them, and there are several steps, each with its sigmoids."""
    tanhs = frozenset(n.outputs[0] for n in nodes if n.op.kind == "Tanh")
    sigmoids = sum(n.op.kind == "Sigmoid" for n in nodes)
    return tanhs if may_be_device() and min(len(tanhs), sigmoids) >= FEWEST_STEPS else frozenset()
