"""Corners: the inputs at which a piecewise operator changes from one piece to the next.

Between corners operators are smooth, and smooth functions that agree on random numbers are the
same. So random numbers distinguish two operators only if they lie on both sides of each corner:
below and above the bounds of a Clip, in both branches of a Where. `margins` gives the side of each
number, `CornerCoverage` collects them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node

LARGEST = float(np.finfo(np.float32).max)
"""A bound from half of this on is none: no float32 number goes far beyond it."""


@dataclass(frozen=True)
class Margin:
    """One corner. numbers: positive on one side of it and negative on the other; position: the
    number at which the node's input `operand` has it, None when another operand decides."""

    words: str
    numbers: np.ndarray
    position: float | None = None
    operand: int = 0


def margins(node: Node, inputs: Sequence[Any]) -> list[Margin]:
    """The corners of a node on these inputs; none for operators that are smooth, or whose pieces
    any random numbers reach (the largest of several, the nearest integer)."""
    rule = RULES.get(node.op.kind)
    if rule is None or not inputs or inputs[0] is None:
        return []
    with np.errstate(all="ignore"):
        return list(rule(node.op, [None if x is None else np.asarray(x) for x in inputs]))


def kinds(graph: Graph) -> Counter[str]:
    """How many nodes of each kind that has corners there are."""
    return Counter(n.op.kind for n in graph.nodes if n.op.kind in RULES)


def scalars(node: Node, inputs: Sequence[Any]) -> Iterator[float]:
    """Numbers that an operator holds and that say where something changes: floating-point
    attributes, and constants of one element."""
    for value in node.op.attributes().values():
        if isinstance(value, float):
            yield value
    for x in inputs:
        if isinstance(x, np.ndarray) and x.size == 1 and x.dtype.kind in "fi":
            yield float(x.reshape(()))


def _scalar(x: np.ndarray) -> float:
    return float(x.reshape(()))


def _at_position(x: np.ndarray, position: float, operand: int = 0) -> Margin:
    return Margin(f"{position:g}", x - position, position, operand)


