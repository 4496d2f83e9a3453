"""Causes of mistakes in networks that are computed in TF32 or in 16 bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.judge.explain.test_region_causes import fused, with_op

import verax
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge.decide.precision import PRODUCTS
from verax.judge.explain.coarse_noise import SHORT, TF32_NOISE, CoarseNoise, possible_noises
from verax.judge.explain.region import search_region
from verax.judge.explain.region_hypothesis import region_nodes
from verax.numerics.formats import BFLOAT16, FLOAT16, TF32, FloatFormat, round_to
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.linear import MatMul
from verax.reference.evaluate import evaluate

SEED = 3601
PLACE = 14


def coarse_run(
    graph: Graph, arrays: dict[str, np.ndarray], factors: FloatFormat, stored: FloatFormat | None
) -> np.ndarray:
    """The network's output with factors of products, and results, rounded to formats."""
    values: dict[str, Any] = {**graph.constants, **arrays}
    for node in graph.nodes:
        inputs = [values[v] for v in node.inputs]
        if node.op.kind in PRODUCTS:
            inputs = [rounded(x, factors) for x in inputs]
        values[node.outputs[0]] = run_node(node, inputs)
        if stored is not None:
            values[node.outputs[0]] = rounded(values[node.outputs[0]], stored)
    return np.asarray(values[graph.outputs[0]])


def rounded(x: np.ndarray, fmt: FloatFormat) -> np.ndarray:
    return round_to(x.astype(np.float64), fmt).astype(np.float32)


def run_node(node: Node, inputs: Sequence[np.ndarray]) -> np.ndarray:
    b = Builder("one")
    names = [b.input(f"i{i}", TensorType.of(x)) for i, x in enumerate(inputs)]
    graph = b.graph([b.add(node.op, names, ["o"])])
    fed = {f"i{i}": x for i, x in enumerate(inputs)}
    return np.asarray(evaluate(graph, fed, work=np.float32)["o"])


def names(
    graph: Graph, arrays: dict[str, np.ndarray], given: np.ndarray, *noises: CoarseNoise
) -> list[str]:
    known = {**graph.constants, **arrays}
    found = search_region(graph.nodes, known, given, graph.types, noises=noises)[0]
    assert all(("; all else in" in e.words) == bool(noises) for e in found)
    return [e.hypothesis for e in found]


@pytest.mark.parametrize(
    ("factors", "stored", "noise"),
    [
        (TF32, None, TF32_NOISE),
        (BFLOAT16, BFLOAT16, SHORT["bfloat16"]),
        (FLOAT16, FLOAT16, SHORT["float16"]),
    ],
)
def test_moved_pads_are_named_in_a_coarser_arithmetic(
    factors: FloatFormat, stored: FloatFormat | None, noise: CoarseNoise
) -> None:
    graph, arrays = fused(SEED)
    wrong = with_op(graph, "conv", pads=((2, 0), (2, 0)))
    given = coarse_run(wrong, arrays, factors, stored)
    assert names(graph, arrays, given) == []
    assert names(graph, arrays, given, noise)[0] == "conv: all pads at the begin"


@pytest.mark.parametrize(("factors", "noise"), [(TF32, TF32_NOISE), (BFLOAT16, SHORT["bfloat16"])])
def test_an_unknown_mistake_gets_no_cause(factors: FloatFormat, noise: CoarseNoise) -> None:
    graph, arrays = fused(SEED + 1)
    given = coarse_run(graph, arrays, factors, None)
    given += np.random.default_rng(SEED).normal(0, 0.05, given.shape).astype(np.float32)
    assert names(graph, arrays, given, noise) == []


def linear() -> tuple[Graph, np.ndarray]:
    random, b = np.random.default_rng(SEED), Builder("linear")
    x = b.input("x", TensorType.parse("float32[23, 35]"))
    w = b.constant(random.normal(0, 0.2, (35, 29)).astype(np.float32), "w")
    bias = b.constant(random.normal(0, 0.3, 29).astype(np.float32), "bias")
    h = b.add(MatMul(), [x, w], ["product"], "product")
    y = b.add(Add(), [h, bias], ["sum"], "sum")
    scale = b.constant(random.uniform(0.5, 2, 29).astype(np.float32), "scale")
    last = b.add(LayerNormalization(epsilon=1e-5), [y, scale], ["y"], "norm")
    return b.graph([last, y]), random.normal(0, 1, (23, 35)).astype(np.float32)


@pytest.mark.parametrize("factors", [None, TF32, BFLOAT16])
def test_one_missing_element_of_a_bias_is_named(factors: FloatFormat | None) -> None:
    graph, x = linear()
    bias = graph.constants["bias"].copy()
    assert abs(bias[PLACE]) > 0.1
    bias[PLACE] = 0
    a, w = (x, graph.constants["w"]) if factors is None else (
        rounded(x, factors), rounded(graph.constants["w"], factors)
    )  # fmt: skip
    given = a @ w + bias
    noises = {None: (), TF32: (TF32_NOISE,), BFLOAT16: (SHORT["bfloat16"],)}[factors]
    known = {**graph.constants, "x": x}
    found = search_region(graph.nodes[:2], known, given, graph.types, noises=noises)[0]
    assert found[0].hypothesis == f"sum: input 1 0 at {PLACE}"


def test_a_scaled_edge_is_named() -> None:
    graph, x = linear()
    y = (x @ graph.constants["w"] + graph.constants["bias"]).copy()
    y[:, -1] *= np.float32(1.003)
    verdict = verax.check(graph, {"sum": y, **_normed(graph, y)}, {"x": x})
    (blame,) = verdict.blame
    words = blame.explanations[0].words
    assert "the last of 29" in words and "1.003 times" in words


def _normed(graph: Graph, y: np.ndarray) -> dict[str, np.ndarray]:
    scale = graph.constants["scale"]
    wide = y.astype(np.float64)
    middle, spread = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    return {"y": ((wide - middle) / np.sqrt(spread + 1e-5) * scale).astype(np.float32)}


def test_a_region_ends_where_the_error_was_seen() -> None:
    graph, _ = linear()
    nodes, read = region_nodes(graph, [n.name for n in graph.nodes], "sum")
    assert [n.name for n in nodes] == ["product", "sum"] and read == {"x", "w", "bias"}


def test_arithmetics_are_possible_by_what_is_stored() -> None:
    declared = TensorType.parse("float32[7, 29]")
    y = np.random.default_rng(SEED).normal(0, 1, (7, 29)).astype(np.float32)
    assert next(possible_noises(declared, y)) is TF32_NOISE
    assert list(possible_noises(declared, rounded(y, BFLOAT16))) == [SHORT["bfloat16"]]
    short = TensorType.parse("float16[7, 29]")
    assert list(possible_noises(short, y)) == [SHORT["float16"]]
