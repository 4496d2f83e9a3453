"""Matches the inputs of two networks: layout, channel order and scale of each.

Files disagree on names, layout (NCHW, NHWC), order of channels (RGB, BGR) and range (0..1, 0..255,
minus a mean). Candidates are tried on the beginning of the second network: the right one makes its
inner values equal to some of the first's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import InputError, VeraxError
from verax.ir.dim import symbols
from verax.ir.graph import Graph
from verax.ir.types import DType, TensorType
from verax.judge.align.permutations import Arrangement, arrangements, distance, nearest, order_words
from verax.judge.align.values import Index, Side, Values, evaluate_all
from verax.judge.inputs import choose_sizes
from verax.numerics import statistics as st
from verax.records.alignment import InputMatch

PREFIX = 24
"""Nodes of the second network on which candidates are tried."""
ENOUGH = 2
"""Inner values that agree and settle the matter: under a wrong candidate none does."""
NEAREST = 4
"""Values of either side whose distance is looked at when none agrees."""
MAX_CHANNELS = 4
"""Axes up to this long may hold colors, whose order and scale differ between files."""
RANGES = (
    ((1 / 255,), (0.0,)),
    ((255.0,), (0.0,)),
    ((2.0,), (-1.0,)),
    ((0.5,), (0.5,)),
    ((1 / 127.5,), (-1.0,)),
    ((127.5,), (127.5,)),
    ((1 / 128,), (-127.5 / 128,)),
    ((128.0,), (127.5,)),
)
"""Usual (scale, offset) between the ranges that files expect of an image."""
CODES = (DType.int8, DType.int16)
"""Element types of inputs that only quantized networks take (bytes may be an image)."""
Scaling = tuple[tuple[float, ...], tuple[float, ...]]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class InputConversion:
    """Conversion of an input array of the first network into one of the second.

    channel_axis: of the second's layout, along which `scale` and `offset` lie when there are
    several.
    """

    arrangement: Arrangement
    scale: tuple[float, ...] = (1.0,)
    offset: tuple[float, ...] = (0.0,)
    channel_axis: int = -1

    def apply(self, array: np.ndarray) -> np.ndarray:
        """In float64 (integers stay what they are unless scaled)."""
        arranged = self.arrangement.apply(array)
        if self.scale == (1.0,) and self.offset == (0.0,):
            return arranged
        shape = [1] * arranged.ndim
        if len(self.scale) > 1:
            shape[self.channel_axis] = len(self.scale)
        scale, offset = np.reshape(self.scale, shape), np.reshape(self.offset, shape)
        return np.asarray(arranged * scale + offset, np.float64)

    def resized(self, array: np.ndarray) -> InputConversion:
        """The same for an array of other sizes. Raises ValueError where its shape is not told."""
        a = self.arrangement
        shape = tuple(array.shape[i] for i in a.axes) if a.axes else array.shape
        if a.squeeze or len(shape) != len(a.shape):
            raise ValueError("the way to another size is not told")
        return dataclasses.replace(self, arrangement=dataclasses.replace(a, shape=shape))

    def record(self, first: str, second: str) -> InputMatch:
        """The conversion as a record of the alignment."""
        a = self.arrangement
        scaled = self.scale != (1.0,) or self.offset != (0.0,)
        plain = dataclasses.replace(a, axis=-1, channels=())
        clauses = [] if plain.plain else [str(plain)]
        if a.axis >= 0:
            color_note = " (RGB against BGR)" if len(a.channels) == 3 else ""
            clauses.append(f"channels {order_words(a.channels)}{color_note}")
        if scaled and len(self.scale) == 1:
            shift = f" {self.offset[0]:+.6g}" if self.offset[0] else ""
            clauses.append(f"{self.scale[0]:.6g} * x{shift}")
        elif scaled:
            scale, offset = (", ".join(f"{v:.6g}" for v in vs) for vs in (self.scale, self.offset))
            clauses.append(f"per channel, scale [{scale}] and offset [{offset}]")
        return InputMatch(
            first,
            second,
            a.axes,
            a.axis,
            a.channels,
            self.scale if scaled else (),
            self.offset if scaled else (),
            ", then ".join(clauses) or "as it is",
        )


InputConversions = dict[str, tuple[str, InputConversion]]
"""By input of the second network: the first's input, and the conversion from it."""


