"""Sums by index whose every addition is rounded to the 16 bits of their type."""

import ml_dtypes
import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.check import check
from verax.ops.movement.scatter import ScatterElements
from verax.ops.pointwise.arithmetic import Div
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner

SEED, ROWS, COLUMNS, UPDATES = 3619, 5, 23, 600
TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def mean_by_index(name: str, rng: np.random.Generator) -> tuple[Graph, dict[str, np.ndarray]]:
    """Rows of updates summed by index into a hidden value, then divided by their count."""
    dtype, b = TYPES[name], Builder("mean by index")
    index = np.repeat(rng.integers(0, ROWS, (UPDATES, 1)), COLUMNS, axis=1)
    source = b.input("source", TensorType.parse(f"{name}[{UPDATES}, {COLUMNS}]"))
    zeros = b.constant(np.zeros((ROWS, COLUMNS), dtype), "zeros")
    where = b.constant(index, "index")
    sums = b.add(ScatterElements(reduction="add"), [zeros, where, source], ["sums"], "sums")
    count = np.bincount(index[:, 0], minlength=ROWS)[:, None].astype(dtype)
    y = b.add(Div(), [sums, b.constant(count, "count")], ["y"], "mean")
    updates = (rng.standard_normal((UPDATES, COLUMNS)) + 0.25).astype(dtype)
    return b.graph([y]), {"index": index, "source": updates, "count": count}


def summed(arrays: dict[str, np.ndarray], order: np.ndarray, wide: bool) -> np.ndarray:
    """The means, summed in an order: in float64, or rounded at each addition."""
    source, index = arrays["source"], arrays["index"][:, 0]
    total = np.zeros((ROWS, COLUMNS), np.float64 if wide else source.dtype)
    for i in order:
        total[index[i]] += source[i].astype(total.dtype)
    mean = total.astype(np.float64) / arrays["count"].astype(np.float64)
    return mean.astype(source.dtype)


def judge(graph: Graph, arrays: dict[str, np.ndarray], y: np.ndarray) -> Verdict:
    return check(graph, ArraysRunner({"y": y}), {"source": arrays["source"]}, explain=False)


@pytest.mark.parametrize("name", TYPES)
def test_sums_rounded_at_each_addition_are_their_own_arithmetic(name):
    rng = np.random.default_rng(SEED)
    graph, arrays = mean_by_index(name, rng)
    verdict = judge(graph, arrays, summed(arrays, rng.permutation(UPDATES), wide=False))
    assert verdict.kind is Kind.precision
    (finding,) = verdict.nodes
    assert finding.test == f"arithmetic in {name} itself"


@pytest.mark.parametrize("name", TYPES)
def test_wide_sums_are_rounding(name):
    rng = np.random.default_rng(SEED + 1)
    graph, arrays = mean_by_index(name, rng)
    verdict = judge(graph, arrays, summed(arrays, np.arange(UPDATES), wide=True))
    assert verdict.kind in (Kind.identical, Kind.rounding)


@pytest.mark.parametrize("name", TYPES)
def test_updates_left_out_of_short_sums_are_a_mistake(name):
    rng = np.random.default_rng(SEED + 2)
    graph, arrays = mean_by_index(name, rng)
    order = rng.permutation(UPDATES)[: UPDATES * 7 // 8]
    assert judge(graph, arrays, summed(arrays, order, wide=False)).kind is Kind.mistake
