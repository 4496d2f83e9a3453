"""Shows that two networks that agree on an input are the same function, operator by operator.

Values that agree cut both networks into pieces. If each piece of the first does to any numbers what
its counterpart does, so do the networks; what comes to a piece on ordinary inputs plays no part. A
piece is the same by

- structure: one operator with the same attributes, constants and operands;
- movement: numbers change places only, and one array of different numbers shows where to;
- trial: fed with numbers of our own that reach both sides of every corner of its operators (see
  `corners`), it gives the same, and operators of one kind differ in no attribute that the stated
  identities do not cover (see `identities`).

Pieces for which none holds are open: the networks may be the same, and nothing shows that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.deadline import clock
from verax.ir.dim import symbols
from verax.ir.graph import Graph, Node
from verax.judge.align.drives import Drive
from verax.judge.align.identities import COMMUTATIVE, MOVEMENT, open_changes, unequal
from verax.judge.align.inputs import InputConversions
from verax.judge.align.permutations import Arrangement, arrange
from verax.judge.align.pieces import NetworkPiece, positions
from verax.judge.align.trials import Feed, PieceTrial, PieceTrials
from verax.judge.align.values import Side, ancestors, comparable, compare, dependent, reach
from verax.ops.pointwise.elementwise import Elementwise

LEVELS = 3
"""How far a piece is made larger when it cannot be shown to be the same: values that agree are not
always independent of each other."""
MANY_OPEN = 4
"""Open places from which on pieces are no longer made larger: the networks are not the same, and
only where they differ is left to be told."""
LONGEST = 48
"""Nodes of a piece at most."""
MOST_CANDIDATES = 6
"""Values of the second network that are tried for one of the first."""


@dataclass(frozen=True)
class OpenPair:
    """A pair of values that agree on the inputs at hand, and what is open about them."""

    first: str
    second: str
    arrangement: Arrangement
    trial: PieceTrial


@dataclass
class Evidence:
    """Number of values shown to be the same, by kind of evidence, and the pairs that stay open."""

    structure: int = 0
    movement: int = 0
    trial: int = 0
    open_pairs: list[OpenPair] = field(default_factory=list)


def prove(
    first: Side,
    second: Side,
    conversions: InputConversions,
    outputs: Sequence[tuple[str, str]],
    *,
    sizes_open: bool = False,
    seed: int = 0,
) -> Evidence:
    """Show value by value that the second network computes the same as the first.

    outputs: pairs that agree on the inputs at hand. sizes_open: see `identities.open_changes`.
    """
    return _Proof(first, second, conversions, sizes_open, seed).of(outputs)


class _Proof:
    def __init__(
        self, first: Side, second: Side, conversions: InputConversions, sizes_open: bool, seed: int
    ) -> None:
        self.first, self.second = first, second
        self.varying = dependent(first.graph), dependent(second.graph)
        self.order = positions(second.graph)
        self.sizes_open = sizes_open
        self.evidence = Evidence()
        self.counterparts: dict[str, dict[str, Arrangement]] = {}
        self.feeds: tuple[dict[str, Feed], dict[str, Feed]] = ({}, {})
        self.trials = PieceTrials(first, second, self.feeds, sizes_open, seed)
        self.failed: dict[str, OpenPair] = {}
        self.assumed: dict[str, OpenPair] = {}
        self.by_size: dict[int, list[str]] = {}
        for v in second.names:
            self.by_size.setdefault(second.values[v].size, []).append(v)
        for name, (own, conversion) in conversions.items():
            self.feeds[0].setdefault(own, (own, _as_it_is))
            self.feeds[1][name] = own, _converter(conversion.apply, second, name)
            plain = (
                conversion.scale == (1.0,)
                and conversion.offset == (0.0,)
                and conversion.arrangement.plain
            )
            if plain and first.values[own].shape == second.values[name].shape:
                self.counterparts.setdefault(own, {})[name] = conversion.arrangement

    def of(self, outputs: Sequence[tuple[str, str]]) -> Evidence:
        needed: set[str] = set()
        for v, _ in outputs:
            needed |= ancestors(self.first.graph, v)
        self.needed_second = {x for _, w in outputs for x in ancestors(self.second.graph, w)}
        for node in self.first.graph.nodes:
            if needed.isdisjoint(node.outputs):
                continue
            if clock().is_up:
                break
            by_structure = self._by_structure(node)
            for value in node.outputs:
                if value in self.varying[0] and value in needed:
                    if not by_structure:
                        self._by_numbers(value)
                    self._extend(value)
        for v, w in outputs:
            self._output(v, w)
        self.evidence.open_pairs = [p for v, p in self.assumed.items() if v in needed]
        if not self.evidence.open_pairs:
            self.evidence.open_pairs = self._unequal(needed)
        return self.evidence

    def _unequal(self, needed: set[str]) -> list[OpenPair]:
        """Nodes that differ in an attribute although every piece is the same on all numbers
        tried."""
        sides = [
            ([n for n in side.graph.nodes if not within.isdisjoint(n.outputs)], side.graph)
            for side, within in ((self.first, needed), (self.second, self.needed_second))
        ]
        return [
            OpenPair(
                u.first.outputs[0],
                u.second.outputs[0],
                Arrangement(()),
                PieceTrial(((u.first,), (u.second,)), changes=(u.difference,)),
            )
            for u in unequal(sides[0], sides[1], self.sizes_open)
        ]

    # Structure

    def _by_structure(self, node: Node) -> bool:
        """Pair the node with every node of the second that is the same by structure."""
        own = [v for v in node.inputs if v in self.varying[0]]
        if not own:
            return False
        done = False
        attempted: set[str] = set()
        for w in self.counterparts.get(own[0] or "", {}):
            for candidate in self.second.graph.consumers.get(w, ()):
                if candidate.outputs[0] in attempted or candidate.op.kind != node.op.kind:
                    continue
                attempted.add(candidate.outputs[0])
                arrangement = self._same_node(node, candidate)
                if arrangement is None:
                    continue
                done = True
                for a, b in zip(node.outputs, candidate.outputs):
                    if a in self.varying[0]:
                        self.evidence.structure += 1
                        plain = Arrangement(self.first.values[a].shape)
                        self._pair(a, b, plain if arrangement.plain else arrangement)
        return done

    def _same_node(self, a: Node, b: Node) -> Arrangement | None:
        """Arrangement of the second's results as the first's; None if the two are not the same
        operator on the same operands."""
        if a.op != b.op and open_changes(a.op, b.op, True):
            return None
        inputs = [_trimmed(n.inputs) for n in (a, b)]
        if len(inputs[0]) != len(inputs[1]):
            return None
        orders = [inputs[1]]
        if a.op.kind in COMMUTATIVE and len(inputs[1]) == 2:
            orders.append(inputs[1][::-1])
        return next(
            (
                arrangement
                for order in orders
                if (arrangement := self._same_operands(a, inputs[0], order)) is not None
            ),
            None,
        )

    def _same_operands(
        self, node: Node, own: Sequence[str | None], second_inputs: Sequence[str | None]
    ) -> Arrangement | None:
        arrangements: set[Arrangement] = set()
        all_scalars = True
        for v, w in zip(own, second_inputs):
            if v is None or w is None:
                if v is not w:
                    return None
                continue
            x, y = self.first.values[v], self.second.values[w]
            varies = v in self.varying[0], w in self.varying[1]
            if not any(varies):
                if x.dtype != y.dtype or x.shape != y.shape:
                    return None
                if not np.array_equal(x, y, equal_nan=x.dtype.kind == "f"):
                    return None
                all_scalars = all_scalars and x.size == 1
                continue
            arrangement = self.counterparts.get(v, {}).get(w) if all(varies) else None
            if arrangement is None:
                return None
            if arrangement.plain and x.shape == y.shape:
                all_scalars = False
            else:
                arrangements.add(arrangement)
        if not arrangements:
            return Arrangement(self.first.values[node.outputs[0]].shape)
        if all_scalars and len(arrangements) == 1 and isinstance(node.op, Elementwise):
            return next(iter(arrangements))
        return None

    # Numbers

    def _by_numbers(self, value: str) -> None:
        """Pair the value with those of the second that hold the same numbers, if trials of a piece
        show that they do for any inputs."""
        waiting = []
        for w, arrangement in self._candidates(value):
            if w not in self.counterparts.get(value, {}):
                open_pair = self._try_pieces(value, w, arrangement)
                if open_pair is not None:
                    waiting.append(open_pair)
        if value in self.counterparts or not waiting:
            return
        open_pair = min(waiting, key=_rank)
        if self._assume(value):
            open_pair = (
                self._try_pieces(value, open_pair.second, open_pair.arrangement) or open_pair
            )
        if value not in self.counterparts:
            self.failed[value] = open_pair

    def _extend(self, value: str) -> None:
        """Pair the value also with the second network's values that only move its numbers."""
        waiting = list(self.counterparts.get(value, ()))
        while waiting:
            for node in self.second.graph.consumers.get(waiting.pop(), ()):
                w = node.outputs[0]
                if node.op.kind not in MOVEMENT or w in self.counterparts[value]:
                    continue
                x, y = self.first.values[value], self.second.values[w]
                if not (comparable(x) and comparable(y)):
                    continue
                arrangement = arrange(y, x, reach(self.first, value) + reach(self.second, w))
                if (
                    arrangement is None
                    or arrangement.shuffled
                    or self._try_pieces(value, w, arrangement) is not None
                ):
                    continue
                waiting.append(w)

    def _candidates(self, value: str) -> Iterator[tuple[str, Arrangement]]:
        if not comparable(self.first.values[value]):
            return
        (mean, size), own = self.first.moments_of(value), reach(self.first, value)
        matching = []
        for w in self.by_size.get(self.first.values[value].size, ()):
            if w not in self.needed_second:
                continue
            other_mean, other_size = self.second.moments_of(w)
            limit = own + reach(self.second, w)
            if abs(other_mean - mean) > limit or abs(other_size - size) > limit:
                continue
            match = compare(self.first, value, self.second, w)
            if match is not None and not match.arrangement.shuffled:
                matching.append((w, match.arrangement))
        kind = self.first.operator(value)
        matching.sort(key=lambda f: (self.second.operator(f[0]) != kind, self.order.get(f[0], -1)))
        yield from matching[:MOST_CANDIDATES]

    def _assume(self, v: str) -> bool:
        """Assume earlier failures within the piece of `v` to be the same, since they are reported
        at their own location. True if there were any."""
        reach_of = NetworkPiece(
            self.first.graph, self.first.values, self.varying[0], v, self.feeds[0], 4 * LONGEST
        )
        values = [o for n in reach_of.nodes for o in n.outputs]
        inside = [n for n in values if n in self.failed and n != v]
        for name in inside:
            self.assumed[name] = self.failed.pop(name)
            self._pair(name, self.assumed[name].second, self.assumed[name].arrangement)
        return bool(inside)

    def _try_pieces(self, v: str, w: str, arrangement: Arrangement) -> OpenPair | None:
        if clock().is_up:
            return OpenPair(v, w, arrangement, PieceTrial(((), ()), obstacle=clock().reason))
        skipped: tuple[set[str], set[str]] = set(), set()
        first: PieceTrial | None = None
        for level in range(LEVELS if len(self.assumed) < MANY_OPEN else 1):
            stops = [set(f) - s for f, s in zip(self.feeds, skipped)]
            a = NetworkPiece(
                self.first.graph, self.first.values, self.varying[0], v, stops[0], LONGEST
            )
            b = NetworkPiece(
                self.second.graph, self.second.values, self.varying[1], w, stops[1], LONGEST
            )
            if level == 0 and v in stops[0]:
                a.end_at_value()
            elif level == 0 and w in stops[1]:
                b.end_at_value()
            if a.too_long or b.too_long:
                long = PieceTrial(
                    (tuple(a.nodes), tuple(b.nodes)), obstacle="too many operators at once"
                )
                first = first or long
                break
            trial, evidence = self.trials.compare(a, b, arrangement, self._hinted(a))
            if trial.same:
                setattr(self.evidence, evidence, getattr(self.evidence, evidence) + 1)
                self._pair(v, w, arrangement)
                return None
            first = first or trial
            masters = {self.feeds[0][n][0] for n in a.leaves} | {
                self.feeds[1][n][0] for n in b.leaves
            }
            masters -= set(self.first.graph.inputs)
            if not masters:
                break
            for feed, skip in zip(self.feeds, skipped):
                skip |= {n for n, (master, _) in feed.items() if master in masters}
        assert first is not None
        return OpenPair(v, w, arrangement, first)

    def _hinted(self, a: NetworkPiece) -> list[Drive]:
        """Drives that showed a difference within this piece before."""
        values = [o for n in a.nodes for o in n.outputs]
        drives = [self.failed[v].trial.drive for v in values if v in self.failed]
        return [d for d in drives if d is not None][:1]

    def _pair(self, v: str, w: str, arrangement: Arrangement) -> None:
        self.counterparts.setdefault(v, {})[w] = arrangement
        first, second = self.feeds
        if w in second:
            if v not in first:
                master, make = second[w]
                first[v] = master, lambda x: arrangement.apply(make(x))
            return
        if v not in first:
            first[v] = v, _as_it_is
        master, own = first[v]
        shape = self.second.values[w].shape
        second[w] = master, lambda x: _inverse(arrangement, own(x), shape)

    def _output(self, v: str, w: str) -> None:
        """Outputs are compared whatever they hold: integers, one number everywhere."""
        if w in self.counterparts.get(v, {}) or (
            v not in self.varying[0] and w not in self.varying[1]
        ):
            return
        arrangement = None
        if v in self.failed and self.failed[v].second == w:
            arrangement = self.failed[v].arrangement
        x, y = (
            np.nan_to_num(np.asarray(s, np.float64))
            for s in (self.first.values[v], self.second.values[w])
        )
        arrangement = arrangement or arrange(y, x, _limit(self.first, self.second, v, w))
        if arrangement is None or arrangement.shuffled:
            arrangement = Arrangement(x.shape)
        open_pair = self._try_pieces(v, w, arrangement)
        if open_pair is not None and self._assume(v):
            open_pair = self._try_pieces(v, w, arrangement)
        if open_pair is not None:
            self.assumed[v] = open_pair


