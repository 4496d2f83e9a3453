"""The pipeline stops after N rewrites, and every step on the way is a right graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from tests.compiler.graphs import networks

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.passes.base import PassClass
from verax.compiler.pipeline.levels import PIPELINE, run_passes
from verax.compiler.place import program
from verax.compiler.plan.steps import STEPS, DecisionKind
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.reference import promised

EVERYWHERE = [s for s in STEPS if not s.by_target]
"""Decisions that every target makes; the others are in tests/compiler/test_target_rewrites.py."""


def everything() -> Graph:
    """A network in which every pass has something to do."""
    b, rng = Builder("everything"), np.random.default_rng(11)

    def constant(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    x = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    h = b.add(REGISTRY["Identity"](), [x], [], "same")
    h = b.add(REGISTRY["MaxPool"](kernel_shape=(1, 1)), [h], [], "pool")
    halves = [b.constant(np.array(2, np.float32)) for _ in range(2)]
    for i, half in enumerate(halves):
        h = b.add(REGISTRY["Div"](), [h, half], [], f"half{i}")
    pads = b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))
    h = b.add(REGISTRY["Pad"](), [h, pads], [], "pad")
    h = b.add(REGISTRY["Conv"](strides=(2, 1)), [h, constant(5, 3, 3, 2)], [], "conv")
    last = b.add(REGISTRY["Transpose"](perm=(0, 2, 3, 1)), [h], [], "to_last")
    last = b.add(REGISTRY["Abs"](), [last], [], "abs")
    h = b.add(REGISTRY["Transpose"](perm=(0, 3, 1, 2)), [last], [], "to_first")
    scale = b.add(REGISTRY["Exp"](), [constant(5, 1, 1)], [], "exp")
    p, q = (b.add(REGISTRY["Mul"](), [h, scale], [], f"mul{i}") for i in range(2))
    b.add(REGISTRY["Neg"](), [q], ["unused"], "dead")
    step, zero = b.constant(np.array(0.03, np.float32)), b.constant(np.array(113, np.uint8))
    first = b.add(REGISTRY["QuantizeLinear"](), [x, step, zero], [], "bytes")
    pool = b.add(REGISTRY["DequantizeLinear"](), [first, step, zero], [], "floats")
    pool = b.add(REGISTRY["MaxPool"](kernel_shape=(2, 3)), [pool], [], "largest")
    small = b.add(REGISTRY["QuantizeLinear"](), [pool, step, zero], [], "again")
    weights = b.constant(rng.integers(-128, 128, (5, 3, 3, 2)).astype(np.int8))
    sums = b.add(REGISTRY["ConvInteger"](), [small, weights, zero], [], "sums")
    all_of_it = b.constant(rng.integers(-128, 128, (4, 3, 9, 7)).astype(np.int8))
    window = b.add(REGISTRY["ConvInteger"](), [first, all_of_it, zero], [], "window")
    whole = b.add(REGISTRY["Cast"](to="int32"), [first], [], "whole")
    factors = [(1623821475, 10), (1098017566, -10)]
    for multiplier, shift in factors:
        parameters = [b.constant(np.array(n, np.int32)) for n in (multiplier, shift)]
        kind = "int8" if shift < 0 else "int32"
        op = REGISTRY["Requantize"](output_dtype=kind)
        whole = b.add(op, [whole, *parameters], [], f"by {shift}")
    keys = b.add(REGISTRY["Tanh"](), [x], [], "tanh")
    flat = b.add(REGISTRY["Reshape"](), [keys, b.constant(np.array([6, 9, 7]))], [], "flat")
    turned = b.add(REGISTRY["Transpose"](perm=(0, 2, 1)), [flat], [], "turned")
    heads = b.constant(np.array([2, 3, 7, 9]))
    turned = b.add(REGISTRY["Reshape"](), [turned, heads], [], "keys")
    turned = b.add(REGISTRY["Mul"](), [turned, b.constant(np.array(0.6, np.float32))], [], "less")
    scores = b.add(REGISTRY["MatMul"](), [x, turned], [], "scores")
    shares = b.add(REGISTRY["Softmax"](axis=-1), [scores], [], "shares")
    seen = b.add(REGISTRY["MatMul"](), [shares, constant(1, 3, 9, 4)], [], "attention")
    rows = b.add(REGISTRY["Reshape"](), [x, b.constant(np.array([2, 3, 63]))], [], "rows")
    tokens = b.add(REGISTRY["Transpose"](perm=(0, 2, 1)), [rows], [], "to_tokens")
    tokens = b.add(REGISTRY["MatMul"](), [tokens, constant(3, 4)], [], "tokens")
    short = b.add(REGISTRY["Cast"](to="float16"), [x], [], "short")
    mean = b.add(REGISTRY["AveragePool"](kernel_shape=(3, 2)), [short], [], "mean")
    y = b.add(REGISTRY["Sub"](), [p, q], ["y"], "sub")
    return b.graph([y, p, sums, window, seen, mean, tokens, whole])


def stepwise(graph: Graph) -> list[str]:
    """Checks every stop of the pipeline; -> the rewrites in order."""
    whole = run_passes(graph, Settings())[1]
    inputs = draw_inputs(graph, 4)[0]
    expected = promised(graph, inputs)
    for count in range(whole.rewrites + 1):
        after, trace = run_passes(graph, Settings(checked=True, stop_after=count))
        checker.check(after)
        assert trace.notes == whole.notes[:count]
        assert trace.rewrites == count
        found = promised(after, inputs)
        for old, new in zip(graph.outputs, after.outputs, strict=True):
            assert expected[old].tobytes() == found[new].tobytes(), trace.notes
    return list(whole.notes)


def test_every_stop_of_every_pass_gives_the_same_bits() -> None:
    notes = stepwise(everything())
    exact = {p.name for p in PIPELINE if p.kind is PassClass.exact}
    assert {n.partition(":")[0] for n in notes} == exact
    assert any("node 'pad'" in n for n in notes)


@settings(max_examples=15, deadline=None)
@given(networks())
def test_every_stop_is_a_right_graph_on_random_networks(
    drawn: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    stepwise(drawn[0])


def test_an_executable_names_its_rewrites_and_stops() -> None:
    graph = everything()
    exe = compile_graph(graph)
    assert exe.trace.rewrites == len(exe.trace.notes) > 5
    stopped = compile_graph(graph, Settings(stop_after=2))
    assert stopped.trace.notes == exe.trace.notes[:2]
    inputs = draw_inputs(graph, 5)[0]
    for name, array in exe.run(inputs).items():
        assert stopped.run(inputs)[name].tobytes() == array.tobytes()


@pytest.fixture
def image_by_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the images are."""
    monkeypatch.setattr(program, "best_part", lambda graph: 1)


