"""Wrong constants and wires between two files: the place where they part, and what differs there.

The second file calls nothing as the first does. Three changes are none to the outputs: what comes
behind takes absolute values, or the mean over what was exchanged.
"""

from __future__ import annotations

import dataclasses

import pytest
from tests.judge.explain.test_constants_and_wires import CONSTANTS, GRAPH, INPUTS, WIRES

from verax.ir.graph import Graph
from verax.judge.align.networks import align
from verax.records.alignment import Relation

CASES = {**CONSTANTS, **WIRES}
SAME = ("the sign of a factor", "operands of a Concat", "operands of a Sub")
REASONS = {
    "a square weight transposed": "'wk' holds the numbers of the second's 'wk', axes (1, 0)",
    "a row of a table": "'table' holds the numbers of the second's 'table', axis 0 in the order",
}
"""Where neither "elements differ" nor "reads" says it."""


def renamed(graph: Graph) -> Graph:
    """The same network, nodes and inner values by other names."""
    made = [v for n in graph.nodes for v in n.outputs]
    names = {v: f"t{i}" for i, v in enumerate(made)}
    nodes = tuple(
        dataclasses.replace(
            n,
            inputs=tuple(names.get(v, v) if v else v for v in n.inputs),
            outputs=tuple(names[v] for v in n.outputs),
            name=f"node {i}",
        )
        for i, n in enumerate(graph.nodes)
    )
    return dataclasses.replace(
        graph,
        nodes=nodes,
        outputs=tuple(names[v] for v in graph.outputs),
        types={names.get(v, v): t for v, t in graph.types.items()},
    )


@pytest.mark.parametrize("name", [n for n in CASES if n not in SAME])
def test_the_place_and_the_cause_are_named(name: str) -> None:
    graph, node, _ = CASES[name]
    found = align(GRAPH, renamed(graph), INPUTS)
    place = found.divergences[0]
    assert found.relation is Relation.different
    behind = {"kt": "scores"}  # a Transpose is no place of its own
    assert [layer.node for layer in place.first] == [behind.get(node, node)]
    expected = REASONS.get(name, "elements of" if name in CONSTANTS else "")
    assert expected in place.reason
    assert name in CONSTANTS or "reads" in place.reason or "exchanged" in place.reason


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_output_is_not_called_different(name: str) -> None:
    assert align(GRAPH, renamed(CASES[name][0]), INPUTS).relation is not Relation.different