def _at(*positions: float) -> Callable[..., Iterator[Margin]]:
    def rule(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
        yield from (_at_position(inputs[0], position) for position in positions)

    return rule


def _clip(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    for bound in inputs[1:]:
        if bound is not None and abs(_scalar(bound)) < LARGEST / 2:
            yield _at_position(inputs[0], _scalar(bound))


def _threshold(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    yield _at_position(inputs[0], op.alpha)


def _shrink(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    yield from (_at_position(inputs[0], position) for position in (-op.lambd, op.lambd))


def _hard_sigmoid(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    if op.alpha:
        for position in (-op.beta / op.alpha, (1 - op.beta) / op.alpha):
            yield _at_position(inputs[0], position)


def _extreme(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    """Yield for each operand whether it is the selected one. Infinite bounds are no corners."""
    if len(inputs) == 2:
        if not any(x.size == 1 and abs(_scalar(x)) >= LARGEST / 2 for x in inputs):
            yield from _compared(op, inputs)
        return
    pick = np.maximum if op.kind == "Max" else np.minimum
    for i, x in enumerate(inputs):
        remaining = [y for j, y in enumerate(inputs) if j != i]
        if remaining:
            yield Margin(f"operand {i}", x - functools.reduce(pick, remaining))


def _compared(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    a, b = (x.astype(np.float64) for x in inputs)
    if b.size == 1:
        yield _at_position(a, _scalar(b))
    elif a.size == 1:
        yield _at_position(b, _scalar(a), 1)
    else:
        yield Margin("the other operand", a - b)


def _condition(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    yield Margin("its condition", np.where(inputs[0], 1.0, -1.0))


def _special(op: Any, inputs: Sequence[Any]) -> Iterator[Margin]:
    yield Margin("not finite", np.where(np.isfinite(inputs[0]), -1.0, 1.0))


RULES: Mapping[str, Callable[..., Iterator[Margin]]] = {
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Abs", "Sign"), _at(0.0)),
    "HardSwish": _at(-3.0, 3.0),
    "Clip": _clip,
    "ThresholdedRelu": _threshold,
    "Shrink": _shrink,
    "HardSigmoid": _hard_sigmoid,
    **dict.fromkeys(("Max", "Min"), _extreme),
    **dict.fromkeys(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"), _compared),
    **dict.fromkeys(("Where", "If"), _condition),
    **dict.fromkeys(("IsNaN", "IsInf"), _special),
}


Interval = tuple[float, float]
_ANY: Interval = (-np.inf, np.inf)
_UNIT: Interval = (0.0, 1.0)
_POSITIVE: Interval = (0.0, np.inf)
RANGES: Mapping[str, Interval] = {
    **dict.fromkeys(("Sigmoid", "Softmax", "HardSigmoid", "Hardmax"), _UNIT),
    **dict.fromkeys(("Relu", "Abs", "Exp", "Sqrt", "Rsqrt", "Softplus"), _POSITIVE),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "Acos"), _POSITIVE),
    **dict.fromkeys(("Tanh", "Erf", "Sin", "Cos", "Sign", "Softsign"), (-1.0, 1.0)),
}
"""Between which numbers the results of an operator are, whatever it reads."""
KEEPING = frozenset(
    (
        *("Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Dropout"),
        *("MaxPool", "GlobalMaxPool", "GlobalAveragePool", "ReduceMax", "ReduceMin", "ReduceMean"),
        *("Slice", "Split", "Gather", "Expand", "Tile", "Cast", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Operators whose results are no smaller and no larger than what they read first."""


def _product(a: Interval, b: Interval) -> Interval:
    ends = [0.0 if 0.0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


COMBINED: Mapping[str, Callable[[Interval, Interval], Interval]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": _product,
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
}
"""Between which numbers the results of two operands are, by where each of these is."""
DEPTH = 16


def interval(graph: Graph, value: str | None, depth: int = DEPTH) -> Interval:
    """Bounds (low, high) of a value for any input, from the operators that make it."""
    constant = graph.constants.get(value or "")
    if constant is not None and constant.size and constant.dtype.kind == "f":
        return float(constant.min()), float(constant.max())
    node = graph.producers.get(value or "")
    if node is None or not depth:
        return _ANY
    if node.op.kind == "Mul" and node.inputs[0] == node.inputs[1]:
        return _POSITIVE
    if node.op.kind in COMBINED and len(node.inputs) == 2:
        a, b = (interval(graph, v, depth - 1) for v in node.inputs)
        return COMBINED[node.op.kind](a, b)
    if node.op.kind == "Neg":
        lower, upper = interval(graph, node.inputs[0], depth - 1)
        return -upper, -lower
    if node.op.kind == "Clip":
        bounds = [graph.constants.get(v or "") for v in node.inputs[1:]]
        low, high = ([*bounds, None, None])[:2]
        inner = interval(graph, node.inputs[0], depth - 1)
        return (
            max(inner[0], -np.inf if low is None else _scalar(low)),
            min(inner[1], np.inf if high is None else _scalar(high)),
        )
    if node.op.kind in KEEPING:
        return interval(graph, node.inputs[0], depth - 1)
    if node.op.kind == "Concat":
        inner_ones = [interval(graph, v, depth - 1) for v in node.inputs]
        return min(i[0] for i in inner_ones), max(i[1] for i in inner_ones)
    return RANGES.get(node.op.kind, _ANY)


@dataclass
class _Seen:
    above: np.ndarray
    below: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reachable: tuple[bool, bool] = (True, True)


@dataclass(frozen=True)
class Missing:
    """A side ("above" or "below") of the corner of the node that makes `value` to which no number
    came; gap: the distance of the nearest."""

    value: str
    corner: str
    side: str
    gap: float


@dataclass
class CornerCoverage:
    """The sides of each corner that numbers have reached so far, channel by channel."""

    seen: dict[tuple[str, str], _Seen] = field(default_factory=dict)

    def add(self, graph: Graph, node: Node, inputs: Sequence[Any]) -> None:
        """Record the sides of these inputs."""
        for margin in margins(node, inputs):
            m = np.asarray(margin.numbers, np.float64)
            if not m.size:
                continue
            if not np.isfinite(m).all():
                m = np.nan_to_num(m)
            rows = np.moveaxis(m, 1, 0).reshape(m.shape[1], -1) if m.ndim > 1 else m.reshape(1, -1)
            low, high = rows.min(axis=1), rows.max(axis=1)
            key = node.outputs[0], margin.words
            record = self.seen.get(key)
            if record is None or record.low.shape != low.shape:
                self.seen[key] = _Seen(
                    high > 0, low < 0, low, high, _reachable(graph, node, margin)
                )
                continue
            record.above |= high > 0
            record.below |= low < 0
            np.minimum(record.low, low, out=record.low)
            np.maximum(record.high, high, out=record.high)

    def missing(self) -> list[Missing]:
        """Reachable sides that no number has reached. A constant channel has no other side."""
        missing = []
        for (value, words), s in self.seen.items():
            moves = s.high > s.low
            sides = (("above", s.above, -s.high), ("below", s.below, s.low))
            for (side, reached, gap), reachable in zip(sides, s.reachable):
                lacking = moves & ~reached
                if reachable and lacking.any():
                    missing.append(Missing(value, words, side, float(gap[lacking].min())))
        return missing


def _reachable(graph: Graph, node: Node, margin: Margin) -> tuple[bool, bool]:
    """(above, below): True where the operators before it can give numbers on that side."""
    if margin.position is None:
        return True, True
    low, high = interval(graph, node.inputs[margin.operand])
    return high > margin.position, low < margin.position
