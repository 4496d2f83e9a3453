"""Where an error of a value grows without bound: which operator that it reaches amplifies it.

An approximation errs relative to the largest of several numbers. That is harmless until what it
made reaches an operator whose gain is not bounded (`ir.gains`), and harmless again once it is added
to something of its own size, whose rounding is as large. All errors that are asked about are
followed at once, node by node, so that a network takes time proportional to its nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from verax.ir.gains import Gain
from verax.ir.graph import Graph, Node
from verax.ir.operator import Inference
from verax.ir.types import TensorType

Axes = frozenset[int]
Kind = tuple[Axes, bool]
"""The axes that numbers share an error along; whether a group of numbers that is small as a whole
has errors as small, which ends where large ones are cut off (Relu)."""
Errors = Mapping[Kind, int]
"""By their kind: which errors, a bit for each value asked about."""


def amplifiers(graph: Graph, errors: Mapping[str, Iterable[int]]) -> dict[str, Node]:
    """The first node by which the error of a value may become as large as the value itself, for
    those values that have one.

    errors: value -> the axes along which numbers share an error: each errs relative to the largest
    of its neighbors along them. No axes: relative to the sum of products that it is.
    """
    traversal = _Walk(
        graph, {v: frozenset(a % graph.types[v].rank for a in e) for v, e in errors.items()}
    )
    return traversal.run()


class _Walk:
    """One pass over the nodes, in order; more where a network's state hands errors on."""

    def __init__(self, graph: Graph, errors: Mapping[str, Axes]) -> None:
        self.graph, self.errors = graph, errors
        self.names = tuple(errors)
        self.bits = {v: 1 << i for i, v in enumerate(errors)}
        self.reached: dict[str, dict[Kind, int]] = {}
        self.found: dict[str, Node] = {}
        self.amplified = 0

    def run(self) -> dict[str, Node]:
        for value in (*self.graph.inputs, *self.graph.constants):
            self._begin(value)
        while True:
            for node in self.graph.nodes:
                self._node(node)
            if not self._hand_on():
                return self.found

    def _begin(self, value: str) -> None:
        if value in self.bits:
            self._reach(value, {(self.errors[value], True): self.bits[value]})

    def _hand_on(self) -> bool:
        """Whether the next run begins with errors in the network's state that are new."""
        before = {v: dict(self.reached.get(v, {})) for v in self.graph.updates}
        for value, new in self.graph.updates.items():
            self._reach(value, self.reached.get(new, {}))
        return any(self.reached.get(v, {}) != e for v, e in before.items())

    def _reach(self, value: str, errors: Errors) -> None:
        type_ = self.graph.types[value]
        if not type_.dtype.is_float:
            return
        for (axes, relative), bits in errors.items():
            shared = frozenset(a for a in axes if type_.dims[a] != 1), relative
            if left := bits & ~self.amplified:
                own = self.reached.setdefault(value, {})
                own[shared] = own.get(shared, 0) | left

    def _node(self, node: Node) -> None:
        ctx: Inference | None = None
        for index, value in enumerate(node.inputs):
            errors = self.reached.get(value or "")
            if errors:
                if ctx is None:
                    ctx = Inference(
                        self.graph.input_types(node), self.graph.constant_inputs(node), node.place
                    )
                self._pass_on(node, ctx, index, errors)
        for value in node.outputs:
            self._begin(value)

    def _pass_on(self, node: Node, ctx: Inference, index: int, errors: Errors) -> None:
        """What the node's outputs get of the errors of one input."""
        gain = node.op.gain(ctx, index)
        if gain.gain is Gain.none:
            return
        over, left = frozenset(gain.axes), dict[Kind, int]()
        beside = self._errors_beside(node, index) if gain.gain is Gain.added else ~0
        alone = gain.gain is Gain.added and beside == ~0  # but for constants
        keeps = alone or gain.gain in (Gain.proportional, Gain.normalized)
        single = all(ctx.type(index).dims[a] == 1 for a in over)
        for (axes, relative), bits in errors.items():
            amplifies = gain.gain is Gain.unbounded or (
                gain.gain is Gain.normalized and not (axes <= over and (relative or gain.guarded))
            )
            absorbs = gain.gain is Gain.summed and axes <= over and not single
            if amplifies:
                self._amplify(node, bits)
            elif not absorbs:
                shared_axes = axes if gain.gain is Gain.normalized else axes - over
                kind = shared_axes, relative and keeps
                left[kind] = left.get(kind, 0) | (bits & beside)
        for value in node.outputs:
            output = self.graph.types[value]
            outgoing: dict[Kind, int] = defaultdict(int)
            for (axes, relative), bits in left.items():
                axes_out = node.op.moved_axes(ctx, index, axes, output) if axes else axes
                outgoing[_all_axes(output) if axes_out is None else axes_out, relative] |= bits
            self._reach(value, outgoing)

    def _errors_beside(self, node: Node, index: int) -> int:
        """The errors that all else has that a node adds to this input."""
        shared = ~0
        for i, value in enumerate(node.inputs):
            if i != index and value is not None and value not in self.graph.constants:
                bits = 0
                for own in self.reached.get(value, {}).values():
                    bits |= own
                shared &= bits
        return shared

    def _amplify(self, node: Node, bits: int) -> None:
        new = bits & ~self.amplified
        self.amplified |= new
        while new:
            self.found[self.names[new.bit_length() - 1]] = node
            new ^= 1 << new.bit_length() - 1


def _all_axes(type_: TensorType) -> Axes:
    return frozenset(range(type_.rank))