def test_it_stops_between_two_decisions_as_well(image_by_image: None) -> None:
    """Every stop, through the passes and then through what is divided, fused and kept blocked."""
    graph = everything()
    whole = compile_graph(graph).trace.notes
    passes = run_passes(graph, Settings())[1].rewrites
    assert {n.partition(":")[0] for n in whole[passes:]} == {s.name for s in EVERYWHERE}
    inputs = draw_inputs(graph, 6)[0]
    expected, seen = promised(graph, inputs), set()
    for count in range(passes, len(whole) + 1):
        exe = compile_graph(graph, Settings(threads=1, stop_after=count))
        assert exe.trace.notes == whole[:count]
        for name, array in exe.run(inputs).items():
            assert array.tobytes() == expected[name].tobytes(), whole[:count]
        seen.add(exe.plan.lines)
    assert len(seen) > len(EVERYWHERE), "a decision that changes no plan decides nothing"


@pytest.mark.parametrize("step", EVERYWHERE, ids=lambda s: s.name)
def test_a_decision_is_disabled_and_required_by_name(
    step: DecisionKind, image_by_image: None
) -> None:
    graph = everything()
    inputs = draw_inputs(graph, 7)[0]
    expected = promised(graph, inputs)
    without = compile_graph(graph, Settings(threads=1, disable=(step.name,)))
    others = tuple(s.name for s in STEPS if s is not step)
    alone = compile_graph(graph, Settings(threads=1, disable=others))
    required = compile_graph(graph, Settings(threads=1, opt_level=0, require=(step.name,)))
    assert not any(n.startswith(step.name) for n in without.trace.notes)
    assert any(n.startswith(step.name) for n in alone.trace.notes)
    assert all(n.startswith(step.name) for n in required.trace.notes)
    for exe in (without, alone, required):
        for name, array in exe.run(inputs).items():
            assert array.tobytes() == expected[name].tobytes()


def test_a_negative_stop_is_refused() -> None:
    with pytest.raises(UsageError, match="stop_after is -1"):
        Settings(stop_after=-1)
