"""Whether a batch goes through the network in parts: what the images of one need in between stays
in the cache, and the arena is as large as one part needs.

A graph can be divided when its inputs, its outputs and what depends on them hold the images along
their first axis, one behind the other, and no operator takes anything of one image to another: then
the graph of a smaller batch gives the same bits, run once for every part. `divided` makes that
graph and says nothing about time; `best_part` counts what either way moves through the caches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from verax.base.errors import GraphError
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.ops.pointwise.elementwise import Elementwise
from verax.ops.quantized.per_element import Parametrized
from verax.ops.sums.reduction import Reduction


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a node, some of which hold the whole batch. batch: its size; mine: which."""

    graph: Graph
    node: Node
    batch: int
    mine: tuple[bool, ...]

    def type(self, i: int) -> TensorType:
        value = self.node.inputs[i]
        assert value is not None
        return self.graph.types[value]

    def has(self, i: int) -> bool:
        return i < len(self.node.inputs) and self.node.inputs[i] is not None

    def content(self, i: int) -> np.ndarray | None:
        """A constant input; None for one that is computed or omitted."""
        return self.graph.constants.get(self.node.inputs[i] or "") if self.has(i) else None

    @property
    def result(self) -> tuple[int, ...]:
        return self.graph.types[self.node.outputs[0]].shape

    def only(self, *indices: int) -> bool:
        """True if exactly the inputs with these indices hold the batch."""
        return {i for i, mine in enumerate(self.mine) if mine} == {*indices}

    def beside(self, i: int) -> bool:
        """Whether input `i` meets every image alike, or image by image, where it is broadcast to
        the rank of the result."""
        if not self.has(i):
            return True
        type_, rank = self.type(i), len(self.result)
        if self.mine[i]:
            return type_.rank == rank and type_.shape[0] == self.result[0]
        return type_.rank < rank or type_.shape[0] == 1 or self.repeats(i)

    def repeats(self, i: int) -> bool:
        """Whether a constant holds the same for each image, along its first axis."""
        array = self.content(i)
        if array is None or array.ndim < len(self.result) or array.shape[0] % self.batch:
            return False
        images = array.reshape(self.batch, -1).view(np.uint8)
        return bool((images == images[0]).all())


Rule = Callable[[_Inputs], bool]
RULES: dict[str, Rule] = {}
"""By operator: whether it may be divided, given that some inputs hold the batch."""


