"""Twins: nodes of two networks that make the same value from the same values.

What differs between twins has no effect on the inputs at hand: weights that meet only zeros,
attributes that only other numbers would feel. Agreement must not hide it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.types import DType
from verax.judge.align.bodies import changes
from verax.judge.align.reasons import MOVES, layers
from verax.judge.align.values import Found, Side, comparable, compare, resume, spreads
from verax.judge.align.weights import say_weight, weight_differences
from verax.ops.control.control import Control
from verax.records.alignment import Divergence, WeightDifference


def unseen(
    first: Side, second: Side, matches: Mapping[str, Found], seed: int = 0
) -> list[Divergence]:
    """Nodes that agree on these inputs although weights of theirs differ by more than rounding, and
    branches that agree although they would not if they were taken."""
    places = []
    for node, other in _twins(first, second, matches):
        differing: list[WeightDifference] = []
        if not (isinstance(node.op, Control) and changes(node.op, other.op)):
            differing = weight_differences(first, second, node, other)
        said = "; ".join(map(say_weight, differing))
        if differing:
            said += "; too little to show in the values on these inputs"
        elif node.op.kind == "If":
            said = _branches_apart(first, second, node, other, seed)
        if said:
            places.append(
                Divergence(
                    layers(first, [node]),
                    layers(second, [other]),
                    said,
                    weights=tuple(differing),
                    bridged=True,
                )
            )
    return places


def _branches_apart(first: Side, second: Side, node: Node, other: Node, seed: int) -> str:
    """How two branches part where these inputs do not go; "" when they do not, or nobody can tell.

    What they read stands in another order where they are written otherwise, so that weights cannot
    be paired: both conditions are turned over, and the results compared."""
    turned = []
    for side, branch in ((first, node), (second, other)):
        condition = branch.inputs[0]
        if condition is None or side.graph.types[condition].dtype is not DType.bool_:
            return ""
        held = {condition: np.logical_not(side.values[condition])}
        try:
            values = resume(side.graph, side.values, held)
            spread = spreads(side.graph, values, seed, branch.outputs, held=held)
        except VeraxError:
            return ""
        turned.append(dataclasses.replace(side, values=values, spread=spread))
    a, b = turned
    for value, counterpart in zip(node.outputs, other.outputs):
        known = comparable(a.values[value]) and comparable(b.values[counterpart])
        if known and compare(a, value, b, counterpart) is None:
            return "the branch that these inputs do not take gives other numbers"
    return ""


def _twins(first: Side, second: Side, matches: Mapping[str, Found]) -> Iterator[tuple[Node, Node]]:
    """Nodes of one kind that make the same value from the same values, held in one order on both
    sides."""
    for node in first.graph.nodes:
        found = matches.get(node.outputs[0])
        other = second.graph.producers.get(found.second) if found else None
        if other is None or other.op.kind != node.op.kind or node.op.kind in MOVES:
            continue
        inputs = [
            compare(first, v, second, w)
            for v, w in zip(node.inputs, other.inputs)
            if v in first.names and w in second.names
        ]
        if all(m is not None and _in_order(m) for m in (found, *inputs)):
            yield node, other


def _in_order(found: Found) -> bool:
    a = found.arrangement
    return not a.shuffled and (a.axis < 0 or len(a.channels) == 3)
