"""Quantised nodes and regions: what rounding tips, what processors do to bytes, and mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph, Node
from verax.ir.operator import Inference, Operator
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.local import check_node
from verax.judge.decide.ties import rounded_otherwise
from verax.judge.protocol import Capabilities
from verax.judge.regions.int8 import best_mixture
from verax.judge.regions.network import survey
from verax.numerics.error_model import Quantity
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.quantized.quantization import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from verax.ops.sums.reduction import ReduceMean
from verax.ops.sums.softmax import Softmax
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Finding, Kind
from verax.reference.evaluate import evaluate, evaluate_node


def judged(op: Operator, arrays: list[np.ndarray], given: Sequence[np.ndarray | None]) -> Finding:
    outputs = tuple(op.infer(Inference(tuple(TensorType.of(a) for a in arrays))))
    names = tuple(f"y{i}" for i in range(len(outputs)))
    node = Node(op, tuple(f"x{i}" for i in range(len(arrays))), names)
    return check_node(node, arrays, given, outputs)[0]


def test_a_quotient_at_the_edge_may_be_rounded_either_way() -> None:
    """0.316463083 / 0.03723095 is 8.50000025: 8.5 in float32, which ties to 8."""
    x = np.array([[0.316463083, 0.1, -1.3]], np.float32)
    arrays = [x, np.array(0.03723095, np.float32), np.array(2, np.int8)]
    for first, kind in ((10, Kind.identical), (11, Kind.rounding), (12, Kind.mistake)):
        given = np.array([[first, 5, -33]], np.int8)
        assert judged(QuantizeLinear(), arrays, [given]).kind is kind
    assert judged(QuantizeLinear(), arrays, [np.array([[10, 4, -33]], np.int8)]).kind is (
        Kind.mistake
    )


def planted_quantisations() -> dict[str, Any]:
    """(x, scale, zero) -> integers, each a mistake of a kind that runtimes make."""

    def made(x: Any, scale: Any, zero: Any, rounded: Any = np.rint) -> np.ndarray:
        lanes = (1, -1, 1)
        scale = np.asarray(scale, np.float64)
        scale = scale.reshape(lanes) if scale.size > 1 else scale
        return rounded(x.astype(np.float64) / scale) + int(zero)

    def clipped(q: np.ndarray, low: int = -128, high: int = 127) -> np.ndarray:
        return np.clip(q, low, high).astype(np.int8)

    def away(q: np.ndarray) -> np.ndarray:
        return np.trunc(q + np.copysign(0.5, q))

    return {
        "scale off by 0.1 %": lambda x, s, z: clipped(made(x, s * 1.001, z)),
        "zero point off by one": lambda x, s, z: clipped(made(x, s, z + 1)),
        "halves away from zero": lambda x, s, z: clipped(made(x, s, z, away)),
        "truncated": lambda x, s, z: clipped(made(x, s, z, np.trunc)),
        "saturated at -127": lambda x, s, z: clipped(made(x, s, z), -127),
        "saturated at 126": lambda x, s, z: clipped(made(x, s, z), high=126),
        "wrapped instead of saturated": lambda x, s, z: made(x, s, z).astype(np.int64).astype("i1"),
        "channels' scales reversed": lambda x, s, z: clipped(made(x, s[::-1], z)),
        "read as unsigned": lambda x, s, z: np.clip(made(x, s, z), 0, 255).astype("u1").view("i1"),
    }


@pytest.mark.parametrize("what", planted_quantisations())
@pytest.mark.parametrize("zero", [0, 3, -6])
def test_a_wrong_quantisation_is_a_mistake(what: str, zero: int) -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(0, 9, (2, 3, 200)).astype(np.float32)
    x[:, :, ::2] = np.rint(x[:, :, ::2] * 4) / 8  # many quotients are exactly half-way
    x[0, :, :2] = [[-60, 60]]
    scale = np.array([0.25, 0.5, 0.125], np.float32)
    arrays = [x, scale, np.full(3, zero, np.int8)]
    right = np.clip(np.rint(x / scale[:, None]) + zero, -128, 127).astype(np.int8)
    assert judged(QuantizeLinear(), arrays, [right]).kind is Kind.identical
    given = planted_quantisations()[what](x, scale, zero)
    assert judged(QuantizeLinear(), arrays, [given]).kind is Kind.mistake


def test_a_scale_and_zero_point_found_at_run_time_may_be_rounded_otherwise() -> None:
    """-min / scale is 127.49999 in float32: the zero point may be either."""
    x = np.array([[-1, 1, 0.3], [0.7, -0.2, 0.9]], np.float32)
    op = DynamicQuantizeLinear()
    scale = np.float32(2) / np.float32(255)
    right = np.clip(np.rint(x / scale) + 127, 0, 255).astype(np.uint8)
    other = np.clip(np.rint(x / scale) + 128, 0, 255).astype(np.uint8)
    assert judged(op, [x], [right, None, None]).kind is Kind.identical
    assert judged(op, [x], [other, None, None]).kind is Kind.rounding
    mixed = np.where(np.arange(6).reshape(2, 3) % 2, right, other)
    assert judged(op, [x], [mixed, None, None]).kind is Kind.mistake
    assert judged(op, [x], [None, np.nextafter(scale, np.float32(1)), None]).kind is Kind.rounding
    assert judged(op, [x], [None, scale * np.float32(1.001), None]).kind is Kind.mistake
    assert judged(op, [x], [None, None, np.uint8(128)]).kind is Kind.rounding
    assert judged(op, [x], [None, None, np.uint8(126)]).kind is Kind.mistake


def test_what_is_computed_from_moved_inputs_is_no_parameter() -> None:
    """An exact operation on the input does not make constants of what follows."""
    b = Builder("moved")
    x = b.input("x", TensorType.parse("float32[2, 7, 9, 5]"))
    turned = b.add(Transpose(perm=(0, 3, 1, 2)), [x], ["turned"], "turn")
    w = np.random.default_rng(8).standard_normal((4, 5, 3, 3)).astype(np.float32)
    y = b.add(Conv(), [turned, b.constant(w, "w")], ["y"], "conv")
    graph = b.graph([b.add(Relu(), [y], ["z"], "relu")])
    data = {"x": np.random.default_rng(9).standard_normal((2, 7, 9, 5)).astype(np.float32)}
    found = survey(graph, data, {"z": evaluate(graph, data)["z"].astype(np.float32)})
    assert "y" in {p.value for p in found.power}


class Network:
    """A quantised network while it is built: names of constants and of values."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = np.random.default_rng(seed), Builder("quantised")

    def grid(self, name: str, scale: float, zero: int, kind: str) -> list[str]:
        return [
            self.b.constant(np.array(scale, np.float32), f"{name}.scale"),
            self.b.constant(np.array(zero, kind), f"{name}.zero"),
        ]

    def rounded(self, x: str, name: str, scale: float, zero: int = 3, kind: str = "uint8") -> str:
        """x quantised and dequantised: `name`.q and `name`."""
        grid = self.grid(name, scale, zero, kind)
        q = self.b.add(QuantizeLinear(), [x, *grid], [f"{name}.q"], f"{name}.quantise")
        return self.b.add(DequantizeLinear(), [q, *grid], [name], f"{name}.dequantise")

    def conv(self, x: str, name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        """A convolution whose weights are int8 over the whole range, one scale per channel."""
        values = self.random.integers(-127, 128, shape).astype(np.int8)
        scales = self.random.uniform(0.004, 0.006, shape[0]).astype(np.float32)
        inputs = [
            self.b.constant(values, f"{name}.w"),
            self.b.constant(scales, f"{name}.w.scale"),
        ]
        w = self.b.add(DequantizeLinear(axis=0), inputs, [f"{name}.wf"], f"{name}.weights")
        return self.b.add(Conv(**attributes), [x, w], [f"{name}.y"], name)


DATA, MIDDLE = 0.0125, 0.025
"""Scales of the first two quantisations."""


def residual(middle: float = MIDDLE) -> Graph:
    """x [2, 5, 7, 9] -> a convolution, a Relu, a convolution and the sum of both, all quantised."""
    n = Network(1)
    x = n.b.input("x", TensorType.parse("float32[2, 5, 7, 9]"))
    x = n.rounded(x, "data", DATA, 121)
    y = n.conv(x, "first", (7, 5, 3, 3), pads=((1, 1), (1, 1)))
    y = n.rounded(n.b.add(Relu(), [y], ["relu"], "relu"), "middle", middle, 0)
    z = n.conv(y, "second", (7, 7, 3, 3), pads=((1, 1), (1, 1)))
    z = n.rounded(z, "branch", 0.17, 128)
    total = n.b.add(Add(), [z, y], ["sum"], "sum")
    return n.b.graph([n.rounded(total, "out", 0.15, 110)])


def image(seed: int = 3) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((2, 5, 7, 9)).astype(np.float32)}


