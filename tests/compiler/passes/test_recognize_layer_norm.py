"""LayerNormalization is found in its parts, near misses are not, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.compiler.passes import recognize_layer_norm as module
from verax.compiler.passes.patterns import (
    NodePattern,
    NumberPattern,
    OneOf,
    Product,
    Rule,
    X,
    mean,
    over_root,
    replace_matches,
    root,
)
from verax.compiler.passes.recognize_layer_norm import recognize_layer_norm
from verax.ir.graph import Graph
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.records.trace import Trace

WIDTH = written_out.SHAPE[-1]


def deviation(n: Net, *axes: int) -> str:
    return n.add("Sub", n.x, n.mean(n.x, *axes))


def affine(n: Net, unit: str, scale: bool = True, bias: bool = True) -> str:
    unit = n.add("Mul", unit, n.weights(WIDTH)) if scale else unit
    return n.add("Add", n.weights(WIDTH), unit) if bias else unit


def as_onnx(n: Net, scale: bool = True, bias: bool = True, exponent: object = 2.0) -> str:
    """As torch.onnx writes it below opset 17."""
    d = deviation(n)
    variance = n.mean(n.add("Pow", d, exponent))
    unit = n.add("Div", d, n.add("Sqrt", n.add("Add", variance, 1e-5)))
    return affine(n, unit, scale, bias)


def as_torch(n: Net) -> str:
    """As torch.export decomposes it: squares as a product, and a reciprocal root."""
    d = deviation(n)
    inverse = n.add("Rsqrt", n.add("Add", 1e-6, n.mean(n.add("Mul", d, d))))
    return affine(n, n.add("Mul", d, inverse))


def as_keras(n: Net, scale: bool = True, bias: bool = True) -> str:
    """Multiplied out: x f + (bias - mean f)."""
    m, d = n.mean(n.x), deviation(n)
    factor = n.add("Rsqrt", n.add("Add", n.mean(n.add("Mul", d, d)), 1e-3))
    factor = n.add("Mul", factor, n.weights(WIDTH)) if scale else factor
    shift = n.add("Mul", m, factor)
    if not bias:
        return n.add("Sub", n.add("Mul", n.x, factor), shift)
    return n.add("Add", n.add("Mul", n.x, factor), n.add("Sub", n.weights(WIDTH), shift))


def by_sums(n: Net) -> str:
    count = float(WIDTH)
    d = n.add("Sub", n.x, n.add("Div", n.total(n.x), count))
    variance = n.add("Div", n.total(n.add("Pow", d, 2.0)), count)
    return n.add("Mul", n.add("Pow", n.add("Add", variance, 1e-5), -0.5), d)


def over_images(n: Net) -> str:
    """Over all pixels of a channel, with a scale per channel: the operator can say that."""
    d = deviation(n, 2, 3)
    variance = n.mean(n.add("Pow", d, 2.0), -1, -2)
    unit = n.add("Div", d, n.add("Sqrt", n.add("Add", variance, 1e-5)))
    return n.add("Mul", unit, n.weights(3, 1, 1))


def reciprocal(n: Net) -> str:
    d = deviation(n)
    deviations = n.add("Sqrt", n.add("Add", n.mean(n.add("Mul", d, d)), 1e-5))
    return n.add("Mul", n.weights(WIDTH), n.add("Mul", d, n.add("Reciprocal", deviations)))


FOUND: dict[str, Make] = {
    "as ONNX": as_onnx,
    "no scale": lambda n: as_onnx(n, scale=False),
    "no bias": lambda n: as_onnx(n, bias=False),
    "neither": lambda n: as_onnx(n, scale=False, bias=False),
    "an exponent of int64": lambda n: as_onnx(n, exponent=n.constant(2, np.int64)),
    "as torch.export": as_torch,
    "as Keras": as_keras,
    "as Keras, no scale": lambda n: as_keras(n, scale=False),
    "as Keras, no bias": lambda n: as_keras(n, bias=False),
    "by sums": by_sums,
    "over images": over_images,
    "by a reciprocal": reciprocal,
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_rounds(name: str) -> None:
    graph = of(FOUND[name])
    new, trace = recognize_layer_norm(graph)
    assert kinds(new) == "LayerNormalization" and trace.rewrites == 1
    assert new.outputs == graph.outputs
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((0.02, 0.3), (40, -7))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


@pytest.mark.parametrize("name", ["as ONNX", "as Keras", "by sums"])
@pytest.mark.parametrize("constant", [0.0, 3.0])
def test_lines_without_any_deviation_are_what_they_were(name: str, constant: float) -> None:
    graph = of(FOUND[name])
    x = np.full(graph.types["x"].shape, constant, np.float32)
    x[0] = drawn(graph, 3)["x"][0]
    written_out.assert_rounding(graph, {"x": x})


def test_attributes_and_inputs_are_the_parts() -> None:
    (node,) = recognize_layer_norm(of(as_onnx))[0].nodes
    assert node.op == LayerNormalization(axis=3, epsilon=float(np.float32(1e-5)))
    assert len(node.inputs) == 3
    (node,) = recognize_layer_norm(of(over_images))[0].nodes
    assert node.op == LayerNormalization(axis=2, epsilon=float(np.float32(1e-5)))


# --- near misses


def with_variance(change: Make) -> Make:
    """d / sqrt(what `change` gives)."""

    def make(n: Net) -> str:
        return n.add("Div", deviation(n), n.add("Sqrt", change(n)))

    return make


def squares(n: Net, exponent: object = 2.0, *axes: int) -> str:
    return n.mean(n.add("Pow", deviation(n), exponent), *axes)


def swapped(n: Net) -> str:
    m = n.mean(n.x)
    d = n.add("Sub", m, n.x)
    return n.add("Div", d, n.add("Sqrt", n.add("Add", squares(n), 1e-5)))


def epsilon_outside(n: Net) -> str:
    return n.add("Div", deviation(n), n.add("Add", n.add("Sqrt", squares(n)), 1e-5))


def another_mean_axis(n: Net) -> str:
    d = n.add("Sub", n.x, n.mean(n.x, 2))
    return n.add("Div", d, n.add("Sqrt", n.add("Add", n.mean(n.add("Pow", d, 2.0)), 1e-5)))


def first_axis(n: Net) -> str:
    d = deviation(n, 1)
    return n.add(
        "Div", d, n.add("Sqrt", n.add("Add", n.mean(n.add("Pow", d, 2.0), 1), 1e-5))
    )  # fmt: skip


def dropped_axis(n: Net) -> str:
    """The mean of [5, 5] without its axis is taken from the columns."""
    d = n.add("Sub", n.x, n.mean(n.x, keepdims=False))
    return n.add("Div", d, n.add("Sqrt", n.add("Add", n.mean(n.add("Pow", d, 2.0)), 1e-5)))


def sample_variance(n: Net) -> str:
    total = n.total(n.add("Pow", deviation(n), 2.0))
    return n.add("Add", n.add("Div", total, float(WIDTH - 1)), 1e-5)


def other_input(n: Net) -> str:
    other = n.add("Tanh", n.x)
    d = n.add("Sub", other, n.mean(other))
    return n.add(
        "Div", deviation(n), n.add("Sqrt", n.add("Add", n.mean(n.add("Pow", d, 2.0)), 1e-5))
    )


def other_deviation(n: Net) -> str:
    d = n.add("Sub", n.x, n.mean(n.x))
    return n.add("Div", n.x, n.add("Sqrt", n.add("Add", n.mean(n.add("Mul", d, d)), 1e-5)))


MISSED: dict[str, Make] = {
    "exponent 4": lambda n: as_onnx(n, exponent=4.0),
    "exponent next to 2": lambda n: as_onnx(n, exponent=np.nextafter(np.float32(2), np.float32(3))),
    "exponent 3 of int64": lambda n: as_onnx(n, exponent=n.constant(3, np.int64)),
    "an exponent for each": lambda n: as_onnx(n, exponent=np.full(WIDTH, 2.0)),
    "operands of Sub swapped": swapped,
    "epsilon outside the root": epsilon_outside,
    "epsilon subtracted": with_variance(lambda n: n.add("Sub", squares(n), -1e-5)),
    "an epsilon for each": with_variance(
        lambda n: n.add("Add", squares(n), np.full((WIDTH,), 1e-5))),
    "a negative epsilon": with_variance(lambda n: n.add("Add", squares(n), -1e-5)),
    "another axis in the mean": another_mean_axis,
    "another axis in the variance": with_variance(
        lambda n: n.add("Add", squares(n, 2.0, 2), 1e-5)),
    "more axes in the variance": with_variance(
        lambda n: n.add("Add", squares(n, 2.0, 2, 3), 1e-5)),
    "not the last axis": first_axis,
    "divided by N - 1": with_variance(sample_variance),
    "the variance of another value": other_input,
    "x over its deviation": other_deviation,
    "a cube root": lambda n: n.add("Mul", deviation(n), n.add(
        "Pow", n.add("Add", squares(n), 1e-5), -1 / 3)),
    "no root": lambda n: n.add("Div", deviation(n), n.add("Add", squares(n), 1e-5)),
    "the mean of |d|": with_variance(
        lambda n: n.add("Add", n.mean(n.add("Abs", deviation(n))), 1e-5)),
    "a larger constant widens it": lambda n: n.add("Mul", as_onnx(n, False, False),
                                                   n.weights(2, 1, 1, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_layer_norm(graph)
    found = kinds(new)
    if name == "a larger constant widens it":  # the part before the constant is one
        assert found == "LayerNormalization Mul"
        return
    assert trace.rewrites == 0 and found == kinds(graph)


def test_a_mean_without_its_axis_is_left_alone() -> None:
    graph = of(dropped_axis, (5, 5))
    assert recognize_layer_norm(graph)[1].rewrites == 0


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_alone(dtype: str) -> None:
    assert recognize_layer_norm(of(as_onnx, dtype=dtype))[1].rewrites == 0


def test_a_scale_that_is_computed_is_left_outside() -> None:
    """A scale or bias that is no constant stays as it is, behind what is recognised."""
    graph = of(lambda n: n.add("Add", n.add("Mul", as_onnx(n, False, False),
                                            n.add("Tanh", n.x)), n.x))  # fmt: skip
    new, _ = recognize_layer_norm(graph)
    assert kinds(new) == "LayerNormalization Tanh Mul Add"
    written_out.assert_rounding(graph, drawn(graph, 5))


def test_what_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    d = deviation(n)
    root = n.add("Sqrt", n.add("Add", n.mean(n.add("Pow", d, 2.0)), 1e-5))
    y = n.add("Div", d, root)
    for more in (root, d):
        assert recognize_layer_norm(n.b.graph([y, more]))[1].rewrites == 0
    reader = n.add("Tanh", root)
    assert recognize_layer_norm(n.b.graph([y, reader]))[1].rewrites == 0


def test_it_stops_when_told_and_forgets_what_is_inside() -> None:
    n = Net()
    first = as_onnx(n)
    outer = Net.__new__(Net)
    outer.__dict__ = {**n.__dict__, "x": first}
    second = as_torch(outer)
    graph = n.b.graph([second])
    assert [recognize_layer_norm(graph, limit)[1].rewrites for limit in range(4)] == [0, 1, 2, 2]
    half, trace = recognize_layer_norm(graph, 1)
    assert half.nodes[0].op.kind == "LayerNormalization" and len(half.nodes) > 2
    assert first in trace.values and second in trace.values
    inner = {v for node in graph.nodes[:8] for v in node.outputs} - {first}
    assert not inner & trace.values.keys()


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_order_of_operands_and_factors_is_found(data: st.DataObject) -> None:
    """Operands of Mul and Add in either order, factors in any association."""
    flip = data.draw(st.lists(st.booleans(), min_size=6, max_size=6))
    by_root = data.draw(st.booleans())

    def make(n: Net) -> str:
        def either(kind: str, a: object, b: object) -> str:
            return n.add(kind, *((b, a) if flip.pop() else (a, b)))

        d = deviation(n)
        variance = either("Add", n.mean(either("Mul", d, d)), 1e-4)
        inverse = n.add("Rsqrt", variance) if by_root else n.add("Pow", variance, -0.5)
        scale = n.weights(WIDTH)
        if flip.pop():
            unit = either("Mul", either("Mul", inverse, scale), d)
        else:
            unit = either("Mul", either("Mul", d, inverse), scale)
        return (
            either("Add", unit, n.weights(WIDTH)) if flip else n.add("Add", n.weights(WIDTH), unit)
        )

    graph = of(make, (2, 4, WIDTH))
    assert kinds(recognize_layer_norm(graph)[0]) == "LayerNormalization"


# --- broken twins


def ignoring_the_exponent(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """As ONNX Runtime's LayerNormFusion did."""
    square = NodePattern("Pow", module.DEVIATION, NumberPattern("exponent"))
    inverse = over_root(NodePattern("Add", mean(square), NumberPattern("epsilon")))
    pattern = Product(module.DEVIATION, inverse)
    return replace_matches(
        graph, limit, "recognize_layer_norm", [Rule(pattern, module._layer_norm)]
    )


def epsilon_anywhere(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    outside = NodePattern("Add", root(module.VARIANCE), NumberPattern("epsilon"))
    pattern = NodePattern("Div", module.DEVIATION, outside)
    return replace_matches(
        graph, limit, "recognize_layer_norm", [Rule(pattern, module._layer_norm)]
    )


def either_sign(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    turned = OneOf(module.DEVIATION, NodePattern("Sub", mean(X), X))
    pattern = Product(turned, module.INVERSE)
    return replace_matches(
        graph, limit, "recognize_layer_norm", [Rule(pattern, module._layer_norm)]
    )


BROKEN = {
    "the exponent": (ignoring_the_exponent, lambda n: as_onnx(n, False, False, 4.0)),
    "where epsilon stands": (epsilon_anywhere, epsilon_outside),
    "the sign": (either_sign, swapped),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = of(make)
    inputs = drawn(graph, 9, 0.05)
    written_out.assert_rounding(graph, inputs)
    written_out.plant(monkeypatch, "recognize_layer_norm", broken)
    written_out.assert_named(graph, inputs, "recognize_layer_norm")
