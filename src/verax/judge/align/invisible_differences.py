"""Differences between nodes of two networks that compute the same value from the same values.

Such a difference has no effect on the inputs at hand: weights that are multiplied by zeros only,
attributes that matter to other numbers. Agreement must not hide it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.types import DType
from verax.judge.align.reasons import MOVES, layers
from verax.judge.align.subgraph_changes import changes
from verax.judge.align.values import Side, ValueMatch, comparable, compare, resume, spreads
from verax.judge.align.weights import say_weight, weight_differences
from verax.ops.control.control import Control
from verax.records.alignment import Divergence, WeightDifference


def invisible_differences(
    first: Side, second: Side, matches: Mapping[str, ValueMatch], seed: int = 0
) -> list[Divergence]:
    """Nodes that agree on these inputs although weights of theirs differ by more than rounding, and
    branches that agree although they would not if they were taken."""
    divergences = []
    for node, counterpart in _counterparts(first, second, matches):
        differing: list[WeightDifference] = []
        if not (isinstance(node.op, Control) and changes(node.op, counterpart.op)):
            differing = weight_differences(first, second, node, counterpart)
        reason = "; ".join(map(say_weight, differing))
        if differing:
            reason += "; too little to show in the values on these inputs"
        elif node.op.kind == "If":
            reason = _branches_apart(first, second, node, counterpart, seed)
        if reason:
            divergences.append(
                Divergence(
                    layers(first, [node]),
                    layers(second, [counterpart]),
                    reason,
                    weights=tuple(differing),
                    bridged=True,
                )
            )
    return divergences


def _branches_apart(first: Side, second: Side, node: Node, second_node: Node, seed: int) -> str:
    """How two branches part where these inputs do not go; "" when they do not, or nobody can tell.

    What they read stands in another order where they are written otherwise, so that weights cannot
    be paired: both conditions are turned over, and the results compared."""
    flipped = []
    for side, branch in ((first, node), (second, second_node)):
        condition = branch.inputs[0]
        if condition is None or side.graph.types[condition].dtype is not DType.bool_:
            return ""
        condition_value = {condition: np.logical_not(side.values[condition])}
        try:
            values = resume(side.graph, side.values, condition_value)
            spread = spreads(side.graph, values, seed, branch.outputs, fixed=condition_value)
        except VeraxError:
            return ""
        flipped.append(dataclasses.replace(side, values=values, spread=spread))
    a, b = flipped
    for value, counterpart in zip(node.outputs, second_node.outputs):
        are_comparable = comparable(a.values[value]) and comparable(b.values[counterpart])
        if are_comparable and compare(a, value, b, counterpart) is None:
            return "the branch that these inputs do not take gives other numbers"
    return ""


def _counterparts(
    first: Side, second: Side, matches: Mapping[str, ValueMatch]
) -> Iterator[tuple[Node, Node]]:
    """Nodes of one kind that make the same value from the same values, held in one order on both
    sides."""
    for node in first.graph.nodes:
        match = matches.get(node.outputs[0])
        counterpart = second.graph.producers.get(match.second) if match else None
        if counterpart is None or counterpart.op.kind != node.op.kind or node.op.kind in MOVES:
            continue
        inputs = [
            compare(first, v, second, w)
            for v, w in zip(node.inputs, counterpart.inputs)
            if v in first.names and w in second.names
        ]
        if all(m is not None and _in_order(m) for m in (match, *inputs)):
            yield node, counterpart


def _in_order(match: ValueMatch) -> bool:
    a = match.arrangement
    return not a.shuffled and (a.axis < 0 or len(a.channels) == 3)