class Told:
    """A subject that gives what it is told to, and watches when there is more than the outputs."""

    stored_inputs = None
    name = "told"

    def __init__(self, values: Mapping[str, np.ndarray], watches: bool = False) -> None:
        self.values, self.capabilities = dict(values), Capabilities(watches=watches)

    def describe(self) -> dict[str, str]:
        return {}

    def run(self, graph: Graph, inputs: Any, keep: Sequence[str] | None = None) -> Any:
        return {v: self.values[v] for v in {*graph.outputs, *(keep or ())} if v in self.values}


def altered(graph: Graph, inputs: Mapping[str, np.ndarray], change: Any) -> dict[str, np.ndarray]:
    """All values in float64, after `change(node, arrays, outputs)` of every node's outputs."""
    values = {**graph.constants, **inputs}
    for node in graph.nodes:
        arrays = [values[v] for v in node.inputs if v is not None]
        types = tuple(TensorType.of(a) for a in arrays)
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        made = evaluate_node(node, wide, types, graph.output_types(node))
        made = change(node, wide, [np.asarray(m) for m in made])
        values.update({v: m.astype(graph.types[v].dtype.numpy) for v, m in zip(node.outputs, made)})
    return {v: values[v] for n in graph.nodes for v in n.outputs}


def verdict(graph: Graph, values: Mapping[str, np.ndarray], watches: bool = False) -> Any:
    shown = values if watches else {v: values[v] for v in graph.outputs}
    return check(graph, Told(shown, watches), image(), explain=False, twice=False)


