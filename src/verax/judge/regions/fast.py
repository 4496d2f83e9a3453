"""The tier of fast algorithms in regions: own runs whose 3x3 convolutions go by Winograd's.

As for one node (`decide.criterion`), with the rest of the region in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.criterion import Decision, channel_rms, pooled_maximum
from verax.judge.decide.orders import WINOGRAD_MATRICES, winograd_applies, winograd_runs
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.numerics.winograd import NAMES
from verax.records.verdict import Kind


def fast_decision(
    sampler: Sampler, value: str, error: np.ndarray, sigma: np.ndarray
) -> Decision | None:
    """`precision` where the error of a shown value is what Winograd's algorithm inside gives.

    None when the region has no convolution that it applies to, or when the errors are larger.
    """
    found: dict[int, st.GroupTest] = {}
    for tile in WINOGRAD_MATRICES:
        own, applied = _run(sampler, tile)
        if not applied or own[value].shape != error.shape:
            return None
        away = np.nan_to_num(own[value] - sampler.expected[value])
        found[tile] = st.group_test(st.standardised(error, _scale(away, sigma, tile) + TINY))
    fitting = [t for t, test in found.items() if test.statistic <= st.WINOGRAD_REGION_T]
    if not fitting:
        return None
    tile = min(fitting, key=lambda t: abs(np.log(max(found[t].statistic, 1e-9))))
    return Decision(
        Kind.precision,
        f"the errors fit {NAMES[tile]} inside these {len(sampler.region.nodes)} nodes",
        NAMES[tile],
        found[tile].statistic,
        found[tile].group,
        None,
        st.root_mean_square(sigma),
        st.root_mean_square(error),
    )


def _run(sampler: Sampler, tile: int) -> tuple[Values, list[str]]:
    """The region with Winograd's algorithm where it applies, and the nodes that it applied to."""
    applied: list[str] = []

    def fast(node: Node, arrays: Sequence[Any]) -> Sequence[np.ndarray]:
        if not winograd_applies(node, arrays):
            return sampler.evaluate(node, arrays).outputs
        applied.append(node.place)
        return (winograd_runs(node, arrays)[tile].astype(np.float64),)

    run: Callable[..., Values] = sampler.run
    return run(fast), applied


def _scale(own: np.ndarray, sigma: np.ndarray, tile: int) -> np.ndarray:
    """Sigma as it is for an algorithm whose own errors are these, which a tile shares."""
    if own.ndim != 4:
        return np.hypot(sigma, st.root_mean_square(own))
    pooled = pooled_maximum(sigma, st.WINOGRAD_POOL[tile])
    spread = np.maximum(1.0, channel_rms(st.standardised(own, pooled)))
    return pooled * np.maximum(spread, np.median(spread))
