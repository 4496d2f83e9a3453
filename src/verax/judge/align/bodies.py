"""Where two branches or loops differ inside: their bodies compared node by node.

Bodies are attributes in text form. Values bear other names in every file, so that bodies are alike
when their nodes are of the same kinds in the same order, but a few; what differs then is an
attribute of a node, its kind, or which value a node reads or the body gives.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.printer import print_graph
from verax.ops.control.control import Control
from verax.ops.control.subgraphs import body_of
from verax.records.alignment import AttributeDifference

MOST_KINDS = 2
"""Nodes of other kinds that bodies which are alike may have."""
KINDS_SHOWN = 6
"""Kinds of a body's nodes that its summary lists."""


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference of two operators of a kind. attribute: of the first operator; value: what
    turns that difference, and no other, into what the second has."""

    difference: AttributeDifference
    attribute: str
    value: object

    def apply(self, op: Operator) -> Operator:
        """The first operator with the difference undone."""
        return dataclasses.replace(op, **{self.attribute: self.value})


def changes(a: Operator, b: Operator) -> list[Change]:
    """What two operators of one kind do not share: whole attributes, or parts of bodies."""
    own, other = a.attributes(), b.attributes()
    found: list[Change] = []
    for name in own:
        if own[name] == other[name]:
            continue
        if is_body(a, name) and own[name] and other[name]:
            found += _within(a.kind, name, body_of(own[name]), body_of(other[name]))
        else:
            said = (shown(op, name) for op in (a, b))
            found.append(Change(AttributeDifference(a.kind, name, *said), name, other[name]))
    return found


def is_body(op: Operator, name: str) -> bool:
    """Whether an attribute is a body in text form."""
    return isinstance(op, Control) and name in op.fields


def shown(op: Operator, name: str) -> str:
    """An attribute as a reader sees it: of a body what it consists of."""
    value = op.attributes()[name]
    return _summary(body_of(value)) if value and is_body(op, name) else repr(value)


def _summary(body: Graph) -> str:
    kinds = collections.Counter(n.op.kind for n in body.nodes)
    listed = [f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items()]
    more = f" and {len(listed) - KINDS_SHOWN} more kinds" if len(listed) > KINDS_SHOWN else ""
    return f"{len(body.nodes)} nodes ({', '.join(listed[:KINDS_SHOWN])}{more})"


def _within(kind: str, name: str, a: Graph, b: Graph) -> Iterator[Change]:
    """Differences of two bodies; of other nodes, one that exchanges the whole body."""

    def change(where: str, first: str, second: str, body: Graph) -> Change:
        difference = AttributeDifference(kind, f"{name}: {where}", first, second)
        return Change(difference, name, print_graph(body))

    renamed = _renamed(a, b)
    if renamed is None:
        yield Change(
            AttributeDifference(kind, name, _summary(a), _summary(b)), name, print_graph(b)
        )
        return
    for i, (node, other) in enumerate(zip(a.nodes, b.nodes)):
        named = repr(node.name or node.outputs[0])
        place = f"{node.op.kind} {named}"
        if node.op.kind != other.op.kind:
            changed = dataclasses.replace(node, op=other.op)
            kinds = (node.op.kind, other.op.kind)
            yield change(f"the operator of {named}", *kinds, _exchanged(a, i, changed))
            continue
        for inner in changes(node.op, other.op):
            d = inner.difference
            changed = dataclasses.replace(node, op=inner.apply(node.op))
            yield change(f"{place}: {d.attribute}", d.first, d.second, _exchanged(a, i, changed))
        reads = tuple(None if v is None else renamed[v] for v in other.inputs)
        for at, (mine, theirs) in enumerate(zip(node.inputs, reads)):
            if mine != theirs:
                inputs = (*node.inputs[:at], theirs, *node.inputs[at + 1 :])
                changed = dataclasses.replace(node, inputs=inputs)
                words = (str(mine), str(theirs))
                yield change(f"{place}: input {at}", *words, _exchanged(a, i, changed))
    gives = [renamed[v] for v in b.outputs]
    for at, (mine, theirs) in enumerate(zip(a.outputs, gives)):
        if mine != theirs:
            outputs = (*a.outputs[:at], theirs, *a.outputs[at + 1 :])
            yield change(f"output {at}", mine, theirs, dataclasses.replace(a, outputs=outputs))


def _exchanged(body: Graph, at: int, node: Node) -> Graph:
    return dataclasses.replace(body, nodes=(*body.nodes[:at], node, *body.nodes[at + 1 :]))


def _renamed(a: Graph, b: Graph) -> dict[str, str] | None:
    """Values of the second body -> those of the first in the same place; None where nodes, inputs
    or outputs are not as many, or most nodes of other kinds."""
    if [len(a.inputs), len(a.outputs)] != [len(b.inputs), len(b.outputs)]:
        return None
    if [_form(n) for n in a.nodes] != [_form(n) for n in b.nodes]:
        return None
    if sum(n.op.kind != m.op.kind for n, m in zip(a.nodes, b.nodes)) > MOST_KINDS:
        return None
    found = dict(zip(b.inputs, a.inputs))
    for node, other in zip(a.nodes, b.nodes):
        found.update(zip(other.outputs, node.outputs))
    return found


def _form(node: Node) -> Sequence[object]:
    return len(node.inputs), len(node.outputs)
