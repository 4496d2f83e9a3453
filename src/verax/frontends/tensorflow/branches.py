"""Branches of old graphs whose choice is constant: Switch sends a value one of two ways, and Merge
takes what arrives.

Networks trained with TensorFlow 1 keep both the training and the inference side of their layers,
chosen by a truth value; freezing makes it a constant. What the value does not choose is dead, and
so is all that reads it or waits for it; Merge stands for its one input that is alive. Branches that
cannot be decided, and loops, are left as they are: no row converts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from verax.frontends.common.foreign import ForeignNode
from verax.frontends.tensorflow.names import node_of, port_of

SWITCH, MERGE = ("Switch", "RefSwitch"), ("Merge", "RefMerge")
PASSED_ON = ("Identity", "PlaceholderWithDefault", "LogicalNot")


def taken_branches(
    nodes: Mapping[str, ForeignNode],
    constants: Mapping[str, np.ndarray],
    controls: Mapping[str, tuple[str, ...]],
    resolved: Callable[[str], str],
) -> tuple[dict[str, str], set[str]]:
    """What the outputs of decided Switch and Merge nodes stand for; and the nodes that are dead, or
    serve no other end than to choose.

    controls: nodes that a node waits for. resolved: follows names that other names stand for.
    """
    decisions: dict[str, bool] = {}
    for name, node in nodes.items():
        if node.op_type in SWITCH and len(node.inputs) == 2:
            choice = _choice(nodes, constants, resolved, node.inputs[1])
            if choice is not None:
                decisions[name] = choice
    if not decisions:
        return {}, set()
    dead: set[str] = set()
    replacements: dict[str, str] = {}

    def lives(value: str) -> bool:
        name = node_of(value)
        return name not in dead and (
            name not in decisions or decisions[name] == bool(port_of(value))
        )

    for name in _inputs_first(nodes, controls, resolved):
        node_or_none = nodes.get(name)
        inputs = [] if node_or_none is None else [resolved(v) for v in node_or_none.inputs]
        arriving = [v for v in inputs if lives(v)]
        merges = node_or_none is not None and node_or_none.op_type in MERGE
        waits = all(name_ not in dead for name_ in controls.get(name, ()))
        if not waits or (not arriving if merges else len(arriving) < len(inputs)):
            dead.add(name)
        elif merges and len(arriving) == 1:
            replacements[name] = arriving[0]
    for name in decisions:
        replacements |= {name: nodes[name].inputs[0], f"{name}:1": nodes[name].inputs[0]}
    return replacements, dead | set(decisions) | _marks(nodes, decisions)


def _marks(nodes: Mapping[str, ForeignNode], decisions: Mapping[str, bool]) -> set[str]:
    """Nodes that only mark the sides of a branch: they pass on a Switch of the choice itself."""
    choices = {name for name in decisions if len(set(nodes[name].inputs)) == 1}
    return {
        name
        for name, node in nodes.items()
        if node.op_type == "Identity"
        and node.inputs
        and {node_of(v) for v in node.inputs} <= choices
    }


def _choice(
    nodes: Mapping[str, ForeignNode],
    constants: Mapping[str, np.ndarray],
    resolved: Callable[[str], str],
    value: str,
) -> bool | None:
    """The constant truth behind a value, None when there is none."""
    value, flipped = resolved(value), False
    for _ in range(len(nodes) + 1):
        node = nodes.get(value)
        if node is None or node.op_type not in PASSED_ON or not node.inputs:
            break
        flipped ^= node.op_type == "LogicalNot"
        value = resolved(node.inputs[0])
    array = constants.get(value)
    if array is None or array.dtype != bool or array.size != 1:
        return None
    return bool(array.reshape(-1)[0]) ^ flipped


def _inputs_first(
    nodes: Mapping[str, ForeignNode],
    controls: Mapping[str, tuple[str, ...]],
    resolved: Callable[[str], str],
) -> list[str]:
    """All names, each after what it reads and waits for; cycles are left for others to refuse."""
    order: list[str] = []
    seen: set[str] = set()
    for start in nodes:
        waiting = [(start, False)]
        while waiting:
            name, leaving = waiting.pop()
            if leaving:
                order.append(name)
            elif name not in seen:
                seen.add(name)
                waiting.append((name, True))
                node = nodes.get(name)
                read = node.inputs if node is not None else ()
                waiting += [(node_of(resolved(v)), False) for v in read]
                waiting += [(v, False) for v in controls.get(name, ())]
    return order
