"""Finds the first divergence of two networks, and every later one.

A divergence is bridged by giving the first network the second's value there and continuing: if all
later values agree, nothing else differs; else the next one that does not is the next divergence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from verax.base.deadline import clock
from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node
from verax.judge.align.attribute_changes import Remedy, everywhere
from verax.judge.align.origins import find_origin
from verax.judge.align.permutations import Arrangement, arrangements, nearest
from verax.judge.align.reasons import explain
from verax.judge.align.values import Index, Side, ValueMatch, ancestors, resume
from verax.numerics import statistics as st
from verax.records.alignment import Divergence

MAX_PLACES = 8
"""Places of divergence after which the search stops: the networks are strangers."""
REACH = 5
"""Open values on either side among which the two ends of a bridge are looked for."""
IN_PIECES = 16
"""The same against the first open value of the other side: one operator that is written out."""
LOOK_AHEAD = 6
"""Values after a bridge of which one has to agree."""
Matches = dict[str, ValueMatch]


@dataclass
class Divergences:
    """Matches of all values, and the locations where the networks diverge.

    complete: True if all locations were found; everywhere: True if the cause of the only location
    listed was tried at every node of its kind and explains all differences. carried: the matches,
    and those once every bridge gives the second's value; bridges: the first's value of each, with
    the second's and its arrangement.
    """

    matches: Matches
    locations: list[Divergence] = field(default_factory=list)
    complete: bool = True
    everywhere: bool = False
    carried: Matches = field(default_factory=dict)
    bridges: dict[str, tuple[str, Arrangement]] = field(default_factory=dict)


def match_all(first: Side, second: Side, names: Iterable[str] | None = None) -> Matches:
    """By value of the first network, the second's value that holds the same numbers."""
    index = Index(second)
    matches = {v: index.find(first, v) for v in (first.names if names is None else names)}
    return {v: f for v, f in matches.items() if f is not None}


def find_divergences(first: Side, second: Side) -> Divergences:
    """Compare all values, then bridge one divergence after another. Neither side is changed."""
    state = _State(first, second)
    result = Divergences(dict(state.matches), carried=state.matches)
    remedies: list[Remedy] = []
    while True:
        open_first, open_second = state.opened()
        if not open_first and not open_second:
            return result
        at_end = len(result.locations) == MAX_PLACES or clock().is_up
        if not open_first or not open_second or at_end:
            if not at_end:
                result.locations.append(_one_sided(state.first, second, open_first, open_second))
            result.complete = False
            return result
        bridge = _bridge(state, open_first, open_second)
        ends = bridge.ends if bridge else _ends(state.first, second, open_first, open_second)
        arrangement = bridge.arrangement if bridge else None
        regions = (
            region(first.graph, ends[0], open_first),
            region(second.graph, ends[1], open_second),
        )
        origin = find_origin(state.first, second, ends, arrangement, regions, state.matches)
        if origin is not None:
            ends, arrangement = origin.ends, origin.arrangement
            regions = ([origin.nodes[0]], [origin.nodes[1]])
            bridge = _Bridge(ends, arrangement, origin.values)
        divergence, remedy = explain(state.first, second, ends, regions, state.matches, arrangement)
        result.locations.append(replace(divergence, bridged=bridge is not None))
        if remedy is not None and remedy not in remedies:
            remedies.append(remedy)
            if _cures(first, second, remedy):
                result.locations, result.everywhere = result.locations[-1:], True
                return result
        if bridge is None:
            result.complete = False
            return result
        result.bridges[bridge.ends[0]] = bridge.ends[1], bridge.arrangement
        state.go_on(bridge)


class _State:
    """The matches so far. They only grow: a bridge changes values that did not match."""

    def __init__(self, first: Side, second: Side) -> None:
        self.first, self.second = first, second
        self.index = Index(second)
        self.matches = match_all(first, second)
        self.matched_second = set(match_all(second, first))

    def opened(self) -> tuple[list[str], list[str]]:
        """Open values of both networks, in order."""
        return (
            open_values(self.first, set(self.matches)),
            open_values(self.second, self.matched_second),
        )

    def go_on(self, bridge: _Bridge) -> None:
        """Take the second's value for the first's at the bridge, and match the other values
        again."""
        self.first = replace(self.first, values=bridge.values)
        unmatched = [v for v in self.first.names if v not in self.matches]
        new_matches = {v: self.index.find(self.first, v) for v in unmatched}
        self.matches.update({v: f for v, f in new_matches.items() if f is not None})
        missing = [v for v in self.second.names if v not in self.matched_second]
        self.matched_second.update(match_all(self.second, self.first, missing))


