"""Derivatives against sampling: both must tell the same about rounding inside a network."""

import numpy as np
import pytest
from tests.faults.planted import Planted, small_network

from verax.ir.graph import Builder, Graph, specialize
from verax.ir.types import TensorType
from verax.judge import check, draw_inputs
from verax.judge.decide.local import meaning
from verax.judge.regions.adjoint import NoRule, Tape, reaches, spreads
from verax.judge.regions.network import regions
from verax.judge.regions.region import check_region
from verax.ops.movement.reshaping import Reshape
from verax.ops.movement.shape import Shape
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.rounding import Round
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.reference.evaluate import bind_symbols, evaluate

X = np.random.default_rng(5).standard_normal((1, 6)).astype(np.float32)


def weights(seed: int, *shape: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def taped(graph: Graph, inputs: dict[str, np.ndarray]) -> tuple[Tape, dict[str, np.ndarray]]:
    """A forward run of everything, and each value's own sigma."""
    hidden = frozenset(v for n in graph.nodes for v in n.outputs) - set(graph.outputs)
    tape, sigma = Tape(hidden), {}
    values = {**graph.constants, **inputs}
    for node in graph.nodes:
        arrays = [None if v is None else values[v] for v in node.inputs]
        found = meaning(node, arrays, graph.input_types(node), graph.output_types(node))
        tape.add(node, found.ev, arrays, found.outputs)
        for value, y, rounding in zip(node.outputs, found.outputs, found.roundings):
            values[value] = y
            if rounding is not None:
                sigma[value] = np.broadcast_to(rounding.sigma, y.shape)
    return tape, sigma


def small() -> tuple[Graph, dict[str, np.ndarray]]:
    graph = small_network()
    inputs, _ = draw_inputs(graph, 3)
    return specialize(graph, bind_symbols(graph, inputs)), inputs


def test_the_exact_spread_is_what_many_samples_scatter() -> None:
    graph, inputs = small()
    tape, sigma = taped(graph, inputs)
    exact = spreads(tape, ["probabilities"], sigma)[0]["probabilities"]
    random = np.random.default_rng(1)
    squares, count = np.zeros(exact.shape), 60
    for _ in range(count):
        values = {**graph.constants, **inputs}
        for node in graph.nodes:
            arrays = [None if v is None else values[v] for v in node.inputs]
            types, outputs = graph.input_types(node), graph.output_types(node)
            (y,) = meaning(node, arrays, types, outputs, errors=False).outputs
            name = node.outputs[0]
            noise = sigma.get(name, 0.0) * random.standard_normal(y.shape)
            values[name] = y + noise
        squares += (values["probabilities"] - tape.values["probabilities"]) ** 2 / count
    ratio = exact / np.sqrt(squares)
    assert exact.shape == (2, 5)
    assert ratio.min() > 0.7 and ratio.max() < 1.4


def test_random_signs_estimate_what_the_single_passes_give() -> None:
    graph, inputs = small()
    tape, sigma = taped(graph, inputs)
    spread, exact = spreads(tape, ["probabilities"], sigma)
    signs = reaches(tape, spread, sigma, np.random.default_rng(2), draws=40)
    assert exact.keys() == signs.keys()
    for value, reach in exact.items():
        assert 0.6 < signs[value].statistic / reach.statistic < 1.6, value
        assert abs(signs[value].rounded - reach.rounded) < 0.1
    assert sum(r.rounded for r in exact.values()) == pytest.approx(1)


def test_a_share_names_who_makes_the_rounding() -> None:
    b = Builder("cancel")
    x = b.input("x", TensorType.of(X))
    h = b.add(MatMul(), [x, b.constant(weights(1, 6, 9), "w")], ["h"], "product")
    far = b.add(Add(), [h, b.constant(np.float32(1e4), "far")], ["far_away"], "leaves")
    back = b.add(Add(), [far, b.constant(np.float32(-1e4), "near")], ["back"], "returns")
    graph = b.graph([b.add(Tanh(), [back], ["y"], "tanh")])
    subject = Planted()
    verdict = check(graph, subject, {"x": X}, watch=False)
    worst = max(verdict.power, key=lambda p: p.rounding_share)
    assert (worst.node, worst.rounding_share > 0.9) == ("leaves", True)


@pytest.mark.parametrize("wrong", [False, True])
def test_few_outputs_are_judged_by_derivatives(wrong: bool) -> None:
    b = Builder("few")
    h = b.input("x", TensorType.of(X))
    for i, (rows, columns) in enumerate([(6, 48), (48, 32), (32, 3)]):
        h = b.add(MatMul(), [h, b.constant(weights(10 + i, rows, columns), f"w{i}")], [f"m{i}"])
        h = b.add(Tanh(), [h], [f"t{i}"], f"t{i}")
    graph = b.graph([h])
    change = (lambda node, arrays, y: y * np.float32(1.0005)) if wrong else None
    verdict = check(graph, Planted(["t1"], change), {"x": X}, watch=False)
    assert verdict.outputs[0].test == "adjoint"
    assert verdict.kind is (Kind.mistake if wrong else Kind.rounding)
    assert {p.value for p in verdict.power} == {f"{k}{i}" for k in "mt" for i in range(3)}


def test_power_agrees_with_disturbing_each_value() -> None:
    graph, inputs = small()
    answers = evaluate(graph, inputs, work=np.float32)
    (region,) = (r for r in regions(graph, set(graph.outputs)))
    shown = {**graph.constants, **inputs, **answers}
    for power in check_region(graph, region, shown, 0)[1]:
        values = evaluate(graph, inputs, keep="all")
        random = np.random.default_rng(1)
        y = values[power.value]
        moved = {
            power.value: y * (1 + 20 * power.smallest_visible * random.standard_normal(y.shape))
        }
        for node in graph.nodes:
            if power.value in node.outputs or not any(v in moved for v in node.inputs):
                continue
            arrays = [moved.get(v, values.get(v)) for v in node.inputs]
            found = meaning(
                node, arrays, graph.input_types(node), graph.output_types(node), errors=False
            )
            moved[node.outputs[0]] = found.outputs[0]
        wrong = {v: moved.get(v, values[v]).astype(np.float32) for v in graph.outputs}
        kinds = [f.kind for f in check_region(graph, region, {**shown, **wrong}, 0)[0]]
        assert Kind.mistake in kinds, power


def test_a_jump_inside_is_left_to_sampling_and_said() -> None:
    b = Builder("jump")
    x = b.input("x", TensorType.of(X))
    m = b.add(MatMul(), [x, b.constant(weights(4, 6, 30), "w")], ["m"])
    r = b.add(Round(), [m], ["r"], "to_grid")
    graph = b.graph([b.add(MatMul(), [r, b.constant(weights(5, 30, 3), "v")], ["y"])])
    tape, sigma = taped(graph, {"x": X})
    with pytest.raises(NoRule, match="to_grid"):
        spreads(tape, ["y"], sigma)
    finding = check(graph, Planted(), {"x": X + 1}, watch=False).outputs[0]
    assert finding.kind is not Kind.mistake
    wrong = Planted([graph.nodes[0].name], lambda node, arrays, y: y + np.float32(3))
    test = check(graph, wrong, {"x": X + 1}, watch=False).outputs[0].test
    assert test.startswith("Monte Carlo") and "to_grid" in test


def test_a_choice_that_numbers_follow_is_left_to_sampling() -> None:
    b = Builder("choice")
    x = b.input("x", TensorType.of(X))
    m = b.add(MatMul(), [x, b.constant(weights(4, 6, 30), "w")], ["m"])
    i = b.add(Cast(to="int32"), [m], ["i"], "to_integer")
    f = b.add(Cast(to="float32"), [i], ["f"], "and_back")
    graph = b.graph([b.add(Mul(), [f, m], ["y"])])
    tape, sigma = taped(graph, {"x": X})
    with pytest.raises(NoRule, match="'i', a choice"):
        spreads(tape, ["y"], sigma)


def test_computing_a_shape_is_no_choice() -> None:
    b = Builder("shape")
    x = b.input("x", TensorType.parse("float32[n, 6]"))
    m = b.add(MatMul(), [x, b.constant(weights(4, 6, 2), "w")], ["m"])
    s = b.add(Cast(to="float32"), [b.add(Shape(), [m], ["s"])], ["wide"])
    back = b.add(Cast(to="int64"), [s], ["narrow"])
    graph = b.graph([b.add(Reshape(), [m, back], ["y"])])
    verdict = check(graph, Planted(), {"x": X}, watch=False)
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert {p.value for p in verdict.power} == {"m", "y"}


def test_a_parameter_that_is_computed_is_no_blind_spot() -> None:
    """A bias of next to no weight cannot be seen, and need not be: it depends on no input."""
    b = Builder("parameters")
    x = b.input("x", TensorType.of(X))
    m = b.add(MatMul(), [x, b.constant(weights(4, 6, 3), "w")], ["m"])
    parts = [b.constant(np.full(3, 1e-8, np.float32), "p"), b.constant(np.float32(3), "q")]
    bias = b.add(Mul(), parts, ["bias"])
    graph = b.graph([b.add(Add(), [m, bias], ["y"])])
    verdict = check(graph, Planted(), {"x": X}, watch=False)
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert {p.value for p in verdict.power} == {"m", "y"}
