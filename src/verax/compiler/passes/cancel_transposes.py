"""Transpositions move towards the outputs, meet, and cancel.

A network that was written channels-last arrives as Transpose, Conv, Transpose at every layer. Each
transposition is put off until a node needs the axes in their old places; what only touches single
elements, or only joins and pads axes, is done in the other layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ops.elementwise import Elementwise
from verax.ops.identity import Identity
from verax.ops.padding import Pad
from verax.ops.reshaping import Transpose
from verax.ops.slicing import Concat
from verax.records.trace import Trace

Perm = tuple[int, ...]


def cancel_transposes(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Put transpositions off past elementwise nodes, Concat and Pad, and cancel those that meet.

    Given:  %b = Transpose(perm=(0, 2, 3, 1))(%a); %c = Relu()(%b)
            %d = Transpose(perm=(0, 3, 1, 2))(%c); %e = Conv()(%d, %w)
    Result: %c = Relu()(%a); %e = Conv()(%c, %w)

    Numeric effect: none; elements move, no arithmetic changes its operands or its order.
    Reductions, softmax and pools keep the layout they had, because their canonical order of
    accumulation follows it.
    """
    if not any(isinstance(n.op, Transpose) for n in graph.nodes):
        return graph, Trace({v: v for v in graph.types})
    return _Mover(graph, limit).run()


class _Mover:
    """`late` holds the transpositions not done yet: old value -> (NEW value, permutation)."""

    def __init__(self, graph: Graph, limit: int | None) -> None:
        self.graph = graph
        self.rewriter = Rewriter(graph, limit)
        self.late: dict[str, tuple[str, Perm]] = {}
        self.done: dict[tuple[str, Perm], str] = {}

    def run(self) -> tuple[Graph, Trace]:
        for node in self.graph.nodes:
            if isinstance(node.op, Transpose) and not self.rewriter.spent:
                self._transpose(node, node.op)
            elif self.rewriter.spent or not self._moved(node):
                self._settle(node)
                self.rewriter.keep(node)
        return self.rewriter.finish()

    def _transpose(self, node: Node, op: Transpose) -> None:
        """Compose with what is put off already; do it only for a graph output."""
        source, value = node.inputs[0], node.outputs[0]
        assert source is not None
        rank = self.graph.types[source].rank
        perm = tuple(reversed(range(rank))) if op.perm is None else op.perm
        perm = tuple(p % rank for p in perm)
        if source in self.late:
            base, before = self.late[source]
        else:
            base, before = self.rewriter.values[source], tuple(range(rank))
        whole = tuple(before[p] for p in perm)
        if whole == tuple(range(rank)):
            if value in self.graph.outputs:
                self._define(node, Identity(), base)
            else:
                self.rewriter.replace(node, base, "cancel_transposes")
        elif value in self.graph.outputs:
            self._define(node, Transpose(perm=whole), base)
        else:
            self.late[value] = base, whole

    def _define(self, node: Node, op: Operator, base: str) -> None:
        made = self.rewriter.add(op, [base], node.name, node.outputs)
        self.rewriter.values[node.outputs[0]] = made

    def _settle(self, node: Node) -> None:
        """Do now what was put off for the node's inputs."""
        for value in node.inputs:
            if value in self.late:
                self._materialise(value)

    def _materialise(self, value: str) -> None:
        base, perm = self.late[value]
        if (base, perm) not in self.done:
            name = value if value not in self.rewriter.new.types else ""
            outputs = [name] if name else ()
            self.done[base, perm] = self.rewriter.add(Transpose(perm=perm), [base], "", outputs)
        self.rewriter.values[value] = self.done[base, perm]

    def _moved(self, node: Node) -> bool:
        """Compute the node in the layout of its inputs and put the transposition off."""
        if any(v in self.graph.outputs for v in node.outputs) or len(node.outputs) != 1:
            return False
        perms = {self.late[v][1] for v in node.inputs if v in self.late}
        if len(perms) != 1:
            return False
        (perm,) = perms
        made = self._in_layout(node, perm)
        if made is None:
            return False
        op, inputs = made
        value = self.rewriter.add(op, inputs, node.name)
        self.rewriter.notes.append(f"cancel_transposes: {node.place}")
        self.late[node.outputs[0]] = value, perm
        return True

    def _in_layout(self, node: Node, perm: Perm) -> tuple[Operator, list[str | None]] | None:
        """The operator and NEW inputs that give the node's result before transposition `perm`."""
        op: Operator = node.op
        if isinstance(op, Elementwise):
            inputs = self._operands(node.inputs, perm)
        elif isinstance(op, Concat) and all(v in self.late for v in node.inputs):
            op = dataclasses.replace(op, axis=perm[op.axis % len(perm)])
            inputs = self._operands(node.inputs, perm)
        elif isinstance(op, Pad) and node.inputs[0] in self.late and len(node.inputs) <= 3:
            return self._pad(node, perm)
        else:
            return None
        return None if inputs is None else (op, inputs)

    def _operands(self, values: Sequence[str | None], perm: Perm) -> list[str | None] | None:
        """Inputs in the untransposed layout; None when one cannot be had for nothing."""
        found: list[str | None] = []
        for value in values:
            if value is None:
                found.append(None)
            elif value in self.late:
                found.append(self.late[value][0])
            elif self.graph.types[value].rank == 0:
                found.append(self.rewriter.map(value))
            elif value in self.graph.constants:
                array = self.graph.constants[value]
                if array.ndim > len(perm):
                    return None
                wide = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
                moved = np.ascontiguousarray(np.transpose(wide, np.argsort(perm)))
                found.append(self.rewriter.constant(moved))
            else:
                return None
        return found

    def _pad(self, node: Node, perm: Perm) -> tuple[Operator, list[str | None]] | None:
        source, widths = node.inputs[0], self.graph.constants.get(node.inputs[1] or "")
        assert source is not None
        if widths is None or widths.shape != (2 * len(perm),):
            return None
        moved = widths.reshape(2, -1)[:, np.argsort(perm)].reshape(-1)
        rest = [self.rewriter.map(v) for v in node.inputs[2:]]
        return node.op, [self.late[source][0], self.rewriter.constant(moved), *rest]
