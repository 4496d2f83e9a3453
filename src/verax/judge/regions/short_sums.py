"""Sums by index in 16 bits, inside a region: every partial sum is rounded.

A float32 accumulator is what most kernels have, and what the regions' noise is made for. Atomic
additions of 16-bit numbers have none, nor has PyTorch's loop on a processor: the mean by index
(`scatter_reduce`) adds so and then divides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.precision import to_float64
from verax.judge.regions.programs import SHORT
from verax.judge.regions.sampler import Sampler
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.numerics.formats import FORMATS
from verax.ops.movement.scatter import ScatterElements, ScatterND
from verax.records.verdict import Kind


def short_sum_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """Decision `precision` where sums by index that are rounded to their 16 bits at each addition
    explain the size of the error of an observed value; None where the region has none, or where the
    errors are larger.

    sigma: of ordinary rounding, for the record.
    """
    sums = [n for n in sampler.region.nodes if _is_short_sum(sampler, n)]
    if not sums:
        return None
    extra: dict[str, np.ndarray] = {}

    def noisy(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        outputs = sampler.evaluate(node, arrays).outputs
        noisy = [sampler.noise(node, v, y, 1.0) for v, y in zip(node.outputs, outputs)]
        if node in sums:
            own = node.outputs[0]
            if own not in extra:
                extra[own] = _sigma(sampler, node, arrays, outputs)
            noisy[0] = noisy[0] + extra[own] * sampler.random.standard_normal(noisy[0].shape)
        return tuple(noisy)

    samples = [sampler.run(noisy)[value] for _ in range(st.SAMPLES_FEW)]
    squares = np.mean([(s - sampler.expected[value]) ** 2 for s in samples], axis=0)
    test = st.group_test(st.standardised(error, st.sampled_sigma(squares) + TINY))
    if test.statistic > st.ROUNDING_T:
        return None
    dtype = sampler.graph.types[sums[0].outputs[0]].dtype
    names = ", ".join(n.name or n.outputs[0] for n in sums)
    return Decision(
        Kind.precision,
        f"the difference is {test.statistic:.3g} of the most that these {len(sampler.region.nodes)}"
        f" nodes show where the sums of {names} are rounded to {dtype} at each addition",
        f"arithmetic in {dtype} itself",
        test.statistic,
        test.group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _is_short_sum(sampler: Sampler, node: Node) -> bool:
    if not isinstance(node.op, ScatterElements | ScatterND) or node.op.reduction != "add":
        return False
    return str(sampler.graph.types[node.outputs[0]].dtype) in SHORT


def _sigma(
    sampler: Sampler, node: Node, arrays: Sequence[Any], outputs: Sequence[np.ndarray]
) -> np.ndarray:
    """Standard deviation of the sums; zero where they count in numbers that the format holds."""
    graph, total = sampler.graph, np.asarray(outputs[0])
    fmt = FORMATS[str(graph.types[node.outputs[0]].dtype)]
    wide = [to_float64(a) for a in arrays]
    counts = all((w == np.rint(w)).all() for w in (wide[0], wide[2]))
    if counts and np.abs(total).max(initial=0.0) * fmt.unit_roundoff <= 1:
        return np.zeros(total.shape)
    ev = sampler.wide_evaluation(node, wide)
    declared = dataclasses.replace(ev, inputs=graph.input_types(node))
    (rounding,) = node.op.error(declared, wide, outputs)
    return np.zeros(total.shape) if rounding is None else np.asarray(rounding.sigma)
