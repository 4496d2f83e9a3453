"""Every kind of planted mistake of the campaign, once: detected, and pinned to its node."""

from __future__ import annotations

import numpy as np
import pytest

from verax.campaign.faults import Site
from verax.campaign.faults_in_nodes import NODE_FAULTS
from verax.campaign.faults_in_numbers import NUMBER_FAULTS
from verax.campaign.faults_in_windows import WINDOW_FAULTS
from verax.campaign.outcomes import FaultCase, PairCase, run_case
from verax.campaign.placements import FAULTS, find_placement, placements
from verax.campaign.random_networks import Network
from verax.campaign.subjects import FaultyNumbers
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.pointwise.arithmetic import Neg
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_mistake_is_pinned_to_its_node(name: str) -> None:
    placement = next(
        filter(None, (find_placement(FAULTS[name], n, deep=False) for n in range(4))), None
    )
    assert placement is not None, "no visible placement was found"
    network = placement.network
    subject = FaultyNumbers({placement.node: placement.change})
    verdict = check(network.graph, subject, network.inputs, explain=False, twice=False)
    assert verdict.kind is Kind.mistake
    assert [b.node for b in verdict.blame] == [placement.node]


@pytest.mark.parametrize("name", [f.name for f in WINDOW_FAULTS])
def test_a_mistake_is_planted_in_convolutions_of_signals_or_left_out(name: str) -> None:
    """Kernels of one axis: what needs two is no placement, and no error."""
    b, draw = Builder("signal"), np.random.default_rng(36).standard_normal
    x = b.input("x", TensorType.parse("float32[2, 3, 19]"))
    w = b.constant(draw((5, 3, 4)).astype(np.float32), "w")
    graph = b.graph([b.add(Conv(), [x, w], ["y"], "conv")])
    network = Network(graph, {"x": draw((2, 3, 19)).astype(np.float32)}, 36)
    found = [p.node for p in placements(FAULTS[name], network)]
    assert found in ([], ["conv"])
    assert found or name != "kernel flipped"


DEEP = {
    "pads: split evenly, the odd one first": False,
    "epsilon 1e-5": False,
    "bias missing": True,
    "operand missing": False,
    "matrix in the other layout": True,
}
"""Kinds of mistakes in deep networks, and whether ONNX Runtime makes them on a changed file."""


@pytest.mark.parametrize("name", DEEP)
def test_a_mistake_in_a_deep_network_is_located_by_cutting_and_explained(name: str) -> None:
    if DEEP[name]:
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    outcome = run_case(FaultCase(name, 7, deep=True, in_file=DEEP[name]))
    assert outcome.skipped == ""
    assert outcome.located
    assert outcome.without == "mistake"
    assert outcome.located_without
    assert outcome.true, outcome.explanations


@pytest.mark.parametrize("name", [n for n, p in FAULTS.items() if p.outside])
def test_what_nothing_explains_is_not_explained(name: str) -> None:
    for number in range(2):
        outcome = run_case(FaultCase(name, number, deep=False))
        assert outcome.located
        assert outcome.explanations == []


PAIRS = [("bias missing", "epsilon 1e-5"), ("kernel flipped", "operand missing")]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_two_mistakes_at_once_are_both_found(first: str, second: str) -> None:
    outcome = run_case(PairCase(first, second, 1))
    assert outcome.skipped == ""
    assert len(outcome.blamed) == 2
    assert outcome.located
    assert outcome.located_without


def test_kinds_have_names_of_their_own() -> None:
    assert len(FAULTS) == len(WINDOW_FAULTS) + len(NODE_FAULTS) + len(NUMBER_FAULTS) >= 60


@pytest.mark.parametrize("shape", [(), (1,), (2, 0), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("plant", NUMBER_FAULTS, ids=lambda p: p.name)
def test_a_mistake_in_numbers_is_made_or_declined_for_every_shape(plant, shape) -> None:
    b = Builder("flat")
    x = np.random.default_rng(93).standard_normal(shape).astype(np.float32)
    graph = b.graph([b.add(Neg(), [b.input("x", TensorType.of(x))])])
    site = Site(graph, graph.nodes[0], (x,), -x, np.random.default_rng(94))
    change = plant.make(site)
    if change is not None:
        assert np.shape(change([x], -x)) == shape
