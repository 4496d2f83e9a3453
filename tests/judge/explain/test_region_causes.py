"""A mistake inside fused nodes is explained from the region's output alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.explain.region import search_region
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.pooling import AveragePool
from verax.reference.evaluate import evaluate


def fused(seed: int = 0) -> tuple[Graph, dict[str, np.ndarray]]:
    """Conv, batch normalization, addition and Relu, as compilers fuse them."""
    random = np.random.default_rng(seed)
    b = Builder("fused")

    def constant(name: str, array: np.ndarray) -> str:
        return b.constant(array.astype(np.float32), name)

    x = b.input("x", TensorType.parse("float32[2, 3, 9, 11]"))
    skip = b.input("skip", TensorType.parse("float32[2, 5, 9, 11]"))
    w = constant("w", random.standard_normal((5, 3, 3, 3)) * 0.3)
    h = b.add(Conv(pads=((1, 1), (1, 1))), [x, w], ["conv"], "conv")
    names = [constant(n, random.uniform(-1, 1, 5)) for n in ("gamma", "beta", "mean")]
    names.append(constant("variance", random.uniform(0.01, 0.5, 5)))
    h = b.add(BatchNormalization(epsilon=1e-3), [h, *names], ["bn"], "bn")
    h = b.add(Add(), [h, skip], ["sum"], "sum")
    y = b.add(Relu(), [h], ["y"], "relu")
    arrays = {
        "x": random.standard_normal((2, 3, 9, 11)).astype(np.float32),
        "skip": random.standard_normal((2, 5, 9, 11)).astype(np.float32),
    }
    return b.graph([y]), arrays


def explanations(graph: Graph, arrays: dict[str, np.ndarray], given: np.ndarray) -> list[str]:
    known = {**graph.constants, **arrays}
    found = search_region(graph.nodes, known, given, graph.types)[0]
    return [e.hypothesis for e in found]


def in_float32(graph: Graph, arrays: dict[str, np.ndarray]) -> np.ndarray:
    return evaluate(graph, arrays, work=np.float32)["y"]


def with_op(graph: Graph, name: str, **changed) -> Graph:
    nodes = [
        dataclasses.replace(n, op=dataclasses.replace(n.op, **changed)) if n.name == name else n
        for n in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("name", "changed", "truth"),
    [
        ("bn", {"epsilon": 1e-5}, "bn: epsilon 1e-05"),
        ("conv", {"pads": ((2, 0), (2, 0))}, "conv: all pads at the begin"),
    ],
)
def test_a_rival_attribute_inside_is_named_first(name: str, changed: dict, truth: str) -> None:
    graph, arrays = fused()
    given = in_float32(with_op(graph, name, **changed), arrays)
    assert explanations(graph, arrays, given)[0] == truth


def test_a_forgotten_parameter_inside_is_named_first() -> None:
    graph, arrays = fused()
    wrong = dataclasses.replace(
        graph, constants={**graph.constants, "mean": np.zeros(5, np.float32)}
    )
    assert explanations(graph, arrays, in_float32(wrong, arrays))[0] == "bn: mean missing"


def test_honest_and_strange_answers_are_not_explained() -> None:
    graph, arrays = fused()
    honest = in_float32(graph, arrays)
    assert explanations(graph, arrays, honest) == []
    noise = np.random.default_rng(3).standard_normal(honest.shape).astype(np.float32)
    assert explanations(graph, arrays, honest + np.float32(1e-3) * noise) == []
    w = graph.constants["w"]
    other = w + np.float32(1e-3) * np.random.default_rng(4).standard_normal(w.shape).astype("f4")
    wrong = dataclasses.replace(graph, constants={**graph.constants, "w": other})
    assert explanations(graph, arrays, in_float32(wrong, arrays)) == []


def test_weights_that_are_scaled_as_a_whole_are_named() -> None:
    graph, arrays = fused()
    wrong = dataclasses.replace(
        graph, constants={**graph.constants, "w": graph.constants["w"] * np.float32(1.001)}
    )
    found = explanations(graph, arrays, in_float32(wrong, arrays))
    assert found[0] == "conv: input 1 scaled"


def test_a_negative_scale_folded_through_relu_is_named() -> None:
    random = np.random.default_rng(1)
    b = Builder("folded")
    x = b.input("x", TensorType.parse("float32[2, 5, 6, 7]"))
    gamma = np.array([1, -0.5, 2, -1.5, 0.25], np.float32)
    parameters = [gamma, *random.uniform(0.1, 0.5, (3, 5)).astype(np.float32)]
    names = [b.constant(p, f"p{i}") for i, p in enumerate(parameters)]
    h = b.add(BatchNormalization(), [x, *names], ["bn"], "bn")
    graph = b.graph([b.add(Relu(), [h], ["y"], "relu")])
    arrays = {"x": random.standard_normal((2, 5, 6, 7)).astype(np.float32)}
    inner = evaluate(graph, arrays, keep=["bn"])["bn"]
    negative = (gamma < 0).reshape(1, -1, 1, 1)
    given = np.where(negative, np.minimum(inner, 0), np.maximum(inner, 0)).astype(np.float32)
    assert explanations(graph, arrays, given) == ["negative scale folded through the activation"]


def test_a_negative_scale_folded_into_the_convolution_before_relu_is_named() -> None:
    """What an optimizer does that folds a BatchNormalization through an activation."""
    random = np.random.default_rng(11)
    b = Builder("folded before")
    x = b.input("x", TensorType.parse("float32[2, 3, 6, 7]"))
    w = random.standard_normal((5, 3, 3, 3)).astype(np.float32)
    gamma = np.array([1, -0.5, 2, -1.5, 0.25], np.float32)
    parameters = [gamma, *random.uniform(0.1, 0.5, (3, 5)).astype(np.float32)]
    h = b.add(Conv(), [x, b.constant(w, "w")], ["conv"], "conv")
    h = b.add(Relu(), [h], ["relu"], "relu")
    names = [b.constant(p, f"p{i}") for i, p in enumerate(parameters)]
    graph = b.graph([b.add(BatchNormalization(epsilon=1e-3), [h, *names], ["y"], "bn")])
    arrays = {"x": random.standard_normal((2, 3, 6, 7)).astype(np.float32)}
    inner = evaluate(graph, arrays, keep=["conv"])["conv"]
    scale, beta, mean, variance = (p.astype(np.float64).reshape(1, -1, 1, 1) for p in parameters)
    factor = scale / np.sqrt(variance + 1e-3)
    given = np.maximum(factor * inner, 0) + beta - factor * mean
    found = explanations(graph, arrays, given.astype(np.float32))
    assert found == ["negative scale folded before the activation"]


def test_neighbours_in_the_other_order_are_named() -> None:
    b = Builder("order")
    x = b.input("x", TensorType.parse("float32[2, 3, 8, 10]"))
    pool = AveragePool(kernel_shape=(2, 3), strides=(2, 2))
    h = b.add(pool, [x], ["pool"], "pool")
    graph = b.graph([b.add(Relu(), [h], ["y"], "relu")])
    arrays = {"x": np.random.default_rng(2).standard_normal((2, 3, 8, 10)).astype(np.float32)}
    b = Builder("other")
    x = b.input("x", TensorType.parse("float32[2, 3, 8, 10]"))
    h = b.add(Relu(), [x], ["relu"], "relu")
    other = b.graph([b.add(pool, [h], ["y"], "pool")])
    assert explanations(graph, arrays, in_float32(other, arrays))[0] == "order exchanged"


def test_relu_before_the_addition_is_named() -> None:
    graph, arrays = fused()
    inner = evaluate(graph, arrays, keep=["bn"], work=np.float32)["bn"]
    given = np.maximum(inner, 0) + arrays["skip"]
    assert explanations(graph, arrays, given)[0] == "order exchanged, on operand 0"