def _cures(first: Side, second: Side, remedy: Remedy) -> bool:
    """True if the remedy, applied at all nodes of its kind, leaves no value unmatched."""
    changed = everywhere(first if remedy.of_first else second, remedy)
    if changed is None:
        return False
    state = _State(changed, second) if remedy.of_first else _State(first, changed)
    return not any(state.opened())


def open_values(side: Side, matched: set[str]) -> list[str]:
    """Values without a counterpart from which no path leads on to values that have one, in order.

    A convolution whose BatchNorm was folded in the other file has no counterpart and is not open:
    what comes after the BatchNorm agrees.
    """
    graph = side.graph
    named = set(side.names)
    closed: set[str] = set()
    for node in reversed(graph.nodes):
        for value in node.outputs:
            consumers = graph.consumers.get(value, ())
            recovered = value not in graph.outputs and all(
                all(v in closed for v in c.outputs) for c in consumers
            )
            if value in matched or value not in named or recovered:
                closed.add(value)
    return [v for n in graph.nodes for v in n.outputs if v not in closed]


def region(graph: Graph, value: str, opened: list[str]) -> list[Node]:
    """The nodes that compute `value` from matched values."""
    within = ancestors(graph, value) & {*opened, value}
    return [n for n in graph.nodes if not within.isdisjoint(n.outputs)]


@dataclass(frozen=True)
class _Bridge:
    ends: tuple[str, str]
    arrangement: Arrangement
    values: dict[str, np.ndarray]


def _bridge(state: _State, open_first: list[str], open_second: list[str]) -> _Bridge | None:
    """The earliest pair of values after which the networks agree again, as far as one is found."""
    first, second, index = state.first, state.second, state.index
    habits = _habits(state.matches)
    candidates = [
        (i + j, i, a, b)
        for i, a in enumerate(open_first[:IN_PIECES])
        for j, b in enumerate(open_second[:IN_PIECES])
        if (i < REACH and j < REACH) or not (i and j)
        if first.values[a].size == second.values[b].size
    ]
    for _, _, a, b in sorted(candidates):
        arrangement = _layout(second.values[b], first.values[a], habits)
        if arrangement is None:
            continue
        try:
            values = resume(first.graph, first.values, {a: arrangement.apply(second.values[b])})
        except VeraxError:
            continue
        trial = replace(first, values=values)
        after = [v for v in trial.names if v != a and a in ancestors(first.graph, v)][:LOOK_AHEAD]
        ending = not after and a in first.graph.outputs and b in second.graph.outputs
        if ending or any(index.find(trial, v) is not None for v in after):
            return _Bridge((a, b), arrangement, values)
    return None


def _habits(matches: Matches) -> list[Arrangement]:
    """Layouts in which values that agree are held, the commonest first."""
    counts: dict[tuple[int, tuple[int, ...]], int] = {}
    samples: dict[tuple[int, tuple[int, ...]], Arrangement] = {}
    for match in matches.values():
        a = match.arrangement
        if not a.shuffled and not a.squeeze:
            key = len(a.shape), a.axes
            counts[key] = counts.get(key, 0) + 1
            samples[key] = a
    return [samples[k] for k in sorted(counts, key=lambda k: -counts[k])]


def _layout(
    source: np.ndarray, target: np.ndarray, habits: list[Arrangement]
) -> Arrangement | None:
    """The layout of `source` that suits `target`: the usual one unless another is much nearer."""
    best = nearest(source, target)
    if best is None:
        return None
    possible = {a.axes: a for a in arrangements(source.shape, target.shape)}
    for habit in habits:
        if len(habit.shape) == target.ndim and habit.axes in possible:
            usual = possible[habit.axes]
            gap = st.root_mean_square(usual.apply(source) - target)
            return usual if best[1] >= st.CLEARLY * gap else best[0]
    return best[0]


def _ends(
    first: Side, second: Side, open_first: list[str], open_second: list[str]
) -> tuple[str, str]:
    """The two values to show when no bridge was found: the first ones of the same operator."""
    for b in open_second[:REACH]:
        if second.operator(b) == first.operator(open_first[0]):
            return open_first[0], b
    return open_first[0], open_second[0]


def _one_sided(
    first: Side, second: Side, open_first: list[str], open_second: list[str]
) -> Divergence:
    """One network goes on where the other has ended."""
    side, opened = (first, open_first) if open_first else (second, open_second)
    nodes = region(side.graph, opened[0], opened)
    regions = (nodes, []) if open_first else ([], nodes)
    return explain(first, second, ("", ""), regions, {}, None)[0]