def _divides(*kinds: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def _behind_first(axis: int, rank: int) -> bool:
    return axis % rank != 0


@_divides(
    *("Conv", "ConvTranspose", "ConvInteger", "ConvTransposeInteger", "WinogradConv"),
    *("StrassenConv", "AveragePool", "AveragePoolInteger", "LpPool", "GlobalAveragePool"),
    *("GlobalMaxPool", "GlobalLpPool", "InstanceNormalization", "GroupNormalization", "LRN"),
    *("DepthToSpace", "SpaceToDepth", "LookupTable"),
)
def _images(inputs: _Inputs) -> bool:
    """The first axis is the batch by definition."""
    return inputs.only(0)


@_divides("MaxPool")
def _max_pool(inputs: _Inputs) -> bool:
    return inputs.only(0) and len(inputs.node.outputs) == 1  # indices count from the first image


@_divides("BatchNormalization")
def _batch_normalization(inputs: _Inputs) -> bool:
    return inputs.only(0) and not inputs.node.op.training_mode  # type: ignore[attr-defined]


@_divides("StrassenMatMul")
def _strassen(inputs: _Inputs) -> bool:
    """Rows of one matrix are added to each other: it must be one image's."""
    return inputs.only(0) and inputs.type(0).rank > 2


@_divides("MatMul")
def _matmul(inputs: _Inputs) -> bool:
    if inputs.only(0) and inputs.type(0).rank == 2:
        return inputs.type(1).rank == 2
    return len(inputs.result) > 2 and inputs.beside(0) and inputs.beside(1)


@_divides("Gemm")
def _gemm(inputs: _Inputs) -> bool:
    return inputs.only(0) and not inputs.node.op.trans_a and inputs.beside(2)  # type: ignore[attr-defined]


@_divides("Attention")
def _attention(inputs: _Inputs) -> bool:
    """With fewer axes the first is that of the heads, or of what is attended to."""
    return inputs.type(0).rank > 3 and all(map(inputs.beside, range(len(inputs.mine))))


@_divides(
    *("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization"),
    *("LpNormalization", "ArgMax", "ArgMin", "Split", "TopK"),
)
def _along_another_axis(inputs: _Inputs) -> bool:
    return inputs.only(0) and _behind_first(inputs.node.op.axis, inputs.type(0).rank)  # type: ignore[attr-defined]


@_divides("MeanVarianceNormalization")
def _mean_variance(inputs: _Inputs) -> bool:
    axes = inputs.node.op.axes  # type: ignore[attr-defined]
    return all(_behind_first(a, inputs.type(0).rank) for a in axes)


@_divides("Concat")
def _concat(inputs: _Inputs) -> bool:
    inside = _behind_first(inputs.node.op.axis, inputs.type(0).rank)  # type: ignore[attr-defined]
    return inside and all(m or inputs.repeats(i) for i, m in enumerate(inputs.mine))


@_divides("Gather")
def _gather(inputs: _Inputs) -> bool:
    axis = inputs.node.op.axis % inputs.type(0).rank  # type: ignore[attr-defined]
    return inputs.only(1) if axis == 0 else inputs.only(0)


@_divides("Transpose")
def _transpose(inputs: _Inputs) -> bool:
    perm = inputs.node.op.perm  # type: ignore[attr-defined]
    return perm is not None and perm[:1] == (0,)


@_divides("Reshape", "Flatten")
def _reshape(inputs: _Inputs) -> bool:
    return inputs.only(0)  # row-major: as long as the first axis of the result is whole images


def _named_axes(inputs: _Inputs, i: int) -> bool:
    """True if input `i` is a constant list of axes without the first one."""
    axes, rank = inputs.content(i), max(inputs.type(0).rank, len(inputs.result))
    return inputs.only(0) and axes is not None and all(_behind_first(int(a), rank) for a in axes)


@_divides("Squeeze", "Unsqueeze")
def _squeeze(inputs: _Inputs) -> bool:
    return _named_axes(inputs, 1)


@_divides("Slice")
def _slice(inputs: _Inputs) -> bool:
    return _named_axes(inputs, 3)


@_divides("Pad")
def _pad(inputs: _Inputs) -> bool:
    if inputs.has(3):
        return _named_axes(inputs, 3)
    pads = inputs.content(1)
    return inputs.only(0) and pads is not None and not pads[0] and not pads[len(pads) // 2]


@_divides("Expand")
def _expand(inputs: _Inputs) -> bool:
    return inputs.only(0) and inputs.beside(0)


@_divides("Resize")
def _resize(inputs: _Inputs) -> bool:
    op = inputs.node.op
    axes = op.axes or tuple(range(inputs.type(0).rank))  # type: ignore[attr-defined]
    plain = op.coordinate_transformation_mode != "tf_crop_and_resize"  # type: ignore[attr-defined]
    scales = inputs.content(2)
    inside = all(_behind_first(a, inputs.type(0).rank) for a in axes)
    by_scales = axes[0] == 0 and scales is not None and scales.size > 0 and scales[0] == 1
    return inputs.only(0) and plain and (inside or by_scales)


def _allowed(inputs: _Inputs) -> bool:
    op = inputs.node.op
    if isinstance(op, Parametrized):
        flat = all(inputs.type(i).size == 1 for i in range(1, len(inputs.mine)) if inputs.has(i))
        axis: int = op.axis  # type: ignore[attr-defined]
        return inputs.only(0) and (flat or _behind_first(axis, inputs.type(0).rank))
    if isinstance(op, Elementwise):
        return all(map(inputs.beside, range(len(inputs.mine))))
    if isinstance(op, Reduction):
        return _named_axes(inputs, 1)
    rule = RULES.get(op.kind)
    return rule is not None and rule(inputs)


def divided(graph: Graph, images: int) -> Graph | None:
    """`graph` with a batch of `images`, a divisor of its own; None where an operator may mix
    images, or the batch is not the first axis everywhere."""
    batch = batch_of(graph)
    if batch is None or batch % images:
        return None
    try:
        return _divided(graph, batch, images)
    except GraphError:  # a smaller batch has no type
        return None


def _divided(graph: Graph, batch: int, images: int) -> Graph | None:
    builder, mine = Builder(graph.name), set(graph.inputs)
    for value in graph.inputs:
        builder.input(value, _smaller(graph.types[value], batch, images))
    for value, array in graph.constants.items():
        builder.constant(array, value)
    for node in graph.nodes:
        node_inputs = _Inputs(graph, node, batch, tuple(v in mine for v in node.inputs))
        inputs, types = list(node.inputs), graph.output_types(node)
        if any(node_inputs.mine):
            leading = [t.shape[0] if t.rank else 1 for t in types]
            if not _allowed(node_inputs) or any(n % batch for n in leading):
                return None
            mine.update(node.outputs)
            types = tuple(_smaller(t, batch, images) for t in types)
            for i, content in _contents(node_inputs, images, types[0].shape).items():
                inputs[i] = builder.constant(
                    content, builder.fresh(f"{node.inputs[i]}_of_{images}")
                )
        outputs = builder.add_all(node.op, inputs, node.outputs, node.name)
        if tuple(builder.types[v] for v in outputs) != types:
            return None
    return builder.graph(graph.outputs) if mine.issuperset(graph.outputs) else None


def _contents(inputs: _Inputs, images: int, result: tuple[int, ...]) -> Mapping[int, np.ndarray]:
    """New contents of the constant inputs that depend on the batch size, by input index."""
    if inputs.node.op.kind in ("Reshape", "Expand"):
        return {1: np.array(result, np.int64)}
    contents = {i: inputs.content(i) for i in _broadcast(inputs)}
    return {
        i: array[: array.shape[0] // inputs.batch * images]
        for i, array in contents.items()
        if array is not None and array.ndim == len(result) and array.shape[0] == inputs.result[0]
    }


def _broadcast(inputs: _Inputs) -> range:
    """The inputs whose first axis is the result's."""
    kind, all_inputs = inputs.node.op.kind, range(len(inputs.mine))
    if isinstance(inputs.node.op, Elementwise) or kind in ("Concat", "Attention"):
        return all_inputs
    if kind == "MatMul" and len(inputs.result) > 2:
        return all_inputs
    return all_inputs[2:] if kind == "Gemm" else all_inputs[:0]


def _smaller(type_: TensorType, batch: int, images: int) -> TensorType:
    return type_.with_dims((type_.shape[0] // batch * images, *type_.shape[1:]))


def batch_of(graph: Graph) -> int | None:
    """Images that a static graph without state takes: the first size of all inputs, if they agree
    on more than one."""
    types = [graph.types[v] for v in graph.inputs]
    if graph.updates or not types or not all(t.is_static and t.rank for t in types):
        return None
    if not all(t.is_static for t in graph.types.values()):
        return None
    sizes = {t.shape[0] for t in types}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 1 else None


NEAR, FAR = 1 << 20, 16 << 20
"""Bytes that a core's own cache holds, and those of a machine's that the other cores leave."""
FROM_FAR, FROM_MEMORY, WEIGHTS = 200e9, 40e9, 150e9
"""Bytes a second of what does not fit: activations out of the cache of all cores, and out of
memory; weights once more, which are fetched ahead. Fitted to twelve networks at batch 8 on Zen 5:
what they gain or lose is in `docs/development/notes.md`."""
CALL = 1.5e-6
"""Seconds that a call of a kernel takes by itself."""
LEAST_GAIN, MOST_LEFT = 1e-4, 0.78
"""Seconds that must be gained, and the share of them that may be left, by the model."""
COPIED = {"WinogradConv": 4.0, "ConvInteger": 7.0}
"""How many times as large as in the graph the weights of an operator are in memory."""


def best_part(graph: Graph) -> int | None:
    """Number of images per run that takes the least time by the bytes moved; None where running
    the full batch at once is not clearly slower."""
    batch = batch_of(graph)
    if batch is None:
        return None
    nodes = [n for n in graph.nodes if not isinstance(n.op, Elementwise)]
    activation_bytes = [_activations(graph, n) / batch for n in nodes]
    weights = sum(_weights(graph, n) for n in nodes)

    def seconds(images: int) -> float:
        runs = batch // images
        once = sum(_fetched(image * images) for image in activation_bytes)
        return runs * (once + weights / WEIGHTS + CALL * len(nodes))

    divisors = [n for n in range(1, batch + 1) if batch % n == 0]
    best = min(divisors, key=lambda n: (seconds(n), n))
    at_once, in_parts = seconds(batch), seconds(best)
    gains = at_once - in_parts > LEAST_GAIN and in_parts < MOST_LEFT * at_once
    return best if gains else None


def _fetched(nbytes: float) -> float:
    if nbytes <= NEAR:
        return 0.0
    return nbytes / (FROM_FAR if nbytes <= FAR else FROM_MEMORY)


def _activations(graph: Graph, node: Node) -> int:
    """Bytes that a node reads and writes, without constants and the graph's inputs and outputs,
    which are as far away for a part of the batch as for all of it."""
    boundary = {*graph.inputs, *graph.outputs}
    inner_values = (v for v in (*node.inputs, *node.outputs) if v is not None and v not in boundary)
    return sum(_bytes(graph.types[v]) for v in inner_values if v not in graph.constants)


def _weights(graph: Graph, node: Node) -> float:
    """Bytes that a part reads again. Strassen's products take the images one by one anyway."""
    kind = node.op.kind
    if kind in ("StrassenMatMul", "StrassenConv", "Gather"):
        return 0.0
    constants = (v for v in node.inputs if v is not None and v in graph.constants)
    return COPIED.get(kind, 1.0) * sum(_bytes(graph.types[v]) for v in constants)


def _bytes(type_: TensorType) -> int:
    return math.prod(type_.shape) * type_.dtype.itemsize