def saturated(node: Node, arrays: Sequence[np.ndarray], y: list[np.ndarray]) -> list[np.ndarray]:
    """Pairs of products in 16 bits, by loops: channels last, all terms of a window in a row."""
    if node.op.kind != "Conv":
        return y
    first = node.name == "first"
    scale, zero = (DATA, 121) if first else (MIDDLE, 0)
    scale = float(np.float32(scale))
    x = arrays[0]
    graph = residual()
    integers = graph.constants[f"{node.name}.w"].astype(np.int64)
    scales = graph.constants[f"{node.name}.w.scale"].astype(np.float64)
    q = np.pad(np.rint(x / scale).astype(np.int64) + zero, ((0, 0), (0, 0), (1, 1), (1, 1)),
               constant_values=zero)  # fmt: skip
    out = y[0].copy()
    for n, o, r, c in np.ndindex(*out.shape):
        terms = (q[n, :, r : r + 3, c : c + 3] * integers[o]).transpose(1, 2, 0).ravel()
        terms = np.append(terms, [0] * (terms.size % 2)).reshape(-1, 2).sum(1)
        total = np.clip(terms, -(2**15), 2**15 - 1).sum() - zero * integers[o].sum()
        out[n, o, r, c] = total * scale * scales[o]
    assert np.abs(out - y[0]).max() > 0.1, "nothing saturates"
    return [out]


def test_sixteen_bit_saturation_is_named() -> None:
    values = altered(residual(), image(), saturated)
    for watches in (False, True):
        found = verdict(residual(), values, watches)
        assert found.kind is Kind.precision, found.reasons
        assert "16-bit saturation (pairs of products in a row)" in found.precisions[0].format
        assert found.precisions[0].confirmed and found.blame == ()
    assert {p.node for p in found.precisions} == {"first", "second"}


def test_saturation_with_a_wrong_scale_on_top_is_a_mistake() -> None:
    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        y = saturated(node, arrays, y)
        return [y[0] * 1.01] if node.name == "second" else y

    for watches in (False, True):
        found = verdict(residual(), altered(residual(), image(), change), watches)
        assert found.kind is Kind.mistake
        assert any("second" in (b.node, *b.region) for b in found.blame)


