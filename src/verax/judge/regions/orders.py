"""The order tier of regions: an own float32 run of the region that adds one term after the other.

Monte Carlo noise is independent from element to element. On data whose rounding errors all point
the same way (repeated values, ramps, a running sum beside a spike) honest results scatter further,
together; an own run in plain float32 shows by how much.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
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


def sequential_run(sampler: Sampler) -> Values:
    """Shown values of the region in float32, every node in its plainest order."""

    def narrow(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        graph = sampler.graph
        declared = [
            None if a is None or v is None else a.astype(graph.types[v].dtype.numpy, copy=False)
            for v, a in zip(node.inputs, arrays)
        ]
        types = tuple(None if a is None else TensorType.of(a) for a in declared)
        outputs = graph.output_types(node)
        with np.errstate(all="ignore"):
            honest = evaluate_node(node, declared, types, outputs, np.float32)
            if node.op.exact or honest[0].dtype != np.float32 or _is_large(node, declared, honest):
                return honest
            shaped = tuple(TensorType(t.dtype, y.shape) for t, y in zip(outputs, honest))
            first = next(float32_runs(node, Evaluation(types, shaped), declared, 0))
        return (first, *honest[1:])

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
    """The decision on an error that the spread does not allow, where an own run errs as well.

    error: of the subject at a shown value; sigma: the spread there. Rounding, where the error fits
    after sigma was enlarged, channel by channel, to what the own run shows; undecided, where the
    own run leaves the spread as far as the subject does, but elsewhere; None otherwise.
    """
    expected, own = sampler.expected[value], sequential_run(sampler)[value]
    if own.shape != expected.shape or not np.isfinite(own).all():
        return None
    scatter = st.standardised(own - expected, sigma + TINY)
    spread = np.maximum(1.0, channel_rms(scatter))
    ordered = st.group_test(st.standardised(error, (sigma + TINY) * spread))
    sizes = (None, st.root_mean_square(sigma), st.root_mean_square(error))
    nodes = len(sampler.region.nodes)
    if ordered.statistic <= st.ROUNDING_T:
        return Decision(
            Kind.rounding,
            "on this data rounding errors point the same way, and a plain float32 run of these "
            f"{nodes} nodes errs as much",
            TEST,
            ordered.statistic,
            ordered.group,
            *sizes,
        )
    found, honest = st.group_test(st.standardised(error, sigma + TINY)), st.group_test(scatter)
    if honest.statistic > st.ROUNDING_T and found.statistic <= st.ORDER_T * honest.statistic:
        return Decision(
            Kind.undecided,
            f"the difference is {found.statistic:.3g} times the most that rounding usually does "
            f"inside these {nodes} nodes, but a plain float32 run reaches {honest.statistic:.3g} "
            "times that as well: on this data float32 says little",
            TEST,
            found.statistic,
            found.group,
            *sizes,
        )
    return None
