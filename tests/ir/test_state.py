"""Networks that remember: their text, their constraints, rewriting, specialising, unrolling."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import GraphError
from verax.compiler.pipeline.levels import PIPELINE
from verax.ir import checker
from verax.ir.cut import cut, with_known_constants
from verax.ir.graph import Graph, reinfer, specialize
from verax.ir.text import parse_graph
from verax.ir.types import TensorType
from verax.ir.unroll import unrolled
from verax.reference.evaluate import evaluate

TEXT = """graph "average"
input %x: float32[n, 3]
state %count: int64[] = [2]
state %layers.0.mean: float32[3] = [0.5, -1.0, 2.0]
state %"table of 24": float32[4, 6] = sha256:45a99655901702d55ab6284a18aed6a5
const %one: int64[] = [1]
const %tenth: float32[] = [0.125]
const %axis: int64[1] = [0]
%more: int64[] = Add()(%count, %one)
%count.next: int64[] = Identity()(%more)
%batch: float32[3] = ReduceMean(keepdims=False)(%x, %axis)
%apart: float32[3] = Sub()(%batch, %layers.0.mean)
%share: float32[3] = Mul()(%apart, %tenth)
%layers.0.mean.next: float32[3] = Add()(%layers.0.mean, %share)
%y: float32[n, 3] = Sub()(%x, %layers.0.mean.next) @ "centre"
%twice: float32[n, 3] = Add()(%x, %x)
%table.next: float32[4, 6] = Neg()(%"table of 24")
output %y
output %count.next -> %count
output %layers.0.mean.next -> %layers.0.mean
output %twice -> %x
output %table.next -> %"table of 24"
"""


def average() -> Graph:
    """A running mean of rows, a counter, a table that changes sign, and an input written to."""
    table = np.arange(24, dtype=np.float32).reshape(4, 6)
    return parse_graph(TEXT, {"table of 24": table})


def test_the_text_says_what_is_remembered_and_reads_back_to_an_equal_graph() -> None:
    graph = average()
    assert str(graph) == TEXT
    assert graph.arguments == ("x",)
    assert graph.results == ("y", "twice")
    assert graph.returned == ("y",)
    assert list(graph.state) == ["count", "layers.0.mean", "table of 24"]
    assert graph.updates["x"] == "twice"
    assert parse_graph(str(graph), graph.initial) == graph


@pytest.mark.parametrize("part", ["updates", "initial"])
def test_graphs_that_remember_otherwise_are_not_equal(part: str) -> None:
    graph = average()
    if part == "updates":
        other = dataclasses.replace(graph, updates={**graph.updates, "x": "y"})
    else:
        changed = {**graph.initial, "count": np.array(3)}
        other = dataclasses.replace(graph, initial=changed)
    assert other != graph


def test_the_checker_knows_state() -> None:
    graph = average()
    checker.check(graph)
    wrong = {
        "C8: .* does not pair": {"updates": {**graph.updates, "nothing": "y"}},
        "C8: .* its new content": {"updates": {**graph.updates, "count": "y"}},
        "C8: one output": {
            "inputs": (*graph.inputs, "z"),
            "types": {**graph.types, "z": graph.types["x"]},
            "updates": {**graph.updates, "z": "twice"},
        },
        "C9: .* no new value": {"initial": {**graph.initial, "y": np.zeros(3)}},
        "C9: .* begins as": {"initial": {**graph.initial, "count": np.array(2, np.int32)}},
    }
    for words, change in wrong.items():
        other = dataclasses.replace(graph, **change)  # type: ignore[arg-type]
        with pytest.raises(GraphError, match=words):
            checker.check(other)


@pytest.mark.parametrize("line", ["output %y ->", "output %y %x", "output y", "output %y -> x"])
def test_an_output_that_says_nothing_clear_is_refused(line: str) -> None:
    with pytest.raises(GraphError, match="line 2"):
        parse_graph('graph "g"\n' + line)


@pytest.mark.parametrize("step", PIPELINE, ids=lambda p: p.name)
def test_every_pass_keeps_what_is_remembered(step: object) -> None:
    graph = average()
    rewritten, _ = step.run(graph)  # type: ignore[attr-defined]
    checker.check(rewritten)
    assert rewritten.updates == graph.updates
    assert rewritten.initial.keys() == graph.initial.keys()


def test_specialising_and_known_constants_keep_it_and_a_part_has_none() -> None:
    graph = average()
    for other in (specialize(graph, {"n": 4}), with_known_constants(graph)):
        assert (other.updates, other.initial.keys()) == (graph.updates, graph.initial.keys())
    part = cut(graph, graph.inputs, ["layers.0.mean.next"])
    assert not part.updates and not part.initial
    assert "layers.0.mean" in part.inputs


def test_state_that_is_made_a_constant_is_state_no_more() -> None:
    graph = average()
    fixed = reinfer(graph, {}, {"count": np.array(5)})
    checker.check(fixed)
    assert "count" not in fixed.state
    assert "layers.0.mean" in fixed.state


def test_state_that_is_not_given_has_its_initial_value() -> None:
    x = np.random.default_rng(11).standard_normal((5, 3)).astype(np.float32)
    found = evaluate(average(), {"x": x})
    assert found["count.next"] == 3
    given = evaluate(average(), {"x": x, "count": np.array(8)})
    assert given["count.next"] == 9


def test_unrolled_runs_hand_the_state_on() -> None:
    """Steps of different sizes, against running them one by one in float64 and in integers."""
    random = np.random.default_rng(12)
    graph = average()
    steps = [random.standard_normal((n, 3)).astype(np.float32) for n in (2, 5, 4)]
    made = unrolled([specialize(graph, {"n": len(x)}) for x in steps])
    checker.check(made.graph)
    assert made.graph.inputs == ("x", *graph.state, "x@2", "x@3")
    assert made.graph.updates["count"] == "count.next@3"
    assert made.graph.updates["x@2"] == "twice@2"
    found = made.split(evaluate(made.graph, {"x": steps[0], "x@2": steps[1], "x@3": steps[2]}))
    count, mean = 2, graph.initial["layers.0.mean"].astype(np.float64)
    for x, step in zip(steps, found, strict=True):
        count, mean = count + 1, mean + (x.mean(0, dtype=np.float64) - mean) * 0.125
        assert step["count.next"] == count
        np.testing.assert_allclose(step["layers.0.mean.next"], mean, rtol=1e-14)
        np.testing.assert_allclose(step["y"], x - mean, rtol=1e-12)


def test_symbols_stay_open_in_an_unrolled_graph() -> None:
    graph = average()
    made = unrolled([graph, graph]).graph
    assert made.types["x@2"] == TensorType.parse("float32[n, 3]")
    assert specialize(made, {"n": 6}).types["y@2"].shape == (6, 3)
