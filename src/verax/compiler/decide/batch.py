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
    """The inputs of a node, some of which hold the whole batch. whole: its size; mine: which."""

    graph: Graph
    node: Node
    whole: int
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

    def only(self, *which: int) -> bool:
        """Whether exactly these inputs hold the batch."""
        return {i for i, mine in enumerate(self.mine) if mine} == {*which}

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
        if array is None or array.ndim < len(self.result) or array.shape[0] % self.whole:
            return False
        images = array.reshape(self.whole, -1).view(np.uint8)
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
    *("DepthToSpace", "SpaceToDepth"),
)
def _images(given: _Inputs) -> bool:
    """The first axis is the batch by definition."""
    return given.only(0)


@_divides("MaxPool")
def _max_pool(given: _Inputs) -> bool:
    return given.only(0) and len(given.node.outputs) == 1  # indices count from the first image


@_divides("BatchNormalization")
def _batch_normalization(given: _Inputs) -> bool:
    return given.only(0) and not given.node.op.training_mode  # type: ignore[attr-defined]


@_divides("StrassenMatMul")
def _strassen(given: _Inputs) -> bool:
    """Rows of one matrix are added to each other: it must be one image's."""
    return given.only(0) and given.type(0).rank > 2


@_divides("MatMul")
def _matmul(given: _Inputs) -> bool:
    if given.only(0) and given.type(0).rank == 2:
        return given.type(1).rank == 2
    return len(given.result) > 2 and given.beside(0) and given.beside(1)


@_divides("Gemm")
def _gemm(given: _Inputs) -> bool:
    return given.only(0) and not given.node.op.trans_a and given.beside(2)  # type: ignore[attr-defined]


@_divides("Attention")
def _attention(given: _Inputs) -> bool:
    """With fewer axes the first is that of the heads, or of what is attended to."""
    return given.type(0).rank > 3 and all(map(given.beside, range(len(given.mine))))


@_divides(
    *("Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization"),
    *("LpNormalization", "ArgMax", "ArgMin", "Split", "TopK"),
)
def _along_another_axis(given: _Inputs) -> bool:
    return given.only(0) and _behind_first(given.node.op.axis, given.type(0).rank)  # type: ignore[attr-defined]


@_divides("MeanVarianceNormalization")
def _mean_variance(given: _Inputs) -> bool:
    axes = given.node.op.axes  # type: ignore[attr-defined]
    return all(_behind_first(a, given.type(0).rank) for a in axes)


@_divides("Concat")
def _concat(given: _Inputs) -> bool:
    inside = _behind_first(given.node.op.axis, given.type(0).rank)  # type: ignore[attr-defined]
    return inside and all(m or given.repeats(i) for i, m in enumerate(given.mine))


@_divides("Gather")
def _gather(given: _Inputs) -> bool:
    axis = given.node.op.axis % given.type(0).rank  # type: ignore[attr-defined]
    return given.only(1) if axis == 0 else given.only(0)


@_divides("Transpose")
def _transpose(given: _Inputs) -> bool:
    perm = given.node.op.perm  # type: ignore[attr-defined]
    return perm is not None and perm[:1] == (0,)


@_divides("Reshape", "Flatten")
def _reshape(given: _Inputs) -> bool:
    return given.only(0)  # row-major: as long as the first axis of the result is whole images


def _named_axes(given: _Inputs, i: int) -> bool:
    """Whether input `i` names axes, and not the first."""
    axes, rank = given.content(i), max(given.type(0).rank, len(given.result))
    return given.only(0) and axes is not None and all(_behind_first(int(a), rank) for a in axes)


@_divides("Squeeze", "Unsqueeze")
def _squeeze(given: _Inputs) -> bool:
    return _named_axes(given, 1)


@_divides("Slice")
def _slice(given: _Inputs) -> bool:
    return _named_axes(given, 3)


