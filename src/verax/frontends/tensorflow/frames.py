"""Loops and branches of old graphs, as every format's (`common.control`).

A loop is a frame of nodes that feed each other: every carried value comes in by Enter, goes round
by Merge, Switch and NextIteration, and leaves by Exit; LoopCond decides. A branch sends values one
of two ways by Switch, and Merge takes what arrives. Each becomes one node with graphs of its own.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common.control import Branch, While
from verax.frontends.common.foreign import ForeignNode, Subgraph
from verax.frontends.tensorflow.branches import MERGE, SWITCH
from verax.frontends.tensorflow.names import node_of, port_of

ENTER, NEXT, EXIT = (
    ("Enter", "RefEnter"),
    ("NextIteration", "RefNextIteration"),
    ("Exit", "RefExit"),
)


def structured(reader: Any) -> None:
    """Put a node in the place of every loop and of every branch that is not decided yet."""
    waiting = [n.name for n in reader.nodes.values() if n.op_type == "LoopCond"]
    while waiting:
        left = [name for name in waiting if not _loop(reader, name)]
        if len(left) == len(waiting):
            break  # what it is is said when the nodes are ordered
        waiting = left
    merges = [n.name for n in reader.nodes.values() if n.op_type in MERGE]
    ends: dict[str, set[str]] = {}
    while merges:
        left = [name for name in merges if not _branch(reader, name, ends)]
        if len(left) == len(merges):
            break
        merges = left
    for truth, names in ends.items():
        used = {
            n.name for n in reader.nodes.values()
            if n.op_type in SWITCH and len(n.inputs) == 2 and _source(reader, n.inputs[1]) == truth
        }  # fmt: skip
        reader.dead |= _after(reader, used, {*names, *merges})
    reader.dead |= _marks(reader)


def _marks(reader: Any) -> set[str]:
    """Nodes that only mark the sides of a branch: they pass on a Switch of the choice itself."""
    nodes, source = reader.nodes, partial(_source, reader)
    choices = {
        n.name for n in nodes.values()
        if n.op_type in SWITCH and len({source(v) for v in n.inputs}) == 1
    }  # fmt: skip
    marks = {
        n.name for n in nodes.values()
        if n.op_type == "Identity"
        and any(node_of(reader._resolved(v)) in choices for v in n.inputs[:1])
    }  # fmt: skip
    return choices | marks


def _within(reader: Any, without: Iterable[str]) -> Any:
    """The same reader, for which these nodes are where a graph begins."""
    inside = copy.copy(reader)
    gone = set(without)
    inside.nodes = {k: n for k, n in reader.nodes.items() if k not in gone}
    return inside


def _leaves(nodes: Sequence[ForeignNode], outputs: Sequence[str], formal: set[str]) -> list[str]:
    """Values that the nodes or outputs read, and that are neither formal nor results of a node."""
    produced = {o for n in nodes for o in n.outputs}
    read = [*(v for n in nodes for v in n.inputs), *outputs]
    return [v for v in dict.fromkeys(read) if v not in produced and v not in formal]


def _after(reader: Any, roots: set[str], barrier: set[str]) -> set[str]:
    """Nodes and all that is computed from them, but not by way of those in `kept`."""
    gone, grows = roots - barrier, True
    while grows:
        more = {
            name for name, node in reader.nodes.items()
            if name not in barrier and name not in gone
            and any(node_of(reader._resolved(v)) in gone for v in node.inputs)
        }  # fmt: skip
        grows = bool(more)
        gone |= more
    return gone


def _forget(reader: Any, roots: Iterable[str], replacement: str) -> None:
    """Drop nodes and all that was computed from them; `kept` stands for them now."""
    gone = _after(reader, set(roots), {replacement})
    for name in gone:
        reader.nodes.pop(name, None)


def _forget_unread(reader: Any, nodes: Sequence[ForeignNode]) -> None:
    """Drop those of a body's nodes, which stand in order, that nobody reads now: what it makes of
    constants alone."""
    resolved = reader._resolved
    read = Counter(node_of(resolved(v)) for n in reader.nodes.values() for v in n.inputs)
    for node in reversed(nodes):
        if node.name in reader.nodes and not read[node.name]:
            read.subtract(node_of(resolved(v)) for v in reader.nodes.pop(node.name).inputs)


def _source(reader: Any, value: str) -> str:
    """A truth value, whatever Identity hands it on."""
    value = str(reader._resolved(value))
    for _ in range(len(reader.nodes)):
        node = reader.nodes.get(value)
        if node is None or node.op_type != "Identity":
            break
        value = str(reader._resolved(node.inputs[0]))
    return value


def _loop(reader: Any, name: str) -> bool:
    """Whether the loop that LoopCond `name` decides was put into one node."""
    nodes, resolved = reader.nodes, reader._resolved
    switches = [
        n.name for n in nodes.values()
        if n.op_type in SWITCH and len(n.inputs) == 2 and resolved(n.inputs[1]) == name
    ]  # fmt: skip
    merges = [node_of(resolved(nodes[s].inputs[0])) for s in switches]
    if any(m not in nodes or nodes[m].op_type not in MERGE for m in merges):
        return False
    first, again = [], []
    for merge in merges:
        sources = [node_of(resolved(v)) for v in nodes[merge].inputs]
        kinds = [nodes[s].op_type if s in nodes else "" for s in sources]
        if len(kinds) != 2 or kinds[0] not in ENTER or kinds[1] not in NEXT:
            return False
        first.append(sources[0])
        again.append(sources[1])
    if not merges:
        return False
    frame = nodes[first[0]].attributes.get("frame_name")
    enters = {
        n.name for n in nodes.values()
        if n.op_type in ENTER and n.attributes.get("frame_name") == frame
    }  # fmt: skip
    continued = [f"{s}:1" for s in switches]
    inside = _within(reader, {*merges, *switches, *enters})
    truth, results = resolved(nodes[name].inputs[0]), [resolved(nodes[n].inputs[0]) for n in again]
    try:
        test, body = inside._ordered([truth], {}), inside._ordered(results, {})
    except ModelError:
        return False  # a loop inside is to be put together first
    leaves = list(
        dict.fromkeys(
            [*_leaves(test, [truth], set(merges)), *_leaves(body, results, set(continued))]
        )
    )
    outer = [resolved(nodes[v].inputs[0]) if v in enters else v for v in leaves]
    start = [resolved(nodes[e].inputs[0]) for e in first]
    outputs = (name, *(f"{name}:{i}" for i in range(1, len(merges) + len(leaves))))
    for i, switch in enumerate(switches):
        for node in list(nodes.values()):
            if node.op_type in EXIT and resolved(node.inputs[0]) == switch:
                nodes[node.name] = ForeignNode(
                    "Identity", (outputs[i],), (node.name,), {}, node.name
                )
    _forget(reader, {*merges, *switches, *enters, *again}, name)
    reader.nodes[name] = While(
        "While", (*start, *outer), outputs, {}, name,
        test=Subgraph((*merges, *leaves), (truth,), {}, tuple(test)),
        body=Subgraph((*continued, *leaves), (*results, *leaves), {}, tuple(body)),
    )  # fmt: skip
    _forget_unread(reader, [*test, *body])
    return True


def _branch(reader: Any, name: str, ends: dict[str, set[str]]) -> bool:
    """Whether the Merge `name` was put into one node with what leads to it from a Switch. ends: by
    what chooses, the nodes that were made so; a branch has as many as results."""
    nodes, resolved = reader.nodes, reader._resolved
    if len(nodes[name].inputs) != 2:
        return False
    switches = {n.name for n in nodes.values() if n.op_type in SWITCH and len(n.inputs) == 2}
    inside = _within(reader, switches)
    sides: dict[bool, tuple[str, list[ForeignNode], list[str]]] = {}
    truths = set()
    unknown = []
    for value in map(resolved, nodes[name].inputs):
        side_nodes = inside._ordered([value], {})
        if any(n.op_type in MERGE for n in side_nodes):
            return False  # a branch inside is to be put together first
        leaves = _leaves(side_nodes, [value], set())
        switch_outputs = [v for v in leaves if node_of(v) in switches]
        sides_read = {bool(port_of(v)) for v in switch_outputs}
        truths |= {_source(reader, nodes[node_of(v)].inputs[1]) for v in switch_outputs}
        if len(sides_read) > 1:
            return False
        if sides_read:
            sides[sides_read.pop()] = (value, side_nodes, leaves)
        else:
            unknown.append((value, side_nodes, leaves))
    if len(truths) != 1 or len(sides) + len(unknown) != 2 or not sides:
        return False
    for side in unknown:
        sides[next(side_truth for side_truth in (True, False) if side_truth not in sides)] = side
    (truth,) = truths
    leaves = list(dict.fromkeys([*sides[True][2], *sides[False][2]]))
    outer = [resolved(nodes[node_of(v)].inputs[0]) if node_of(v) in switches else v for v in leaves]
    then, otherwise = (
        Subgraph(tuple(leaves), (sides[side_truth][0],), {}, tuple(sides[side_truth][1]))
        for side_truth in (True, False)
    )
    nodes[name] = Branch("If", (truth, *outer), (name,), {}, name, then=then, otherwise=otherwise)
    if {_source(reader, v) for v in outer} <= {truth} and not reader._is_read(name):
        reader.dead.add(name)  # it only marks that a branch ran
    ends.setdefault(truth, set()).add(name)
    return True
