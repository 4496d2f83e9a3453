"""A sum may begin with what the network adds behind it: nobody is accused for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_models import helper, model, numpy_helper

from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph
from verax.judge import check
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
