"""Every value of a network in float64, its spread by rounded weights, and its match elsewhere.

Two files of one network rarely hold the same bits: BatchNorm was folded, a scale multiplied in, and
the products rounded to float32 again. How far that may move a value is measured: the network is
evaluated with its constants jittered by a few roundings.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Graph
from verax.ir.types import TensorType
from verax.judge.align.permutations import Arrangement, arrange
from verax.numerics import statistics as st
from verax.reference.evaluate import evaluate_node, to_work

Values = dict[str, Any]
SIZING = {"Resize": 1, "Range": 0}
"""Operators of which floats say how many numbers there are: the first such input."""
SHAPES = ("Shape", "Size")
"""Operators whose results say nothing about the numbers that they read."""
FLOAT64 = np.dtype(np.float64)


def evaluate_all(graph: Graph, inputs: Mapping[str, np.ndarray]) -> Values:
    """Every value of `graph` on inputs that are already in the working dtype (float64 floats).

    Unlike `reference.evaluate`, inputs need not be representable in their declared types.
    """
    values: Values = {
        name: to_work(array, graph.types[name].dtype, FLOAT64)
        for name, array in graph.constants.items()
    }
    values.update(inputs)
    return _evaluate_nodes(graph, values, set(values))


def resume(graph: Graph, values: Values, changed: Mapping[str, np.ndarray]) -> Values:
    """`values` of an earlier evaluation, recomputed where they depend on those in `changed`."""
    return _evaluate_nodes(graph, {**values, **changed}, set(changed), frozenset(changed))


def _evaluate_nodes(
    graph: Graph, values: Values, changed: set[str], fixed: frozenset[str] = frozenset()
) -> Values:
    for node in graph.nodes:
        if all(v in values for v in node.outputs) and changed.isdisjoint(node.inputs):
            continue
        arrays = [None if v is None else values[v] for v in node.inputs]
        types = tuple(
            None if a is None or v is None else TensorType(graph.types[v].dtype, a.shape)
            for v, a in zip(node.inputs, arrays)
        )
        results = evaluate_node(node, arrays, types, graph.output_types(node))
        for value, array in zip(node.outputs, results):
            if value not in fixed:
                values[value] = array
                changed.add(value)
    return values


def dependent(graph: Graph) -> frozenset[str]:
    """Values that depend on an input, as numbers and not only by a shape."""
    reached = set(graph.inputs)
    for node in graph.nodes:
        if node.op.kind not in SHAPES and not reached.isdisjoint(node.inputs):
            reached.update(node.outputs)
    return frozenset(reached)


def ancestors(graph: Graph, value: str) -> frozenset[str]:
    """`value` and everything that it is computed from."""
    reached, waiting = {value}, [value]
    while waiting:
        node = graph.producers.get(waiting.pop())
        fresh = [v for v in node.inputs if v is not None and v not in reached] if node else []
        reached.update(fresh)
        waiting += fresh
    return frozenset(reached)


def unit_of(graph: Graph) -> float:
    """Unit roundoff of the format that holds the weights: coarser than float32 when every large
    float32 constant happens to be a float16 number."""
    large = [
        c for c in graph.constants.values() if c.dtype.kind == "f" and c.size >= st.MANY_ELEMENTS
    ]
    if not large:
        return st.FLOAT32_UNIT
    with np.errstate(over="ignore"):
        half = all(bool((c.astype(np.float16).astype(c.dtype) == c).all()) for c in large)
    return st.FLOAT16_UNIT if half else st.FLOAT32_UNIT


def roundable(graph: Graph) -> frozenset[str]:
    """Constants whose rounding moves numbers only: floats from which no size of an array is
    computed (scales of a Resize, limits of a Range)."""
    sizing: set[str | None] = set()
    for node in reversed(graph.nodes):
        if node.op.kind in SIZING:
            sizing.update(node.inputs[SIZING[node.op.kind] :])
        elif node.op.kind not in SHAPES and not sizing.isdisjoint(node.outputs):
            sizing.update(node.inputs)
    return frozenset(v for v, c in graph.constants.items() if c.dtype.kind == "f") - sizing


def spreads(
    graph: Graph,
    values: Values,
    seed: int,
    names: Iterable[str] | None = None,
    samples: int = st.SAMPLES_MANY,
    fixed: Mapping[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """Standard deviation of every value, or of `names`, when the constants are rounded a few times
    more. fixed: values that are not recomputed."""
    random = np.random.default_rng(seed)
    unit = unit_of(graph) * st.CONSTANT_ROUNDINGS
    squares: dict[str, np.ndarray] = {}
    rounded = roundable(graph)
    selected = [v for v in (graph.producers if names is None else names) if v in graph.producers]
    for _ in range(samples):
        jittered = {
            name: np.asarray(c * (1 + unit * random.standard_normal(c.shape)))
            for name, c in graph.constants.items()
            if name in rounded
        }
        sample = resume(graph, values, {**jittered, **(fixed or {})})
        for name in selected:
            y, disturbed = values[name], sample[name]
            if y.dtype.kind != "f" or y.shape != disturbed.shape:
                continue
            with np.errstate(invalid="ignore"):  # infinities of both are no distance
                gap = disturbed - y
            gap *= gap
            if name in squares:
                gap += squares[name]
            squares[name] = gap
    return {name: st.sampled_sigma(np.nan_to_num(s / samples)) for name, s in squares.items()}


@dataclass
class Side:
    """One network on its inputs: values that can be compared, and how far each may move.

    Until `spread` is filled only differences of float64 itself are allowed.
    """

    graph: Graph
    values: Values
    spread: dict[str, np.ndarray] = field(default_factory=dict)
    reaches: dict[str, float] = field(default_factory=dict, init=False)
    moments: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)

    @functools.cached_property
    def names(self) -> list[str]:
        """Values that depend on an input and can be told from others by their numbers."""
        within = dependent(self.graph)
        return [
            v
            for v in (*self.graph.inputs, *(o for n in self.graph.nodes for o in n.outputs))
            if v in within and comparable(self.values[v])
        ]

    def moments_of(self, value: str) -> tuple[float, float]:
        """Mean and root mean square of a value."""
        if value not in self.moments:
            y = self.values[value]
            self.moments[value] = float(y.mean()), st.root_mean_square(y)
        return self.moments[value]

    def operator(self, value: str) -> str:
        """Kind of the node that makes a value; "input" for an input."""
        node = self.graph.producers.get(value)
        return node.op.kind if node else "input"

    def sigma(self, value: str) -> np.ndarray:
        """Standard deviation of each element by rounding."""
        y = self.values[value]
        floor = st.FLOAT64_NOISE * st.root_mean_square(y)
        extra = self.spread.get(value)
        if extra is None or extra.shape != y.shape:
            return np.full(y.shape, floor)
        return extra + floor


def comparable(array: Any) -> bool:
    """True if the numbers of `array` can identify a value: finite floats, not all equal."""
    return (
        isinstance(array, np.ndarray)
        and array.dtype.kind == "f"
        and array.size > 0
        and bool(np.isfinite(array).all())
        and (array.size == 1 or float(np.ptp(array)) > 0)
    )


@dataclass(frozen=True)
class ValueMatch:
    """The second network's value that holds the same numbers as one of the first."""

    second: str
    arrangement: Arrangement
    statistic: float
    exact: bool


