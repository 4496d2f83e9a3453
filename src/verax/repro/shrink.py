"""Smaller cases: fewer images, channels, groups and pixels, as long as the mistake stays.

A crop slices inputs and weights along axes that belong together. Nothing here has to know whether
a crop keeps the mistake, or even makes sense for the operator: each is tried, judged against the
meaning of the cropped operator, and kept only when the subject is still wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.ops.sums.linear import Gemm
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.reference.evaluate import evaluate

MAX_TRIES = 16
"""Smaller cases that are tried; each is a run of the subject."""
WINDOW = 7
"""Rows or columns that are few enough to read."""
Values = dict[str, np.ndarray]
Judge = Callable[[Graph, Values], Values | None]
"""(graph, inputs) -> what the subject gives, if that is still a mistake; None if not."""


@dataclass(frozen=True)
class Crop:
    """`size` things that can be left out: what they are, and where they lie.

    axes: value -> (axis, elements per thing). output_axis: where they lie in the output, None when
    they are summed over. groups: they are the groups of a convolution. enough: how few will do.
    """

    words: str
    size: int
    axes: Mapping[str, tuple[int, int]]
    output_axis: int | None = None
    groups: bool = False
    enough: int = 1


@dataclass(frozen=True)
class SmallCase:
    """A case: its graph, inputs and what the subject gave. kept: how many of what there were at
    first are left, as (now, then) by name."""

    graph: Graph
    inputs: Values
    actual: Values
    retained: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """What was left out, for a README."""
        return ", ".join(f"{now} of {then} {item}s" for item, (now, then) in self.retained.items())


def shrink(case: SmallCase, judge: Judge, *, weights: bool) -> SmallCase:
    """The smallest case found. weights: whether the subject takes weights from the graph (it does
    not when it runs a file of its own)."""
    left = MAX_TRIES
    exhausted: set[str] = set()
    while True:
        open_ = [c for c in crops(case.graph, weights=weights) if c.words not in exhausted]
        if not open_:
            return case
        crop = open_[0]
        exhausted.add(crop.words)
        for start, stop in _attempts(case, crop):
            if left == 0:
                return case
            left -= 1
            smaller = _cropped(case, crop, start, stop)
            actual = None if smaller is None else judge(smaller.graph, smaller.inputs)
            if smaller is None or actual is None:
                continue
            _, then = case.retained.get(crop.words, (0, crop.size))
            retained = {**case.retained, crop.words: (stop - start, then)}
            case = dataclasses.replace(smaller, actual=actual, retained=retained)
            if stop - start > crop.enough:
                exhausted.discard(crop.words)
            break


def _attempts(case: SmallCase, crop: Crop) -> list[tuple[int, int]]:
    """Ranges to keep: the few things where the error is largest, then halves."""
    half = (crop.size + 1) // 2
    worst = _worst(case, crop) or 0
    first = max(0, min(worst - crop.enough // 2, crop.size - crop.enough))
    half_ranges = sorted([(0, half), (half, crop.size)], key=lambda r: not r[0] <= worst < r[1])
    return list(dict.fromkeys([(first, first + crop.enough), *half_ranges]))


def _worst(case: SmallCase, crop: Crop) -> int | None:
    """The thing in which the largest error lies, where things can be told in the output."""
    value, actual = next(iter(case.actual.items()))
    if crop.output_axis is None or crop.output_axis >= actual.ndim:
        return None
    expected = evaluate(case.graph, case.inputs, keep=[value])[value]
    if expected.shape != actual.shape or not actual.size:
        return None
    error = np.nan_to_num(np.abs(actual.astype(np.float64) - expected), nan=np.inf)
    index = np.unravel_index(int(error.argmax()), error.shape)[crop.output_axis]
    return int(index) * crop.size // actual.shape[crop.output_axis]


def crops(graph: Graph, *, weights: bool) -> list[Crop]:
    """What can be left out of a graph, the largest savings first."""
    candidates = [_batch(graph)]
    if len(graph.nodes) == 1:
        (node,) = graph.nodes
        candidates += _channels(graph, node)
        candidates += _spatial(graph, node)
    return [
        c
        for c in candidates
        if c is not None
        and c.size > c.enough
        and (weights or not set(c.axes) & set(graph.constants))
    ]


def _batch(graph: Graph) -> Crop | None:
    sizes = {t.dims[0] for v in graph.inputs if (t := graph.types[v]).rank > 1}
    if len(sizes) != 1:
        return None
    (size,) = sizes
    shared = all(graph.types[v].rank and graph.types[v].dims[0] == size for v in graph.outputs)
    if not isinstance(size, int) or not shared:
        return None
    return Crop("image", size, {v: (0, 1) for v in graph.inputs if graph.types[v].rank > 1}, 0)


def _channels(graph: Graph, node: Node) -> list[Crop | None]:
    op, inputs = node.op, node.inputs
    shape = [() if v is None else tuple(graph.types[v].dims) for v in inputs]
    if isinstance(op, Conv | ConvTranspose) and all(isinstance(d, int) for s in shape for d in s):
        x, w = str(inputs[0]), str(inputs[1])
        bias = {str(v): 0 for v in inputs[2:] if v is not None}
        channels, (first, second) = int(str(shape[0][1])), (int(str(d)) for d in shape[1][:2])
        into, out = (1, 0) if isinstance(op, Conv) else (0, 1)
        if op.groups > 1:
            per_bias = (first if isinstance(op, Conv) else second * op.groups) // op.groups
            axes = {x: (1, channels // op.groups), w: (0, first // op.groups)}
            axes |= {v: (0, per_bias) for v in bias}
            return [Crop("group", op.groups, axes, 1, groups=True)]
        output_channels = (first, second)[out]
        return [
            Crop("output channel", output_channels, {w: (out, 1), **{v: (0, 1) for v in bias}}, 1),
            Crop("input channel", channels, {x: (1, 1), w: (into, 1)}),
        ]
    if isinstance(op, Gemm) and len(shape[1]) == 2:
        axis = 0 if op.trans_b else 1
        columns = {str(inputs[1]): (axis, 1)}
        columns |= {str(v): (0, 1) for v, s in zip(inputs[2:], shape[2:]) if len(s) == 1}
        size = shape[1][axis]
        return [Crop("column", size, columns, 1)] if isinstance(size, int) else []
    return [_aligned(graph, node)]


def _aligned(graph: Graph, node: Node) -> Crop | None:
    """Channels that stay channels: axis 1 of every input, and what is stored per channel."""
    first = graph.types[str(node.inputs[0])]
    if first.rank < 2 or not isinstance(first.dims[1], int):
        return None
    size, axes = first.dims[1], {}
    for value in {v for v in node.inputs if v is not None}:
        type_ = graph.types[value]
        axis = 1 - (first.rank - type_.rank)
        if type_.rank == 1 and value in graph.constants:
            axis = 0
        if 0 <= axis < type_.rank and type_.dims[axis] == size:
            axes[value] = (axis, 1)
    return Crop("channel", size, axes, 1)


def _spatial(graph: Graph, node: Node) -> list[Crop | None]:
    value = node.inputs[0]
    if value not in graph.inputs or graph.types[value].rank < 3:
        return []
    names = {2: "row", 3: "column", 4: "slice"}
    inputs = [v for v in graph.inputs if graph.types[v].rank == graph.types[value].rank]
    return [
        Crop(
            names.get(axis, "place"),
            size,
            {v: (axis, 1) for v in inputs if graph.types[v].dims[axis] == size},
            axis,
            enough=WINDOW,
        )
        for axis, size in enumerate(graph.types[value].dims)
        if axis >= 2 and isinstance(size, int)
    ]


def _cropped(case: SmallCase, crop: Crop, start: int, stop: int) -> SmallCase | None:
    """The case with only the things from `start` to `stop`; None when it makes no graph."""

    def sliced(name: str, array: np.ndarray) -> np.ndarray:
        if name not in crop.axes:
            return array
        axis, unit = crop.axes[name]
        slices = [slice(None)] * array.ndim
        slices[axis] = slice(start * unit, stop * unit)
        return np.ascontiguousarray(array[tuple(slices)])

    inputs = {v: sliced(v, a) for v, a in case.inputs.items()}
    b = Builder(case.graph.name)
    try:
        for name, array in inputs.items():
            b.input(name, TensorType.of(array))
        for name, array in case.graph.constants.items():
            b.constant(sliced(name, array), name)
        for node in case.graph.nodes:
            op = node.op
            if crop.groups and isinstance(op, Conv | ConvTranspose):
                op = dataclasses.replace(op, groups=stop - start)
            b.add_all(op, node.inputs, node.outputs, node.name)
        return dataclasses.replace(case, graph=b.graph(case.graph.outputs), inputs=inputs)
    except VeraxError:
        return None
