"""Guilty nodes of subjects that show nothing inside: found by handing them parts of the network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.graphs import networks
from tests.faults.planted import MISTAKES, Planted, small_network

from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.judge.locate.truncate import Located, locate
from verax.judge.regions.network import survey
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Mul
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner
from verax.runners.network import NetworkRunner

GRAPH = small_network()
INPUTS = draw_inputs(GRAPH, 3)[0]


def names(found: Located) -> list[str]:
    """Guilty nodes; a region as its names joined."""
    return [" ".join(b.region) or b.node for b in found.blame]


@pytest.mark.checkered
@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("what", MISTAKES)
def test_a_planted_mistake_is_located_without_intermediates(what: str, wrong: bool) -> None:
    node, change = MISTAKES[what]
    found = locate(GRAPH, Planted([node], change), INPUTS, wrong=wrong)
    assert names(found) == [node]
    assert found.evaluations <= math.log2(len(GRAPH.nodes)) + 3 + (not wrong)
    (guilty,) = found.faulty
    assert [n.name for n in guilty.graph.nodes] == [node]


def test_an_honest_subject_is_settled_in_one_run() -> None:
    found = locate(GRAPH, Planted(), INPUTS)
    assert (found.faulty, found.evaluations, found.undecided) == ((), 1, {})
    assert locate(GRAPH, Planted(), INPUTS, wrong=True).faulty == ()


@pytest.mark.parametrize("pair", [("bn", "avgpool"), ("stem", "softmax"), ("depth", "leaky")])
def test_every_guilty_node_is_found_in_order(pair: tuple[str, str]) -> None:
    class Both(Planted):
        def run(
            self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            values = dict(inputs)
            for node in graph.nodes:
                first = Planted([pair[0], pair[1]], lambda n, a, y: y * np.float32(1.01))
                part = Graph((), node.outputs, (node,), {**graph.constants, **values}, graph.types)
                values |= first.run(part, {})
            return {v: values[v] for v in graph.outputs}

    assert names(locate(GRAPH, Both(), INPUTS)) == list(pair)


class Fused(Planted):
    """Folds a scale through the Relu behind it, whatever its sign, when it gets both."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        present = {n.name for n in graph.nodes}
        self.guilty = ("relu",) if {"scale", "relu"} <= present else ()
        self.change = lambda node, arrays, y: (
            np.maximum(arrays[0] / graph.constants["s"], 0) * graph.constants["s"]
        )
        return super().run(graph, inputs, keep)


def chain(length: int) -> Graph:
    """x [2, 3, 5, 7] through `length` scalings on both sides of scale and relu."""
    b = Builder("chain")
    h = b.input("x", TensorType.parse("float32[2, 3, 5, 7]"))
    scales = np.array([0.9, 1.3, 1.1], np.float32).reshape(3, 1, 1)
    for i in range(length):
        h = b.add(Mul(), [h, b.constant(scales + np.float32(i / 8))], [], f"before{i}")
    signs = b.constant(np.array([1.5, -0.7, 0.3], np.float32).reshape(3, 1, 1), "s")
    h = b.add(Relu(), [b.add(Mul(), [h, signs], [], "scale")], [], "relu")
    for i in range(length):
        h = b.add(Mul(), [h, b.constant(scales - np.float32(i / 16))], [], f"after{i}")
    return b.graph([h])


@pytest.mark.parametrize("length", [0, 1, 5, 6])
def test_a_mistake_of_two_nodes_together_is_a_region_of_two(length: int) -> None:
    graph = chain(length)
    found = locate(graph, Fused(), draw_inputs(graph, 1)[0], wrong=length % 2 == 0)
    assert names(found) == ["scale relu"]
    assert "by itself" in found.blame[0].reason


class Choosy(Planted):
    """Refuses parts that end at some values."""

    def __init__(self, refused: Sequence[str], guilty: str) -> None:
        super().__init__([guilty], MISTAKES["pads swapped"][1])
        self.refused = set(refused)

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if self.refused & {*graph.outputs, *graph.inputs}:
            raise UsageError("this cannot be cut here")
        return super().run(graph, inputs, keep)


