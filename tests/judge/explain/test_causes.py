"""What a blame is filled with: explanations, told apart by running the node alone, and looks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.faults.planted import MISTAKES, Planted, small_network

from verax.base.errors import VeraxError
from verax.export.onnx.writer import to_bytes
from verax.ir.cut import cut
from verax.ir.graph import Builder, Graph, Node, specialize
from verax.ir.types import TensorType
from verax.judge.explain.causes import diagnose, isolated_run
from verax.judge.inputs import draw_inputs
from verax.judge.regions.network import survey
from verax.ops.pointwise.arithmetic import Add
from verax.records.verdict import Blame, Kind
from verax.runners.onnx_runtime import OnnxRuntimeRunner

GRAPH = specialize(small_network(), {"n": 2})
INPUTS = draw_inputs(GRAPH, 5)[0]


def blamed(subject: Planted) -> tuple[Blame, dict[str, np.ndarray]]:
    """The subject's only blame, and its values."""
    values = subject.run(GRAPH, INPUTS, [v for n in GRAPH.nodes for v in n.outputs])
    (blame,) = survey(GRAPH, INPUTS, values).blame(GRAPH)
    return blame, {**INPUTS, **values}


def test_a_wrong_weight_is_named_with_its_place() -> None:
    subject = Planted(["stem"], MISTAKES["one weight off by 1e-3"][1])
    blame, values = blamed(subject)
    assert "weight (4, 0, 0, 0): off by" in diagnose(blame, GRAPH, values).structure[0]


def doubled() -> Graph:
    """An Add of a value to itself: its left operand doubled and its right one look the same."""
    b = Builder("twice")
    x = b.input("x", TensorType.parse("float32[2, 3, 5]"))
    y = b.input("y", TensorType.parse("float32[2, 3, 5]"))
    return b.graph([b.add(Add(), [x, y], ["sum"], "sum")])


def test_running_the_node_alone_refutes_what_only_fitted_by_chance() -> None:
    graph = doubled()
    subject = Planted(["sum"], lambda n, a, y: a[0])
    x = np.random.default_rng(1).standard_normal((2, 3, 5)).astype(np.float32)
    values = {"x": x, "y": x}
    values |= subject.run(graph, values)
    (blame,) = survey(graph, {"x": x, "y": x}, values).blame(graph)
    unaided = diagnose(blame, graph, values)
    aided = diagnose(blame, graph, values, subject)
    assert len(unaided.explanations) > 1
    assert "would tell" in unaided.told_apart
    assert not any(e.refuted for e in unaided.explanations)
    assert "refuted by running the node" in aided.told_apart
    alive = [e for e in aided.explanations if not e.refuted]
    assert 1 <= len(alive) < len(unaided.explanations)


def test_a_subject_runs_a_node_alone_on_its_own_weights() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    subject = OnnxRuntimeRunner(to_bytes(GRAPH), threads=1, isolated=False)
    node = next(n for n in GRAPH.nodes if n.name == "grouped")
    weights = GRAPH.constants["w3"]
    data = np.random.default_rng(2).standard_normal((2, 8, 9, 11)).astype(np.float32)
    run = isolated_run(subject, GRAPH)
    (given,) = run(node, [data, weights])
    assert given is not None
    part = cut(GRAPH, ["leaky"], ["grouped"])
    (judged,) = survey(part, {"leaky": data}, {"grouped": given}).findings
    assert judged.kind is Kind.rounding
    with pytest.raises(VeraxError):
        run(node, [data, weights * 2])


def test_missing_values_leave_a_blame_as_it_is() -> None:
    blame, values = blamed(Planted(["bn"], MISTAKES["epsilon 1e-5 for 1e-3"][1]))
    region = dataclasses.replace(blame, region=("stem", "bn"))
    untried = diagnose(region, GRAPH, {"bn": values["bn"]})
    assert "not tried: any, as the subject did not give x" in untried.told_apart
    assert dataclasses.replace(untried, told_apart="") == region
    assert diagnose(blame, GRAPH, {"bn": values["bn"]}) == blame
    unknown = dataclasses.replace(blame, value="nowhere")
    assert diagnose(unknown, GRAPH, values) == unknown


def test_omitted_inputs_stay_omitted() -> None:
    seen: list[Node] = []

    class Watching(Planted):
        def run(self, graph, inputs, keep=None):  # type: ignore[no-untyped-def]
            seen.extend(graph.nodes)
            return super().run(graph, inputs, keep)

    node = next(n for n in GRAPH.nodes if n.name == "gemm")
    flat = np.ones((2, 16), np.float32)
    isolated_run(Watching(), GRAPH)(node, [flat, GRAPH.constants["w5"], None])
    assert seen[0].inputs == ("flat", "w5", None)
