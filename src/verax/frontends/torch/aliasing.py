"""Writing in place, told without writing: what a name means after `add_` and its like.

PyTorch's programs may write into a tensor whose memory other tensors show (views). Here a name is
bound to a new value by each write: a view's new content is put into the tensor that it shows, and
other views of the same memory are taken again when they are next read. Which results are views
follows from the operators, and for those that copy only when they must (contiguous, reshape, to)
from the strides that the program records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.base.errors import GraphError, UnsupportedError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.torch.arguments import Ref, dim
from verax.ir.dim import DimLike, symbol
from verax.ir.dim_forms import parse_dim

SAME_ORDER = frozenset(
    [
        *("view", "_unsafe_view", "unflatten", "squeeze", "unsqueeze", "detach", "alias"),
        *("view_as", "dropout", "feature_dropout", "lift_fresh", "positive"),
        *("reshape", "reshape_as", "flatten", "contiguous", "to", "type_as", "float"),
    ]
)
"""Views whose elements lie in the order of what they show."""
RESHAPES = frozenset(["reshape", "reshape_as", "flatten"])
COPIES = frozenset(["to", "type_as", "float"])
TURNED = frozenset(
    [
        *("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis"),
        *("numpy_T", "mT", "mH", "matrix_H", "adjoint"),
    ]
)
PARTS = frozenset(["slice", "select", "narrow"])
CUTS = frozenset(["split", "split_with_sizes", "chunk", "unbind"])
READ_ONLY = frozenset(
    [
        *("expand", "expand_as", "broadcast_to", "diagonal", "unfold", "meshgrid", "as_strided"),
        *("conj", "_conj", "resolve_conj", "resolve_neg", "real", "imag"),
        *("view_as_complex", "view_as_real"),
    ]
)
"""Views that show an element several times, in a pattern that is not written through here, or parts
of complex numbers."""
BROADCASTS = "broadcast_tensors"
"""Gives views of all of its operands, though its signature does not say so."""
VIEWS = SAME_ORDER | TURNED | PARTS | CUTS | READ_ONLY


@dataclass
class TensorView:
    """How a value shows memory of `parent`: the node's output `index`; `names` are all of these."""

    parent: str
    node: ForeignNode
    index: int
    names: tuple[str, ...]


