"""Errors that a whole channel shares: honest runs scatter further than independent noise, and a
small mistake in one channel is still one."""

from __future__ import annotations

from collections import Counter

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.regions.region import check_region, rounding_samples
from verax.judge.regions.sampler import Region
from verax.ops.pointwise.arithmetic import Mul, Reciprocal, Sqrt
from verax.records.verdict import Finding, Kind

CHANNELS = 96
SEEDS = range(24)


def written_out() -> tuple[Graph, dict[str, np.ndarray]]:
    """x times gamma / sqrt(v), as a BatchNorm that a framework writes out; v is an input."""
    random = np.random.default_rng(3)
    x = random.standard_normal((2, CHANNELS, 9, 14), dtype=np.float32)
    v, gamma = (random.uniform(0.3, 3, (CHANNELS, 1, 1)).astype(np.float32) for _ in range(2))
    b = Builder("factors")
    data, variance = b.input("x", TensorType.of(x)), b.input("v", TensorType.of(v))
    root = b.add(Reciprocal(), [b.add(Sqrt(), [variance], ["deviation"])], ["reciprocal"])
    factor = b.add(Mul(), [root, b.constant(gamma, "gamma")], ["factor"])
    graph = b.graph([b.add(Mul(), [data, factor], ["y"])])
    return graph, {**graph.constants, "x": x, "v": v}


GRAPH, SHOWN = written_out()
REGION = Region(GRAPH.nodes, frozenset({"deviation", "reciprocal", "factor"}), ("y",))


def honest(seed: int) -> np.ndarray:
    """What an honest run may give: every node with noise of its own rounding."""
    return rounding_samples(GRAPH, REGION, SHOWN, 1000 + seed, 1)[1][0]["y"]


def judged(y: np.ndarray, seed: int) -> Finding:
    (found,), _ = check_region(
        GRAPH, REGION, {**SHOWN, "y": y}, seed, measure_power=False, find_precision=False
    )
    return found


def test_honest_runs_are_not_accused() -> None:
    kinds = Counter(judged(honest(seed), seed).kind for seed in SEEDS)
    assert kinds[Kind.mistake] == 0 and kinds[Kind.undecided] <= 2, kinds


def test_a_factor_that_is_off_by_three_millionths_is() -> None:
    for seed in SEEDS:
        y = honest(seed)
        y[:, seed % CHANNELS] *= 1 + 3e-6
        found = judged(y, seed)
        assert (found.kind, found.group) == (Kind.mistake, f"channel {seed}"), seed