class IndexEntry(NamedTuple):
    """A value's name, mean, root mean square, and `reach`."""

    name: str
    mean: float
    size: float
    reach: float


class Index:
    """Values of one side by size, for look-up by their numbers."""

    def __init__(self, side: Side, names: Iterable[str] | None = None) -> None:
        self.side = side
        self.by_size: dict[int, list[IndexEntry]] = {}
        for name in side.names if names is None else names:
            entry = IndexEntry(name, *side.moments_of(name), reach(side, name))
            self.by_size.setdefault(side.values[name].size, []).append(entry)

    def find(self, first: Side, value: str) -> ValueMatch | None:
        """The earliest best match of the first network's `value`; None when nothing holds it.

        Both the mean and the root mean square of two arrays differ by at most the root mean square
        of their difference, which dismisses nearly all candidates.
        """
        y = first.values[value]
        (mean, size), own = first.moments_of(value), reach(first, value)
        best: tuple[ValueMatch, tuple[bool, ...]] | None = None
        operator = first.operator(value)
        for name, other_mean, other_size, other_reach in self.by_size.get(y.size, ()):
            limit = own + other_reach
            if abs(mean - other_mean) > limit or abs(size - other_size) > limit:
                continue
            match = compare(first, value, self.side, name)
            if match is None:
                continue
            other_kind = self.side.operator(name) != operator
            arrangement = match.arrangement
            rank = (not match.exact, arrangement.shuffled, other_kind, not arrangement.plain)
            if best is None or rank < best[1]:
                best = match, rank
        return best[0] if best else None


def reach(side: Side, value: str) -> float:
    """Root mean square distance within which another array may be this value."""
    if value not in side.reaches:
        limit = st.group_limit(side.values[value].size)
        side.reaches[value] = limit * st.root_mean_square(side.sigma(value))
    return side.reaches[value]


def compare(
    first: Side, value: str, second: Side, counterpart: str, arrangement: Arrangement | None = None
) -> ValueMatch | None:
    """The match if the second network's `counterpart` holds the numbers of the first's `value`."""
    a, b = first.values[value], second.values[counterpart]
    if arrangement is None:
        arrangement = arrange(b, a, reach(first, value) + reach(second, counterpart))
    if arrangement is None or b.size != a.size:
        return None
    if arrangement.shuffled:
        return ValueMatch(counterpart, arrangement, 0.0, exact=False)
    gap = st.root_mean_square(arrangement.apply(b) - a)
    if gap <= st.group_limit(a.size) * st.FLOAT64_NOISE * st.root_mean_square(a):
        return ValueMatch(counterpart, arrangement, 0.0, exact=True)
    statistic = difference(first, value, second, counterpart, arrangement)
    return (
        ValueMatch(counterpart, arrangement, statistic, False)
        if statistic <= st.ROUNDING_T
        else None
    )


def difference(
    first: Side, value: str, second: Side, counterpart: str, arrangement: Arrangement
) -> float:
    """Worst group of the difference over what rounding of the weights may do there."""
    a, b = first.values[value], arrangement.apply(second.values[counterpart])
    sigma = np.hypot(first.sigma(value), arrangement.apply(second.sigma(counterpart)))
    return st.group_test(st.standardised(b - a, sigma)).statistic


def with_spread(
    side: Side,
    seed: int,
    names: Iterable[str] | None = None,
    samples: int = st.SAMPLES_MANY,
) -> Side:
    """The side with its `spreads`; unchanged if the jittered network fails."""
    try:
        spread = spreads(side.graph, side.values, seed, names, samples)
    except VeraxError:
        return side
    return dataclasses.replace(side, spread=spread)
