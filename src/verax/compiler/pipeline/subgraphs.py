"""Passes inside of bodies: what a pass does to a network it does to the bodies of If and Loop.

A body is opened for that: it becomes a graph of its own with the sizes of the network around it,
whose constants are its constants. What a pass makes of it is closed again: constants go back into
the network, the rest into a text form. Passes that approximate do not enter: a certificate sees the
values of a network, not those of every run of a body.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping

import numpy as np

from verax.base.errors import GraphError
from verax.compiler.passes.base import Pass, PassClass
from verax.compiler.pipeline.selected_rewrites import run_selected
from verax.ir.graph import Builder, Graph, Node
from verax.ir.printer import print_graph
from verax.ir.types import TensorType
from verax.ops.control.control import Control
from verax.ops.control.subgraphs import body_of
from verax.records.trace import Rewrite, body_suffix, body_text

Key = tuple[object, ...]


@dataclasses.dataclass
class Bodies:
    """Runs passes in the bodies of a network. steps: as `Settings.steps`; opened: bodies as graphs,
    until a pass rewrites them."""

    steps: tuple[str, ...] | None = None
    opened: dict[Key, Graph | None] = dataclasses.field(default_factory=dict)

    def apply(self, step: Pass, graph: Graph, limit: int | None) -> tuple[Graph, list[Rewrite]]:
        """Run a pass in every body, at most `limit` rewrites in all; also each rewrite, which
        names the body. No value outside gets another name."""
        rewrites: list[Rewrite] = []
        nodes: list[Node] = []
        new: dict[str, np.ndarray] = {}
        enters = step.kind is not PassClass.approximates
        for node in graph.nodes:
            left = None if limit is None else limit - len(rewrites)
            inside = enters and isinstance(node.op, Control) and (left is None or left > 0)
            nodes.append(self._node(step, graph, node, left, new, rewrites) if inside else node)
        if not rewrites:
            return graph, rewrites
        types = {**graph.types, **{v: TensorType.of(a) for v, a in new.items()}}
        constants = {**graph.constants, **new}
        graph = dataclasses.replace(graph, nodes=tuple(nodes), constants=constants, types=types)
        return graph, rewrites

    def _node(
        self,
        step: Pass,
        graph: Graph,
        node: Node,
        limit: int | None,
        new: dict[str, np.ndarray],
        rewrites: list[Rewrite],
    ) -> Node:
        """The node with its bodies rewritten; `new` gets constants, `rewrites` what was done."""
        op, before = node.op, len(rewrites)
        assert isinstance(op, Control)
        bodies: dict[str, Graph] = {}
        for field in op.fields:
            body = self._opened(graph, node, getattr(op, field))
            if body is None:
                continue
            left = None if limit is None else limit - (len(rewrites) - before)
            bodies[field], change = self._run(step, body, left, field, node)
            rewrites += change
        if len(rewrites) == before:
            return node
        return _closed(graph, node, bodies, new)

    def _run(
        self, step: Pass, body: Graph, limit: int | None, field: str, node: Node
    ) -> tuple[Graph, list[Rewrite]]:
        inner, suffix = Bodies(None, self.opened), body_suffix(field, node.outputs[0])
        if self.steps is None:
            rewritten, change = step.apply(body, limit)
        else:
            ends = suffix, body_text(field, node.place)
            own = tuple(s.removesuffix(e) for s in self.steps for e in ends if s.endswith(e))
            inner.steps = own
            rewritten, change = run_selected(step, body, limit, own)
        left = None if limit is None else limit - change.rewrites
        rewritten, more = inner.apply(step, rewritten, left)
        location, value = node.place, node.outputs[0]
        return rewritten, [one.in_body(field, value, location) for one in (*change.records, *more)]

    def _opened(self, graph: Graph, node: Node, text: str) -> Graph | None:
        """A body as a graph; None where it does not fit these sizes."""
        if not text:
            return None
        inputs = [v or "" for v in node.inputs]
        key: Key = (
            text,
            tuple(graph.types[v] if v else None for v in inputs),
            tuple(id(graph.constants[v]) if v in graph.constants else v for v in inputs),
        )
        if key not in self.opened:
            self.opened[key] = _open(graph, node, text)
        return self.opened[key]


def _open(graph: Graph, node: Node, text: str) -> Graph | None:
    op, body = node.op, body_of(text)
    assert isinstance(op, Control)
    formal = op.formal(graph.input_types(node))
    b = Builder(body.name)
    for name, type_ in zip(body.inputs, formal):
        b.input(name, type_)
    outside = node.inputs[op.own_inputs :]
    for name, value in zip(body.inputs[len(formal) :], outside, strict=True):
        if value is None:
            return None
        if value in graph.constants:
            b.constant(graph.constants[value], name)
        else:
            b.input(name, graph.types[value])
    try:
        for inner in body.nodes:
            b.add_all(inner.op, inner.inputs, inner.outputs, inner.name)
    except GraphError:  # of a branch that is never chosen
        return None
    return b.graph(body.outputs)


def _closed(
    graph: Graph, node: Node, bodies: Mapping[str, Graph], new: dict[str, np.ndarray]
) -> Node:
    """The node with these bodies; one that was not opened keeps its nodes and takes the rest.

    What is given from outside: what it was, as far as it is read, then constants that were made.
    """
    op = node.op
    assert isinstance(op, Control)
    count = len(op.formal(graph.input_types(node)))
    outer_values = [v or "" for v in node.inputs[op.own_inputs :]]
    texts = {f: t for f in op.fields if (t := getattr(op, f))}
    names: dict[str, dict[int, str]] = {}  # by body: index in `outer_values` -> name inside
    for field, text in texts.items():
        body, slots = bodies.get(field), dict(enumerate(body_of(text).inputs[count:]))
        if body is None:
            names[field] = slots
            continue
        used = {v for n in body.nodes for v in n.inputs if v is not None} | set(body.outputs)
        body_names = names[field] = {}
        for i, name in slots.items():
            array = graph.constants.get(outer_values[i])
            if name in used and (name in body.inputs or body.constants.get(name) is array):
                body_names[i] = name
        for name, array in body.constants.items():
            if name in used and name not in body_names.values():
                value = _free(
                    f"{node.name or node.outputs[0]}/{name}", graph.types.keys() | new.keys()
                )
                new[value] = array
                body_names[len(outer_values)] = name
                outer_values.append(value)
    read = sorted(set().union(*names.values()))
    types = {
        i: TensorType.of(new[v]) if v in new else graph.types[v] for i, v in enumerate(outer_values)
    }
    changed = {}
    for field, text in texts.items():
        body = bodies.get(field) or body_of(text)
        changed[field] = _text(body, count, {i: types[i] for i in read}, names[field])
    inputs = (*node.inputs[: op.own_inputs], *(outer_values[i] for i in read))
    return dataclasses.replace(node, op=dataclasses.replace(op, **changed), inputs=inputs)


def _free(hint: str, used_names: Container[str]) -> str:
    """A name that is not taken."""
    name, counter = hint, 0
    while name in used_names:
        counter += 1
        name = f"{hint}_{counter}"
    return name


def _text(
    body: Graph, formal: int, types: Mapping[int, TensorType], names: Mapping[int, str]
) -> str:
    """The text form of a body that is given so many values; what it does not read gets a name."""
    types_by_name, inputs = dict(body.types), list(body.inputs[:formal])
    for i, type_ in types.items():
        name = names.get(i) or _free(f"unused_{i}", types_by_name)
        types_by_name[name] = type_
        inputs.append(name)
    return print_graph(Graph(tuple(inputs), body.outputs, body.nodes, {}, types_by_name, body.name))
