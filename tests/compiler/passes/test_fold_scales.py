"""Folding scales and shifts: where it happens, where it must not, and that the numbers stay.

The witness is the float64 meaning of the network as it was: the rewritten one, computed in the
promised float32, may differ from it by rounding only, and the judge says whether it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verax
from verax.campaign.deep_networks import deep_network
from verax.campaign.random_networks import random_network
from verax.compiler.passes.fold_scales import fold_scales
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import draw_inputs
from verax.records.verdict import Kind
from verax.reference import promised

C = 6
POSITIVE = np.array([0.5, 2.0, 0.0, 1.25, 3.0, 0.7])
MIXED = np.array([0.5, -2.0, 0.0, 1.25, -3.0, 0.7])


class Made:
    """A builder with short names. rng: where weights come from."""

    def __init__(self, seed: int) -> None:
        self.b, self.rng = Builder("net"), np.random.default_rng(seed)
        self.x = self.b.input("x", TensorType.parse("float32[2, 4, 9, 7]"))

    def weights(self, *shape: int) -> str:
        return self.b.constant(self.rng.standard_normal(shape).astype(np.float32))

    def constant(self, values: Any) -> str:
        return self.b.constant(np.asarray(values, np.float32))

    def channels(self, values: Any) -> str:
        return self.constant(np.reshape(values, (-1, 1, 1)))

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def conv(self, x: str = "", groups: int = 1, outputs: int = C, bias: bool = True) -> str:
        inputs = self.b.types[x or self.x].dims[1] // groups
        more = [self.weights(outputs)] if bias else []
        weights = self.weights(outputs, inputs, 3, 2)
        return self.add("Conv", x or self.x, weights, *more, groups=groups,
                        pads=((1, 0), (0, 1)))  # fmt: skip

    def norm(self, x: str, scale: Any = MIXED) -> str:
        count = len(scale)
        mean, bias = (self.constant(self.rng.standard_normal(count)) for _ in range(2))
        variance = self.constant(self.rng.uniform(0.2, 3, count))
        return self.add("BatchNormalization", x, self.constant(scale), bias, mean, variance,
                        epsilon=1e-3)  # fmt: skip

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def of(make: Callable[[Made], str], seed: int = 60) -> Graph:
    made = Made(seed)
    return made.graph(make(made))


def kinds(graph: Graph) -> str:
    return " ".join(n.op.kind for n in graph.nodes)


def concat_of_two(m: Made) -> str:
    parts = [m.add("Relu", m.conv(outputs=2)), m.conv(outputs=4, groups=2)]
    return m.add("Mul", m.add("Concat", *parts, axis=1), m.channels(POSITIVE))


def residual(m: Made) -> str:
    return m.norm(m.add("Add", m.conv(), m.conv(bias=False)))


def transposed(m: Made) -> str:
    last = m.add("Transpose", m.conv(), perm=(0, 2, 3, 1))
    return m.add("Add", m.add("Mul", last, m.constant(MIXED)), m.constant(POSITIVE))


def deconvolution(m: Made) -> str:
    weights = m.weights(4, 3, 3, 2)
    return m.norm(m.add("ConvTranspose", m.x, weights, groups=2, strides=(2, 1),
                        output_padding=(1, 0)))  # fmt: skip


def dense(m: Made) -> str:
    flat = m.add("Flatten", m.x)
    y = m.add("Gemm", flat, m.weights(C, 4 * 9 * 7), m.weights(C), trans_b=True)
    return m.add("Mul", m.add("LeakyRelu", y, alpha=0.2), m.constant(POSITIVE))


def clipped(m: Made) -> str:
    found = m.add("Clip", m.conv(), m.constant(0.0), m.constant(6.0))
    return m.add("Add", m.add("Div", found, m.constant(6.0)), m.constant(-0.25))


def pooled(m: Made) -> str:
    return m.add("Mul", m.add("MaxPool", m.conv(), kernel_shape=(3, 2), pads=((1, 0), (0, 1))),
                 m.channels(POSITIVE))  # fmt: skip


def averaged(m: Made) -> str:
    window = {"kernel_shape": (3, 2), "pads": ((1, 0), (0, 1)), "ceil_mode": True}
    return m.norm(m.add("AveragePool", m.conv(), **window))


def padded(m: Made) -> str:
    wide = m.add("Pad", m.conv(), m.b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2])))
    return m.add("Mul", wide, m.channels(MIXED))


def before(m: Made) -> str:
    return m.conv(m.add("Mul", m.x, m.channels([1, -2, 0, 0.25])), groups=2)


def image(m: Made) -> str:
    moved = m.add("Sub", m.x, m.channels([0.4, 0.5, 0.6, 0.1]))
    normal = m.add("Div", moved, m.channels([0.2, 0.3, 0.25, 2.0]))
    return m.add("Conv", normal, m.weights(C, 4, 3, 2))


def matmul(m: Made) -> str:
    turned = m.add("Transpose", m.x, perm=(0, 2, 3, 1))
    return m.add("Mul", m.add("MatMul", turned, m.weights(4, 5)), m.constant([1, -2, 3, 0.5, 0]))


def large_bias(m: Made) -> str:
    y = m.add("Conv", m.x, m.weights(C, 4, 3, 2), m.constant(np.full(C, 40.0)))
    return m.add("Sub", m.add("Mul", y, m.channels(MIXED + 1)), m.channels(MIXED + 1))


FOLDED: dict[str, tuple[Callable[[Made], str], str]] = {
    "BatchNorm behind a convolution": (lambda m: m.norm(m.conv()), "Conv Add"),
    "depthwise": (
        lambda m: m.norm(m.conv(groups=4, outputs=8), np.tile(MIXED[:4], 2)), "Conv Add"),
    "no bias": (lambda m: m.norm(m.conv(bias=False)), "Conv Add"),
    "a shift into a larger bias": (large_bias, "Conv"),
    "transposed convolution": (deconvolution, "ConvTranspose Add"),
    "Gemm and LeakyRelu": (dense, "Flatten Gemm LeakyRelu"),
    "MatMul": (matmul, "Transpose MatMul"),
    "a positive scale through Relu": (
        lambda m: m.add("Mul", m.add("Relu", m.conv()), m.channels(POSITIVE)), "Conv Relu"),
    "several in a row": (
        lambda m: m.norm(m.add("Mul", m.conv(), m.channels(MIXED)), POSITIVE), "Conv Add"),
    "Concat": (concat_of_two, "Conv Relu Conv Concat"),
    "a sum of two": (residual, "Conv Conv Add Add"),
    "Transpose": (transposed, "Conv Transpose Add"),
    "Clip": (clipped, "Conv Clip Add"),
    "MaxPool": (pooled, "Conv MaxPool"),
    "AveragePool": (averaged, "Conv AveragePool Add"),
    "Pad": (padded, "Conv Pad"),
    "before a padded convolution": (before, "Conv"),
    "the normalisation of an image": (image, "Sub Conv"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDED)
def test_it_is_folded_and_the_numbers_stay(name: str) -> None:
    make, left = FOLDED[name]
    graph = of(make)
    new, trace = fold_scales(graph)
    assert kinds(new) == left
    assert trace.rewrites == len(trace.notes) > 0
    assert_rounding(graph, new, trace.values)


def assert_rounding(graph: Graph, new: Graph, values: Any, seed: int = 7) -> None:
    """The new network, and every value that the trace says it still has, differs by rounding."""
    inputs = draw_inputs(graph, seed)[0]
    kept = {v: to for v, to in values.items() if v not in graph.constants}
    shown = promised(new, inputs, keep=tuple(dict.fromkeys(kept.values())))
    given = {v: shown[to] for v, to in kept.items() if to in shown}
    assert set(graph.outputs) <= set(given)
    verdict = verax.check(graph, given, inputs, explain=False)
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def through(kind: str, scale: Any, shift: Any = 0.0, **attributes: Any) -> Callable[[Made], str]:
    def make(m: Made) -> str:
        y = m.add("Mul", m.add(kind, m.conv(), **attributes), m.channels(scale))
        return m.add("Add", y, m.channels(np.full(C, shift))) if shift else y

    return make


def two_readers(m: Made) -> str:
    y = m.conv()
    return m.add("Add", m.norm(y), m.add("Tanh", y))


def shifted_channels(*widths: int) -> Callable[[Made], str]:
    """Zeros before or behind the channels, or channels that are cut off."""

    def make(m: Made) -> str:
        y = m.add("Pad", m.conv(), m.b.constant(np.array([0, widths[0], 0, 0, 0, widths[1], 0, 0])))
        return m.add("Mul", y, m.channels(np.linspace(0.5, 3, C + sum(widths))))

    return make


KEPT: dict[str, Callable[[Made], str]] = {
    "a negative scale and Relu": through("Relu", MIXED),
    "a negative scale and LeakyRelu": through("LeakyRelu", MIXED, alpha=0.1),
    "a negative scale and MaxPool": through("MaxPool", MIXED, kernel_shape=(2, 2)),
    "a scale and Sigmoid": through("Sigmoid", POSITIVE),
    "a value that is read twice": two_readers,
    "a scale that overflows": through("Identity", np.full(C, 3e38)),
    "a scale that loses digits": through("Relu", np.full(C, 1e-38)),
    "a shift before a padded convolution":
        lambda m: m.conv(m.add("Add", m.x, m.channels([1, 2, 3, 4]))),
    "a shift where padding is counted": lambda m: m.add(
        "Add", m.add("AveragePool", m.conv(), kernel_shape=(2, 2), pads=((1, 0), (0, 0)),
                     count_include_pad=True), m.constant(1.5)),
    "a negative scale and Clip": lambda m: m.add(
        "Mul", m.add("Clip", m.conv(), m.constant(-1.0), m.constant(2.0)), m.constant(-3.0)),
    "a scale of channels that are shifted": shifted_channels(1, -1),
    "a scale of more channels": shifted_channels(0, 1),
    "NaN in the scale": lambda m: m.add("Mul", m.conv(), m.channels([1, np.nan, 1, 1, 1, 1])),
    "an infinite scale": lambda m: m.add("Mul", m.conv(), m.channels([1, np.inf, 1, 1, 1, 1])),
    "along rows": lambda m: m.add("Mul", m.conv(), m.constant(np.ones((8, 1)) * 2)),
    "training": lambda m: m.b.add_all(
        REGISTRY["BatchNormalization"](training_mode=True),
        [m.conv(), *(m.constant(np.abs(MIXED) + 1) for _ in range(4))], ["y", "m", "v"])[0],
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_it_is_left_alone(name: str) -> None:
    graph = of(KEPT[name])
    new, trace = fold_scales(graph)
    assert trace.rewrites == 0
    assert kinds(new) == kinds(graph)


def test_a_negative_shift_behind_relu_stays_and_the_scale_with_it() -> None:
    graph = of(through("Relu", POSITIVE, -0.5))
    new, trace = fold_scales(graph)
    assert kinds(new) == "Conv Relu Add" and trace.rewrites == 1
    assert_rounding(graph, new, trace.values)


def test_outputs_keep_their_numbers() -> None:
    made = Made(61)
    y = made.conv()
    graph = made.graph(y, made.norm(y))
    assert fold_scales(graph)[1].rewrites == 0


def test_what_changed_is_not_in_the_trace() -> None:
    graph = of(through("Relu", POSITIVE))
    _, trace = fold_scales(graph)
    conv, relu, mul = graph.nodes
    assert conv.outputs[0] not in trace.values and relu.outputs[0] not in trace.values
    assert mul.outputs[0] in trace.values


@pytest.mark.parametrize("finite", [True, False])
def test_a_bias_of_zeros_copies_no_weights(finite: bool) -> None:
    """A map that changes nothing goes, and the weights stay the array that they were."""
    b, rng = Builder("zeros"), np.random.default_rng(911)
    weights = rng.standard_normal((5, 7)).astype(np.float32)
    if not finite:
        weights[2, 3] = np.inf
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    product = b.add(REGISTRY["MatMul"](), [x, b.constant(weights, "w")])
    graph = b.graph([b.add(REGISTRY["Add"](), [product, b.constant(np.zeros(7, np.float32))])])
    new, _ = fold_scales(graph)
    assert kinds(new) == ("MatMul" if finite else "MatMul Add")
    assert any(a is graph.constants["w"] for a in new.constants.values())


@pytest.mark.parametrize("limit", range(4))
def test_it_stops_when_told(limit: int) -> None:
    def make(m: Made) -> str:
        y = m.x
        for _ in range(3):
            y = m.norm(m.conv(y))
        return y

    graph = of(make)
    new, trace = fold_scales(graph, limit)
    assert trace.rewrites == min(limit, 3)
    assert kinds(new).count("BatchNormalization") == 3 - min(limit, 3)
    assert_rounding(graph, new, trace.values)


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_differ_by_rounding(seed: int) -> None:
    made = random_network(seed, must=("BatchNormalization",)) if seed % 4 else deep_network(seed)
    new, trace = fold_scales(made.graph)
    if trace.rewrites:
        assert_rounding(made.graph, new, trace.values, seed)
