"""Nodes that move nothing, or undo what the node before them did.

Exporters write an operator wherever a framework's function was called, also where the numbers make
it do nothing: a pool of one element, a slice of everything, two reshapes in a row. Later passes and
the fusion see through the network better without them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.ir.rewrite import Rewriter
from verax.ir.text import parse_graph
from verax.ir.types import TensorType
from verax.ops.movement.padding import Pad
from verax.ops.movement.reshaping import Expand, Flatten, Reshape, Squeeze, Tile, Unsqueeze
from verax.ops.movement.slicing import Concat, Slice, Split, slice_bounds
from verax.ops.pointwise.arithmetic import Max, Mean, Min, Sum
from verax.ops.pointwise.cast import Cast
from verax.ops.windows.pooling import MaxPool
from verax.records.trace import Trace

RESHAPES = (Reshape, Flatten, Squeeze, Unsqueeze)
"""Operators that keep the elements in their order and count."""
ALONE = (Concat, Max, Min, Sum, Mean)
"""Operators that hand a single input on."""


def canonicalize(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Remove nodes that hand a value on, and pairs that undo each other; join reshapes and pads.

    Given:  %b = Reshape()(%a, [3, 10]); %c = Reshape()(%b, [1, 2, 3, 5])
            %d = MaxPool(kernel_shape=(1, 1))(%c); %e = Relu()(%d)
    Result: %c = Reshape()(%a, [1, 2, 3, 5]); %e = Relu()(%c)

    Removed are: pools of the largest of one element, pads of nothing, reshapes, expansions, tilings
    and slices that give the shape they get, casts to the same type, Concat, Max, Min, Sum and Mean
    of one input; Concat of all parts of a Split, Split into the parts of a Concat, and the Slice of
    a Concat that is one of its parts. Joined are reshapes in a row and pads of one constant.

    Numeric effect: none; elements are handed on or moved. A mean over one element is kept: its
    promised sum begins at +0, so that it makes -0 to +0.
    """
    return _Canonical(graph, limit).run()


def example() -> Graph:
    """What `verax passes` shows."""
    return parse_graph(
        """
        graph "canonicalize"
        input %a: float32[2, 3, 5]
        const %s: int64[2] = [3, 10]
        const %t: int64[4] = [1, 2, 3, 5]
        %b: float32[3, 10] = Reshape()(%a, %s)
        %c: float32[1, 2, 3, 5] = Reshape()(%b, %t)
        %d: float32[1, 2, 3, 5] = MaxPool(kernel_shape=(1, 1))(%c)
        %e: float32[1, 2, 3, 5] = Relu()(%d)
        output %e
        """
    )


