"""How one node is spelled as ONNX nodes: an emission, and a builder for those that take several.

A group's inner values are named after the node's first output, so that a reader of the file sees
what they belong to. Groups use operators that every operator set written here has (13 and later).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from verax.ir.dim import DimLike
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.onnx_format.dtypes import CODES
from verax.onnx_format.package import helper, onnx
from verax.onnx_format.schemas import fits, schema
from verax.ops.windows.windows import geometry

RENAMED = {"groups": "group", "trans_a": "transA", "trans_b": "transB"}
"""Attributes whose names differ from ONNX's."""
WORDS = {DType.int16, DType.uint16}
"""Types that ONNX or ONNX Runtime lacks for many an operator that only chooses."""
MEANS_OUTPUTS = {"with_indices", "mask", "with_statistics"}
"""Attributes that ONNX expresses by naming further outputs."""


@dataclass
class OnnxEmission:
    """The spelling of one node: nodes (one, as a rule) and constants; or why there is none."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    problem: str = ""


Maker = Callable[[Node, Graph, int], OnnxEmission]
M = TypeVar("M", bound=Callable[..., OnnxEmission])
SPECIAL: dict[str, Maker] = {}
"""Kind of operator -> how it is spelled, where that is not `plain`; filled by `written_for`."""
SINCE = {
    "RoiAlign": 16,
    "Resize": 11,
    "Softmax": 13,
    "LogSoftmax": 13,
    "Hardmax": 13,
    "Split": 13,
    "GridSample": 20,
}
"""First operator set in which the same spelling has today's meaning (the rest shows by itself)."""


def written_for(*kinds: str) -> Callable[[M], M]:
    """Registers the spelling of kinds of operators; each has one."""

    def register(maker: M) -> M:
        for kind in kinds:
            assert kind not in SPECIAL, f"{kind} is spelled already"
            SPECIAL[kind] = maker
        return maker

    return register


def emission_of(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """How `node` is spelled in operator set `version`."""
    kind = node.op.kind
    if version < SINCE.get(kind, 0):
        return OnnxEmission(problem=f"{kind} means something else there")
    return SPECIAL.get(kind, plain)(node, graph, version)


def plain(node: Node, graph: Graph, version: int, **changed: Any) -> OnnxEmission:
    """Same name, same attributes, same inputs. `changed` attributes replace the node's own."""
    attributes: dict[str, Any] = {}
    onnx_schema = schema(node.op.kind, version)
    for name, value in {**node.op.attributes(), **changed}.items():
        if name in MEANS_OUTPUTS:
            continue
        for key, item in spelled(name, value).items():
            # A default that an older operator set has no attribute for needs no saying.
            if (
                onnx_schema is None
                or key in onnx_schema.attributes
                or not _is_default(node, name, value)
            ):
                attributes[key] = item
    return OnnxEmission([onnx_node_of(node, node.op.kind, node.inputs, node.outputs, **attributes)])


def _is_default(node: Node, name: str, value: Any) -> bool:
    return type(node.op).__dataclass_fields__[name].default == value


def spelled(name: str, value: Any) -> dict[str, Any]:
    """An attribute of an operator as ONNX attributes: nothing when it is left open."""
    if value is None or value == ():
        return {}
    if name == "pads" and isinstance(value, str):
        return {"auto_pad": value}
    if name == "pads":
        return {"pads": [begin for begin, _ in value] + [end for _, end in value]}
    if isinstance(value, DType):
        value = CODES[value]
    elif isinstance(value, bool):
        value = int(value)
    return {RENAMED.get(name, name): value}


def onnx_node_of(
    node: Node, kind: str, inputs: Sequence[str | None], outputs: Sequence[str], **attributes: Any
) -> onnx.NodeProto:
    """An ONNX node under the name of `node`; inputs omitted at the end are left out."""
    names = [v or "" for v in inputs]
    while names and not names[-1]:
        names.pop()
    onnx_node = helper.make_node(kind, names, list(outputs), name=node.name)
    for key, value in attributes.items():
        onnx_node.attribute.append(helper.make_attribute(key, value))
    return onnx_node


class NodeGroup:
    """Collects the ONNX nodes that together are one node of the graph."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self.node, self.graph = node, graph
        self.emission = OnnxEmission()
        self._written: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._count = 0

    def has(self, index: int) -> bool:
        """Whether input `index` of the node is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] is not None

    def input(self, index: int) -> str:
        """Name of input `index` of the node, which is given."""
        name = self.node.inputs[index]
        assert name is not None, (self.node, index)
        return name

    def type(self, index: int) -> TensorType:
        """Type of input `index` of the node, which is given."""
        return self.graph.types[self.input(index)]

    def constant_input(self, index: int) -> np.ndarray | None:
        """Value of input `index` if it is a constant of the graph."""
        return self.graph.constants.get(self.input(index))

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant of the group; equal ones are written once."""
        array = np.asarray(value, dtype)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._written:
            self._written[key] = self._fresh("constant")
            self.emission.constants[self._written[key]] = array
        return self._written[key]

    def add(self, kind: str, *inputs: str | None, **attributes: Any) -> str:
        """Append a node of one output; returns its name."""
        return self.add_all(kind, inputs, 1, **attributes)[0]

    def add_all(
        self, kind: str, inputs: Sequence[str | None], count: int, **attributes: Any
    ) -> list[str]:
        """Append a node of `count` outputs; returns their names."""
        names = [self._fresh(kind) for _ in range(count)]
        self.emission.nodes.append(onnx_node_of(self.node, kind, inputs, names, **attributes))
        return names

    def cast(self, value: str, to: DType | str) -> str:
        return self.add("Cast", value, to=CODES[DType(to)])

    def finish(self, *values: str) -> OnnxEmission:
        """The emission; `values`, each the output of an added node, are the node's outputs."""
        renamed = dict(zip(values, self.node.outputs, strict=True))
        for added in self.emission.nodes:
            added.input[:] = [renamed.get(v, v) for v in added.input]
            added.output[:] = [renamed.get(v, v) for v in added.output]
        return self.emission

    def refuse(self, reason: str) -> OnnxEmission:
        """No emission, for this reason."""
        return OnnxEmission(problem=f"{self.node.op.kind} {reason}")

    def _fresh(self, suffix: str) -> str:
        """A name that no value of the graph and no other part of this group has."""
        name = ""
        while not name or name in self.graph.types:
            self._count += 1
            name = f"{self.node.outputs[0]}/{suffix}{self._count}"
        return name


