"""Compares the subgraphs of two branches or loops node by node.

Subgraphs are attributes in text form. Values have other names in every file, so that subgraphs are
alike when their nodes are of the same kinds in the same order, but a few; what differs then is an
attribute of a node, its kind, or which value a node reads or the subgraph returns.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.printer import print_graph
from verax.ops.control.bodies import body_of
from verax.ops.control.control import Control
from verax.records.alignment import AttributeDifference

MOST_KINDS = 2
"""Nodes of other kinds that bodies which are alike may have."""
KINDS_SHOWN = 6
"""Kinds of a body's nodes that its summary lists."""


@dataclasses.dataclass(frozen=True)
class OperatorChange:
    """One difference of two operators of a kind. attribute: of the first operator; value: of that
    attribute with this difference alone removed."""

    difference: AttributeDifference
    attribute: str
    value: object

    def apply(self, op: Operator) -> Operator:
        """The first operator with the difference undone."""
        return dataclasses.replace(op, **{self.attribute: self.value})


def changes(a: Operator, b: Operator) -> list[OperatorChange]:
    """Differences of two operators of one kind: whole attributes, or nodes of their subgraphs."""
    own, second = a.attributes(), b.attributes()
    differences: list[OperatorChange] = []
    for name in own:
        if own[name] == second[name]:
            continue
        if is_body(a, name) and own[name] and second[name]:
            differences += _within(a.kind, name, body_of(own[name]), body_of(second[name]))
        else:
            texts = (attribute_text(op, name) for op in (a, b))
            differences.append(
                OperatorChange(AttributeDifference(a.kind, name, *texts), name, second[name])
            )
    return differences


def is_body(op: Operator, name: str) -> bool:
    """Whether an attribute is a body in text form."""
    return isinstance(op, Control) and name in op.fields


def attribute_text(op: Operator, name: str) -> str:
    """Text of an attribute; of a subgraph, a summary of its nodes."""
    value = op.attributes()[name]
    return _summary(body_of(value)) if value and is_body(op, name) else repr(value)


def _summary(body: Graph) -> str:
    kinds = collections.Counter(n.op.kind for n in body.nodes)
    listed = [f"{n} {kind}" if n > 1 else kind for kind, n in kinds.items()]
    more = f" and {len(listed) - KINDS_SHOWN} more kinds" if len(listed) > KINDS_SHOWN else ""
    return f"{len(body.nodes)} nodes ({', '.join(listed[:KINDS_SHOWN])}{more})"


def _within(kind: str, name: str, a: Graph, b: Graph) -> Iterator[OperatorChange]:
    """Yield the differences of two subgraphs; one for the whole if their nodes are too
    different."""

    def change(location: str, first: str, second: str, body: Graph) -> OperatorChange:
        difference = AttributeDifference(kind, f"{name}: {location}", first, second)
        return OperatorChange(difference, name, print_graph(body))

    renamed = _renamed(a, b)
    if renamed is None:
        yield OperatorChange(
            AttributeDifference(kind, name, _summary(a), _summary(b)), name, print_graph(b)
        )
        return
    for i, (node, counterpart) in enumerate(zip(a.nodes, b.nodes)):
        named = repr(node.name or node.outputs[0])
        location = f"{node.op.kind} {named}"
        if node.op.kind != counterpart.op.kind:
            changed = dataclasses.replace(node, op=counterpart.op)
            kinds = (node.op.kind, counterpart.op.kind)
            yield change(f"the operator of {named}", *kinds, _exchanged(a, i, changed))
            continue
        for inner in changes(node.op, counterpart.op):
            d = inner.difference
            changed = dataclasses.replace(node, op=inner.apply(node.op))
            yield change(f"{location}: {d.attribute}", d.first, d.second, _exchanged(a, i, changed))
        reads = tuple(None if v is None else renamed[v] for v in counterpart.inputs)
        for at, (mine, theirs) in enumerate(zip(node.inputs, reads)):
            if mine != theirs:
                inputs = (*node.inputs[:at], theirs, *node.inputs[at + 1 :])
                changed = dataclasses.replace(node, inputs=inputs)
                texts = (str(mine), str(theirs))
                yield change(f"{location}: input {at}", *texts, _exchanged(a, i, changed))
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
    names = dict(zip(b.inputs, a.inputs))
    for node, counterpart in zip(a.nodes, b.nodes):
        names.update(zip(counterpart.outputs, node.outputs))
    return names


def _form(node: Node) -> Sequence[object]:
    return len(node.inputs), len(node.outputs)