def pair_names(first: Graph, second: Graph) -> dict[str, str]:
    """Second's input -> first's input: by name, then by what types allow, then by position.

    Raises `InputError` when the networks take different numbers of inputs, or one takes codes.
    """
    if len(first.inputs) != len(second.inputs):
        raise InputError(
            f"one network takes {len(first.inputs)} inputs, the other {len(second.inputs)}",
            place=f"{', '.join(first.inputs)} against {', '.join(second.inputs)}",
            next_step="compare networks that take the same inputs",
        )
    for graph, opposite in ((first, second), (second, first)):
        codes = [v for v in graph.inputs if graph.types[v].dtype in CODES]
        if codes and any(opposite.types[v].dtype.is_float for v in opposite.inputs):
            raise InputError(
                f"one network takes {graph.types[codes[0]].dtype}, the other floating-point "
                "numbers: the values of a quantized network are codes, not the same numbers",
                place=f"input {codes[0]!r}",
                next_step="judge each by itself: verax check MODEL RUNNER",
            )
    paired = {v: v for v in second.inputs if v in first.inputs}
    unpaired = [v for v in first.inputs if v not in paired]
    for name in (v for v in second.inputs if v not in paired):
        fitting = [v for v in unpaired if _sizes(first.types[v], second.types[name]) is not None]
        paired[name] = (fitting or unpaired)[0]
        unpaired.remove(paired[name])
    return paired


def _sizes(a: TensorType, b: TensorType) -> dict[str, int] | None:
    """Sizes of a's symbols under which a transposition makes it fit b; None when nothing does."""
    if a.rank != b.rank:
        same = a.is_static and b.is_static and any(arrangements(a.shape, b.shape))
        return {} if same else None
    # Tables and vectors come one way only; images do not.
    orders = itertools.permutations(range(a.rank))
    liked = [
        tuple(range(a.rank)),
        (0, *range(2, a.rank), 1),
        (0, a.rank - 1, *range(1, a.rank - 1)),
    ]
    for axes in itertools.chain(liked if a.rank > 2 else liked[:1], orders if a.rank > 2 else ()):
        sizes = {}
        for axis, target_size in zip(axes, b.dims):
            own = a.dims[axis]
            if isinstance(own, int) and isinstance(target_size, int) and own != target_size:
                break
            if not isinstance(own, int) and isinstance(target_size, int):
                sizes.update({s: target_size for s in symbols(own) if str(own) == s})
        else:
            return sizes
    return None


def choose_first_sizes(
    first: Graph, second: Graph, paired_names: Mapping[str, str]
) -> dict[str, int]:
    """Sizes for the first network's symbols that suit the second's fixed sizes."""
    fixed: dict[str, int] = {}
    for name, own in paired_names.items():
        fixed.update(_sizes(first.types[own], second.types[name]) or {})
    return choose_sizes(first, fixed)


def bind(type_: TensorType, shape: Sequence[int]) -> dict[str, int] | None:
    """Sizes of the symbols of a type that make it this shape; None when it cannot be."""
    if type_.rank != len(shape):
        return None
    sizes: dict[str, int] = {}
    for dim, size in zip(type_.dims, shape):
        if isinstance(dim, int):
            if dim != size:
                return None
        elif {str(dim)} == symbols(dim) and sizes.setdefault(str(dim), size) != size:
            return None
    return sizes


def layouts(shape: Sequence[int], declared: TensorType) -> list[Arrangement]:
    """Layouts that make an array of `shape` an input of type `declared`."""
    shape = tuple(shape)
    if declared.rank == len(shape) < 3:
        return [Arrangement(shape)] if bind(declared, shape) is not None else []
    if declared.is_static:
        fitting = list(arrangements(shape, declared.shape))
        # Reading NCHW as NHWC without moving a number is hardly ever meant, unless the axes that
        # change places have size 1: then it is the transposition.
        dense = [[n for n in s if n != 1] for s in (shape, declared.shape)]
        unlikely = len(shape) == declared.rank and dense[0] != dense[1]
        return [*fitting[1:], *fitting[:1]] if unlikely else fitting
    targets = dict.fromkeys(
        tuple(shape[a] for a in axes) for axes in itertools.permutations(range(len(shape)))
    )
    return [
        fitting
        for target in targets
        if bind(declared, target) is not None
        for fitting in arrangements(shape, target)
    ]


def candidates(
    array: np.ndarray, target: TensorType, scalings: Iterable[Scaling], reverse: bool = False
) -> Iterator[InputConversion]:
    """Yield conversions of an array into an input of type `target`, likeliest first.

    reverse: True if reversed colors are likelier.
    """
    plain = layouts(array.shape, target)
    colors = []
    for layout in plain:
        for axis, size in enumerate(layout.shape):
            if 1 < size <= MAX_CHANNELS and (axis in (1, len(layout.shape) - 1)):
                order = tuple(reversed(range(size)))
                colors.append(dataclasses.replace(layout, axis=axis, channels=order))
    ordered = [*colors, *plain] if reverse else [*plain, *colors]
    yield from (InputConversion(a) for a in ordered)
    for scale, offset in scalings:
        for layout in ordered:
            yield from _scaled(layout, scale, offset)