def reduced(g: NodeGroup, kind: str, value: str, axes: Sequence[int], version: int) -> str:
    """A reduction that keeps its axes; which ones it takes as an input since opset 18."""
    if version < 18:
        return g.add(kind, value, axes=list(axes))
    return g.add(kind, value, g.constant(axes))


def numbered_pads(op: Any, kernel: Sequence[DimLike], sizes: Sequence[DimLike]) -> Any:
    """Pads of a window operator, in numbers as soon as the sizes of the spatial axes are known.

    ONNX Runtime knows no SAME rule with dilations, and none whose strides exceed the kernel.
    """
    if not isinstance(op.pads, str) or not all(isinstance(d, int) for d in (*kernel, *sizes)):
        return op.pads
    window = geometry(kernel, op.strides, op.pads, getattr(op, "dilations", ()))
    if all(s <= k for s, k in zip(window.strides, window.kernel_shape)) and set(
        window.dilations
    ) <= {1}:
        return op.pads
    return window.resolved_pads([int(d) for d in sizes])


@written_for("Clip", "Max", "Min", "ReduceMax", "ReduceMin")
def widened(node: Node, graph: Graph, version: int, **changed: Any) -> OnnxEmission:
    """An operator that only chooses among 16-bit integers, between casts: ONNX or ONNX Runtime has
    it for other types only."""
    kind, g = node.op.kind, NodeGroup(node, graph)
    narrow = graph.types[node.outputs[0]].dtype
    if narrow not in WORDS:
        return plain(node, graph, version, **changed)
    to = {"MaxPool": DType.float32, "Resize": DType.int32}.get(kind, DType.int64)
    inner = plain(node, graph, version, **changed).nodes[0]
    result = f"{node.outputs[0]}/{kind}"
    types = {result: graph.types[node.outputs[0]].with_dtype(to)}
    types |= {v: graph.types[v] for v in (*node.inputs, *node.outputs[1:]) if v is not None}
    for i, name in enumerate(node.inputs):
        if name is not None and graph.types[name].dtype is narrow:
            inner.input[i] = g.cast(name, to)
            types[inner.input[i]] = graph.types[name].with_dtype(to)
    inner.output[0] = result
    problem = fits(inner, types, version)
    g.emission.nodes += [
        inner,
        onnx_node_of(node, "Cast", [result], node.outputs[:1], to=CODES[narrow]),
    ]
    return OnnxEmission(problem=problem) if problem else g.emission