def test_a_quantisation_left_out_before_a_sum_is_named() -> None:
    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        if node.name == "sum":
            return [seen["second.y"] + arrays[1]]
        seen.update(zip(node.outputs, y))
        return y

    seen: dict[str, np.ndarray] = {}
    found = verdict(residual(), altered(residual(), image(), change))
    assert found.kind is Kind.precision
    assert found.precisions[0].format == "no quantization between a product and the sum behind it"


def at_the_edge(graph: Graph, inputs: Any, value: str) -> tuple[int, ...]:
    """Where what a quantisation rounds lies nearest to the edge between two integers."""
    node = graph.producers[f"{value}.q"]
    kept = evaluate(graph, inputs, keep=[node.inputs[0]])[node.inputs[0]]
    scale = float(graph.constants[f"{value}.scale"])
    distance = np.abs(kept / scale - np.floor(kept / scale) - 0.5)
    return tuple(map(int, np.unravel_index(distance.argmin(), distance.shape)))


def edged() -> tuple[Graph, tuple[int, ...]]:
    """The network with the middle's scale moved so that one number lies on an edge."""
    graph = residual()
    place = at_the_edge(graph, image(), "middle")
    exact = evaluate(graph, image(), keep=["relu"])["relu"][place]
    whole = np.floor(exact / float(graph.constants["middle.scale"]))
    return residual(float(np.float32(exact / (whole + 0.5)))), place


def test_an_integer_that_rounding_tips_inside_is_no_mistake() -> None:
    graph, place = edged()

    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        if node.outputs[0] == "middle.q":
            real = arrays[0][place] / float(graph.constants["middle.scale"])
            y[0][place] = np.floor(real) if y[0][place] > real else np.ceil(real)
        return y

    values = altered(graph, image(), change)
    assert not np.array_equal(values["out"], altered(graph, image(), lambda n, a, y: y)["out"])
    shown = {v: values[v] for v in graph.outputs}
    (found,) = survey(graph, image(), shown, measure_power=False).findings
    assert found.kind is Kind.rounding and "rounding tips" in found.reason, found.reason


def test_integers_far_from_an_edge_inside_are_a_mistake() -> None:
    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        if node.outputs[0] == "middle.q":
            y[0][1, 3] += 9
        return y

    assert verdict(residual(), altered(residual(), image(), change)).kind is Kind.mistake


def test_a_softmax_whose_reciprocal_scale_was_rounded_down_is_named() -> None:
    n = Network(7)
    x = n.b.input("x", TensorType.parse("float32[2, 5, 7, 9]"))
    y = n.b.add(Softmax(axis=-1), [n.rounded(x, "data", 0.03, 128)], ["soft"], "soft")
    graph = n.b.graph([n.rounded(y, "out", 1 / 254.6, 0)])

    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        return [np.rint(254 * arrays[0])] if node.outputs[0] == "out.q" else y

    found = verdict(graph, altered(graph, image(), change))
    assert found.kind is Kind.precision
    assert "softmax" in found.precisions[0].format
    half = verdict(graph, altered(graph, image(), lambda n, a, y: [m / 2 for m in y]
                                  if n.name == "soft" else y))  # fmt: skip
    assert half.kind is Kind.mistake


def test_float_weights_that_a_runtime_rounds_to_bytes_are_named() -> None:
    n = Network(9)
    x = n.rounded(n.b.input("x", TensorType.parse("float32[2, 5, 7, 9]")), "data", 0.02, 121)
    w = n.random.normal(0, 0.2, (6, 5, 3, 3)).astype(np.float32)
    y = n.b.add(Conv(), [x, n.b.constant(w, "w")], ["y"], "conv")
    graph = n.b.graph([n.rounded(y, "out", 0.03, 120)])
    step = (float(w.max()) - float(w.min())) / 255
    zero = np.rint(-float(w.min()) / step)
    short = (np.clip(np.rint(w / step) + zero, 0, 255) - zero) * step

    def planted(factor: float) -> dict[str, np.ndarray]:
        def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
            if node.name != "conv":
                return y
            windows = np.lib.stride_tricks.sliding_window_view(arrays[0], (3, 3), (2, 3))
            return [factor * np.einsum("nchwij,ocij->nohw", windows, short)]

        return altered(graph, image(), change)

    found = verdict(graph, planted(1.0))
    assert found.kind is Kind.precision and "float weights" in found.precisions[0].format
    assert verdict(graph, planted(1.05)).kind is Kind.mistake


