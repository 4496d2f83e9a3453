"""What only running decides, as operators: branches and loops with their bodies as attributes.

A body is converted by the same rows as the rest, into a graph of its own. What it reads from
outside, its constants among that, becomes inputs of it and of its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from verax.base.errors import GraphError, ModelError
from verax.frontends.common.context import RunningDecidesError, ValueNeededError
from verax.frontends.common.control import (
    GIVE,
    KeptBranch,
    KeptRepeat,
    Scope,
    invariant,
    placed,
)
from verax.frontends.common.control_nodes import DOMAIN as CONTROL
from verax.frontends.common.control_nodes import constant
from verax.frontends.common.foreign import ForeignNode, Subgraph
from verax.ir.graph import Builder, Graph, Node
from verax.ir.printer import print_graph
from verax.ir.types import DType, TensorType
from verax.ops.control.control import If, Loop

LONGEST = 1 << 23
"""Characters of a body, with those inside of it. One in another doubles what quotes take, so that a
small file could ask for any number."""
NEVER = ""
"""The text of a branch that does not fit the sizes: whoever chooses it is told so."""


class SubgraphImporter(Protocol):
    """What converting a body needs of an import (`importing.Importer`)."""

    builder: Builder
    names: dict[str, str]

    @property
    def scope(self) -> Scope: ...

    def fresh(self, hint: str) -> str: ...

    def convert_nodes(self, nodes: Sequence[ForeignNode]) -> None: ...


class _Inside(dict[str, str]):
    """Foreign names -> values of a body; what lies outside is captured when it is asked for."""

    def __init__(self, outer: Mapping[str, str], capture: Callable[[str], str]) -> None:
        super().__init__()
        self.outer, self.capture = outer, capture

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.outer

    def __missing__(self, name: str) -> str:
        self[name] = self.capture(self.outer[name])
        return self[name]


@dataclass
class _Body:
    """A converted body. outer: the values outside that its own inputs and constants are."""

    builder: Builder
    formal: list[str]
    outputs: list[str]
    outer: dict[str, str]
    nodes: list[Node]

    def inputs(self) -> dict[str, str]:
        """Value outside -> its name inside, of all that is read."""
        read = {v for n in self.nodes for v in n.inputs if v is not None} | set(self.outputs)
        return {out: name for name, out in self.outer.items() if name in read}

    def text(self, values: Sequence[str], outside: Builder) -> str:
        """The text form; its inputs are the formal ones, then the captured outer `values`."""
        mine, types = self.inputs(), self.builder.types
        names = list(self.formal)
        types_kept = {v: types[v] for n in self.nodes for v in n.outputs}
        types_kept |= {v: types[v] for v in self.formal}
        for value in values:
            name = mine.get(value)
            if name is None:
                name = self.builder.fresh(f"{value}.unused")
                types[name] = outside.types[value]
            types_kept[name] = types[name]
            names.append(name)
        graph = Graph(
            tuple(names), tuple(self.outputs), tuple(self.nodes), {}, types_kept, self.builder.name
        )
        text = print_graph(graph)
        if len(text) > LONGEST:
            raise GraphError("branches and loops that running decides lie too deep in each other")
        return text


def keep(importer: SubgraphImporter, node: KeptBranch | KeptRepeat) -> dict[str, str]:
    """Append the operator of what running decides; returns its outputs by the file's names.

    Raises `UnsupportedError` where it cannot be expressed, `ModelError` for one without results.
    """
    if not node.outputs:
        raise ModelError("a branch or loop gives no results", place=node.place)
    try:
        if isinstance(node, KeptBranch):
            return _keep_branch(importer, node)
        return _keep_repeat(importer, node)
    except GraphError as error:
        raise RunningDecidesError(error.cause, place=node.place, next_step=GIVE) from error


def _keep_branch(importer: SubgraphImporter, node: KeptBranch) -> dict[str, str]:
    outside = importer.builder
    condition, *operands = (importer.names[i] for i in node.inputs)
    branches: list[_Body | None] = []
    problems: list[Exception] = []
    for graph, label in ((node.then, "then"), (node.otherwise, "else")):
        try:
            branches.append(_converted(importer, node, graph, operands, label))
        except RunningDecidesError:
            raise
        except (ModelError, GraphError, ValueNeededError) as error:
            problems.append(error)
            branches.append(None)
    bodies = [b for b in branches if b is not None]
    if not bodies:
        raise RunningDecidesError(
            "a branch that is chosen while running is not supported where it does not fit these "
            f"sizes: {getattr(problems[0], 'cause', problems[0])}",
            place=getattr(problems[0], "place", node.place),
            next_step=GIVE,
        )
    types = [[b.builder.types[v] for v in b.outputs] for b in bodies]
    for one, two in zip(types[0], types[-1]):
        if one.dtype is not two.dtype or one.rank != two.rank:
            raise RunningDecidesError(
                f"a branch that is chosen while running is not supported where it gives {one} or "
                f"{two}",
                place=node.place,
                next_step=GIVE,
            )
    captured = list(dict.fromkeys(v for b in bodies for v in b.inputs()))
    texts = [NEVER if b is None else b.text(captured, outside) for b in branches]
    op = If(then_branch=texts[0], else_branch=texts[1])
    results = outside.add_all(op, [condition, *captured], _names(importer, node), node.name)
    return {o: v for o, v in zip(node.outputs, results) if o}


def _keep_repeat(importer: SubgraphImporter, node: KeptRepeat) -> dict[str, str]:
    outside, body = importer.builder, node.body
    limit_name, goes_on, *carried = node.inputs
    same = invariant(body) - {-1}
    moving = [i for i in range(len(carried)) if i not in same]
    iteration, first = importer.fresh(f"{node.outputs[0]}/run"), importer.fresh("from")
    inner = importer.fresh(f"{node.outputs[0]}/number")
    formal = {iteration: TensorType(DType.int64, ())}
    names_in = [inner, importer.fresh(f"{node.outputs[0]}/go")]
    before = [constant(first, np.array(node.run, np.int64)), constant(names_in[1], np.array(True))]
    before.append(ForeignNode("Add", (iteration, first), (inner,), domain=CONTROL))
    for i, value in enumerate(carried):
        if i in same:
            names_in.append(value)
        else:
            names_in.append(importer.fresh(f"{value}/carried"))
            formal[names_in[-1]] = outside.types[importer.names[value]]
    body_outputs = [0, *(1 + i for i in moving), *range(1 + len(carried), len(body.outputs))]
    graph = Subgraph(
        body.inputs, tuple(body.outputs[i] for i in body_outputs), body.constants, body.nodes
    )
    if len(body_outputs) == 1:
        return {o: importer.names[carried[i]] for i, o in enumerate(node.outputs) if o}
    loop_body = _built(importer, node, graph, names_in, formal, before, "body")
    captured = list(loop_body.inputs())
    op = Loop(body=loop_body.text(captured, outside), carried=len(moving))
    limit = _limit(importer, node, limit_name)
    start = [None if not v else importer.names[v] for v in (goes_on, *(carried[i] for i in moving))]
    outputs = [node.outputs[i - 1] for i in body_outputs[1:]]
    named = [o or importer.fresh(f"{node.name}.unused") for o in outputs]
    values = outside.add_all(op, [limit, *start, *captured], named, node.name)
    results = {o: v for o, v in zip(outputs, values) if o}
    for i in same:
        if node.outputs[i]:
            results[node.outputs[i]] = importer.names[carried[i]]
    return results


def _limit(importer: SubgraphImporter, node: KeptRepeat, limit_name: str) -> str | None:
    """Name of the value that holds the number of runs that are left; None without a limit."""
    if not limit_name or not node.run:
        return importer.names[limit_name] if limit_name else None
    left, limit = importer.fresh(f"{limit_name}/left"), importer.scope.known_value(limit_name)
    outside = importer.builder
    if limit is not None:
        return outside.constant(np.asarray(limit - node.run, np.int64), left)
    gone = outside.constant(np.array(-node.run, np.int64), importer.fresh(f"{limit_name}/gone"))
    importer.names[left] = gone
    importer.convert_nodes(
        [ForeignNode("Add", (limit_name, left), (f"{left}/sum",), domain=CONTROL)]
    )
    return importer.names[f"{left}/sum"]


def _names(importer: SubgraphImporter, node: ForeignNode) -> list[str]:
    return [o or importer.fresh(f"{node.name}.unused") for o in node.outputs]


def _converted(
    importer: SubgraphImporter,
    node: ForeignNode,
    graph: Subgraph,
    operands: Sequence[str],
    label: str,
) -> _Body:
    """The body of a branch on `operands`, values of the outer graph."""
    names = [importer.fresh(f"{node.outputs[0]}/{label}/given") for _ in operands]
    importer.names.update(zip(names, operands))
    return _built(importer, node, graph, names, {}, (), label)


def _built(
    importer: SubgraphImporter,
    node: ForeignNode,
    graph: Subgraph,
    operands: Sequence[str],
    formal: Mapping[str, TensorType],
    before: Iterable[ForeignNode],
    label: str,
) -> _Body:
    """A body on the foreign values `operands`, of which `formal` are its own inputs."""
    outside, outer_names = importer.builder, importer.names
    inside = Builder(f"{node.name or node.op_type}/{label}")
    outer: dict[str, str] = {}

    def capture(value: str) -> str:
        name = value if value not in inside.types else inside.fresh(value)
        if value in outside.constants:
            inside.constant(outside.constants[value], name)
        else:
            inside.input(name, outside.types[value])
            if value in outside.known:
                inside.known[name] = outside.known[value]
        outer[name] = value
        return name

    results = [importer.fresh(f"{node.outputs[0]}/{label}/result") for _ in graph.outputs]
    nodes = placed(node, graph, operands, results, importer.scope, label)
    importer.builder, importer.names = inside, _Inside(outer_names, capture)
    try:
        for name, type_ in formal.items():
            importer.names[name] = inside.input(name, type_)
        importer.convert_nodes([*before, *nodes])
        if lists := [r for r in results if r not in importer.names]:
            raise RunningDecidesError(
                f"a branch or loop that running decides gives {lists[0]!r}, which is no tensor",
                place=node.place,
                next_step=GIVE,
            )
        outputs = [importer.names[r] for r in results]
    finally:
        importer.builder, importer.names = outside, outer_names
    outputs = _direct(inside, outputs, set(formal))
    live = _live(inside.nodes, outputs)
    read = {v for n in live for v in n.inputs if v is not None} | set(outputs)
    for name, array in inside.constants.items():
        if name in read and name not in outer:
            outer[name] = outside.constant(array, importer.fresh(name))
    return _Body(inside, list(formal), outputs, outer, live)


def _direct(inside: Builder, outputs: Sequence[str], formal: set[str]) -> list[str]:
    """`outputs` with the input of each final Identity instead, where all stay different."""
    producers = {o: n for n in inside.nodes for o in n.outputs}
    direct_outputs: list[str] = []
    for value in outputs:
        direct = value
        while direct in producers and producers[direct].op.kind == "Identity":
            direct = producers[direct].inputs[0] or direct
        computed = direct in producers and direct not in direct_outputs and direct not in outputs
        direct_outputs.append(direct if computed else value)
    return direct_outputs


def _live(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    live_values, live_nodes = set(outputs), []
    for node in reversed(nodes):
        if not live_values.isdisjoint(node.outputs):
            live_values.update(v for v in node.inputs if v is not None)
            live_nodes.append(node)
    return live_nodes[::-1]


def scope_of(importer: Any) -> Scope:
    """The scope of an import."""

    def value(name: str) -> str:
        if name not in importer.names:
            raise ModelError(f"{name!r} is read before it is defined", place="a branch or loop")
        return str(importer.names[name])

    def known_value(name: str) -> np.ndarray | None:
        content: np.ndarray | None = importer.builder.known.get(value(name))
        return None if content is None or content.dtype == object else content

    def type_of(name: str) -> TensorType:
        type_: TensorType = importer.builder.types[value(name)]
        return type_

    return Scope(known_value, type_of, importer.fresh, importer.copies)
