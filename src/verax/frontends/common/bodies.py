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


class Importing(Protocol):
    """What converting a body needs of an import (`importing.Importer`)."""

    builder: Builder
    names: dict[str, str]
    scope: Scope

    def fresh(self, hint: str) -> str: ...

    def walk(self, nodes: Sequence[ForeignNode]) -> None: ...


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

    def text(self, given: Sequence[str], outside: Builder) -> str:
        """The text form; its inputs are the formal ones, then what `given` are outside."""
        mine, types = self.inputs(), self.builder.types
        names = list(self.formal)
        kept = {v: types[v] for n in self.nodes for v in n.outputs}
        kept |= {v: types[v] for v in self.formal}
        for value in given:
            name = mine.get(value)
            if name is None:
                name = self.builder.fresh(f"{value}.unused")
                types[name] = outside.types[value]
            kept[name] = types[name]
            names.append(name)
        graph = Graph(
            tuple(names), tuple(self.outputs), tuple(self.nodes), {}, kept, self.builder.name
        )
        text = print_graph(graph)
        if len(text) > LONGEST:
            raise GraphError("branches and loops that running decides lie too deep in each other")
        return text


def keep(importer: Importing, node: KeptBranch | KeptRepeat) -> dict[str, str]:
    """Append the operator of what running decides; returns its outputs by the file's names.

    Raises `UnsupportedError` where it cannot be expressed.
    """
    try:
        if isinstance(node, KeptBranch):
            return _keep_branch(importer, node)
        return _keep_repeat(importer, node)
    except GraphError as error:
        raise RunningDecidesError(error.cause, place=node.place, next_step=GIVE) from error


def _keep_branch(importer: Importing, node: KeptBranch) -> dict[str, str]:
    outside = importer.builder
    condition, *given = (importer.names[i] for i in node.inputs)
    found: list[_Body | None] = []
    problems: list[Exception] = []
    for graph, part in ((node.then, "then"), (node.other, "else")):
        try:
            found.append(_converted(importer, node, graph, given, part))
        except RunningDecidesError:
            raise
        except (ModelError, GraphError, ValueNeededError) as error:
            problems.append(error)
            found.append(None)
    bodies = [b for b in found if b is not None]
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
    texts = [NEVER if b is None else b.text(captured, outside) for b in found]
    op = If(then_branch=texts[0], else_branch=texts[1])
    made = outside.add_all(op, [condition, *captured], _names(importer, node), node.name)
    return {o: v for o, v in zip(node.outputs, made) if o}


def _keep_repeat(importer: Importing, node: KeptRepeat) -> dict[str, str]:
    outside, body = importer.builder, node.body
    most, goes_on, *carried = node.inputs
    same = invariant(body) - {-1}
    moving = [i for i in range(len(carried)) if i not in same]
    number, first = importer.fresh(f"{node.outputs[0]}/run"), importer.fresh("from")
    inner = importer.fresh(f"{node.outputs[0]}/number")
    formal = {number: TensorType(DType.int64, ())}
    given = [inner, importer.fresh(f"{node.outputs[0]}/go")]
    before = [constant(first, np.array(node.run, np.int64)), constant(given[1], np.array(True))]
    before.append(ForeignNode("Add", (number, first), (inner,), domain=CONTROL))
    for i, value in enumerate(carried):
        if i in same:
            given.append(value)
        else:
            given.append(importer.fresh(f"{value}/carried"))
            formal[given[-1]] = outside.types[importer.names[value]]
    wanted = [0, *(1 + i for i in moving), *range(1 + len(carried), len(body.outputs))]
    graph = Subgraph(
        body.inputs, tuple(body.outputs[i] for i in wanted), body.constants, body.nodes
    )
    if len(wanted) == 1:
        return {o: importer.names[carried[i]] for i, o in enumerate(node.outputs) if o}
    made = _built(importer, node, graph, given, formal, before, "body")
    captured = list(made.inputs())
    op = Loop(body=made.text(captured, outside), carried=len(moving))
    limit = _limit(importer, node, most)
    start = [None if not v else importer.names[v] for v in (goes_on, *(carried[i] for i in moving))]
    outputs = [node.outputs[i - 1] for i in wanted[1:]]
    named = [o or importer.fresh(f"{node.name}.unused") for o in outputs]
    values = outside.add_all(op, [limit, *start, *captured], named, node.name)
    results = {o: v for o, v in zip(outputs, values) if o}
    for i in same:
        if node.outputs[i]:
            results[node.outputs[i]] = importer.names[carried[i]]
    return results


