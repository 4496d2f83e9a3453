"""Attention in float32 whose products are sums of three products in matrix units.

A float32 number is the sum of two numbers of TF32 but for 2^-22 of it. PyTorch's efficient
attention multiplies so on GPUs, whatever its flags say: the products are as good as float32's, and
the units add them in steps that cut towards zero. The steps of the low parts are small; the sum
errs as one chain over the high parts does (on an H100 2.2 U R at K = 32, where this says 2.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.matrix_sums import matrix_unit_sigma
from verax.judge.decide.possible import may_be_device
from verax.judge.decide.precision import to_float64
from verax.judge.regions.sampler import Sampler
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.records.verdict import Kind


def split_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `rounding` where products of three products in matrix units explain the error of an
    observed value; None where no GPU can have computed it, where the region has no attention in
    float32, or where the errors are larger.

    sigma: of ordinary rounding, for the record.
    """
    nodes = sampler.region.nodes
    if not may_be_device() or not any(n.op.kind == "Softmax" for n in nodes):
        return None
    extra: dict[str, np.ndarray] = {}

    def noisy(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        outputs = sampler.evaluate(node, arrays).outputs
        noisy = [sampler.noise(node, v, y, 1.0) for v, y in zip(node.outputs, outputs)]
        if _is_attention(sampler, node):
            own = node.outputs[0]
            if own not in extra:
                wide = [to_float64(a) for a in arrays]
                ev = sampler.wide_evaluation(node, wide)
                extra[own] = matrix_unit_sigma(node, ev, wide, outputs[0], "tf32")
            noisy[0] = noisy[0] + extra[own] * sampler.random.standard_normal(noisy[0].shape)
        return tuple(noisy)

    samples = [sampler.run(noisy)[value] for _ in range(st.SAMPLES_FEW)]
    if not extra:
        return None
    squares = np.mean([(s - sampler.expected[value]) ** 2 for s in samples], axis=0)
    test = st.group_test(st.standardised(error, st.sampled_sigma(squares) + TINY))
    if test.statistic > st.ROUNDING_T:
        return None
    return Decision(
        Kind.rounding,
        f"the difference is {test.statistic:.3g} of the most that honest rounding inside these "
        f"{len(nodes)} nodes shows where attention multiplies by three products in matrix units",
        f"Monte Carlo arithmetic, {len(samples)} samples in matrix units",
        test.statistic,
        test.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _is_attention(sampler: Sampler, node: Node) -> bool:
    """Whether a node is a product of float32 numbers of heads: of two values that are computed."""
    graph = sampler.graph
    fixed = graph.constants.keys() | sampler.parameters
    types = [graph.types[v] for v in node.inputs if v is not None]
    return (
        node.op.kind == "MatMul"
        and all(len(t.dims) > 2 and str(t.dtype) == "float32" for t in types)
        and not any(v in fixed for v in node.inputs)
    )
