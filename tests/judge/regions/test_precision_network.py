"""A whole network in a coarser arithmetic is recognised from its outputs alone."""

import dataclasses

import numpy as np
import pytest
from tests.faults.planted import Planted, small_network

from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge import check, draw_inputs
from verax.judge.decide.precision import PRODUCTS, channel_axis, symmetric_int8
from verax.judge.regions.precision_network import network_precision
from verax.numerics import statistics as st
from verax.numerics.formats import BFLOAT16, FLOAT16, TF32, FloatFormat, round_to
from verax.ops.pointwise.activation import Relu
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

SEED = 3


def in_format(fmt: FloatFormat, store: bool):
    """Products of rounded factors; with `store` every result is rounded as well."""

    def change(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
        if node.op.kind in PRODUCTS:
            last = 3 if store else 2
            arrays = [round_to(a, fmt) for a in arrays[:last]] + arrays[last:]
            y = np.asarray(node.op.reference(EVALUATION, *arrays)).astype(np.float32)
        return round_to(y, fmt) if store else y

    return change


def int8_weights(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
    if node.op.kind not in PRODUCTS:
        return y
    data, weights, *rest = (a.astype(np.float64) for a in arrays)
    weights = symmetric_int8(weights, channel_axis(node.op))
    return np.asarray(node.op.reference(EVALUATION, data, weights, *rest))


class _Evaluation:
    """Enough of an `Evaluation` for products of float64."""

    inputs = outputs = (TensorType.parse("float64[]"),)
    work = np.dtype(np.float64)


EVALUATION = _Evaluation()
NAMES = [n.name for n in small_network().nodes]
WAYS = {
    "bf16 throughout": in_format(BFLOAT16, True),
    "fp16 throughout": in_format(FLOAT16, True),
    "bf16 inputs": in_format(BFLOAT16, False),
    "TF32 inputs": in_format(TF32, False),
    "int8 weights per channel": int8_weights,
}


def subject(change) -> Planted:
    found = Planted(NAMES, change)
    found.capabilities = dataclasses.replace(found.capabilities, watches=False)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_outputs_alone_name_the_arithmetic(way: str) -> None:
    graph = small_network()
    verdict = check(graph, subject(WAYS[way]), seed=SEED)
    assert verdict.kind is Kind.precision, verdict.reasons
    for finding in verdict.outputs:
        assert finding.kind is Kind.precision and finding.precision is not None
        assert finding.precision.format == way
        assert finding.precision.confirmed
    inputs, _ = draw_inputs(graph, SEED)
    outputs = subject(WAYS[way]).run(graph, inputs)
    found = network_precision(graph, inputs, outputs)
    assert found is not None and (found.format, found.confirmed) == (way, True)
    if way == "bf16 throughout":
        assert 0.5 < found.unit_roundoff / BFLOAT16.unit_roundoff < 2


@pytest.mark.parametrize("way", ["bf16 throughout", "TF32 inputs"])
@pytest.mark.parametrize("guilty", ["bn", "grouped", "sum"])
def test_a_mistake_is_not_hidden_by_a_coarse_arithmetic(way: str, guilty: str) -> None:
    def change(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
        y = np.asarray(WAYS[way](node, arrays, y))
        return np.roll(y, 1, axis=-1) if node.name == guilty else y

    verdict = check(small_network(), subject(change), seed=SEED, explain=False)
    assert verdict.kind is Kind.mistake


def test_honest_float32_is_no_coarse_arithmetic() -> None:
    graph = small_network()
    inputs, _ = draw_inputs(graph, SEED)
    assert network_precision(graph, inputs, Planted().run(graph, inputs)) is None


@pytest.mark.parametrize("size", [2.0**-7, 2.0**-10])
def test_noise_of_the_size_of_a_format_stays_a_mistake(size: float) -> None:
    random = np.random.default_rng(1)

    def change(node: Node, arrays: list, y: np.ndarray) -> np.ndarray:
        return y * (1 + size * random.standard_normal(y.shape)) if node.name == "stem" else y

    verdict = check(small_network(), subject(change), seed=SEED, explain=False)
    assert verdict.kind is Kind.mistake


def deep(seed: int = 0) -> Graph:
    """x [1, 3, 20, 23] through eight convolutions to y [1, 16, 20, 23]."""
    random, b = np.random.default_rng(seed), Builder("deep")
    h, channels = b.input("x", TensorType.parse("float32[1, 3, 20, 23]")), 3
    for i in range(8):
        w = random.standard_normal((16, channels, 3, 3)) * np.sqrt(2 / (9 * channels))
        arrays = [b.constant(w.astype(np.float32), f"w{i}")]
        arrays.append(b.constant(random.uniform(-0.1, 0.1, 16).astype(np.float32), f"b{i}"))
        h = b.add(Conv(pads=((1, 1), (1, 1))), [h, *arrays], [f"c{i}"], f"conv{i}")
        h, channels = b.add(Relu(), [h], [f"r{i}"], f"relu{i}"), 16
    return b.graph([h])


@pytest.mark.parametrize("watch", [False, True])
def test_openvino_in_bf16_comes_out_by_itself(watch: bool) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    from verax.runners.openvino import OpenVinoRunner

    runner = OpenVinoRunner(writer=to_bytes, precision="bf16", threads=1)
    graph = deep()
    inputs, _ = draw_inputs(graph, SEED)
    answer = runner.run(graph, inputs)
    exact = evaluate(graph, inputs)
    (value,) = graph.outputs
    error = st.root_mean_square(answer[value] - exact[value])
    if error < st.COARSE_UNIT * st.root_mean_square(exact[value]):
        pytest.skip("this processor cannot compute in bf16: OpenVINO answered in float32")
    verdict = check(graph, runner, inputs, watch=watch)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert all("bf16" in f.precision.format for f in verdict.nodes if f.precision is not None)
    assert dataclasses.asdict(verdict)["blame"] == ()


@pytest.mark.parametrize("way", ["bf16 throughout", "fp16 throughout", "TF32 inputs"])
def test_ten_outputs_are_enough_where_rounding_flips_little(way: str) -> None:
    graph = dataclasses.replace(small_network(), outputs=("probabilities",))
    verdict = check(graph, subject(WAYS[way]), seed=SEED)
    assert verdict.outputs[0].elements == 10
    assert verdict.kind is Kind.precision, verdict.reasons
    assert verdict.outputs[0].precision.format == way


def test_unrelated_errors_seldom_look_alike() -> None:
    random = np.random.default_rng(0)
    for count in (5, 10, 40, 1000):
        one, other = random.standard_normal((2, 2000, count))
        alike = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        assert np.abs(alike).max() < st.least_likeness(count)
    assert st.least_likeness(4) == np.inf
