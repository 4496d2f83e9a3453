"""Rewriting: Graph -> (Graph, Trace). The old graph is never changed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.ir.graph import Builder, Graph, Node, walk_values
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.records.trace import Rewrite, Trace, numbered


class Rewriter:
    """Rebuilds a graph node by node; a pass decides for each node what becomes of it.

    >>> r = Rewriter(graph)
    >>> for node in graph.nodes:
    ...     r.replace(node, r.map(node.inputs[0]), "drop Identity") if drop(node) else r.keep(node)
    >>> graph, trace = r.finish()

    limit: how many rewrites may be done (None: any number). A pass asks `spent` before each and
    keeps nodes as they are once it is true.

    Fresh names are never those of old values, nor what `names` has given, so that an old name is
    free for what takes that value's place. But where a node is called as its output, what is added
    under the node's name without others may take it.

    While nodes are kept in their order, nothing is built: a pass that changes nothing costs no more
    than its looking, and `finish` gives the old graph.
    """

    def __init__(self, graph: Graph, limit: int | None = None) -> None:
        self.old, self.limit = graph, limit
        self._asked: set[str] = set()
        self._kept = 0  # so many nodes, the first ones, stayed as they are while nothing is built
        self._built: tuple[Builder, dict[str, str]] | None = None
        self.records: list[Rewrite] = []
        self.refused: list[str] = []

    @property
    def new(self) -> Builder:
        """The new graph as far as it is built; asking for it begins that."""
        return (self._built or self._begun())[0]

    @property
    def values(self) -> dict[str, str]:
        """Old value -> new value, as far as the new graph is built; asking for it begins that."""
        return (self._built or self._begun())[1]

    def _begun(self) -> tuple[Builder, dict[str, str]]:
        """Inputs, constants and the nodes that were kept before."""
        old, new = self.old, Builder(self.old.name, reserved=self.old.types)
        self._built = new, {}
        for value in old.inputs:
            self.values[value] = new.input(value, old.types[value])
        for value, array in old.constants.items():
            self.values[value] = new.constant(array, value)
        for node in old.nodes[: self._kept]:
            self.keep(node)
        return self._built

    @property
    def spent(self) -> bool:
        """Whether as many rewrites are done as may be."""
        return self.limit is not None and len(self.records) >= self.limit

    def map(self, value: str | None) -> str | None:
        """The new name of an old value."""
        if value is None or self._built is None:
            return value
        return self.values[value]

    def type_of(self, value: str) -> TensorType:
        """The type of a NEW value."""
        return self.old.types[value] if self._built is None else self.new.types[value]

    def constant_of(self, value: str | None) -> np.ndarray | None:
        """The content of a NEW value, None where it is no constant."""
        constants = self.old.constants if self._built is None else self.new.constants
        return None if value is None else constants.get(value)

    def keep(self, node: Node) -> Node:
        """Copy a node with its inputs mapped; the NEW node."""
        nodes = self.old.nodes
        if self._built is None and self._kept < len(nodes) and nodes[self._kept] is node:
            self._kept += 1
            return node
        inputs = [self.map(v) for v in node.inputs]
        outputs = self.new.add_all(
            node.op, inputs, self.names(node), node.name, self._same_types(node, inputs)
        )
        self.values.update(zip(node.outputs, outputs))
        return self.new.nodes[-1]

    def _same_types(
        self, node: Node, inputs: Sequence[str | None]
    ) -> tuple[TensorType, ...] | None:
        """The outputs' types where they cannot have changed; None where they are to be found.

        Outputs of an input whose content is not known have no known content either.
        """
        types, new = self.old.types, self.new
        if getattr(node.op, "from_types", None) is not None:
            return None
        some_unknown = False
        for before, now in zip(node.inputs, inputs):
            if before is None or now is None:
                continue
            content = new.known.get(now)
            if content is None:
                some_unknown = True
            elif content is not self.old.constants.get(before):
                return None
            mine, theirs = new.types[now], types[before]
            if mine is not theirs and mine != theirs:
                return None
        return tuple(types[v] for v in node.outputs) if some_unknown else None

    def add(
        self,
        op: Operator,
        inputs: Sequence[str | None],
        name: str = "",
        outputs: Sequence[str] = (),
    ) -> str:
        """Add a node on NEW values; returns its first output."""
        return self.add_all(op, inputs, name, outputs)[0]

    def add_all(
        self,
        op: Operator,
        inputs: Sequence[str | None],
        name: str = "",
        outputs: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """As `add`, returning every output. Without names they get fresh ones."""
        if not outputs and name in self.old.producers and name not in self.new.types:
            own = self.old.producers[name].name == name and name not in self._asked
            outputs = [name] if own else []
        return self.new.add_all(op, inputs, outputs, name)

    def constant(self, array: np.ndarray, name: str = "") -> str:
        """Add a constant; without a name it gets a fresh one."""
        return self.new.constant(array, name)

    def replace(self, node: Node, with_: str | Sequence[str], note: str) -> None:
        """The node's outputs are now these NEW values; counts as one rewrite."""
        values = [with_] if isinstance(with_, str) else list(with_)
        self.values.update(zip(node.outputs, values, strict=True))
        self.record(node, note)

    def drop(self, node: Node, note: str) -> None:
        """The node's outputs are not needed any more; counts as one rewrite."""
        self.record(node, note)

    def record(self, node: Node, note: str) -> None:
        """Count one rewrite of an OLD node; note: the pass, and ": " and what it did if it says."""
        self.records.append(rewrite_of(node, note))

    def record_values(self, values: Sequence[str], note: str) -> None:
        """Count one rewrite of values by themselves; note: as for `record`, with what was done."""
        self.records.append(Rewrite.of(note, values[0], (), values))

    def refuse(self, node: Node, note: str) -> None:
        """Keep a node that would be rewritten if accuracy allowed it; `note` says what forbids."""
        self.keep(node)
        self.refused.append(f"{note}: {node.place}")

    def names(self, node: Node) -> list[str]:
        """Names for what is made in the node's place: its outputs' own where they are free."""
        names = [v if v not in self.new.types else self.new.fresh(v) for v in node.outputs]
        self._asked.update(names)
        return names

    def finish(self) -> tuple[Graph, Trace]:
        """The new graph and where each old value went.

        Output names are part of a network's interface: they are kept by the caller renaming back
        when a pass made an output another value (`Trace.values` says which).
        """
        old = self.old
        if self._built is None and self._kept == len(old.nodes):
            same = {v: v for v in walk_values(old)}
            return old, Trace(same, numbered(self.records), tuple(self.refused))
        graph = self.new.graph(
            [self.values[v] for v in old.outputs],
            {self.values[v]: self.values[new] for v, new in old.updates.items()},
            {self.values[v]: array for v, array in old.initial.items()},
        )
        return graph, Trace(dict(self.values), numbered(self.records), tuple(self.refused))


def rewrite_of(node: Node, note: str) -> Rewrite:
    """The record of a rewrite of a node, called by its name as recipes call nodes."""
    subject = node.name or node.outputs[0]
    names = (node.name,) if node.name else ()
    return Rewrite.of(f"{note}: {node.place}", subject, names, node.outputs)
