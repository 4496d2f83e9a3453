"""From "it is wrong" to the node, its cause, and the optimization that brought it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from tests.faults.planted import MISTAKES, Planted, small_network

from verax.base.errors import UsageError
from verax.base.option_groups.settings import Settings
from verax.compiler.passes.base import Pass, PassClass
from verax.compiler.pipeline import levels
from verax.ir.graph import Builder, Graph
from verax.ir.rewrite import Rewriter
from verax.ir.types import TensorType
from verax.judge.bisect import bisect
from verax.judge.inputs import draw_inputs
from verax.judge.locate.optimization_search import faulty_optimization
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.identity import Identity
from verax.ops.windows.convolution import Conv
from verax.records.bisection import Bisection
from verax.records.trace import Trace
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner
from verax.runners.own import VeraxRunner

GRAPH = small_network()


def fold_scale_through_relu(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """The mistake that many compilers made: relu(s x) as s relu(x), for scales of any sign."""
    rewriter = Rewriter(graph, limit)
    late: dict[str, tuple[str | None, str | None]] = {}
    for node in graph.nodes:
        source = node.inputs[0]
        scaled = isinstance(node.op, Mul) and node.inputs[1] in graph.constants
        readers = graph.consumers.get(node.outputs[0], ())
        alone = node.outputs[0] not in graph.outputs and len(readers) == 1
        if scaled and alone and isinstance(readers[0].op, Relu) and not rewriter.spent:
            late[node.outputs[0]] = rewriter.map(source), rewriter.map(node.inputs[1])
            rewriter.drop(node, "fold_scale_through_relu")
        elif source in late:
            value, scale = late[source]
            relu = rewriter.add(Relu(), [value])
            made = rewriter.add(Mul(), [relu, scale], node.name, node.outputs)
            rewriter.values[node.outputs[0]] = made
        else:
            rewriter.keep(node)
    return rewriter.finish()


def two_scaled_relus() -> Graph:
    """Convolutions, scales and Relus; the first scale is positive, the second has both signs."""
    rng = np.random.default_rng(6)
    b = Builder("scaled")
    h = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    for i, signs in enumerate(([1.5, 0.5, 1.25, 2.0, 0.3], [1.0, -0.7, 0.4, -1.2, 0.6])):
        weights = rng.standard_normal((5, 3 if i == 0 else 5, 3, 2)).astype(np.float32)
        h = b.add(Identity(), [h], [], f"same{i}")
        h = b.add(Conv(pads=((1, 1), (0, 1))), [h, b.constant(weights)], [], f"conv{i}")
        scale = b.constant(np.array(signs, np.float32).reshape(5, 1, 1))
        h = b.add(Mul(), [h, scale], [f"scaled{i}"], f"scale{i}")
        h = b.add(Relu(), [h], [f"relu{i}"], f"relu{i}")
    return b.graph([h])


@pytest.fixture
def faulty_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler with the faulty pass in the middle of its passes."""
    faulty = Pass(fold_scale_through_relu, PassClass.exact)
    monkeypatch.setattr(levels, "PIPELINE", (*levels.PIPELINE[:2], faulty, *levels.PIPELINE[2:]))


@pytest.mark.usefixtures("faulty_pipeline")
def test_a_negative_scale_folded_through_relu_names_pass_rewrite_and_nodes() -> None:
    found = bisect(two_scaled_relus(), VeraxRunner(Settings(threads=1)))
    record = found.record
    assert record.exit_code == 1
    assert [b.region for b in record.verdict.blame] == [("scale1", "relu1")]
    assert record.optimizations is not None
    assert record.optimizations.guilty == "fold_scale_through_relu: node 'scale1' (Mul)"
    (blame,) = record.verdict.blame
    assert blame.guilty_pass == record.optimizations.guilty
    assert any("through" in e.hypothesis for e in blame.explanations)
    assert len(record.optimizations.tried) < record.optimizations.count
    assert Bisection.from_json(record.to_json()) == record