class _Canonical:
    """`producers`: the node that defines each NEW value."""

    def __init__(self, graph: Graph, limit: int | None) -> None:
        self.graph = graph
        self.rewriter = Rewriter(graph, limit)
        self.producers: dict[str, Node] = {}

    def run(self) -> tuple[Graph, Trace]:
        for node in self.graph.nodes:
            if self.rewriter.spent or not self._rewrite(node):
                self._record(self.rewriter.keep(node))
        return self.rewriter.finish()

    def _record(self, node: Node) -> None:
        self.producers.update(dict.fromkeys(node.outputs, node))

    def _rewrite(self, node: Node) -> bool:
        is_output = any(v in self.graph.outputs for v in node.outputs)
        source = self.rewriter.map(node.inputs[0]) if node.inputs else None
        if source is None:
            return False
        values = None if is_output else self._same(node, source)
        if values is not None:
            self.rewriter.replace(node, values, "canonicalize")
            return True
        inputs = self._fused_inputs(node, source)
        if inputs is None:
            return False
        op: Operator = node.op
        if isinstance(op, RESHAPES):
            op = Reshape(allowzero=0 in self.graph.types[node.outputs[0]].shape)
        output = self.rewriter.add(op, inputs, node.name, self.rewriter.names(node))
        self._record(self.rewriter.new.nodes[-1])
        self.rewriter.replace(node, output, "canonicalize")
        return True

    # --- nodes that give NEW values that are there already

    def _same(self, node: Node, source: str) -> list[str] | None:
        """The NEW values that the node's outputs are equal to."""
        op = node.op
        if isinstance(op, Split):
            return self._concat_inputs(node, source)
        if len(node.outputs) != 1:
            return None
        if isinstance(op, Concat) and len(node.inputs) > 1:
            return self._split_input(node, source)
        if isinstance(op, Slice):
            return self._sliced(node, source)
        before = self.producers.get(source)
        if isinstance(op, RESHAPES) and before is not None and isinstance(before.op, RESHAPES):
            first = before.inputs[0]
            if first is not None and self.rewriter.type_of(first) == self._type(node.outputs[0]):
                return [first]
        holds = next((rule for kind, rule in SAME.items() if isinstance(op, kind)), None)
        if holds is None or self._type(node.outputs[0]) != self.rewriter.type_of(source):
            return None
        return [source] if holds(self, node) else None

    def _type(self, value: str) -> TensorType | None:
        """The type of an OLD value; None when a size is symbolic."""
        type_ = self.graph.types[value]
        return type_ if type_.is_static else None

    def _concat_inputs(self, node: Node, source: str) -> list[str] | None:
        """The input of a Split into one output, or the inputs of a Concat that it undoes."""
        assert isinstance(node.op, Split)
        if len(node.outputs) == 1:
            return [source]
        before, rank = self.producers.get(source), self.graph.types[node.outputs[0]].rank
        if before is None or not isinstance(before.op, Concat):
            return None
        if before.op.axis % rank != node.op.axis % rank:
            return None
        concatenated = [v for v in before.inputs if v is not None]
        types = [self.rewriter.type_of(v) for v in concatenated]
        return concatenated if types == [self._type(v) for v in node.outputs] else None

    def _split_input(self, node: Node, source: str) -> list[str] | None:
        """The input of the Split whose outputs a Concat joins, all in order on its axis."""
        assert isinstance(node.op, Concat)
        before, rank = self.producers.get(source), self.graph.types[node.outputs[0]].rank
        if before is None or not isinstance(before.op, Split):
            return None
        if before.op.axis % rank != node.op.axis % rank:
            return None
        split_input = before.inputs[0]
        operands = tuple(self.rewriter.map(v) for v in node.inputs)
        return [split_input] if split_input is not None and operands == before.outputs else None

    def _sliced(self, node: Node, source: str) -> list[str] | None:
        """The input of a Slice that takes all of it, or the one input of a Concat that it takes."""
        windows = self._windows(node)
        if windows is None:
            return None
        shape = self.rewriter.type_of(source).shape
        cut = [
            axis
            for axis, ((begin, end), size) in enumerate(zip(windows, shape))
            if not (same(begin, 0) and same(end, size))
        ]
        if not cut:
            return [source]
        before = self.producers.get(source)
        if before is None or not isinstance(before.op, Concat) or len(cut) != 1:
            return None
        axis = before.op.axis % len(shape)
        operands = [v for v in before.inputs if v is not None]
        ends = np.cumsum([0, *(self.rewriter.type_of(v).shape[axis] for v in operands)])
        for operand, (begin, end) in zip(operands, pairwise(ends.tolist())):
            if cut[0] == axis and windows[axis] == (begin, end) and end > begin:
                return [operand]
        return None

    def _windows(self, node: Node) -> list[tuple[int, int]] | None:
        """(begin, end) that a Slice takes of each axis; None unless constant and in steps of 1."""
        source = node.inputs[0]
        bounds = [self._constant(v) for v in node.inputs[1:]]
        if source is None or self._type(source) is None or self._type(node.outputs[0]) is None:
            return None
        if any(v is not None and g is None for v, g in zip(node.inputs[1:], bounds)):
            return None
        starts, ends, axes, steps = (*bounds, None, None)[:4]
        if starts is None or ends is None or (steps is not None and np.any(steps != 1)):
            return None
        shape = self.graph.types[source].shape
        windows = [(0, size) for size in shape]
        sliced_axes = range(starts.size) if axes is None else axes.ravel().tolist()
        for axis, start, end in zip(sliced_axes, starts.ravel().tolist(), ends.ravel().tolist()):
            begin, count = slice_bounds(shape[axis], start, end, 1)
            windows[axis % len(shape)] = begin, begin + count  # type: ignore[assignment]
        return windows

    def _constant(self, value: str | None) -> np.ndarray | None:
        """The content of an OLD value that is a constant in the new graph."""
        return self.rewriter.constant_of(self.rewriter.map(value))

    def _pads_nothing(self, node: Node) -> bool:
        widths = self._constant(node.inputs[1])
        return widths is not None and not np.any(widths)

    def _pools_one(self, node: Node) -> bool:
        """A window of one element in each place: nothing is skipped, as the sizes are the same."""
        assert isinstance(node.op, MaxPool)
        return all(k == 1 for k in node.op.kernel_shape) and all(s == 1 for s in node.op.strides)

    def _always(self, node: Node) -> bool:
        return True

    def _is_alone(self, node: Node) -> bool:
        return len(node.inputs) == 1

    # --- nodes that do what two did

    def _fused_inputs(self, node: Node, source: str) -> list[str | None] | None:
        """NEW inputs with which the node also does the work of the node that makes its input."""
        before, result = self.producers.get(source), self._type(node.outputs[0])
        if before is None or before.inputs[0] is None or result is None:
            return None
        if isinstance(node.op, RESHAPES) and isinstance(before.op, RESHAPES):
            shape = np.array(result.shape, np.int64 if result.is_fixed else object)
            return [before.inputs[0], self.rewriter.constant(shape)]
        if isinstance(node.op, Pad) and isinstance(before.op, Pad):
            return self._fused_pad(node, before)
        return None

    def _fused_pad(self, node: Node, before: Node) -> list[str | None] | None:
        rank = self.graph.types[node.outputs[0]].rank
        new_node = Node(node.op, tuple(self.rewriter.map(v) for v in node.inputs), node.outputs)
        first, second = self._padding(before, rank), self._padding(new_node, rank)
        if first is None or second is None or first[1] != second[1]:
            return None
        widths = self.rewriter.constant(first[0] + second[0])
        return [before.inputs[0], widths, *new_node.inputs[2:3]]

    def _padding(self, node: Node, rank: int) -> tuple[np.ndarray, bytes] | None:
        """Widths int64 [2 rank] and the bytes of the fill of a NEW Pad that adds a constant."""
        assert isinstance(node.op, Pad) and node.inputs[0] is not None
        parameters = [self.rewriter.constant_of(v) for v in node.inputs[1:]]
        if any(v is not None and g is None for v, g in zip(node.inputs[1:], parameters)):
            return None
        pads, fill, axes = (*parameters, None, None)[:3]
        if node.op.mode != "constant" or pads is None or np.any(pads < 0):
            return None
        dtype = self.rewriter.type_of(node.inputs[0]).dtype.numpy
        widths = np.zeros((2, rank), np.int64)
        padded_axes = np.arange(rank) if axes is None else axes.ravel() % rank
        widths[:, padded_axes] = pads.reshape(2, -1)
        return widths.ravel(), (np.zeros((), dtype) if fill is None else fill).tobytes()


SAME: dict[type | tuple[type, ...], Callable[[_Canonical, Node], bool]] = {
    (*RESHAPES, Expand, Tile, Cast): _Canonical._always,
    Pad: _Canonical._pads_nothing,
    MaxPool: _Canonical._pools_one,
    ALONE: _Canonical._is_alone,
}
"""When a node of a kind hands its first input on, given that the type stays the same."""