def test_cuts_that_the_subject_refuses_are_gone_around_and_named() -> None:
    found = locate(GRAPH, Choosy(["depth", "pooled", "sum"], "grouped"), INPUTS)
    assert names(found) == ["grouped"]
    near = locate(GRAPH, Choosy(["grouped", "leaky"], "grouped"), INPUTS)
    (region,) = near.blame
    assert "grouped" in region.region
    assert len(region.region) <= 4
    assert "this cannot be cut here" in near.refused.values()


def test_a_subject_that_cannot_run_at_all_says_so_itself() -> None:
    with pytest.raises(UsageError, match="cannot be cut"):
        locate(GRAPH, Choosy(GRAPH.inputs, "stem"), INPUTS)


def test_a_shape_computed_inside_is_no_input_of_a_part() -> None:
    b = Builder("reshaped")
    x = b.input("x", TensorType.parse("float32[n, 3, 4]"))
    size = b.add(REGISTRY["Shape"](start=0, end=1), [x], ["size"])
    target = b.add(Concat(axis=0), [size, b.constant(np.array([-1]))], ["target"])
    h = b.add(Mul(), [x, b.constant(np.float32([1.5, -0.5, 2, 3]))], ["scaled"], "scale")
    h = b.add(REGISTRY["Reshape"](), [h, target], ["flat"], "flatten")
    graph = b.graph([b.add(Relu(), [h], ["y"], "relu")])
    found = locate(
        graph,
        Planted(["relu"], lambda n, a, y: y * np.float32(0.99)),
        {"x": np.random.default_rng(0).standard_normal((5, 3, 4), np.float32)},
    )
    assert names(found) == ["relu"]
    assert all(v.dtype == np.float32 for g in found.faulty for v in g.inputs.values())


def test_another_network_is_cut_at_its_own_values() -> None:
    other = small_network()
    nodes = tuple(
        n if n.name != "leaky" else type(n)(type(n.op)(alpha=0.2), n.inputs, n.outputs, n.name)
        for n in other.nodes
    )
    subject = NetworkRunner(Graph(other.inputs, other.outputs, nodes, other.constants, other.types))
    assert names(locate(GRAPH, subject, INPUTS)) == ["leaky"]


class Halved(Planted):
    """Stores the result of every node in float16."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values = dict(inputs)
        for node in graph.nodes:
            one = Graph((), node.outputs, (node,), {**graph.constants, **values}, graph.types)
            made = super().run(one, {})
            values |= {v: a.astype(np.float16).astype(np.float32) for v, a in made.items()}
        return {v: values[v] for v in graph.outputs}


def test_a_coarse_arithmetic_is_no_mistake_and_hides_none() -> None:
    """Exact nodes that store in float16 give float16's numbers already."""
    exact = {"relu", "maxpool", "concat", "flat"}
    honest = locate(GRAPH, Halved(), INPUTS)
    assert set(names(honest)) <= exact
    found = locate(GRAPH, Halved(["grouped"], MISTAKES["pads swapped"][1]), INPUTS)
    assert "grouped" in names(found)
    assert set(names(found)) <= {"grouped", *exact}


def test_recorded_answers_cannot_be_truncated() -> None:
    assert not ArraysRunner({"map": np.zeros(3)}).capabilities.truncates


@settings(max_examples=15, deadline=None)
@given(networks(), st.data())
def test_whatever_shows_at_the_outputs_of_a_random_network_is_located(
    drawn: tuple[Graph, dict[str, np.ndarray]], data: st.DataObject
) -> None:
    graph, inputs = drawn
    nodes = tuple(dataclasses.replace(n, name=f"n{i}") for i, n in enumerate(graph.nodes))
    graph = dataclasses.replace(graph, nodes=nodes)
    guilty = data.draw(st.sampled_from(nodes)).name
    subject = Planted([guilty], lambda n, a, y: y * np.float32(1.02))
    shown = survey(graph, inputs, subject.run(graph, inputs)).findings
    found = locate(graph, subject, inputs)
    if any(f.kind is Kind.mistake for f in shown):
        assert names(found) == [guilty]
    else:
        assert set(names(found)) <= {guilty}
