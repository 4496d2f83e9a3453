"""Transpositions move towards the outputs, meet, and cancel.

A network that was written channels-last arrives as Transpose, Conv, Transpose at every layer. Each
transposition is put off until a node needs the axes in their old places; what only touches single
elements, or only joins, cuts and pads axes, is done in the other layout. One that moves only axes
of size 1 leaves the elements where they are: it is a Reshape.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import Flatten, Reshape, Squeeze, Transpose, Unsqueeze
from verax.ops.movement.slicing import Concat, Slice, Split
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.pointwise.identity import Identity
from verax.ops.quantized.requantization import Requantize
from verax.records.trace import Trace

Perm = tuple[int, ...]
RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)


def cancel_transposes(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Put transpositions off past nodes that take single elements, and cancel those that meet.

    Given:  %b = Transpose(perm=(0, 2, 3, 1))(%a); %c = Relu()(%b)
            %d = Transpose(perm=(0, 3, 1, 2))(%c); %e = Conv()(%d, %w)
    Result: %c = Relu()(%a); %e = Conv()(%c, %w)

    They go past elementwise nodes, Requantize, Concat, Split, Slice and Pad, and in front of a Pad
    that nothing else reads, so that a convolution behind them can take it in. Those that leave the
    elements in their order become a Reshape.

    Numeric effect: none; elements move, no arithmetic changes its operands or its order.
    Reductions, softmax and pools keep the layout they had, because their canonical order of
    accumulation follows it.
    """
    if not any(isinstance(n.op, Transpose) for n in graph.nodes):
        return graph, Trace({v: v for v in graph.types})
    return _TransposeMover(graph, limit).run()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "cancel_transposes"
        input %a: float32[2, 1, 3, 5]
        const %w: float32[1, 1, 2, 2] = [1.0, -0.5, 0.25, 2.0]
        %b: float32[2, 3, 5, 1] = Transpose(perm=(0, 2, 3, 1))(%a)
        %c: float32[2, 3, 5, 1] = Relu()(%b)
        %d: float32[2, 1, 3, 5] = Transpose(perm=(0, 3, 1, 2))(%c)
        %e: float32[2, 1, 2, 4] = Conv()(%d, %w)
        output %e
        """
    )


class _TransposeMover:
    """`late` holds the transpositions not done yet: old value -> (NEW value, permutation).

    pads: NEW value -> the NEW Pad that makes it for a single reader.
    """

    def __init__(self, graph: Graph, limit: int | None) -> None:
        self.graph = graph
        self.rewriter = Rewriter(graph, limit)
        self.late: dict[str, tuple[str, Perm]] = {}
        self.done: dict[tuple[str, Perm], str] = {}
        self.pads: dict[str, Node] = {}

    def run(self) -> tuple[Graph, Trace]:
        for node in self.graph.nodes:
            if isinstance(node.op, Transpose) and not self.rewriter.spent:
                self._transpose(node, node.op)
            elif self.rewriter.spent or not (
                self._rewrite_in_layout(node) or self._rewrite_reshape(node)
            ):
                self._settle(node)
                self._record_pad(node, self.rewriter.keep(node))
        return self.rewriter.finish()

    def _transpose(self, node: Node, op: Transpose) -> None:
        """Compose with the pending transposition of its input; emit it only for a graph output."""
        source, value = node.inputs[0], node.outputs[0]
        assert source is not None
        rank = self.graph.types[source].rank
        perm = tuple(reversed(range(rank))) if op.perm is None else op.perm
        perm = tuple(p % rank for p in perm)
        if source in self.late:
            base, before = self.late[source]
        else:
            base, before = self.rewriter.values[source], tuple(range(rank))
        composed = tuple(before[p] for p in perm)
        names = self.rewriter.names(node)
        if composed == tuple(range(rank)) and value not in self.graph.outputs:
            self.rewriter.replace(node, base, "cancel_transposes")
        elif composed == tuple(range(rank)):
            output = self.rewriter.add(Identity(), [base], node.name, names)
            self.rewriter.replace(node, output, "cancel_transposes")
        elif value in self.graph.outputs:
            if source in self.late:
                self.rewriter.record(node, "cancel_transposes")
            self.rewriter.values[value] = self._emit_transpose(base, composed, node.name, names)
        else:
            self.late[value] = base, composed

    def _settle(self, node: Node) -> None:
        """Do now what was put off for the node's inputs."""
        for value in node.inputs:
            if value in self.late:
                self._materialize(value)

    def _materialize(self, value: str) -> None:
        base, perm = self.late[value]
        if (base, perm) not in self.done:
            name = value if value not in self.rewriter.new.types else ""
            self.done[base, perm] = self._emit_transpose(base, perm, "", [name] if name else [])
        self.rewriter.values[value] = self.done[base, perm]

    def _emit_transpose(self, base: str, perm: Perm, name: str, outputs: Sequence[str]) -> str:
        """The NEW value [permuted dims of base], emitted for a pending transposition."""
        add, new = self.rewriter.add, self.rewriter.new
        pad = self.pads.get(base)
        if self.rewriter.spent or not (pad is not None or self._in_order(base, perm)):
            return add(Transpose(perm=perm), [base], name, outputs)
        note = f"cancel_transposes: the axes {perm} of {base!r}"
        self.rewriter.record_values([base], note)
        if pad is None:
            shape = [new.types[base].shape[p] for p in perm]
            return add(*self._reshape(base, shape), name, outputs)
        source, widths = pad.inputs[:2]
        transposed_widths = new.constants[widths or ""].reshape(2, -1)[:, list(perm)].reshape(-1)
        inner = new.fresh(f"{outputs[0] if outputs else base}.inner")
        first = add(Transpose(perm=perm), [source], "", [inner])
        return add(
            pad.op,
            [first, self.rewriter.constant(transposed_widths), *pad.inputs[2:]],
            name,
            outputs,
        )

    def _in_order(self, base: str, perm: Perm) -> bool:
        """Whether only axes of size 1 change places."""
        type_ = self.rewriter.new.types[base]
        wide = [p for p in perm if not same(type_.dims[p], 1)]
        return type_.is_static and wide == sorted(wide)

    def _reshape(self, base: str, shape: Sequence[int]) -> tuple[Operator, list[str | None]]:
        is_fixed = all(isinstance(n, int) for n in shape)
        new_shape = self.rewriter.constant(np.array(shape, np.int64 if is_fixed else object))
        return Reshape(allowzero=0 in shape), [base, new_shape]

    def _rewrite_reshape(self, node: Node) -> bool:
        """True if the node is a reshape of a pending transposition that leaves the elements in
        row-major order; the reshape then reads the untransposed value."""
        source, value = node.inputs[0] if node.inputs else None, node.outputs[0]
        if not isinstance(node.op, RESHAPES) or source not in self.late or source is None:
            return False
        if not self._in_order(*self.late[source]) or not self.graph.types[value].is_static:
            return False
        op, inputs = self._reshape(self.late[source][0], self.graph.types[value].shape)
        output = self.rewriter.add(op, inputs, node.name, self.rewriter.names(node))
        self.rewriter.replace(node, output, "cancel_transposes")
        return True

    def _record_pad(self, node: Node, new_pad: Node) -> None:
        """Record a Pad with constant widths on all axes that only one node reads."""
        value = node.outputs[0]
        if not isinstance(node.op, Pad) or len(node.inputs) > 3 or value in self.graph.outputs:
            return
        widths = self.rewriter.constant_of(new_pad.inputs[1])
        if widths is None or widths.size != 2 * self.graph.types[value].rank:
            return
        if np.all(widths >= 0) and len(self.graph.consumers.get(value, ())) == 1:
            self.pads[new_pad.outputs[0]] = new_pad

    def _rewrite_in_layout(self, node: Node) -> bool:
        """True if the node was computed in the layout of its untransposed inputs; its outputs'
        transpositions are then pending."""
        if any(v in self.graph.outputs for v in node.outputs):
            return False
        perms = {self.late[v][1] for v in node.inputs if v in self.late}
        if len(perms) != 1:
            return False
        (perm,) = perms
        op_and_inputs = self._in_layout(node, perm)
        if op_and_inputs is None:
            return False
        op, inputs = op_and_inputs
        values = self.rewriter.add_all(op, inputs, node.name)
        self.rewriter.record(node, "cancel_transposes")
        self.late.update((old, (new, perm)) for old, new in zip(node.outputs, values, strict=True))
        return True

    def _in_layout(self, node: Node, perm: Perm) -> tuple[Operator, list[str | None]] | None:
        """The operator and NEW inputs that give the node's result before transposition `perm`."""
        op: Operator = node.op
        inputs: list[str | None] | None = None
        if isinstance(op, Elementwise) and len(node.outputs) == 1:
            inputs = self._operands(node.inputs, perm)
        elif isinstance(op, Concat) and all(v in self.late for v in node.inputs):
            op = dataclasses.replace(op, axis=perm[op.axis % len(perm)])
            inputs = self._operands(node.inputs, perm)
        elif node.inputs[0] not in self.late or any(v in self.late for v in node.inputs[1:]):
            return None
        elif isinstance(op, (Split, Requantize)):
            op = dataclasses.replace(op, axis=perm[op.axis % len(perm)])
            inputs = self._first_late(node)
        elif isinstance(op, Slice):
            inputs = self._slice(node, perm)
        elif isinstance(op, Pad) and len(node.inputs) <= 3:
            return self._pad(node, perm)
        return None if inputs is None else (op, inputs)

    def _first_late(self, node: Node) -> list[str | None]:
        """The first input untransposed, the others as they are."""
        return [
            self.late[node.inputs[0] or ""][0],
            *(self.rewriter.map(v) for v in node.inputs[1:]),
        ]

    def _slice(self, node: Node, perm: Perm) -> list[str | None] | None:
        """Inputs of a Slice with constant axes, renumbered to those of the untransposed input."""
        starts, axes = node.inputs[1], node.inputs[3] if len(node.inputs) > 3 else None
        if starts is None or (axes is not None and axes not in self.graph.constants):
            return None
        (count,) = self.graph.types[starts].dims
        if not isinstance(count, int):
            return None
        sliced_axes = self.graph.constants[axes] if axes is not None else np.arange(count)
        old_axes = np.array([perm[int(a) % len(perm)] for a in sliced_axes.ravel()], np.int64)
        inputs = [*self._first_late(node), None, None][:5]
        inputs[3] = self.rewriter.constant(old_axes)
        return inputs if len(node.inputs) > 4 else inputs[:4]

    def _operands(self, values: Sequence[str | None], perm: Perm) -> list[str | None] | None:
        """Inputs in the untransposed layout; None when one of them would need a new node."""
        inputs: list[str | None] = []
        for value in values:
            if value is None:
                inputs.append(None)
            elif value in self.late:
                inputs.append(self.late[value][0])
            elif self.graph.types[value].rank == 0:
                inputs.append(self.rewriter.map(value))
            elif value in self.graph.constants:
                array = self.graph.constants[value]
                if array.ndim > len(perm):
                    return None
                wide = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
                transposed = np.ascontiguousarray(np.transpose(wide, np.argsort(perm)))
                inputs.append(self.rewriter.constant(transposed))
            else:
                return None
        return inputs

    def _pad(self, node: Node, perm: Perm) -> tuple[Operator, list[str | None]] | None:
        source, widths = node.inputs[0], self.graph.constants.get(node.inputs[1] or "")
        assert source is not None
        if widths is None or widths.shape != (2 * len(perm),):
            return None
        old_widths = widths.reshape(2, -1)[:, np.argsort(perm)].reshape(-1)
        fill_and_axes = [self.rewriter.map(v) for v in node.inputs[2:]]
        return node.op, [self.late[source][0], self.rewriter.constant(old_widths), *fill_and_axes]
