"""Mistakes that no single number shows in 16 bits, by the outputs of several nodes."""

from __future__ import annotations

import math
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from tests.judge.explain.test_coarse_causes import rounded, run_node

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.judge.explain import matched_test
from verax.judge.explain.matched_test import explanations_by_projection, projected
from verax.numerics.formats import BFLOAT16
from verax.ops.pointwise.activation_smooth import Gelu
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind

SEED = 3611
SHAPE = (5, 30, 24)


def block(epsilon: float = 1e-5) -> tuple[Graph, np.ndarray]:
    random, b = np.random.default_rng(SEED), Builder("block")

    def constant(name: str, array: np.ndarray) -> str:
        return b.constant(array.astype(ml_dtypes.bfloat16), name)

    x = b.input("x", TensorType.parse("bfloat16[5, 30, 24]"))
    h = b.add(LayerNormalization(epsilon=epsilon), [x, constant("s", random.uniform(0.5, 2, 24))])
    h = b.add(MatMul(), [h, constant("w", random.normal(0, 0.2, (24, 36)))], ["h"], "up")
    h = b.add(Gelu(), [h], ["g"], "gelu")
    y = b.add(MatMul(), [h, constant("v", random.normal(0, 0.2, (36, 28)))], ["y"], "down")
    # Small numbers, to which an epsilon matters a little.
    return b.graph([y]), random.normal(0, 0.3, SHAPE).astype(ml_dtypes.bfloat16)


def in_bfloat16(graph: Graph, x: np.ndarray) -> np.ndarray:
    """Each node in float32, its result stored in bfloat16."""
    values = {v: a.astype(np.float32) for v, a in {**graph.constants, "x": x}.items()}
    for node in graph.nodes:
        y = run_node(node, [values[v] for v in node.inputs])
        values[node.outputs[0]] = rounded(y, BFLOAT16)
    return values["y"].astype(ml_dtypes.bfloat16)


def held(graph: Graph, x: np.ndarray, y: np.ndarray) -> list[str]:
    arrays = {**graph.constants, "x": x, "y": y}
    names = [n.name or n.outputs[0] for n in graph.nodes]
    return [e.words for e in explanations_by_projection(graph, arrays, names, "y")]


def test_an_epsilon_is_found_by_the_output_alone() -> None:
    graph, x = block()
    wrong, _ = block(epsilon=1e-3)
    (words,) = held(graph, x, in_bfloat16(wrong, x))
    assert "epsilon was 0.001" in words and "4200 numbers together" in words


@pytest.mark.parametrize("seed", range(3))
def test_honest_runs_hold_nothing_and_are_not_accused(seed: int) -> None:
    graph, _ = block()
    x = np.random.default_rng(seed).normal(0, 0.3, SHAPE).astype(ml_dtypes.bfloat16)
    y = in_bfloat16(graph, x)
    assert held(graph, x, y) == []
    assert verax.check(graph, {"y": y}, {"x": x}).kind in (Kind.rounding, Kind.identical)


def test_a_cast_that_a_fused_kernel_leaves_out_is_no_mistake() -> None:
    random, b = np.random.default_rng(SEED), Builder("fused")
    x = b.input("x", TensorType.parse("bfloat16[5, 30, 24]"))
    w = b.constant(random.normal(0, 0.2, (24, 36)).astype(np.float32), "w")
    wide = b.add(Cast(to=DType.float32), [x])
    h = b.add(MatMul(), [wide, w], ["h"])
    short = b.add(Cast(to=DType.bfloat16), [h], ["short"], "short")
    back = b.add(Cast(to=DType.float32), [short])
    y = b.add(Cast(to=DType.bfloat16), [b.add(Gelu(), [back])], ["y"], "y")
    given = random.normal(0, 1, SHAPE).astype(ml_dtypes.bfloat16)
    graph = b.graph([y])
    product = given.astype(np.float64) @ graph.constants["w"].astype(np.float64)
    answer = product * 0.5 * (1 + np.vectorize(math.erf)(product / np.sqrt(2)))
    arrays = {**graph.constants, "x": given, "y": answer.astype(ml_dtypes.bfloat16)}
    names = [n.name or n.outputs[0] for n in graph.nodes]
    assert explanations_by_projection(graph, arrays, names, "y") == []
    with mock.patch.object(matched_test._Matched, "_is_within_rounding", lambda *_: False):
        (cause,) = explanations_by_projection(graph, arrays, names, "y")
    assert "passed on" in cause.hypothesis  # it is held, and says nothing


def test_a_mistake_is_held_once() -> None:
    random = np.random.default_rng(SEED)
    effect = random.normal(0, 0.3, SHAPE)
    noise = random.uniform(-1, 1, SHAPE)
    made, twice, none = (projected(noise + k * effect, effect) for k in (1, 2, 0))
    assert made.is_detection(1000) and not twice.is_whole and not none.is_detection(1000)
    assert abs(made.share - 1) < 0.1 and made.statistic > 10


def test_errors_that_a_row_shares_are_one_number() -> None:
    """An effect that is constant along rows, and errors that are: as many numbers as rows."""
    random = np.random.default_rng(SEED)
    effect = np.broadcast_to(random.normal(0, 1, (5, 30, 1)), SHAPE)
    shared = np.broadcast_to(random.normal(0, 1, (5, 30, 1)), SHAPE)
    clustered = projected(shared + effect, effect)
    independent = projected(random.normal(0, 1, SHAPE) + effect, effect)
    assert clustered.error == pytest.approx(np.sqrt(24) * independent.error, rel=0.3)
    assert clustered.freedom < 150


def test_few_slices_that_hold_the_effect_are_few_degrees_of_freedom() -> None:
    random = np.random.default_rng(SEED)
    effect = np.zeros(SHAPE)
    effect[2, 7:10] = random.normal(0, 1, (3, 24))
    held = projected(random.normal(0, 1, SHAPE) + effect, effect)
    assert held.freedom <= 2 and not held.is_detection(1)


def attention(scale: float) -> tuple[Graph, dict[str, np.ndarray]]:
    random, b = np.random.default_rng(SEED), Builder("attention")
    sizes = {"q": (3, 29, 24), "k": (3, 24, 37), "v": (3, 37, 24)}
    fed = {n: random.normal(0, 1, s).astype(np.float16) for n, s in sizes.items()}
    q, k, v = (b.input(n, TensorType.of(a)) for n, a in fed.items())
    scaled = b.add(Mul(), [b.add(MatMul(), [q, k]), b.constant(np.float16(scale))])
    return b.graph([b.add(MatMul(), [b.add(Softmax(axis=2), [scaled]), v], ["y"])]), fed


def test_a_scale_that_a_kernel_has_in_float32_is_no_mistake() -> None:
    """A network in float16 declares 1 / sqrt(24) rounded; kernels take it as it is."""
    graph, fed = attention(24**-0.5)
    q, k, v = (a.astype(np.float64) for a in fed.values())
    scores = q @ k * 24**-0.5
    p = np.exp(scores - scores.max(-1, keepdims=True))
    answer = (p / p.sum(-1, keepdims=True) @ v).astype(np.float16)
    arrays = {**graph.constants, **fed, "y": answer}
    names = [n.name or n.outputs[0] for n in graph.nodes]
    assert explanations_by_projection(graph, arrays, names, "y") == []
    with mock.patch.object(matched_test._Matched, "_is_within_rounding", lambda *_: False):
        (cause,) = explanations_by_projection(graph, arrays, names, "y")
    assert cause.hypothesis.startswith("scale of attention")