@_divides("Pad")
def _pad(given: _Inputs) -> bool:
    if given.has(3):
        return _named_axes(given, 3)
    pads = given.content(1)
    return given.only(0) and pads is not None and not pads[0] and not pads[len(pads) // 2]


@_divides("Expand")
def _expand(given: _Inputs) -> bool:
    return given.only(0) and given.beside(0)


@_divides("Resize")
def _resize(given: _Inputs) -> bool:
    op = given.node.op
    axes = op.axes or tuple(range(given.type(0).rank))  # type: ignore[attr-defined]
    plain = op.coordinate_transformation_mode != "tf_crop_and_resize"  # type: ignore[attr-defined]
    scales = given.content(2)
    inside = all(_behind_first(a, given.type(0).rank) for a in axes)
    by_scales = axes[0] == 0 and scales is not None and scales.size > 0 and scales[0] == 1
    return given.only(0) and plain and (inside or by_scales)


def _allowed(given: _Inputs) -> bool:
    op = given.node.op
    if isinstance(op, Parametrized):
        flat = all(given.type(i).size == 1 for i in range(1, len(given.mine)) if given.has(i))
        axis: int = op.axis  # type: ignore[attr-defined]
        return given.only(0) and (flat or _behind_first(axis, given.type(0).rank))
    if isinstance(op, Elementwise):
        return all(map(given.beside, range(len(given.mine))))
    if isinstance(op, Reduction):
        return _named_axes(given, 1)
    rule = RULES.get(op.kind)
    return rule is not None and rule(given)


def divided(graph: Graph, part: int) -> Graph | None:
    """`graph` for `part` of its images, which divides their number; None where an operator may
    take something of one image to another, or the batch is not the first axis everywhere."""
    whole = batch_of(graph)
    if whole is None or whole % part:
        return None
    try:
        return _divided(graph, whole, part)
    except GraphError:  # a smaller batch has no type
        return None


def _divided(graph: Graph, whole: int, part: int) -> Graph | None:
    made, mine = Builder(graph.name), set(graph.inputs)
    for value in graph.inputs:
        made.input(value, _smaller(graph.types[value], whole, part))
    for value, array in graph.constants.items():
        made.constant(array, value)
    for node in graph.nodes:
        given = _Inputs(graph, node, whole, tuple(v in mine for v in node.inputs))
        inputs, types = list(node.inputs), graph.output_types(node)
        if any(given.mine):
            leading = [t.shape[0] if t.rank else 1 for t in types]
            if not _allowed(given) or any(n % whole for n in leading):
                return None
            mine.update(node.outputs)
            types = tuple(_smaller(t, whole, part) for t in types)
            for i, content in _contents(given, part, types[0].shape).items():
                inputs[i] = made.constant(content, made.fresh(f"{node.inputs[i]}_of_{part}"))
        found = made.add_all(node.op, inputs, node.outputs, node.name)
        if tuple(made.types[v] for v in found) != types:
            return None
    return made.graph(graph.outputs) if mine.issuperset(graph.outputs) else None


def _contents(given: _Inputs, part: int, result: tuple[int, ...]) -> Mapping[int, np.ndarray]:
    """Constants that speak of the batch, for a part of it."""
    if given.node.op.kind in ("Reshape", "Expand"):
        return {1: np.array(result, np.int64)}
    contents = {i: given.content(i) for i in _broadcast(given)}
    return {
        i: array[: array.shape[0] // given.whole * part]
        for i, array in contents.items()
        if array is not None and array.ndim == len(result) and array.shape[0] == given.result[0]
    }


def _broadcast(given: _Inputs) -> range:
    """The inputs whose first axis is the result's."""
    kind, every = given.node.op.kind, range(len(given.mine))
    if isinstance(given.node.op, Elementwise) or kind in ("Concat", "Attention"):
        return every
    if kind == "MatMul" and len(given.result) > 2:
        return every
    return every[2:] if kind == "Gemm" else every[:0]


def _smaller(type_: TensorType, whole: int, part: int) -> TensorType:
    return type_.with_dims((type_.shape[0] // whole * part, *type_.shape[1:]))


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
what they gain or lose is in `docs/status.md`."""
CALL = 1.5e-6
"""Seconds that a call of a kernel takes by itself."""
LEAST_GAIN, MOST_LEFT = 1e-4, 0.78
"""Seconds that must be gained, and the share of them that may be left, by the model."""
COPIED = {"WinogradConv": 4.0, "ConvInteger": 7.0}
"""How many times as large as in the graph the weights of an operator are in memory."""


def best_part(graph: Graph) -> int | None:
    """How many images at once take the least time, by the bytes that are moved; None for all of
    them, which may be as good."""
    whole = batch_of(graph)
    if whole is None:
        return None
    nodes = [n for n in graph.nodes if not isinstance(n.op, Elementwise)]
    moved = [_activations(graph, n) / whole for n in nodes]
    weights = sum(_weights(graph, n) for n in nodes)

    def seconds(part: int) -> float:
        runs = whole // part
        once = sum(_fetched(image * part) for image in moved)
        return runs * (once + weights / WEIGHTS + CALL * len(nodes))

    parts = [n for n in range(1, whole + 1) if whole % n == 0]
    best = min(parts, key=lambda n: (seconds(n), n))
    at_once, in_parts = seconds(whole), seconds(best)
    gains = at_once - in_parts > LEAST_GAIN and in_parts < MOST_LEFT * at_once
    return best if gains else None


def _fetched(nbytes: float) -> float:
    if nbytes <= NEAR:
        return 0.0
    return nbytes / (FROM_FAR if nbytes <= FAR else FROM_MEMORY)


def _activations(graph: Graph, node: Node) -> int:
    """Bytes between the operators; what the caller holds is as far away in parts as it is whole."""
    given = {*graph.inputs, *graph.outputs}
    moved = (v for v in (*node.inputs, *node.outputs) if v is not None and v not in given)
    return sum(_bytes(graph.types[v]) for v in moved if v not in graph.constants)


def _weights(graph: Graph, node: Node) -> float:
    """Bytes that a part reads again. Strassen's products take the images one by one anyway."""
    kind = node.op.kind
    if kind in ("StrassenMatMul", "StrassenConv", "Gather"):
        return 0.0
    held = (v for v in node.inputs if v is not None and v in graph.constants)
    return COPIED.get(kind, 1.0) * sum(_bytes(graph.types[v]) for v in held)


def _bytes(type_: TensorType) -> int:
    return math.prod(type_.shape) * type_.dtype.itemsize