def _scaled(
    layout: Arrangement, scale: tuple[float, ...], offset: tuple[float, ...]
) -> Iterator[InputConversion]:
    if len(scale) == 1:
        yield InputConversion(layout, scale, offset)
        return
    for axis in (1, len(layout.shape) - 1):
        if layout.shape[axis] == len(scale):
            yield InputConversion(layout, scale, offset, axis)
            yield InputConversion(layout, scale[::-1], offset[::-1], axis)


def scalings_within(graph: Graph, values: Values, name: str) -> list[Scaling]:
    """Per-channel maps from input `name` to values that the network itself makes of it at its
    beginning: what one file does inside, another expects to be done before it."""
    x = values[name]
    scalings: list[Scaling] = []
    for node in graph.nodes[:PREFIX]:
        for value in node.outputs:
            y = values[value]
            if getattr(y, "shape", None) != x.shape or y.dtype.kind != "f" or y.ndim < 3:
                continue
            fit = _affine(x.astype(np.float64), y)
            if fit is not None and fit != ((1.0,), (0.0,)):
                scalings.append(fit)
    return list(dict.fromkeys(scalings))


def _affine(x: np.ndarray, y: np.ndarray) -> Scaling | None:
    """(scale, offset) with y = scale x + offset, one or one per channel; None for other maps."""
    for axis in (None, 1, x.ndim - 1):
        if axis is not None and not 1 < x.shape[axis] <= MAX_CHANNELS:
            continue
        rows = [np.moveaxis(a, axis, 0) if axis is not None else a[None] for a in (x, y)]
        flat = [r.reshape(r.shape[0], -1) for r in rows]
        centered = [r - r.mean(axis=1, keepdims=True) for r in flat]
        size = (centered[0] ** 2).sum(axis=1)
        if not size.all():
            continue
        scale = (centered[0] * centered[1]).sum(axis=1) / size
        offset = flat[1].mean(axis=1) - scale * flat[0].mean(axis=1)
        offset[np.abs(offset) <= st.FLOAT64_NOISE * np.abs(scale)] = 0.0
        gap = scale[:, None] * flat[0] + offset[:, None] - flat[1]
        if scale.all() and st.root_mean_square(gap) <= st.SAME_LAYER * st.root_mean_square(y):
            return tuple(map(float, scale)), tuple(map(float, offset))
    return None


def inverse(scaling: Scaling) -> Scaling:
    """The inverse map."""
    scale, offset = scaling
    return tuple(1 / s for s in scale), tuple(-o / s if o else 0.0 for s, o in zip(scale, offset))


def match_inputs(first: Side, second: Graph, paired_names: Mapping[str, str]) -> InputConversions:
    """The best conversion to every input of the second network.

    Raises `InputError` when no layout of the first's input fits the second's.
    """
    conversions: InputConversions = {}
    options: dict[str, list[InputConversion]] = {}
    reverse = colors_reversed(first.graph, second)
    for name, own in paired_names.items():
        array = first.values[own]
        plain = list(candidates(array, second.types[name], (), reverse))
        if not plain:
            raise InputError(
                f"the input is {second.types[name]}, and the first network's {own!r} has the shape "
                f"{list(array.shape)}: no layout makes one of the other",
                place=f"input {name!r}",
                next_step="give sizes that suit both (--shape)",
            )
        conversions[name], options[name] = (own, plain[0]), plain
    head = _head(second)
    index = Index(first, [v for v in first.names if v not in first.graph.inputs])
    for name, own in paired_names.items():
        conversions[name] = own, _best(first, index, head, conversions, name, options[name])
    return conversions


def untelling(first: Side, second: Graph, conversions: InputConversions) -> list[str]:
    """Notes on inputs that cannot distinguish conversions: one number everywhere, or the same array
    in two layouts or color orders."""
    notes = []
    for name, (own, conversion) in conversions.items():
        array = first.values[own]
        if array.size < 2:
            continue
        if (array == array.flat[0]).all():
            notes.append(
                f"input {own!r} is one number everywhere: it cannot tell layouts, paddings and "
                "orders of channels apart"
            )
            continue
        arranged = conversion.arrangement.apply(array)
        for alternative in candidates(array, second.types[name], ()):
            a = alternative.arrangement
            if a != conversion.arrangement and np.array_equal(a.apply(array), arranged):
                texts = (
                    w.record(own, name).words
                    for w in (InputConversion(conversion.arrangement), alternative)
                )
                notes.append(
                    f"input {own!r} is the same array {' and '.join(texts)}: it cannot tell which "
                    "of the two the second network means"
                )
                break
    return notes


