"""A sum may begin with what the network adds behind it: nobody is accused for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_models import helper, model, numpy_helper

from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph
from verax.judge import check
from verax.judge.regions.sampler import Region, Sampler
from verax.records.verdict import Kind
from verax.runners.network import NetworkRunner

TERMS, RESULTS = 640, 24


def network(nodes: list[Any], shape: tuple[int, ...], arrays: dict[str, np.ndarray]) -> Graph:
    """Input x, output y, constants."""
    made = model(nodes, {"x": shape}, {"y": None})
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    return load_onnx(made).graph


def pair(kind: str, apart: bool, off: float = 0.0) -> Graph:
    """A sum of products and a large addend behind it (apart), or as the operator's own bias.

    off: how wrong the weights are, relatively.
    """
    r = np.random.default_rng(73)
    rows = r.standard_normal((TERMS, RESULTS)).astype(np.float32) * np.float32(0.05 * (1 + off))
    bias = (40 + r.standard_normal(RESULTS)).astype(np.float32)
    node = helper.make_node
    if kind == "MatMul":
        tail = [node("MatMul", ["x", "w"], ["p"], "product"), node("Add", ["b", "p"], ["y"], "sum")]
        whole = [node("Gemm", ["x", "w", "b"], ["y"], "gemm")]
        return network(tail if apart else whole, (37, TERMS), {"w": rows, "b": bias})
    kernel = np.ascontiguousarray(rows.T.reshape(RESULTS, TERMS // 10, 5, 2))
    if not apart:
        whole = [node("Conv", ["x", "w", "b"], ["y"], "conv")]
        return network(whole, (2, TERMS // 10, 9, 8), {"w": kernel, "b": bias})
    tail = [
        node("Conv", ["x", "w"], ["p"], "product"),
        node("Transpose", ["p"], ["t"], "turn", perm=[0, 2, 3, 1]),
        node("Add", ["t", "b"], ["u"], "sum"),
        node("Transpose", ["u"], ["y"], "back", perm=[0, 3, 1, 2]),
    ]
    return network(tail, (2, TERMS // 10, 9, 8), {"w": kernel, "b": bias})


@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
def test_a_sum_may_begin_with_its_addend(kind: str) -> None:
    subject = NetworkRunner(pair(kind, apart=False), "fused")
    verdict = check(pair(kind, apart=True), subject, seed=5)
    assert verdict.kind is Kind.rounding, verdict.reasons


@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
def test_and_a_mistake_is_one_all_the_same(kind: str) -> None:
    subject = NetworkRunner(pair(kind, apart=False, off=1e-4), "wrong")
    verdict = check(pair(kind, apart=True), subject, seed=5)
    assert verdict.kind is Kind.mistake, verdict.reasons


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["Add", "Sub"])
def test_an_infinite_addend_rounds_nothing_and_warns_nobody(kind: str) -> None:
    """As a mask of -inf on scores: -inf - -inf is no size of anything. Beside it all is as ever."""
    r = np.random.default_rng(19)
    w = r.standard_normal((TERMS, RESULTS)).astype(np.float32)
    x = r.standard_normal((3, TERMS)).astype(np.float32)
    masks = [np.zeros(RESULTS, np.float32) for _ in range(2)]
    for mask, away in zip(masks, (-np.inf, 0.0)):
        mask[::2], mask[1::2] = 40.0, away
    if kind == "Sub":
        masks = [-m for m in masks]
    samplers = []
    for mask in masks:
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
            helper.make_node(kind, ["p", "m"], ["y"], "mask"),
        ]
        graph = network(nodes, (3, TERMS), {"w": w, "m": mask})
        region = Region(graph.nodes, frozenset("p"), ("y",))
        samplers.append(Sampler(graph, region, {**graph.constants, "x": x}, 4))
    masked, plain = samplers
    assert (masked.sigma["y"][:, 1::2] < 1e-30).all()
    np.testing.assert_array_equal(masked.sigma["y"][:, ::2], plain.sigma["y"][:, ::2])
    assert (masked.sample()["y"][:, 1::2] == masked.expected["y"][:, 1::2]).all()
