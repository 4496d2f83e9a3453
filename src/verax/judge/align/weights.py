"""Weights that two networks should share: in which layout, and which elements differ.

Files keep weights in other orders (OIHW, HWIO, colours reversed, a flattened image), folded with a
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
    found = []
    unit = _unit(first, second)
    for name, other in shared_constants(first, second, a, b):
        difference = compare_weights(
            (name, first.graph.constants[name]), (other, second.graph.constants[other]), unit
        )
        if difference is not None:
            found.append(difference)
    return found


def _unit(first: Side, second: Side) -> float:
    """Relative size of what a converter may do to a weight."""
    return max(unit_of(first.graph), unit_of(second.graph)) * st.CONSTANT_ROUNDINGS


def recognised_weights(
    place: Divergence, first: Side, second: Side, cores: Sequence[Sequence[Node]]
) -> Divergence:
    """The place with weights that are recognisably the same and differ in some elements, where the
    operators that use them differ too."""
    unit = _unit(first, second)
    sides = [_named(s, nodes) for s, nodes in zip((first, second), cores)]
    pairs = [compare_weights(v, w, unit) for v in sides[0] for w in sides[1]]
    found = tuple(d for d in pairs if d is not None and 2 * d.differing <= d.elements)
    if not found:
        return place
    words = "; ".join([*map(say_weight, found[:CAUSES_SAID]), place.reason])
    return dataclasses.replace(place, reason=words, weights=found)


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
    rest = (1,) * (w.ndim - 1)
    return [
        (f"{own[0]} * {norm.inputs[1]}", w * scale.reshape(-1, *rest)),
        (f"bias folded with {norm.inputs[2]}", (bias - mean) * scale + beta),
    ]


def shared_constants(first: Side, second: Side, a: Node, b: Node) -> list[tuple[str, str]]:
    """Names of float constants at the same places of two nodes."""
    own, others = first.graph.constants, second.graph.constants
    return [
        (v, w)
        for v, w in zip(a.inputs, b.inputs)
        if v is not None and w is not None
        if v in own and w in others and own[v].dtype.kind == "f"
    ]


def compare_weights(first: Named, second: Named, unit: float) -> WeightDifference | None:
    """How two constants differ in the layout that suits them best; None when they are equal up to
    layout and a few roundings of size `unit`, or have different sizes."""
    (name, a), (other, b) = first, second
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.size != b.size or arrange(b, a, unit * st.root_mean_square(a)) is not None:
        return None
    best: tuple[int, np.ndarray, np.ndarray] | None = None
    for moved in _readings(b, a):
        size = np.maximum(np.maximum(np.abs(a), np.abs(moved)), st.root_mean_square(a))
        apart = np.abs(moved - a) > st.group_limit(1) * unit * size
        if best is None or int(apart.sum()) < best[0]:
            best = int(apart.sum()), moved, np.abs(moved - a)
    if best is None or best[0] == 0:
        return None
    count, moved, gap = best
    index = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), a.shape))
    return WeightDifference(name, other, count, a.size, index, float(a[index]), float(moved[index]))


def _readings(b: np.ndarray, a: np.ndarray) -> Iterator[np.ndarray]:
    """Weights in every layout that suits `a`, also with the slices of one axis paired by distance
    (colours reversed, a flattened image in another order)."""
    plain = [found.apply(b) for found in arrangements(b.shape, a.shape)]
    yield from plain
    for moved in plain:
        for axis in range(a.ndim if a.ndim > 1 else 0):
            order = nearest_slices(moved, a, axis)
            if order is not None and order != tuple(range(len(order))):
                yield np.take(moved, order, axis=axis)


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
    place = ", ".join(map(str, d.index))
    return (
        f"weights: {d.differing} of {d.elements} elements of {d.first!r} differ from the "
        f"second's {d.second!r}, most at [{place}]: {d.first_value:.7g} against "
        f"{d.second_value:.7g}"
    )


def replaced(first: Side, second: Side, a: Node, b: Node) -> dict[str, np.ndarray]:
    """The second's constants in the first's layout, by the first's names."""
    found = {}
    for name, other in shared_constants(first, second, a, b):
        target = first.values[name]
        best: tuple[float, np.ndarray] | None = None
        for moved in _readings(second.values[other], target):
            gap = float(np.median(np.abs(moved - target)))
            if best is None or gap < st.CLEARLY * best[0]:
                best = gap, moved
        if best is not None:
            found[name] = best[1]
    return found