def colors_reversed(first: Graph, second: Graph) -> bool:
    """Whether the weights of the first convolutions are equal but for the order of colors."""
    a, b = (_first_weights(g) for g in (first, second))
    if a is None or b is None or a.shape != b.shape or a.shape[1] > MAX_CHANNELS:
        return False
    limit = st.SAME_LAYER * st.root_mean_square(a)
    return distance(a, b) > limit >= distance(a, b[:, ::-1])


def _first_weights(graph: Graph) -> np.ndarray | None:
    for node in graph.nodes:
        if node.op.kind == "Conv":
            return graph.constants.get(node.inputs[1] or "")
    return None


def _best(
    first: Side,
    index: Index,
    head: Graph,
    conversions: InputConversions,
    name: str,
    plain: list[InputConversion],
) -> InputConversion:
    """The conversion to input `name` with the most agreeing values of `head`; else the nearest."""
    own = conversions[name][0]
    best: tuple[tuple[float, float], InputConversion] | None = None
    array = first.values[own]
    inner = scalings_within(first.graph, first.values, own)
    try:
        start = second_values(head, first.values, conversions)
        inner += map(inverse, scalings_within(head, start, name))
    except VeraxError:
        pass
    colors = [s for s in RANGES if array.ndim >= 3]
    target = head.types[name]
    scaled = list(candidates(array, target, [*dict.fromkeys(inner), *colors]))[len(plain) :]
    for conversion in [*plain, *scaled]:
        try:
            values = second_values(head, first.values, {**conversions, name: (own, conversion)})
        except VeraxError:
            continue
        agreeing, gap = _agreement(first, index, Side(head, values))
        score = (-float(agreeing), gap)
        if best is None or _better(score, best[0]):
            best = score, conversion
        if agreeing >= ENOUGH:
            break
    return best[1] if best else plain[0]


def _better(score: tuple[float, float], best: tuple[float, float]) -> bool:
    """More values agree, or as many and the nearest is clearly nearer."""
    return score[0] < best[0] or (score[0] == best[0] and score[1] < st.CLEARLY * best[1])


def _agreement(first: Side, index: Index, head: Side) -> tuple[int, float]:
    """How many values of the second's beginning agree with some of the first's in some layout; if
    none, the smallest relative distance of the first few.

    Reordered channels do not count: an input in the wrong order of colors agrees so, too.
    """
    compared = [v for v in head.names if v not in head.graph.inputs and not _is_input(head, v)]
    agreeing, gap = 0, np.inf
    for i, value in enumerate(compared):
        y = head.values[value]
        size, mean = st.root_mean_square(y), float(y.mean())
        limit = st.SAME_LAYER * size
        entries = index.by_size.get(y.size, ())
        near = [
            first.values[e.name]
            for e in entries
            if abs(e.size - size) <= limit and abs(e.mean - mean) <= limit
        ]
        if any(nearest_distance(y, a) <= limit for a in near):
            agreeing += 1
        elif not agreeing and i < NEAREST:
            gaps = [nearest_distance(y, first.values[e.name]) for e in entries[:NEAREST]]
            gap = min([gap, *(g / size for g in gaps if size)])
    return agreeing, float(gap)


def nearest_distance(source: np.ndarray, target: np.ndarray) -> float:
    """Distance in the layout that suits best; infinite when none does."""
    best = nearest(source, target)
    return best[1] if best else np.inf


def _is_input(side: Side, value: str) -> bool:
    """Whether a value is an input in another layout: it agrees however inputs are matched."""
    y = side.values[value]
    return any(
        x.size == y.size and np.array_equal(np.sort(x, axis=None), np.sort(y, axis=None))
        for x in (side.values[v] for v in side.graph.inputs)
    )


def _head(graph: Graph) -> Graph:
    """The first nodes of a graph."""
    nodes = graph.nodes[:PREFIX]
    outputs = tuple(v for n in nodes for v in n.outputs)
    return Graph(graph.inputs, outputs, nodes, graph.constants, graph.types, graph.name)


def second_inputs(
    second: Graph, firsts: Mapping[str, np.ndarray], conversions: InputConversions
) -> Values:
    """Inputs of the second network from values of the first, in the working dtype."""
    inputs: Values = {}
    for name, (own, conversion) in conversions.items():
        array = conversion.apply(np.asarray(firsts[own]))
        declared = second.types[name].dtype
        inputs[name] = array.astype(np.float64 if declared.is_float else declared.counted)
    return inputs


def second_values(
    second: Graph, firsts: Mapping[str, np.ndarray], conversions: InputConversions
) -> Values:
    """Every value of the second network on the first's inputs."""
    return evaluate_all(second, second_inputs(second, firsts, conversions))
