"""Masks of the lowest float added to attention's scores lose digits for nobody: recorded logits of
a padded batch are judged, where every key of a sequence is masked, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.onnx_models import helper, model, numpy_helper

from verax.frontends.onnx import load_onnx
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.local import meaning
from verax.numerics.error_model import Rounding, U
from verax.ops.pointwise.arithmetic import Add, Mul, Sub
from verax.records.verdict import Kind
from verax.runners.network import NetworkRunner

BATCH, HEADS, LENGTH, FEATURES, WIDTH, CLASSES = 3, 2, 7, 16, 24, 10
LOWEST = np.finfo(np.float32).min


def attention(scale: float, scaled_before: bool) -> Graph:
    """Self-attention of x with a mask of ones and zeros, turned into 0 and the lowest float.

    scaled_before: the queries are scaled, so that the mask is added to the sum of products itself.
    """
    node, r = helper.make_node, np.random.default_rng(81)
    arrays: dict[str, np.ndarray] = {
        "heads": np.array([BATCH, LENGTH, HEADS, FEATURES]),
        "flat": np.array([BATCH, LENGTH, HEADS * FEATURES]),
        "scale": np.float32(scale),
        "one": np.float32(1),
        "lowest": LOWEST,
        "wo": (0.3 * r.standard_normal((HEADS * FEATURES, CLASSES))).astype(np.float32),
    }
    nodes: list[Any] = []
    for p in "qkv":
        weights = 0.3 * r.standard_normal((WIDTH, HEADS * FEATURES))
        arrays[f"w{p}"] = weights.astype(np.float32)
        perm = [0, 2, 3, 1] if p == "k" else [0, 2, 1, 3]
        nodes.append(node("MatMul", ["x", f"w{p}"], [f"m{p}"], f"project {p}"))
        nodes.append(node("Reshape", [f"m{p}", "heads"], [f"r{p}"], f"reshape {p}"))
        nodes.append(node("Transpose", [f"r{p}"], [f"t{p}"], f"turn {p}", perm=perm))
    if scaled_before:
        nodes.append(node("Mul", ["tq", "scale"], ["sq"], "scaled"))
        nodes.append(node("MatMul", ["sq", "tk"], ["s"], "scores"))
    else:
        nodes.append(node("MatMul", ["tq", "tk"], ["qk"], "scores"))
        nodes.append(node("Mul", ["qk", "scale"], ["s"], "scaled"))
    nodes += [
        node("Sub", ["one", "mask"], ["hidden"], "hidden"),
        node("Mul", ["hidden", "lowest"], ["bias"], "bias"),
        node("Add", ["s", "bias"], ["masked"], "masked"),
        node("Softmax", ["masked"], ["p"], "softmax", axis=-1),
        node("MatMul", ["p", "tv"], ["o"], "weighted"),
        node("Transpose", ["o"], ["back"], "back", perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "flat"], ["rows"], "rows"),
        node("MatMul", ["rows", "wo"], ["y"], "logits"),
    ]
    shapes = {"x": (BATCH, LENGTH, WIDTH), "mask": (BATCH, 1, 1, LENGTH)}
    made = model(nodes, shapes, {"y": None})
    made.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in arrays.items())
    return load_onnx(made).graph


@pytest.mark.parametrize("scaled_before", [False, True])
def test_logits_of_a_padded_batch_are_judged(scaled_before: bool) -> None:
    x = np.random.default_rng(82).standard_normal((BATCH, LENGTH, WIDTH)).astype(np.float32)
    mask = np.ones((BATCH, 1, 1, LENGTH), np.float32)
    mask[1, ..., 4:] = 0
    mask[2] = 0
    graph, inputs = attention(0.25, scaled_before), {"x": x, "mask": mask}
    honest = check(graph, NetworkRunner(graph, "recorded"), inputs, watch=False)
    assert honest.kind is Kind.rounding, honest.reasons
    assert honest.coverage is not None and not honest.coverage.blind
    wrong = NetworkRunner(attention(0.2501, scaled_before), "recorded")
    assert check(graph, wrong, inputs, watch=False, explain=False).kind is Kind.mistake


def rounding_of(op: Operator, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Rounding]:
    """The float64 result and its rounding."""
    types = [TensorType.of(x) for x in (a, b)]
    found = meaning(Node(op, ("a", "b"), ("y",)), [a, b], types, (TensorType.of(a),))
    (rounding,) = found.roundings
    assert rounding is not None
    return found.outputs[0], rounding


@pytest.mark.parametrize("op", [Add(), Sub()])
def test_an_addition_loses_no_more_than_its_smaller_operand(op: Operator) -> None:
    r = np.random.default_rng(83)
    a, b = (
        (r.standard_normal(20_000) * 2.0 ** r.integers(-60, 60, 20_000)).astype(np.float32)
        for _ in range(2)
    )
    a[:3], b[:3] = LOWEST, (3.5, -7.25, 0)
    y, rounding = rounding_of(op, a, b)
    given = (a + b if isinstance(op, Add) else a - b).astype(np.float64)
    assert (np.abs(given - y) <= rounding.bound).all()
    smaller = np.minimum(abs(a), abs(b)).astype(np.float64)
    assert (rounding.sigma <= smaller * 1.001 + U * abs(y) * 1e-8).all()
    assert (rounding.sigma[:3] < 1e-40).all()
    alike = np.abs(np.log2(np.abs(a[3:] / b[3:]))) < 20
    assert (rounding.sigma[3:][alike] > 0.2 * np.minimum(U * abs(y[3:]), abs(b[3:]))[alike]).all()


def test_a_product_with_a_power_of_two_is_exact() -> None:
    r = np.random.default_rng(84)
    a = r.standard_normal(500).astype(np.float32)
    b = r.choice(np.float32([1, -1, 0.25, -8]), 500)
    b[250:] = 3
    y, rounding = rounding_of(Mul(), a, b)
    assert (rounding.bound[:250] < 1e-40).all() and ((a * b)[:250] == y[:250]).all()
    assert (rounding.sigma[250:] > 0.4 * U * abs(y[250:])).all()
