"""Which nodes run as one kernel call: a root and the elementwise nodes fused behind it.

Fusing changes no bit: a fused node reads the value that would have been stored. A node joins the
group of its producer when nobody else reads that value and it has the producer's shape, so that it
can be computed where the value is made. Where it reads what several chains make, so can they.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from verax.compiler.plan.expressions import is_elementwise
from verax.compiler.plan.steps import FUSE, Decisions
from verax.ir.dim import DimLike, same
from verax.ir.graph import Graph, Node

MAX_GROUP = 24
"""Longer chains are cut: registers run out and compile time grows."""


@dataclasses.dataclass(frozen=True)
class Group:
    """`root` computes `accumulator`; `fused` are elementwise nodes applied to it in order."""

    root: Node
    fused: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.root, *self.fused)

    @property
    def output(self) -> str:
        """The value that the group's last node makes."""
        return self.nodes[-1].outputs[0]

    @property
    def label(self) -> str:
        """How plans and profiles call the group."""
        return " + ".join(n.name or n.outputs[0] for n in self.nodes)

    @property
    def kinds(self) -> str:
        return "+".join(n.op.kind for n in self.nodes)


def group_nodes(
    graph: Graph,
    takes_epilogue: Callable[[Graph, Node], bool],
    joins: Callable[[Graph, Node, str, Node], bool],
    decisions: Decisions,
) -> list[Group]:
    """Groups in an order in which they can run (the order of their last nodes).

    takes_epilogue(graph, node): whether a non-elementwise node's kernel can apply an expression to
    its result. joins(graph, root, value, node): whether an elementwise node may join the group of
    `root` that made `value`. Without decisions to fuse every node is a group of its own.
    """
    if not decisions.runs(FUSE):
        return [Group(node) for node in graph.nodes]
    elementwise = {id(n) for n in graph.nodes if is_elementwise(graph, n)}
    open_groups: dict[str, list[Node]] = {}  # output value -> nodes of the group that makes it
    finished: list[tuple[int, list[Node]]] = []
    position = {id(n): i for i, n in enumerate(graph.nodes)}

    def extensible(value: str) -> bool:
        return (
            value in open_groups
            and len(graph.consumers.get(value, ())) == 1
            and value not in graph.outputs
            and len(open_groups[value]) < MAX_GROUP
        )

    def can_merge(into: list[Node], value: str, branch: list[Node]) -> bool:
        """Whether a chain of elementwise nodes that starts elsewhere may be computed as well where
        `value` is made."""
        return len(into) + len(branch) < MAX_GROUP and all(
            id(n) in elementwise and joins(graph, into[0], value, n) for n in branch
        )

    def starts_with_kernel(value: str, open_operands: list[str]) -> bool:
        """Whether no chain but a kernel made `value`, and all the others may join it."""
        into = open_groups[value]
        chains = [v for v in dict.fromkeys(open_operands) if id(open_groups[v][0]) in elementwise]
        return id(into[0]) not in elementwise and all(
            can_merge(into, value, open_groups[v]) for v in chains
        )

    for node in graph.nodes:
        members: list[Node] | None = None
        if id(node) in elementwise:
            shape = graph.types[node.outputs[0]].dims
            candidates = [
                v
                for v in node.inputs
                if v is not None
                and extensible(v)
                and _same_dims(graph.types[v].dims, shape)
                and joins(graph, open_groups[v][0], v, node)
            ]
            # A residual sum joins the branch that is made last: the other one is then ready.
            candidates.sort(key=lambda v: position[id(open_groups[v][-1])])
            # A chain that can be computed where a kernel ends leaves nothing to be stored.
            candidates.sort(key=lambda v: starts_with_kernel(v, candidates))
            if candidates:
                *earlier, last = candidates
                into = open_groups[last]
                if _fuses(decisions, node, into[0]):
                    members = open_groups.pop(last)
                    for branch_end in dict.fromkeys(earlier):
                        root = open_groups[branch_end][0]
                        if can_merge(members, last, open_groups[branch_end]) and _fuses(
                            decisions, root, into[0]
                        ):
                            members += open_groups.pop(branch_end)
                    members.append(node)
        if members is None:
            members = [node]
        if id(node) in elementwise or takes_epilogue(graph, node):
            open_groups[node.outputs[0]] = members
        else:
            finished.append((position[id(node)], members))
    finished += [(position[id(nodes[-1])], nodes) for nodes in open_groups.values()]
    return [Group(n[0], tuple(n[1:])) for _, n in sorted(finished, key=lambda item: item[0])]


def _fuses(decisions: Decisions, node: Node, into: Node) -> bool:
    """True if `node` may be computed in the kernel of `into`."""
    text = f"{_name(node)} into {_name(into)}"
    subject = ">".join(n.name or n.outputs[0] for n in (node, into))
    return decisions.allows(FUSE, text, subject, (*node.outputs, *into.outputs))


def _name(node: Node) -> str:
    return f"{node.name or node.outputs[0]!r} ({node.op.kind})"


def _same_dims(left: Sequence[DimLike], right: Sequence[DimLike]) -> bool:
    """Whether two shapes are, axis by axis, one expression."""
    return len(left) == len(right) and all(map(same, left, right))