@dataclass
class Aliases:
    """What every name of the program means now.

    strides: recorded (sizes, strides) by name. last_read: position of the last node that reads a
    name. emit: appends a node.
    """

    recorded: Mapping[str, Any]
    last_read: Mapping[str, int]
    emit: Callable[[ForeignNode], None]
    current: dict[str, str] = field(default_factory=dict)
    views: dict[str, TensorView] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)

    def root(self, name: str) -> str:
        """The value in whose memory `name` lies."""
        while name in self.views:
            name = self.views[name].parent
        return name

    def note(self, node: ForeignNode, operands: tuple[str, ...], names: tuple[str, ...]) -> None:
        """Remember a node's outputs as views of its first operand, when they are. `operands` and
        `names` of outputs are those of the program."""
        kind = node.op_type.partition(".")[0]
        if node.domain == "aten" and kind == BROADCASTS:
            for operand, output in zip(operands, node.outputs):
                if output:
                    self._enter(
                        output, TensorView(operand, self._broadcast(operand, output), 0, names)
                    )
            return
        if node.domain != "aten" or kind not in VIEWS or not operands:
            return
        for i, output in enumerate(node.outputs):
            if output and self._shares(kind, node, operands[0], output):
                self._enter(output, TensorView(operands[0], node, i, names))

    def _enter(self, output: str, view: TensorView) -> None:
        self.views[output] = view
        root = self.root(output)
        self.members.setdefault(root, []).append(output)
        self.seen[output] = self.written.get(root, 0)

    def _broadcast(self, operand: str, output: str) -> ForeignNode:
        """What one result of `broadcast_tensors` is of its operand: the same tensor, or a view that
        shows elements several times."""
        if self.recorded[operand]["sizes"] == self.recorded[output]["sizes"]:
            return _alias(operand, output)
        sizes = tuple(dim(n) for n in self.recorded[output]["sizes"])
        arguments = {"self": Ref(0, operand), "size": sizes}
        return ForeignNode("expand.default", (operand,), (output,), arguments, output, "aten")

    def _shares(self, kind: str, node: ForeignNode, x: str, y: str) -> bool:
        """Whether `y` lies in the memory of `x`, for operators that may copy."""
        source, result = self.recorded[x], self.recorded[y]
        if kind in COPIES:
            return bool(source["dtype"] == result["dtype"] and not node.attributes.get("copy"))
        if kind == "contiguous":
            return _layout(source) == _layout(result)
        if kind in RESHAPES:
            return _dense(source) or not _dense(result)
        return True

    # Reading

    def read(self, name: str) -> str:
        """The value that a name means now."""
        root = self.root(name)
        if name in self.views and self.seen[name] < self.written.get(root, 0):
            self._look_again(name)
        return self.current.get(name, name)

    def _look_again(self, name: str) -> None:
        """Take a view of what its parent is now."""
        view = self.views[name]
        parent = self.read(view.parent)
        node, version = view.node, self.written[self.root(name)]
        outputs = ["" for _ in node.outputs]
        outputs[view.index] = self.current[name] = f"{name}.{version}"
        self.seen[name] = version
        inputs = (parent, *node.inputs[1:])
        self.emit(_node(node.op_type, inputs, tuple(outputs), node.attributes, node))

    # Writing

    def write(self, node: ForeignNode, target: str, position: int) -> None:
        """`node` writes into `target`: the same node giving a new value, which `target` now means,
        as does whatever shows the same memory and is read later."""
        output = node.outputs[0] or f"{node.name}.written"
        name, _, overload = node.op_type.partition(".")
        root = self.root(target)
        self.emit(_node(f"{name[:-1]}.{overload}", node.inputs, (output,), node.attributes, node))
        self.assign(target, output, node, position)
        if node.outputs[0]:
            # The result is another name of what was written to.
            self.views[node.outputs[0]] = TensorView(
                target, _alias(target, node.outputs[0]), 0, node.outputs
            )
            self.members.setdefault(root, []).append(node.outputs[0])
            self.seen[node.outputs[0]] = self.written.get(root, 0)

    def assign(self, target: str, value: str, writer: ForeignNode, position: int) -> None:
        """Rebind `target` to `value`, and its aliases to views of it."""
        root = self.root(target)
        aliases = [n for n in (root, *self.members.get(root, ())) if n != target]
        self.current[target] = value
        if any(self.last_read.get(n, -1) > position for n in aliases):
            self._spread(target, writer)

    def _spread(self, target: str, writer: ForeignNode) -> None:
        """Put the new content of a view into what it shows, up to the root."""
        root = self.root(target)
        chain = [target]
        while target in self.views:
            view = self.views[target]
            parent = self.read(view.parent)
            self.current[view.parent] = self._filled(view, parent, self.current[target], writer)
            target = view.parent
            chain.append(target)
        self.written[root] = self.written.get(root, 0) + 1
        for name in chain:
            self.seen[name] = self.written[root]

    def _filled(self, view: TensorView, parent: str, content: str, writer: ForeignNode) -> str:
        """`parent` with the elements that `view` shows replaced by `content`."""
        result = f"{view.parent}.{self.written.get(self.root(view.parent), 0) + 1}.{writer.name}"
        kind, arguments = view.node.op_type.partition(".")[0], view.node.attributes
        refs = {"self": Ref(0, parent), "src": Ref(1, content)}
        if kind == "alias":
            return content
        if kind in SAME_ORDER:
            operands = {"self": Ref(0, content), "other": Ref(1, parent)}
            self.emit(_node("view_as.default", (content, parent), (result,), operands, writer))
        elif kind in TURNED:
            self.emit(self._inverse_view(view, content, result, writer))
        elif kind in PARTS or kind in CUTS:
            name, location = self._scatter_operator(view, kind, arguments)
            inputs = (parent, content, *view.node.inputs[1:])
            self.emit(_node(name, inputs, (result,), {**refs, **location}, writer))
        else:
            self._refuse(view, writer)
        return result

    def _inverse_view(
        self, view: TensorView, content: str, result: str, writer: ForeignNode
    ) -> ForeignNode:
        kind, arguments = view.node.op_type.partition(".")[0], dict(view.node.attributes)
        arguments["self"] = Ref(0, content)
        if kind == "permute":
            dims = [d % len(arguments["dims"]) for d in arguments["dims"]]
            arguments["dims"] = tuple(dims.index(i) for i in range(len(dims)))
        elif kind in ("movedim", "moveaxis"):
            arguments["source"], arguments["destination"] = (
                arguments["destination"],
                arguments["source"],
            )
        return _node(view.node.op_type, (content,), (result,), arguments, writer)

    def _scatter_operator(
        self, view: TensorView, kind: str, arguments: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """(operator that writes the elements which the view reads, arguments for the location)."""
        location = {k: _shifted_ref(v) for k, v in arguments.items() if k != "self"}
        if kind in ("slice", "select"):
            return f"{kind}_scatter.default", location
        axis = location.get("dim", 0)
        if kind == "unbind":
            return "select_scatter.default", {"dim": axis, "index": view.index}
        if kind == "narrow":
            start, length = location["start"], location["length"]
        else:
            sizes = [self.recorded[o]["sizes"][axis]["as_int"] for o in view.names]
            start, length = sum(sizes[: view.index]), sizes[view.index]
        return "slice_scatter.default", {"dim": axis, "start": start, "end": start + length}

    def _refuse(self, view: TensorView, writer: ForeignNode) -> None:
        raise UnsupportedError(
            f"{writer.op_type} writes through {view.node.op_type} into memory that is read later",
            place=writer.place,
            next_step="use the operator that returns a new tensor, and export again",
        )


def _shifted_ref(value: Any) -> Any:
    """An argument for a node with one more tensor in front: a `Ref` to the next input."""
    return Ref(value.index + 1, value.name) if isinstance(value, Ref) else value


def _node(
    op_type: str,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    attributes: Mapping[str, Any],
    like: ForeignNode,
) -> ForeignNode:
    return ForeignNode(op_type, inputs, outputs, attributes, like.name, "aten", like.version)


def _alias(value: str, name: str) -> ForeignNode:
    return ForeignNode("alias.default", (value,), (name,), {"self": Ref(0, value)}, name, "aten")


def _layout(meta: Mapping[str, Any]) -> list[tuple[DimLike, DimLike]]:
    """Sizes and strides of the axes that have more than one element."""
    axes = [(_parsed_size(n), _parsed_size(s)) for n, s in zip(meta["sizes"], meta["strides"])]
    return [(n, s) for n, s in axes if n != 1]


def _parsed_size(size: Mapping[str, Any]) -> DimLike:
    """A recorded size or stride; text that is no arithmetic stands for itself."""
    value = dim(size)
    try:
        return value if isinstance(value, int) else parse_dim(value)
    except GraphError:
        return symbol(str(value))


def _dense(meta: Mapping[str, Any]) -> bool:
    """Whether elements follow each other in memory in row-major order."""
    expected: DimLike = 1
    for size, stride in reversed(_layout(meta)):
        if stride != expected:
            return False
        expected = size * expected
    return True
