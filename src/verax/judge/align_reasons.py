"""Why two networks part at a place: attributes, weights, wiring, or other operators.

A cause is proved when the first network's node, changed by that cause alone, gives the second's
value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.align_remedies import Remedy, evaluate_changed, folded_epsilon
from verax.judge.align_values import Found, Side, compare, unit_of
from verax.judge.permutations import Arrangement, arrange, arrangements, nearest_slices
from verax.numerics import statistics as st
from verax.records.alignment import AttributeDifference, Divergence, Layer, WeightDifference

MOVES = frozenset(
    ("Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "Cast")
)
"""Operators that change no number: they are left out when the two sides are compared."""
FEW = 4
"""Slices that hold a difference are listed up to this many."""
CAUSES_SAID = 3
"""Differences of one place that are said in words; the record holds all."""
SMALL = 16
"""Constants of at most this many integers are shown like attributes."""
Nodes = Sequence[Node]


def explain(
    first: Side,
    second: Side,
    ends: tuple[str, str],
    regions: tuple[Nodes, Nodes],
    matches: Mapping[str, Found],
    arrangement: Arrangement | None,
) -> tuple[Divergence, Remedy | None]:
    """What differs between the nodes in `regions`, which make the values `ends` ("": none), and the
    attribute that alone explains it.

    arrangement: how the second's value is read as the first's, None when it cannot be.
    """
    shown = (layers(first, regions[0]), layers(second, regions[1]))
    cores = [[n for n in nodes if n.op.kind not in MOVES] for nodes in regions]
    plain = Divergence(
        *shown,
        _chains(first, second, regions),
        relative=_relative(first, second, ends, arrangement),
        where=_where(first, second, ends, arrangement),
    )
    if [n.op.kind for n in cores[0]] != [n.op.kind for n in cores[1]] or not cores[0]:
        remedy = folded_epsilon(first, second, cores, ends, arrangement) if arrangement else None
        if remedy is not None:
            return _folded(plain, remedy), remedy
        return _with_weights(plain, first, second, cores), None
    attributes: list[AttributeDifference] = []
    weights: list[WeightDifference] = []
    wiring: list[str] = []
    for a, b in zip(*cores):
        attributes += _attributes(a.op, b.op)
        weights += _weights(first, second, a, b)
        wiring += _wiring(first, second, a, b, matches)
    proof = ""
    if len(cores[0]) == 1 and arrangement is not None:
        proof = _proof(first, second, cores[0][0], cores[1][0], ends, arrangement)
    causes = {
        "attributes": [_say_attribute(d) for d in attributes],
        "weights": [_say_weight(d) for d in weights],
        "wiring": wiring,
    }
    if proof in ("attributes", "weights"):
        words = causes[proof]
    else:
        words = [w for said in causes.values() for w in said]
    if not words:
        return plain, None
    more = len(words) - CAUSES_SAID
    place = dataclasses.replace(
        plain,
        reason="; ".join(words[:CAUSES_SAID]) + (f"; and {more} more" if more > 0 else ""),
        attributes=tuple(attributes),
        weights=tuple(weights),
        proved=bool(proof),
    )
    if proof != "attributes" or len(attributes) != 1:
        return place, None
    name = attributes[0].attribute
    old, new = (getattr(nodes[0].op, name) for nodes in cores)
    return place, Remedy(cores[0][0].op.kind, name, old, new)


def _folded(place: Divergence, remedy: Remedy) -> Divergence:
    d = remedy.record()
    reason = (
        f"{_say_attribute(d)}: one side folded it into the convolution, with that epsilon by the "
        "weights it has"
    )
    return dataclasses.replace(place, reason=reason, attributes=(d,), proved=True)


def layers(side: Side, nodes: Nodes) -> tuple[Layer, ...]:
    """Nodes as a reader sees them."""
    return tuple(
        Layer(
            n.name or n.outputs[0],
            n.op.kind,
            {k: repr(v) for k, v in n.op.attributes().items()} | _settings(side, n),
            n.outputs[0],
            str(
                TensorType.of(side.values[n.outputs[0]]).with_dtype(
                    side.graph.types[n.outputs[0]].dtype
                )
            ),
        )
        for n in nodes
    )


def _settings(side: Side, node: Node) -> dict[str, str]:
    """Small constant inputs of integers: they are attributes in all but form."""
    found = {}
    for i, value in enumerate(node.inputs):
        array = side.graph.constants.get(value or "")
        if array is not None and array.dtype.kind in "iu" and array.size <= SMALL:
            found[f"input {i}"] = str(array.tolist())
    return found


def _say_node(side: Side, node: Node) -> str:
    settings = ", ".join(f"{k} {v}" for k, v in _settings(side, node).items())
    return f"{node.op} with {settings}" if settings else str(node.op)


def _chains(first: Side, second: Side, regions: tuple[Nodes, Nodes]) -> str:
    sides = (first, second)
    chains = [" -> ".join(_say_node(s, n) for n in nodes) for s, nodes in zip(sides, regions)]
    if not chains[0] or not chains[1]:
        side = "first" if chains[0] else "second"
        return f"only the {side} goes on, with {chains[0] or chains[1]}"
    return f"the first computes {chains[0]}, the second {chains[1]}"


def _relative(
    first: Side, second: Side, ends: tuple[str, str], arrangement: Arrangement | None
) -> float:
    if arrangement is None or not all(ends):
        return float("inf")
    a = first.values[ends[0]]
    gap = st.root_mean_square(arrangement.apply(second.values[ends[1]]) - a)
    size = st.root_mean_square(a)
    return gap / size if size else float("inf")


def _where(
    first: Side, second: Side, ends: tuple[str, str], arrangement: Arrangement | None
) -> str:
    """The slices that hold all of the difference, "" when it is everywhere."""
    if arrangement is None or not all(ends):
        return ""
    a, sigma = first.values[ends[0]], first.sigma(ends[0])
    gap = np.abs(arrangement.apply(second.values[ends[1]]) - a)
    wrong = gap > st.group_limit(1) * sigma
    if not wrong.any():
        return ""
    named = (
        {1: "channel"} if a.ndim < 3 else {1: "channel", a.ndim - 2: "row", a.ndim - 1: "column"}
    )
    parts = []
    for axis, name in named.items():
        if axis >= a.ndim or a.shape[axis] < 2:
            continue
        found = np.flatnonzero(wrong.any(axis=tuple(i for i in range(a.ndim) if i != axis)))
        if len(found) <= min(FEW, a.shape[axis] - 1):
            plural = "s" * (len(found) > 1)
            parts.append(f"{name}{plural} {', '.join(map(str, found))} of {a.shape[axis]}")
    return f"only in {' and '.join(parts)}" if parts else ""


def _attributes(a: Operator, b: Operator) -> list[AttributeDifference]:
    own, other = a.attributes(), b.attributes()
    return [
        AttributeDifference(a.kind, name, repr(own[name]), repr(other[name]))
        for name in own
        if own[name] != other[name]
    ]


def _say_attribute(d: AttributeDifference) -> str:
    return f"{d.operator}: {d.attribute} is {d.first} in the first and {d.second} in the second"


def _weights(first: Side, second: Side, a: Node, b: Node) -> list[WeightDifference]:
    found = []
    for name, other in _constants(first, second, a, b):
        difference = compare_weights(first, second, name, other)
        if difference is not None:
            found.append(difference)
    return found


def _with_weights(
    place: Divergence, first: Side, second: Side, cores: Sequence[Nodes]
) -> Divergence:
    """The place with weights that are recognisably the same and differ in some elements, where the
    operators that use them differ too."""
    sides = (first, second)
    constants = [
        [v for n in nodes for v in n.inputs if v in s.graph.constants]
        for s, nodes in zip(sides, cores)
    ]
    pairs = [
        compare_weights(first, second, v, w)
        for v in constants[0]
        for w in constants[1]
        if v is not None and w is not None and first.graph.constants[v].dtype.kind == "f"
    ]
    found = tuple(d for d in pairs if d is not None and 2 * d.differing <= d.elements)
    if not found:
        return place
    words = "; ".join([*map(_say_weight, found[:CAUSES_SAID]), place.reason])
    return dataclasses.replace(place, reason=words, weights=found)


def unseen(first: Side, second: Side, matches: Mapping[str, Found]) -> list[Divergence]:
    """Nodes that agree on these inputs although weights of theirs differ by more than rounding."""
    places = []
    for node, other in _twins(first, second, matches):
        differing = _weights(first, second, node, other)
        if differing:
            said = "; ".join(map(_say_weight, differing))
            places.append(
                Divergence(
                    layers(first, [node]),
                    layers(second, [other]),
                    f"{said}; too little to show in the values on these inputs",
                    weights=tuple(differing),
                    bridged=True,
                )
            )
    return places


def idle_attributes(
    first: Side, second: Side, matches: Mapping[str, Found], seed: int
) -> list[str]:
    """Sentences on attributes that differ without effect on these inputs, and would have an effect
    if other numbers came to the node."""
    random = np.random.default_rng(seed)
    notes = []
    for node, other in _twins(first, second, matches):
        differing = _attributes(node.op, other.op)
        if not differing:
            continue
        fresh = {
            v: random.standard_normal(first.values[v].shape)
            for v in node.inputs
            if v in first.names and v is not None
        }
        trial = dataclasses.replace(first, values={**first.values, **fresh})
        own, rival = (evaluate_changed(trial, node, op) for op in (node.op, other.op))
        if own is None or rival is None or np.array_equal(own, rival, equal_nan=True):
            continue
        said = "; ".join(map(_say_attribute, differing))
        notes.append(
            f"{node.name or node.outputs[0]}: {said}; no difference on these inputs, but on others"
        )
    more = len(notes) - CAUSES_SAID
    return notes[:CAUSES_SAID] + ([f"and so for {more} more nodes"] if more > 0 else [])


def _twins(first: Side, second: Side, matches: Mapping[str, Found]) -> Iterator[tuple[Node, Node]]:
    """Nodes of one kind that make the same value from the same values, held in one order on both
    sides."""
    for node in first.graph.nodes:
        found = matches.get(node.outputs[0])
        other = second.graph.producers.get(found.second) if found else None
        if other is None or other.op.kind != node.op.kind or node.op.kind in MOVES:
            continue
        inputs = [
            compare(first, v, second, w)
            for v, w in zip(node.inputs, other.inputs)
            if v in first.names and w in second.names
        ]
        if all(m is not None and _in_order(m) for m in (found, *inputs)):
            yield node, other


def _in_order(found: Found) -> bool:
    a = found.arrangement
    return not a.shuffled and (a.axis < 0 or len(a.channels) == 3)


def _constants(first: Side, second: Side, a: Node, b: Node) -> list[tuple[str, str]]:
    """Names of float constants at the same places of two nodes."""
    own, others = first.graph.constants, second.graph.constants
    return [
        (v, w)
        for v, w in zip(a.inputs, b.inputs)
        if v is not None and w is not None
        if v in own and w in others and own[v].dtype.kind == "f"
    ]


def compare_weights(first: Side, second: Side, name: str, other: str) -> WeightDifference | None:
    """How two constants differ in the layout that suits them best; None when they are equal up to
    layout and a few roundings, or have different sizes."""
    a = first.graph.constants[name].astype(np.float64)
    b = second.graph.constants[other].astype(np.float64)
    unit = max(unit_of(first.graph), unit_of(second.graph)) * st.CONSTANT_ROUNDINGS
    if a.size != b.size or arrange(b, a, unit * st.root_mean_square(a)) is not None:
        return None
    best: tuple[int, np.ndarray, np.ndarray] | None = None
    for moved in _readings(b, a):
        apart = np.abs(moved - a) > st.group_limit(1) * unit * np.maximum(np.abs(a), np.abs(moved))
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


def _say_weight(d: WeightDifference) -> str:
    place = ", ".join(map(str, d.index))
    return (
        f"weights: {d.differing} of {d.elements} elements of {d.first!r} differ from the "
        f"second's {d.second!r}, most at [{place}]: {d.first_value:.7g} against "
        f"{d.second_value:.7g}"
    )


def _wiring(first: Side, second: Side, a: Node, b: Node, matches: Mapping[str, Found]) -> list[str]:
    """Inputs that the two nodes do not share."""
    words = []
    if len(a.inputs) != len(b.inputs):
        words.append(
            f"{a.op.kind} has {len(a.inputs)} inputs in the first, {len(b.inputs)} in the second"
        )
    for i, (v, w) in enumerate(zip(a.inputs, b.inputs)):
        if v not in first.names or w not in second.names or v not in matches:
            continue
        if matches[v].second != w and compare(first, v, second, w) is None:
            words.append(
                f"{a.op.kind} reads {v!r} as input {i} in the first, which the second knows as "
                f"{matches[v].second!r}; there it reads {w!r}"
            )
    return words


def _proof(
    first: Side,
    second: Side,
    a: Node,
    b: Node,
    ends: tuple[str, str],
    arrangement: Arrangement,
) -> str:
    """Which change alone turns the first's node into the second's: "attributes", "weights",
    "both", or "" when none does."""
    rivals = {
        "attributes": (b.op, {}),
        "weights": (a.op, _replaced(first, second, a, b)),
        "both": (b.op, _replaced(first, second, a, b)),
    }
    if a.outputs[0] != ends[0]:
        return ""
    for name, (op, constants) in rivals.items():
        changed = dataclasses.replace(first, values={**first.values, **constants})
        output = evaluate_changed(changed, a, op)
        if output is None or output.shape != arrangement.shape:
            continue
        trial = dataclasses.replace(first, values={**first.values, ends[0]: output})
        if compare(trial, ends[0], second, ends[1], arrangement):
            return name
    return ""


def _replaced(first: Side, second: Side, a: Node, b: Node) -> dict[str, np.ndarray]:
    """The second's constants in the first's layout, by the first's names."""
    found = {}
    for name, other in _constants(first, second, a, b):
        target = first.values[name]
        best: tuple[float, np.ndarray] | None = None
        for moved in _readings(second.values[other], target):
            gap = float(np.median(np.abs(moved - target)))
            if best is None or gap < st.CLEARLY * best[0]:
                best = gap, moved
        if best is not None:
            found[name] = best[1]
    return found
