"""Finds the node at which a difference begins, where it becomes visible only later.

Two values may match although the nodes that make them differ: the operands of a Concat in another
order give the same channels in another order, which is no difference by itself, and a bound of
1e-12 for 1e-8 is less than rounding until something divides by it. The reader of the value diverges
then, and nothing about that node differs. Here the nodes before it are tried: the origin is the one
whose difference, propagated, gives the second network's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.judge.align.attribute_changes import evaluate_changed
from verax.judge.align.permutations import Arrangement
from verax.judge.align.subgraph_changes import changes
from verax.judge.align.values import Side, ValueMatch, ancestors, compare, resume
from verax.judge.align.weights import replaced, weight_differences

FARTHEST = 64
"""Nodes before a place that are looked at, the nearest first."""


@dataclass(frozen=True)
class DivergenceOrigin:
    """Where a difference begins. nodes: of either network; arrangement: how the second's value is
    read as the first's; values: the first network's with the second's value there."""

    nodes: tuple[Node, Node]
    arrangement: Arrangement
    values: dict[str, np.ndarray]

    @property
    def ends(self) -> tuple[str, str]:
        """The values that the two nodes make."""
        return self.nodes[0].outputs[0], self.nodes[1].outputs[0]


def find_origin(
    first: Side,
    second: Side,
    ends: tuple[str, str],
    arrangement: Arrangement | None,
    regions: tuple[Sequence[Node], Sequence[Node]],
    matches: Mapping[str, ValueMatch],
) -> DivergenceOrigin | None:
    """The nodes before `regions`, whose values agree, that alone explain why `ends` do not.

    arrangement: how the second's end is read as the first's, None where nobody knows. None if
    there is no such pair of nodes, or no value to try it on.
    """
    if not all(ends) or not all(regions):
        return None
    for origin in _candidates(first, second, ends, regions, matches):
        trial = replace(first, values=origin.values)
        if compare(trial, ends[0], second, ends[1], arrangement) is not None:
            return origin
    return None


def _candidates(
    first: Side,
    second: Side,
    ends: tuple[str, str],
    regions: tuple[Sequence[Node], Sequence[Node]],
    matches: Mapping[str, ValueMatch],
) -> Iterator[DivergenceOrigin]:
    """Pairs of nodes that make one value and differ, the nearest to the place first."""
    inside = {v for n in regions[0] for v in n.outputs}
    before = ancestors(first.graph, ends[0]) - inside
    nodes = [n for n in first.graph.nodes if n.outputs[0] in before and n.outputs[0] in matches]
    behind = ancestors(second.graph, ends[1])
    second_nodes = [n for n in second.graph.nodes if n.outputs[0] in behind]
    for node in nodes[::-1][:FARTHEST]:
        counterpart = _counterpart(first, second, node, second_nodes, matches)
        if counterpart is None:
            continue
        second_node, value_match = counterpart
        input_matches = [matches[v] for v in node.inputs if v is not None and v in matches]
        begins = all(match.arrangement.axis < 0 for match in input_matches)
        if value_match.arrangement.axis >= 0 and begins:
            plain = replace(value_match.arrangement, axis=-1, channels=())
            value = plain.apply(second.values[value_match.second])
        elif changes(node.op, second_node.op) or weight_differences(
            first, second, node, second_node
        ):
            plain = value_match.arrangement
            constants = replaced(first, second, node, second_node)
            changed = replace(first, values={**first.values, **constants})
            computed = evaluate_changed(changed, node, second_node.op)
            if computed is None or computed.shape != first.values[node.outputs[0]].shape:
                continue
            value = computed
        else:
            continue
        try:
            values = resume(first.graph, first.values, {node.outputs[0]: value})
        except VeraxError:
            continue
        yield DivergenceOrigin((node, second_node), plain, values)


def _counterpart(
    first: Side,
    second: Side,
    node: Node,
    second_nodes: Sequence[Node],
    matches: Mapping[str, ValueMatch],
) -> tuple[Node, ValueMatch] | None:
    """The second's node of the same kind that makes the same value; that which `matches` names may
    be another that makes it too, as a Clip at 1e-12 of what a Relu gives."""
    value = node.outputs[0]
    named = matches[value]
    for candidate in second_nodes:
        if candidate.op.kind != node.op.kind:
            continue
        w = candidate.outputs[0]
        match = named if w == named.second else None
        if match is None and second.operator(named.second) != node.op.kind and w in second.names:
            match = compare(first, value, second, w)
        if match is not None and not match.arrangement.shuffled:
            return candidate, match
    return None
