"""Explains why two networks diverge at a location: attributes, weights, wiring, or operators.

A cause is proved when the first network's node, changed by that cause alone, gives the second's
value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.align.attribute_changes import Remedy, evaluate_changed, folded_epsilon
from verax.judge.align.permutations import Arrangement
from verax.judge.align.subgraph_changes import OperatorChange, attribute_text, changes
from verax.judge.align.values import Side, ValueMatch, compare
from verax.judge.align.weights import (
    CAUSES_SAID,
    recognized_weights,
    reordered_weights,
    replaced,
    say_weight,
    weight_differences,
)
from verax.numerics import statistics as st
from verax.ops.control.control import Control
from verax.records.alignment import AlignedNode, AttributeDifference, Divergence, WeightDifference

MOVES = frozenset(
    ("Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Dropout", "Cast")
)
"""Operators that change no number: they are left out when the two sides are compared."""
FEW = 4
"""Slices that hold a difference are listed up to this many."""
SMALL = 16
"""Constants of at most this many integers are shown like attributes."""
Nodes = Sequence[Node]


def explain(
    first: Side,
    second: Side,
    ends: tuple[str, str],
    regions: tuple[Nodes, Nodes],
    matches: Mapping[str, ValueMatch],
    arrangement: Arrangement | None,
) -> tuple[Divergence, Remedy | None]:
    """The divergence between the nodes in `regions`, which make the values `ends` ("": none), and
    the attribute that alone explains it.

    arrangement: of the second's value as the first's, None if there is none.
    """
    layer_pair = (layers(first, regions[0]), layers(second, regions[1]))
    cores = [[n for n in nodes if n.op.kind not in MOVES] for nodes in regions]
    plain = Divergence(
        *layer_pair,
        _chains(first, second, regions),
        relative=_relative(first, second, ends, arrangement),
        where=_location(first, second, ends, arrangement),
    )
    if [n.op.kind for n in cores[0]] != [n.op.kind for n in cores[1]] or not cores[0]:
        remedy = folded_epsilon(first, second, cores, ends, arrangement) if arrangement else None
        if remedy is not None:
            return _folded(plain, remedy), remedy
        return recognized_weights(plain, first, second, cores), None
    differing: list[OperatorChange] = []
    weights: list[WeightDifference] = []
    wiring: list[str] = []
    for a, b in zip(*cores):
        differing += changes(a.op, b.op)
        weights += weight_differences(first, second, a, b)
        wiring += [*_settings_apart(first, second, a, b), *_wiring(first, second, a, b, matches)]
    proof = ""
    if len(cores[0]) == 1 and arrangement is not None:
        enough = _enough(differing, first, second, cores, ends, arrangement)
        proof = "attributes" if enough else ""
        differing = enough or differing
        proof = proof or _proof(first, second, cores[0][0], cores[1][0], ends, arrangement)
    attributes = [c.difference for c in differing]
    causes = {
        "attributes": [say_attribute(d) for d in attributes],
        "weights": [say_weight(d) for d in weights],
        "wiring": wiring,
    }
    words = causes.get(proof) or [w for phrases in causes.values() for w in phrases]
    if not words:
        for a, b in zip(*cores):
            words += reordered_weights(first, second, a, b)
    if not words:
        return plain, None
    more = len(words) - CAUSES_SAID
    divergence = dataclasses.replace(
        plain,
        reason="; ".join(words[:CAUSES_SAID]) + (f"; and {more} more" if more > 0 else ""),
        attributes=tuple(attributes),
        weights=tuple(weights),
        proved=bool(proof),
    )
    if proof != "attributes" or len(attributes) != 1 or isinstance(cores[0][0].op, Control):
        return divergence, None
    name = differing[0].attribute
    old, new = (getattr(nodes[0].op, name) for nodes in cores)
    return divergence, Remedy(cores[0][0].op.kind, name, old, new)


def _folded(divergence: Divergence, remedy: Remedy) -> Divergence:
    d = remedy.record()
    reason = (
        f"{say_attribute(d)}: one side folded it into the convolution, with that epsilon by the "
        "weights it has"
    )
    return dataclasses.replace(divergence, reason=reason, attributes=(d,), proved=True)


def layers(side: Side, nodes: Nodes) -> tuple[AlignedNode, ...]:
    """Records of nodes for display."""
    return tuple(
        AlignedNode(
            n.name or n.outputs[0],
            n.op.kind,
            {k: attribute_text(n.op, k) for k in n.op.attributes()} | _settings(side, n),
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
    """Small constant integer inputs by "input i", which act like attributes."""
    settings = {}
    for i, value in enumerate(node.inputs):
        array = side.graph.constants.get(value or "")
        if array is not None and array.dtype.kind in "iu" and array.size <= SMALL:
            settings[f"input {i}"] = str(array.tolist())
    return settings


def _settings_apart(first: Side, second: Side, a: Node, b: Node) -> list[str]:
    """Small constants of integers (axes, bounds of a Slice) that the two nodes do not share."""
    own, second_settings = _settings(first, a), _settings(second, b)
    return [
        f"{a.op.kind}: {k} is {own[k]} in the first and {second_settings[k]} in the second"
        for k in own
        if second_settings.get(k, own[k]) != own[k]
    ]


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


def _location(
    first: Side, second: Side, ends: tuple[str, str], arrangement: Arrangement | None
) -> str:
    """Text on the slices that hold all of the difference, "" if it is everywhere."""
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
    phrases = []
    for axis, name in named.items():
        if axis >= a.ndim or a.shape[axis] < 2:
            continue
        indices = np.flatnonzero(wrong.any(axis=tuple(i for i in range(a.ndim) if i != axis)))
        if len(indices) <= min(FEW, a.shape[axis] - 1):
            plural = "s" * (len(indices) > 1)
            phrases.append(f"{name}{plural} {', '.join(map(str, indices))} of {a.shape[axis]}")
    return f"only in {' and '.join(phrases)}" if phrases else ""


def say_attribute(d: AttributeDifference) -> str:
    """A difference of attributes as a sentence."""
    return f"{d.operator}: {d.attribute} is {d.first} in the first and {d.second} in the second"


def _wiring(
    first: Side, second: Side, a: Node, b: Node, matches: Mapping[str, ValueMatch]
) -> list[str]:
    """Inputs that the two nodes do not share."""
    words = []
    if len(a.inputs) != len(b.inputs):
        words.append(
            f"{a.op.kind} has {len(a.inputs)} inputs in the first, {len(b.inputs)} in the second"
        )
    if reordered := _in_another_order(first, second, a, b, matches):
        return [*words, reordered]
    for i, (v, w) in enumerate(zip(a.inputs, b.inputs)):
        if v not in first.names or w not in second.names or v not in matches:
            continue
        if matches[v].second != w and compare(first, v, second, w) is None:
            words.append(
                f"{a.op.kind} reads {v!r} as input {i} in the first, which the second knows as "
                f"{matches[v].second!r}; there it reads {w!r}"
            )
    return words


def _in_another_order(
    first: Side, second: Side, a: Node, b: Node, matches: Mapping[str, ValueMatch]
) -> str:
    """Text on two nodes that read the same values in another order, "" if they do not."""
    expected = [matches[v].second if v in matches else None for v in a.inputs if v is not None]
    read = [w for w in b.inputs if w is not None]
    apart = [i for i, (v, w) in enumerate(zip(expected, read)) if v != w]
    if not apart or None in expected or sorted(map(str, expected)) != sorted(read):
        return ""
    if all(compare(first, str(a.inputs[i]), second, read[i]) for i in apart):
        return ""  # equal values: nothing tells their order
    change = "exchanged" if len(apart) == 2 else "in another order"
    return (
        f"{a.op.kind}: the operands are {change}: {_listed(a.inputs)} in the first, "
        f"{_listed(b.inputs)} in the second"
    )


def _listed(names: Sequence[str | None]) -> str:
    return f"[{', '.join(str(v) for v in names)}]"


def _proof(
    first: Side,
    second: Side,
    a: Node,
    b: Node,
    ends: tuple[str, str],
    arrangement: Arrangement,
) -> str:
    """Name of the change that alone turns the first's node into the second's: "attributes",
    "weights", "both", or "" for none."""
    hypotheses = {
        "attributes": (b.op, {}),
        "weights": (a.op, replaced(first, second, a, b)),
        "both": (b.op, replaced(first, second, a, b)),
    }
    if a.outputs[0] != ends[0]:
        return ""
    for name, (op, constants) in hypotheses.items():
        changed = dataclasses.replace(first, values={**first.values, **constants})
        output = evaluate_changed(changed, a, op)
        if output is None or output.shape != arrangement.shape:
            continue
        trial = dataclasses.replace(first, values={**first.values, ends[0]: output})
        if compare(trial, ends[0], second, ends[1], arrangement):
            return name
    return ""


def _enough(
    candidates: list[OperatorChange],
    first: Side,
    second: Side,
    cores: Sequence[Nodes],
    ends: tuple[str, str],
    arrangement: Arrangement,
) -> list[OperatorChange]:
    """[the one change that explains the divergence], or [] if none does."""
    a = cores[0][0]
    for change in candidates:
        output = evaluate_changed(first, a, change.apply(a.op))
        if output is None or output.shape != arrangement.shape:
            continue
        trial = dataclasses.replace(first, values={**first.values, ends[0]: output})
        if compare(trial, ends[0], second, ends[1], arrangement):
            return [change]
    return []
