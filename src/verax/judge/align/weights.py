"""Compares the weights of two networks: their layout, and the elements that differ.

Files keep weights in other orders (OIHW, HWIO, colors reversed, a flattened image), folded with a
BatchNorm or not; an element that differs is found in the order that suits the rest best.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from verax.ir.graph import Node
from verax.judge.align.permutations import arrange, arrangements, nearest_slices
from verax.judge.align.values import Side, unit_of
from verax.numerics import statistics as st
from verax.records.alignment import Divergence, WeightDifference

CAUSES_SAID = 3
"""Differences of one place that are said in words; the record holds all."""
Named = tuple[str, np.ndarray]
"""Weights and what to call them."""


def weight_differences(first: Side, second: Side, a: Node, b: Node) -> list[WeightDifference]:
    """How the float constants of two nodes of one kind differ."""
    differences = []
    unit = _unit(first, second)
    for name, second_name in shared_constants(first, second, a, b):
        difference = compare_weights(
            (name, first.graph.constants[name]),
            (second_name, second.graph.constants[second_name]),
            unit,
        )
        if difference is not None:
            differences.append(difference)
    return differences


def _unit(first: Side, second: Side) -> float:
    """Relative size of what a converter may do to a weight."""
    return max(unit_of(first.graph), unit_of(second.graph)) * st.CONSTANT_ROUNDINGS


def recognized_weights(
    divergence: Divergence, first: Side, second: Side, cores: Sequence[Sequence[Node]]
) -> Divergence:
    """The divergence with weights that differ in less than half of their elements, where the
    operators that use them differ too."""
    unit = _unit(first, second)
    sides = [_named(s, nodes) for s, nodes in zip((first, second), cores)]
    comparisons = [compare_weights(v, w, unit) for v in sides[0] for w in sides[1]]
    differences = tuple(d for d in comparisons if d is not None and 2 * d.differing <= d.elements)
    if not differences:
        return divergence
    words = "; ".join([*map(say_weight, differences[:CAUSES_SAID]), divergence.reason])
    return dataclasses.replace(divergence, reason=words, weights=differences)


def _named(side: Side, nodes: Sequence[Node]) -> list[Named]:
    """Float constants of some nodes, with a BatchNorm folded into the convolution before it."""
    nodes = [n for n in nodes if n.op.kind != "Pad"]
    if [n.op.kind for n in nodes] == ["Conv", "BatchNormalization"]:
        folded = _folded(side, *nodes)
        if folded is not None:
            return folded
    names = dict.fromkeys(v for n in nodes for v in n.inputs if v is not None)
    constants = side.graph.constants
    return [(v, constants[v]) for v in names if v in constants and constants[v].dtype.kind == "f"]


def _folded(side: Side, convolution: Node, norm: Node) -> list[Named] | None:
    """Weights and bias of Conv -> BatchNormalization as one convolution; None when they are
    computed."""
    own = convolution.inputs[1:]
    constants = [side.graph.constants.get(v or "") for v in (own[0], *norm.inputs[1:])]
    if any(c is None for c in constants):
        return None
    w, gamma, beta, mean, variance = (np.asarray(c, np.float64) for c in constants)
    scale = gamma / np.sqrt(variance + norm.op.attributes()["epsilon"])
    bias = side.values[own[1]] if len(own) > 1 and own[1] is not None else 0.0
    trailing = (1,) * (w.ndim - 1)
    return [
        (f"{own[0]} * {norm.inputs[1]}", w * scale.reshape(-1, *trailing)),
        (f"bias folded with {norm.inputs[2]}", (bias - mean) * scale + beta),
    ]


def shared_constants(first: Side, second: Side, a: Node, b: Node) -> list[tuple[str, str]]:
    """Names of float constants at the same places of two nodes."""
    own, second_constants = first.graph.constants, second.graph.constants
    return [
        (v, w)
        for v, w in zip(a.inputs, b.inputs)
        if v is not None and w is not None
        if v in own and w in second_constants and own[v].dtype.kind == "f"
    ]


def compare_weights(first: Named, second: Named, unit: float) -> WeightDifference | None:
    """How two constants differ in the layout that suits them best; None when they are equal up to
    layout and a few roundings of size `unit`, or have different sizes."""
    (name, a), (second_name, b) = first, second
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.size != b.size or arrange(b, a, unit * st.root_mean_square(a)) is not None:
        return None
    best: tuple[int, np.ndarray, np.ndarray] | None = None
    for reading in _readings(b, a):
        size = np.maximum(np.maximum(np.abs(a), np.abs(reading)), st.root_mean_square(a))
        apart = np.abs(reading - a) > st.group_limit(1) * unit * size
        if best is None or int(apart.sum()) < best[0]:
            best = int(apart.sum()), reading, np.abs(reading - a)
    if best is None or best[0] == 0:
        return None
    count, reading, gap = best
    index = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), a.shape))
    return WeightDifference(
        name, second_name, count, a.size, index, float(a[index]), float(reading[index])
    )


def _readings(b: np.ndarray, a: np.ndarray) -> Iterator[np.ndarray]:
    """Weights in every layout that suits `a`, also with the slices of one axis paired by distance
    (colors reversed, a flattened image in another order)."""
    plain = [layout.apply(b) for layout in arrangements(b.shape, a.shape)]
    yield from plain
    for reading in plain:
        for axis in range(a.ndim if a.ndim > 1 else 0):
            order = nearest_slices(reading, a, axis)
            if order is not None and order != tuple(range(len(order))):
                yield np.take(reading, order, axis=axis)


def reordered_weights(first: Side, second: Side, a: Node, b: Node) -> list[str]:
    """Float constants of two nodes that hold the same numbers in different places, in words."""
    words, unit = [], _unit(first, second)
    for name, other in shared_constants(first, second, a, b):
        own, others = first.graph.constants[name], second.graph.constants[other]
        if own.shape == others.shape and (own == others).all():
            continue
        order = arrange(
            others.astype(np.float64), own.astype(np.float64), unit * st.root_mean_square(own)
        )
        if order is not None and not order.plain:
            words.append(f"weights: {name!r} holds the numbers of the second's {other!r}, {order}")
    return words


def say_weight(d: WeightDifference) -> str:
    """A difference of weights as a sentence."""
    position = ", ".join(map(str, d.index))
    return (
        f"weights: {d.differing} of {d.elements} elements of {d.first!r} differ from the "
        f"second's {d.second!r}, most at [{position}]: {d.first_value:.7g} against "
        f"{d.second_value:.7g}"
    )


def replaced(first: Side, second: Side, a: Node, b: Node) -> dict[str, np.ndarray]:
    """The second's constants in the first's layout, by the first's names."""
    constants = {}
    for name, second_name in shared_constants(first, second, a, b):
        target = first.values[name]
        best: tuple[float, np.ndarray] | None = None
        for reading in _readings(second.values[second_name], target):
            gap = float(np.median(np.abs(reading - target)))
            if best is None or gap < st.CLEARLY * best[0]:
                best = gap, reading
        if best is not None:
            constants[name] = best[1]
    return constants
