"""Wrong constants and wires are named where the subject shows its outputs alone.

The whole network is one region then: what its last value shows is traced back to every constant,
and every operand is tried as another value.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.judge.explain.test_constants_and_wires import CONSTANTS, GRAPH, INPUTS, WIRES, constants

from verax.ir.graph import Graph
from verax.judge import check
from verax.judge.explain.region import search_region
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner

CASES = {**CONSTANTS, **WIRES}
INVISIBLE = ("the sign of a factor", "operands of a Concat", "operands of a Sub")
"""What comes behind takes absolute values, or the mean over what was exchanged."""
QUICK = ("one element of a bias", "a channel of a weight zeroed", "a constant of an Add", "k for q")
"""In the part of the network behind its convolutions."""
FIRST_OF_PART = "positions"
MOST = 4
"""Explanations that may be left: a mean and an offset of one channel give the same numbers."""
(LAST,) = GRAPH.outputs


def answered(graph: Graph) -> np.ndarray:
    """What another network answers to the inputs."""
    return promised(graph, INPUTS, keep=GRAPH.outputs)[LAST]


def explained(actual: np.ndarray, first: str = "") -> list[str]:
    """What explains an answer of the network, or of its part from a node on, in words."""
    names = [n.outputs[0] for n in GRAPH.nodes]
    nodes = GRAPH.nodes[names.index(first) if first else 0 :]
    within = {v for n in nodes for v in n.outputs}
    read = {v for n in nodes for v in n.inputs if v is not None} - within
    values = {**promised(GRAPH, INPUTS, keep=names), **GRAPH.constants, **INPUTS}
    found, _ = search_region(
        nodes,
        {v: values[v] for v in read},
        actual,
        GRAPH.types,
        constants=GRAPH.constants.keys(),
    )
    return [e.words for e in found]


def is_named(words: list[str], name: str) -> bool:
    """Whether the node and the cause are among the explanations, of which there are few."""
    _, node, expected = CASES[name]
    return len(words) <= MOST and any(f"'{node}'" in w and expected in w for w in words)


@pytest.mark.parametrize("name", QUICK)
def test_cause_is_named(name: str) -> None:
    words = explained(answered(CASES[name][0]), FIRST_OF_PART)
    assert is_named(words, name), words


def test_a_region_of_too_many_elements_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives of all values are held at once: of a large network they take its memory."""
    monkeypatch.setattr("verax.judge.explain.region_changes.MOST_TRACED", 100)
    name = "one element of a bias"
    assert not is_named(explained(answered(CASES[name][0]), FIRST_OF_PART), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in CASES if n not in INVISIBLE])
def test_every_cause_is_named_in_the_whole_network(name: str) -> None:
    words = explained(answered(CASES[name][0]))
    assert is_named(words, name), words


def test_two_wrong_constants_are_not_explained_by_one() -> None:
    wrong = constants(one=lambda c: c + 0.02, qb=lambda b: b + np.float32(0.03) * np.arange(8))
    assert explained(answered(wrong), FIRST_OF_PART) == []


def test_noise_is_not_explained() -> None:
    y = answered(GRAPH)
    noise = np.random.default_rng(71).standard_normal(y.shape).astype(np.float32)
    assert explained(y + np.float32(0.01) * noise, FIRST_OF_PART) == []


@pytest.mark.slow
def test_a_verdict_from_outputs_names_the_constant() -> None:
    graph, node, words = CASES["one element of a bias"]
    subject = ArraysRunner({LAST: answered(graph)}, "recorded")
    verdict = check(GRAPH, subject, INPUTS, twice=False)
    assert verdict.kind is Kind.mistake
    (explanation,) = verdict.blame[0].explanations
    assert f"'{node}'" in explanation.words and words in explanation.words