def _limit(first: Side, second: Side, v: str, w: str) -> float:
    are_floats = first.values[v].dtype.kind == "f" and second.values[w].dtype.kind == "f"
    finite = (
        are_floats and np.isfinite(first.values[v]).all() and np.isfinite(second.values[w]).all()
    )
    return reach(first, v) + reach(second, w) if finite else 0.0


def _rank(open_pair: OpenPair) -> tuple[int, int]:
    """Sort key of open pairs: both sides with operators first, then the fewest operators."""
    a, b = open_pair.trial.nodes
    return (not a or not b), len(a) + len(b)


def _trimmed(inputs: Sequence[str | None]) -> Sequence[str | None]:
    end = len(inputs)
    while end and inputs[end - 1] is None:
        end -= 1
    return inputs[:end]


def _as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def _converter(apply: Callable[[np.ndarray], np.ndarray], second: Side, name: str) -> Any:
    declared = second.graph.types[name].dtype

    def make(x: np.ndarray) -> np.ndarray:
        return apply(x).astype(np.float64 if declared.is_float else declared.counted)

    return make


def _inverse(arrangement: Arrangement, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array of `shape` that the arrangement reads as `array`."""
    indices = arrangement.apply(np.arange(array.size).reshape(shape))
    result = np.empty(array.size, array.dtype)
    result[indices.reshape(-1)] = array.reshape(-1)
    return result.reshape(shape)


def graph_open(first: Graph, second: Graph) -> bool:
    """Whether both networks take images or sequences of other sizes, besides batches."""

    return all(
        any(symbols(d) for v in g.inputs for d in g.types[v].dims[1:]) for g in (first, second)
    )