def test_saturation_in_some_of_the_nodes_only_is_named() -> None:
    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        return saturated(node, arrays, y) if node.name == "second" else y

    found = verdict(residual(), altered(residual(), image(), change))
    assert found.kind is Kind.precision
    assert found.precisions[0].format.endswith("(pairs of products in a row) in some of the nodes")


def test_a_mixture_is_found_where_one_step_at_a_time_leads_astray() -> None:
    wanted = (0, 2, 1)
    tried: list[tuple[int, ...]] = []

    def size(states: tuple[int, ...]) -> float:
        tried.append(states)
        return 0.0 if states == wanted else 1.0 + sum(s == w for s, w in zip(states, wanted))

    assert best_mixture([2, 3, 3], size, 100) == wanted
    assert len(tried) == len(set(tried)) == 18
    tried.clear()
    best_mixture([3] * 12, size, 20)
    assert len(tried) == 20
    many = (2, 1, 0, 0, 2, 1, 1, 0, 2, 2)

    def distance(states: tuple[int, ...]) -> float:
        return sum(s != m for s, m in zip(states, many))

    assert best_mixture([3] * 10, distance, 200) == many


@pytest.mark.parametrize("saturates", [True, False])
def test_values_of_sixteen_bits_may_be_left_unrounded_but_not_unsaturated(saturates: bool) -> None:
    n = Network(11)
    x = n.b.input("x", TensorType.parse("float32[2, 5, 7, 9]"))
    y = n.conv(n.rounded(x, "data", 2e-4, 0, "int16"), "conv", (6, 5, 3, 3))
    graph = n.b.graph([n.rounded(y, "out", 1e-3, -32768, "int16")])  # which cuts off below 0
    seen: dict[str, np.ndarray] = {}

    def change(node: Node, arrays: Any, y: list[np.ndarray]) -> list[np.ndarray]:
        if node.op.kind == "QuantizeLinear":
            seen[node.outputs[0].removesuffix(".q")] = arrays[0]
        unrounded = [seen[v] for v in node.outputs if v in seen]
        return [np.maximum(u, 0) if saturates and "out" in seen else u for u in unrounded] or y

    found = verdict(graph, altered(graph, image(), change))
    assert found.kind is (Kind.precision if saturates else Kind.mistake), found.reasons
    assert not saturates or "16-bit" in found.precisions[0].format


def averaged(step: float) -> Graph:
    """x [2, 5, 7, 9] quantised, its means quantised by `step`."""
    n = Network(12)
    x = n.rounded(n.b.input("x", TensorType.parse("float32[2, 5, 7, 9]")), "data", 0.03, 128)
    axes = n.b.constant(np.array([2, 3], np.int64), "axes")
    mean = n.b.add(ReduceMean(keepdims=True), [x, axes], ["mean"], "mean")
    return n.b.graph([n.rounded(mean, "out", step, 128)])


def test_blindness_is_measured_in_steps_of_the_quantisation() -> None:
    """A relative error of 0.005 is 0.2 steps, which tips nothing here; one step does, unless the
    next quantisation is too coarse for that."""
    for step, seen in ((0.0012, True), (1.0, False)):
        graph = averaged(step)
        found = verdict(graph, altered(graph, image(), lambda n, a, y: y))
        power = {p.value: p for p in found.power}["data"]
        # whether one step of the mean tips an integer that is too coarse for it is chance
        assert found.kind is Kind.identical or not seen, found.reasons
        assert power.smallest_visible == (power.step if seen else np.inf)
        assert 0.01 < power.step <= 1 and ("data.dequantise" in found.coverage.blind) is not seen


def test_noise_tips_what_is_near_an_edge_and_choice_all_that_is_open() -> None:
    near = Quantity(np.full(10_000, 7.5 - 0.05), np.full(10_000, 0.1), -128, 127)
    at = Quantity(np.full(10_000, 7.5), np.full(10_000, 0.1), -128, 127)
    free = replace(near, is_free=True)

    def share(quantity: Quantity) -> float:
        chosen = rounded_otherwise(quantity, np.full(10_000, 7.0), np.random.default_rng(2))
        return float((chosen == 8).mean())

    assert share(near) < 0.001 and 0.4 < share(at) < 0.6 and 0.4 < share(free) < 0.6
