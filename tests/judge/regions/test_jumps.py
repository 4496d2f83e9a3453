"""Comparisons that rounding cannot tip leave nothing undecided."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.regions.network import regions
from verax.judge.regions.sampler import Sampler
from verax.ops.movement.reshaping import Reshape
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sub
from verax.ops.pointwise.comparison import Equal
from verax.ops.pointwise.transcendental import Log
from verax.ops.pointwise.where import Where
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMax, ReduceMin
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner

SHAPE = (2, 61, 53)


def spectrum(reached: float = 0.0) -> Graph:
    """A spectrum in decibels, shifted and divided by its largest number unless that is `reached`,
    as a transcription network does it: one number, the smallest, moves all the others."""
    b, rng = Builder("spectrum"), np.random.default_rng(7)
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, SHAPE))}]"))

    def number(value: float) -> str:
        return b.constant(np.float32(value))

    w = (rng.standard_normal((SHAPE[-1], 37)) / 7).astype(np.float32)
    h = b.add(MatMul(), [x, b.constant(w)], ["h"], "project")
    power = b.add(Mul(), [h, h], ["power"], "square")
    logarithm = b.add(Log(), [b.add(Add(), [power, number(1e-10)], ["p"])], ["l"], "log")
    axes = b.constant(np.array([1, 2], np.int64))
    least = b.add(ReduceMin(keepdims=True), [logarithm, axes], ["least"], "min")
    above = b.add(Sub(), [logarithm, least], ["above"], "offset")
    most = b.add(ReduceMax(keepdims=True), [above, axes], ["most"], "max")
    zero = b.add(Equal(), [most, number(reached)], ["zero"], "is zero")
    divided = b.add(Div(), [above, most], ["divided"], "divide")
    y = b.add(Where(), [zero, number(0), divided], ["y"], "choose")
    shape = b.constant(np.array([SHAPE[0], -1], np.int64))
    return b.graph([b.add(Reshape(), [y, shape], ["flat"], "flat")])


def whole(graph: Graph, x: np.ndarray) -> Sampler:
    (region,) = regions(graph, set(graph.outputs))
    return Sampler(graph, region, {**graph.constants, "x": x}, 0)


def drawn(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
def test_no_run_is_undecided_for_a_comparison_far_from_equal(seed: int) -> None:
    graph, x = spectrum(), drawn(seed)
    assert whole(graph, x).tape.jumps
    own = promised(graph, {"x": x})
    kind = check(graph, ArraysRunner(own), {"x": x}, seed=seed, explain=False).kind
    assert kind in (Kind.rounding, Kind.identical)
    wrong = {v: a * np.float32(1.01) for v, a in own.items()}
    kind = check(graph, ArraysRunner(wrong), {"x": x}, seed=seed, explain=False).kind
    assert kind is Kind.mistake
    assert whole(graph, x).jump == ""


def test_a_comparison_that_rounding_tips_is_a_jump() -> None:
    x = drawn(3)
    most = promised(spectrum(), {"x": x}, keep=["most"])["most"]
    assert whole(spectrum(float(most[1, 0, 0])), x).jump == "node 'is zero' (Equal)"