def test_an_honest_compiler_has_no_guilty_pass() -> None:
    record = bisect(two_scaled_relus(), VeraxRunner(Settings(threads=1))).record
    assert record.verdict.kind in (Kind.rounding, Kind.identical)
    assert record.optimizations is not None
    assert record.optimizations.guilty == ""
    assert "no optimization is guilty" in record.optimizations.words
    assert "bit for bit" in record.optimizations.words


@pytest.mark.checkered
@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize("what", ["epsilon 1e-5 for 1e-3", "pads swapped", "addend forgotten"])
def test_node_and_cause_are_named_with_and_without_values_inside(what: str, watches: bool) -> None:
    node, change = MISTAKES[what]
    subject = Planted([node], change)
    subject.capabilities = dataclasses.replace(subject.capabilities, watches=watches)
    found = bisect(GRAPH, subject)
    (blame,) = found.record.verdict.blame
    assert (blame.node, blame.region) == (node, ())
    assert found.record.optimizations is None
    assert (found.record.evaluations > 0) is not watches
    (guilty,) = found.faulty
    assert guilty.inputs
    assert guilty.actual.keys() == {blame.value}
    assert blame.explanations


def test_answers_recorded_with_their_inputs_are_bisected() -> None:
    planted = Planted(["grouped"], MISTAKES["pads swapped"][1])
    inputs = draw_inputs(GRAPH, 7)[0]
    inner = planted.run(GRAPH, inputs, ["leaky", "grouped"])
    found = bisect(GRAPH, ArraysRunner({**inputs, **inner}))
    (blame,) = [b for b in found.record.verdict.blame if not b.region]
    assert blame.node == "grouped"
    assert blame.explanations
    assert found.inputs.keys() == inputs.keys()


def test_recorded_answers_keep_the_region_that_they_allow() -> None:
    subject = Planted(["grouped"], MISTAKES["pads swapped"][1])
    subject.capabilities = Capabilities()
    found = bisect(GRAPH, subject)
    assert found.record.evaluations == 0
    assert all("grouped" in b.region for b in found.record.verdict.blame)
    assert found.record.exit_code == 1


def test_a_fault_of_the_harness_blames_no_node() -> None:
    class Swapped(Planted):
        def run(
            self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            return super().run(graph, {"x": inputs["x"][:, ::-1].copy()}, keep)

    found = bisect(GRAPH, Swapped())
    assert found.record.verdict.causes
    assert found.record.evaluations == 0
    assert found.faulty == ()
    assert found.record.exit_code == 1


def outputs(value: float) -> Mapping[str, np.ndarray]:
    return {"y": np.array([value], np.float32)}


def kind(found: Mapping[str, np.ndarray]) -> Kind:
    return Kind.mistake if found["y"][0] >= 5 else Kind.rounding


@pytest.mark.parametrize("first", range(1, 12))
def test_the_first_wrong_step_is_found_in_a_logarithm_of_runs(first: int) -> None:
    names = [f"step {i}" for i in range(12)]
    runs: list[int] = []

    def run(step: int) -> Mapping[str, np.ndarray]:
        runs.append(step)
        return outputs(5 if step >= first else 1)

    found = faulty_optimization(names, run, kind)
    assert found.guilty == f"step {first}"
    assert len(runs) <= 6
    assert len(set(runs)) == len(runs)


def test_a_subject_wrong_from_the_start_has_no_guilty_step() -> None:
    found = faulty_optimization(["plain", "all"], lambda i: outputs(7), kind)
    assert found.guilty == ""
    assert "wrong already at 'plain'" in found.words


def test_a_change_within_rounding_is_named_without_blame() -> None:
    found = faulty_optimization(["a", "b", "c"], lambda i: outputs(1 + (i > 1)), kind)
    assert found.guilty == ""
    assert "changes first with 'c', within rounding" in found.words
    assert [t.same_bits for t in found.tried] == [True, True, False]


def test_a_step_that_cannot_run_is_passed_over() -> None:
    def run(step: int) -> Mapping[str, np.ndarray]:
        if step == 1:
            raise UsageError("this level does not exist here")
        return outputs(5 if step == 2 else 1)

    assert faulty_optimization(["a", "b", "c"], run, kind).guilty == "c"