def _limit(importer: Importing, node: KeptRepeat, most: str) -> str | None:
    """The number of runs that are left, a value of the graph."""
    if not most or not node.run:
        return importer.names[most] if most else None
    left, known = importer.fresh(f"{most}/left"), importer.scope.known(most)
    outside = importer.builder
    if known is not None:
        return outside.constant(np.asarray(known - node.run, np.int64), left)
    gone = outside.constant(np.array(-node.run, np.int64), importer.fresh(f"{most}/gone"))
    importer.names[left] = gone
    importer.walk([ForeignNode("Add", (most, left), (f"{left}/sum",), domain=CONTROL)])
    return importer.names[f"{left}/sum"]


def _names(importer: Importing, node: ForeignNode) -> list[str]:
    return [o or importer.fresh(f"{node.name}.unused") for o in node.outputs]


def _converted(
    importer: Importing, node: ForeignNode, graph: Subgraph, given: Sequence[str], part: str
) -> _Body:
    """A branch: what it is given are values of the graph outside."""
    names = [importer.fresh(f"{node.outputs[0]}/{part}/given") for _ in given]
    importer.names.update(zip(names, given))
    return _built(importer, node, graph, names, {}, (), part)


def _built(
    importer: Importing,
    node: ForeignNode,
    graph: Subgraph,
    given: Sequence[str],
    formal: Mapping[str, TensorType],
    before: Iterable[ForeignNode],
    part: str,
) -> _Body:
    """A body on the foreign values `given`, of which `formal` are its own inputs."""
    outside, outer_names = importer.builder, importer.names
    inside = Builder(f"{node.name or node.op_type}/{part}")
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

    results = [importer.fresh(f"{node.outputs[0]}/{part}/result") for _ in graph.outputs]
    nodes = placed(node, graph, given, results, importer.scope, part)
    importer.builder, importer.names = inside, _Inside(outer_names, capture)
    try:
        for name, type_ in formal.items():
            importer.names[name] = inside.input(name, type_)
        importer.walk([*before, *nodes])
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
    """Outputs without the Identity that names them, where no two are then the same value."""
    made = {o: n for n in inside.nodes for o in n.outputs}
    found: list[str] = []
    for value in outputs:
        direct = value
        while direct in made and made[direct].op.kind == "Identity":
            direct = made[direct].inputs[0] or direct
        computed = direct in made and direct not in found and direct not in outputs
        found.append(direct if computed else value)
    return found


def _live(nodes: Sequence[Node], outputs: Sequence[str]) -> list[Node]:
    wanted, kept = set(outputs), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(v for v in node.inputs if v is not None)
            kept.append(node)
    return kept[::-1]


def knowing(importer: Any) -> Scope:
    """The scope of an import."""

    def value(name: str) -> str:
        if name not in importer.names:
            raise ModelError(f"{name!r} is read before it is defined", place="a branch or loop")
        return str(importer.names[name])

    def known(name: str) -> np.ndarray | None:
        found: np.ndarray | None = importer.builder.known.get(value(name))
        return None if found is None or found.dtype == object else found

    def type_of(name: str) -> TensorType:
        found: TensorType = importer.builder.types[value(name)]
        return found

    return Scope(known, type_of, importer.fresh)
