"""Whether float32 runs of a region in sequential summation orders explain an error.

Monte Carlo noise is independent from element to element. On data whose rounding errors have the
same sign (repeated values, ramps, a running sum beside a spike) correct results scatter further,
together; a run in plain float32 shows by how much. Which order does so depends on the weights:
where one color is compared with another, sums color by color stay small and others do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.figures import times
from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.judge.decide import difference_of_squares
from verax.judge.decide.criterion import Decision, channel_rms
from verax.judge.decide.orders import float32_runs
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate_node

TEST = "own float32 run"
MOST_PRODUCTS = 2**25
"""Convolutions and matrix products with more products are summed in NumPy's order."""


ORDERS = 4
"""Orders that are tried: of a convolution both ways through its channels, then pixel by pixel."""


def sequential_run(sampler: Sampler, order: int = 0, *, one_pass: bool = False) -> Values:
    """Observed values of the region in float32, every node in its summation order number `order`
    of `decide.orders` (its last where it has fewer). one_pass: with every variance as a difference
    of squares."""

    def narrow(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        graph = sampler.graph
        declared = [
            None if a is None or v is None else a.astype(graph.types[v].dtype.numpy, copy=False)
            for v, a in zip(node.inputs, arrays)
        ]
        types = tuple(None if a is None else TensorType.of(a) for a in declared)
        outputs = graph.output_types(node)
        with np.errstate(all="ignore"):
            baseline = evaluate_node(node, declared, types, outputs, np.float32)
            if (
                node.op.exact
                or baseline[0].dtype != np.float32
                or _is_large(node, declared, baseline)
            ):
                return baseline
            if one_pass and difference_of_squares.applies(node.op, 0):
                return (difference_of_squares.one_pass_run(node.op, declared), *baseline[1:])
            shaped = tuple(TensorType(t.dtype, y.shape) for t, y in zip(outputs, baseline))
            runs = float32_runs(node, Evaluation(types, shaped), declared, 0, promised=False)
            *_, first = itertools.islice(runs, order + 1)
        return (first, *baseline[1:])

    return sampler.run(narrow)


def _is_large(node: Node, arrays: Sequence[Any], outputs: Sequence[np.ndarray]) -> bool:
    """Whether adding the products of a node one by one would take seconds in NumPy."""
    if node.op.kind not in ("Conv", "MatMul"):
        return arrays[0] is None
    terms = arrays[1][0].size if node.op.kind == "Conv" else arrays[0].shape[-1]
    return bool(outputs[0].size * terms > MOST_PRODUCTS)


def order_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """The decision on an error that exceeds the spread, where a float32 run of ours does as well.

    error: of the subject at an observed value; sigma: the spread there. Rounding, where a run has
    the subject's very bits, or the error fits after sigma was enlarged, channel by channel, to the
    errors of a run; undecided, where a run exceeds the spread as far as the subject does, but
    elsewhere; None otherwise.
    """
    decided: Decision | None = None
    before: list[np.ndarray] = []
    for order in range(ORDERS):
        own = sequential_run(sampler, order)[value]
        if any(np.array_equal(own, b) for b in before):
            continue
        before.append(own)
        decision = _decide_by_run(sampler, value, error, sigma, own)
        if decision is not None and decision.kind is Kind.rounding:
            return decision
        decided = decided or decision
    return decided or _one_pass_decision(sampler, value, error, sigma)


def _one_pass_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Undecided, where the error is no larger than what a variance by difference of squares makes
    inside: a size proves nothing, and the nodes' own values would."""
    nodes = [n.name or n.outputs[0] for n in sampler.region.nodes
             if difference_of_squares.applies(n.op, 0)]  # fmt: skip
    expected = sampler.expected[value]
    if not nodes or expected.shape != error.shape:
        return None
    own = sequential_run(sampler, one_pass=True)[value]
    if not np.isfinite(own).all():
        return None
    spread = np.maximum(1.0, channel_rms(st.standardised(own - expected, sigma + TINY)))
    fit = st.group_test(st.standardised(error, (sigma + TINY) * spread))
    if fit.statistic > st.ORDER_T:
        return None
    return Decision(
        Kind.undecided,
        f"the difference is as large as an unstable algorithm makes it in {', '.join(nodes[:3])} "
        f"({difference_of_squares.NAME}), and may be a mistake of that size: values inside would "
        "tell",
        TEST,
        fit.statistic / st.ORDER_T,
        fit.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _decide_by_run(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray, own: np.ndarray
) -> Decision | None:
    """As `order_decision`, for one run of ours, `own`."""
    expected = sampler.expected[value]
    if own.shape != expected.shape or not np.isfinite(own).all():
        return None
    sizes = (None, st.root_mean_square(sigma), st.root_mean_square(error))
    nodes = len(sampler.region.nodes)
    if np.array_equal(own.astype(np.float64) - expected, error):
        reason = f"a plain float32 run of these {nodes} nodes gives the same bits"
        return Decision(Kind.rounding, reason, TEST, 0.0, "", *sizes)
    scatter = st.standardised(own - expected, sigma + TINY)
    for axis in (1, -1) if expected.ndim > 2 else (1,):
        seen = np.moveaxis(scatter, axis, 1) if axis != 1 else scatter
        spread = np.maximum(1.0, channel_rms(seen))
        spread = np.moveaxis(spread, 1, axis) if axis != 1 and np.ndim(spread) else spread
        ordered = st.group_test(st.standardised(error, (sigma + TINY) * spread))
        if ordered.statistic <= st.ROUNDING_T:
            return Decision(
                Kind.rounding,
                "on this data rounding errors point the same way, and a plain float32 run of "
                f"these {nodes} nodes errs as much",
                TEST,
                ordered.statistic,
                ordered.group,
                *sizes,
            )
    fit, baseline = st.group_test(st.standardised(error, sigma + TINY)), st.group_test(scatter)
    if baseline.statistic > st.ROUNDING_T and fit.statistic <= st.ORDER_T * baseline.statistic:
        return Decision(
            Kind.undecided,
            f"the difference is {times(fit.statistic)} times the most that rounding usually does "
            f"inside these {nodes} nodes, but a plain float32 run reaches {baseline.statistic:.3g} "
            "times that as well: on this data float32 says little",
            TEST,
            fit.statistic,
            fit.group,
            *sizes,
        )
    return None
