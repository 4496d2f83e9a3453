"""Regions that quantise inside: what a subject may show when rounding tips an integer, or when it
computed its integers more coarsely.

A quantisation is a step. Below it rounding does nothing; at its edge it moves a whole quantum, and
everything behind it. So three questions are asked, the sharpest first:

1. Is the answer that of the meaning with every integer inside as it should be, within rounding?
2. Is it that of a known coarser arithmetic of integers (`int8`), equally sharply?
3. Is it no further from the meaning than honest runs in which rounding tipped integers inside?
   Tipped runs are rare, so the noise is raised until they occur, at most to what a single number
   may honestly show.

None of them: a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node
from verax.judge.criterion import Decision, times
from verax.judge.int8 import PRODUCTS, Way, ways
from verax.judge.local import conform
from verax.judge.sampler import Region, Sampler, Values
from verax.judge.ties import quantities, rounded_otherwise, rounds_freely
from verax.numerics import statistics as st
from verax.numerics.compare import same_value
from verax.numerics.error_model import TINY, Quantity
from verax.records.verdict import Finding, Kind, Precision

NOISES = (1.0, 4.0, 16.0)
"""Multiples of rounding that are tried until integers tip; a single element may honestly show the
last (`statistics.group_limit`)."""
DRAWS, ENOUGH, MORE_DRAWS = 4, 3, 3
"""Runs drawn at each of them, runs with a visible effect that suffice, and how often the last is
drawn again."""
MOST_PARTS = 40
"""Nodes of a region up to which it is tried which of them a runtime computed otherwise."""
EXACTLY = Way()
"""The meaning itself."""
FLOAT_STEPS = ("Floor", "Ceil", "Round", "Sign")


def is_step(graph: Graph, node: Node) -> bool:
    """Whether a node makes integers, or choices, of floats that rounding may have moved."""
    if node.op.kind in FLOAT_STEPS or rounds_freely(node.op):
        return True
    floats = any(t is not None and t.dtype.is_float for t in graph.input_types(node))
    return floats and any(not t.dtype.is_float for t in graph.output_types(node))


def quantises_inside(sampler: Sampler) -> bool:
    """Whether integers are hidden in the region that were rounded from computed numbers, or shown
    ones were rounded from hidden numbers."""
    return any(
        rounds_freely(node.op)
        and (
            any(v in sampler.region.hidden for v in node.outputs)
            or any(v in sampler.region.hidden for v in node.inputs)
        )
        for node in sampler.region.nodes
    )


@dataclass
class _Run:
    """One evaluation: shown values, results of the steps inside, what shown steps rounded."""

    shown: Values
    steps: Values = field(default_factory=dict)
    decided: dict[str, Quantity] = field(default_factory=dict)


class _Cloud:
    """Distances of honest runs from their middle, for one shown value."""

    def __init__(self, draw: Callable[[], np.ndarray | None], count: int) -> None:
        self.draw = draw
        self.distances: list[np.ndarray] = []
        self.extend(count)

    def extend(self, count: int) -> None:
        """Draw until there are `count`, leaving out runs of another shape."""
        for _ in range(count - len(self.distances)):
            found = self.draw()
            if found is not None:
                self.distances.append(np.nan_to_num(found))

    @property
    def sigma(self) -> np.ndarray:
        return st.sampled_sigma(np.mean([d * d for d in self.distances], axis=0))

    def test(self, error: np.ndarray) -> st.GroupTest:
        """T of an error; runs held against each other where it is above what the spread allows."""
        found = self._tested(error)
        if found.statistic <= st.ROUNDING_T:
            return found
        self.extend(st.SAMPLES_FEW)
        found = self._tested(error)
        calibrated = min(max(1.0, self._honest()), st.CALIBRATED_T)
        return st.GroupTest(found.statistic / calibrated, found.group)

    def _tested(self, error: np.ndarray) -> st.GroupTest:
        return st.group_test(st.standardised(error, self.sigma + TINY))

    def _honest(self) -> float:
        """The largest T of one of the runs, held against the others."""
        total, others = np.sum([d * d for d in self.distances], axis=0), len(self.distances) - 1
        found = [
            st.group_test(
                st.standardised(d, st.sampled_sigma((total - d * d) / max(1, others)) + TINY)
            ).statistic
            for d in self.distances
        ]
        return max((f for f in found if np.isfinite(f)), default=0.0)


class Steps:
    """Judges the shown values of one region with steps inside."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.graph = sampler, sampler.graph
        self.nodes = {v for n in sampler.region.nodes if is_step(self.graph, n) for v in n.outputs}
        self.judged = self._reached()
        self._middles: dict[Way, _Run] = {}
        self._calm: dict[tuple[Way, str], _Cloud] = {}

    def _reached(self) -> set[str]:
        """Shown values that depend on a quantisation inside, choices (places, masks) left out."""
        found: set[str] = set()
        for node in self.sampler.region.nodes:
            if rounds_freely(node.op) or any(v in found for v in node.inputs):
                types = zip(node.outputs, self.graph.output_types(node))
                chosen = is_step(self.graph, node) and not rounds_freely(node.op)
                found.update(v for v, t in types if t.dtype.is_float or not chosen)
        return found & set(self.sampler.region.shown)

    def decide(self, value: str, given: np.ndarray) -> Decision:
        """What to say of a shown value that agrees in shape and holds ordinary numbers."""
        found = self._quiet(EXACTLY, value, given)
        if found.statistic <= st.ROUNDING_T:
            if found.group == EVERY_BIT:
                return Decision(Kind.identical, "every number is the meaning's", "equality")
            reason = (
                "no integer inside these nodes was rounded otherwise, and the rest is within "
                f"{found.statistic:.3g} of what rounding may do"
            )
            return self._decision(Kind.rounding, reason, "quantum", found, value, given)
        named = self.named(value, given)
        if named is not None:
            return named
        tipped = self._tipped(EXACTLY, value, given)
        if tipped is not None and tipped.statistic <= st.ROUNDING_T:
            reason = (
                "integers inside these nodes lie so near to an edge that rounding tips them, and "
                f"honest runs differ by as much ({tipped.statistic:.3g} of the most they show)"
            )
            return self._decision(Kind.rounding, reason, "near ties", tipped, value, given)
        for way in (*self._ways(value), *self._mixtures(value, given)):
            if self._left(way, value, given) > st.CONFIRMED:
                continue
            other = self._quiet(way, value, given)
            reason = NAMED.format(way.name)
            if other.statistic > st.ROUNDING_T:
                other = self._tipped(way, value, given) or other
                reason = NAMED_TIPPED.format(way.name)
            if other.statistic <= st.ROUNDING_T:
                return self._decision(Kind.precision, reason, way.name, other, value, given, way)
        worst = found if tipped is None else tipped
        suspicious = tipped is not None and tipped.statistic <= st.SUSPICIOUS_T
        limit = "float32 rounding shows" if tipped is None else "honest runs show that tip integers"
        reason = (
            f"the difference is {times(worst.statistic)} times the most that {limit} inside these "
            f"{len(self.sampler.region.nodes)} nodes (worst in {worst.group})"
        )
        kind = Kind.undecided if suspicious else Kind.mistake
        reason += "; too near to call" if suspicious else ""
        return self._decision(kind, reason, "near ties", worst, value, given)

    def named(self, value: str, given: np.ndarray) -> Decision | None:
        """The coarser arithmetic of integers that gives these numbers; None when none does."""
        for way in self._ways(value):
            if self._left(way, value, given) > st.CONFIRMED:
                continue
            found = self._quiet(way, value, given)
            if found.statistic <= st.ROUNDING_T:
                reason = NAMED.format(way.name)
                return self._decision(Kind.precision, reason, way.name, found, value, given, way)
        return None

    def _decision(
        self,
        kind: Kind,
        reason: str,
        test: str,
        found: st.GroupTest,
        value: str,
        given: np.ndarray,
        way: Way = EXACTLY,
    ) -> Decision:
        error = self._error(way, value, given)
        return Decision(
            kind,
            reason,
            test,
            found.statistic,
            "all" if found.group == EVERY_BIT else found.group,
            None,
            st.root_mean_square(self._cloud(way, value).sigma),
            st.root_mean_square(error),
        )

    def _ways(self, value: str) -> Iterator[Way]:
        """Coarser arithmetics that change this value here."""
        seen = [self._middle(EXACTLY).shown[value]]
        for way in ways(self.graph, self.sampler.region.nodes):
            other = self._middle(way).shown[value]
            same = any(np.array_equal(other, known) for known in seen)
            if other.shape == seen[0].shape and not same:
                seen.append(other)
                yield way

    def _mixtures(self, value: str, given: np.ndarray) -> Iterator[Way]:
        """The likeliest way with those nodes spared that a runtime computed as the graph says,
        found one after the other from the inputs on."""
        likely = sorted(self._ways(value), key=lambda w: self._left(w, value, given))
        for way in likely[:1]:
            nodes = self.sampler.region.nodes
            parts = [v for n in nodes for v in n.outputs if v in way.left_out(self.graph, nodes)]
            parts += [n.outputs[0] for n in nodes if n.op.kind in PRODUCTS]
            order = {v: i for i, n in enumerate(nodes) for v in n.outputs}
            parts.sort(key=lambda v: order[v])
            if len(parts) > MOST_PARTS:
                return
            least = self._left(way, value, given)
            for part in parts:
                other = replace(way, spared=way.spared | {part})
                left = self._left(other, value, given)
                if left < least:
                    way, least = other, left
            if way.spared:
                yield way

    def _left(self, way: Way, value: str, given: np.ndarray) -> float:
        """The part of the error that a way leaves."""
        whole = st.root_mean_square(self._error(EXACTLY, value, given))
        left = st.root_mean_square(self._error(way, value, given))
        return left / whole if whole > 0 else np.inf

    def _error(self, way: Way, value: str, given: np.ndarray) -> np.ndarray:
        return given.astype(np.float64) - self._middle(way).shown[value].astype(np.float64)

    def _quiet(self, way: Way, value: str, given: np.ndarray) -> st.GroupTest:
        """T when every integer inside is as it should be."""
        middle = self._middle(way)
        if bool(same_value(given, middle.shown[value].astype(given.dtype)).all()):
            return st.GroupTest(0.0, EVERY_BIT)
        error, cloud = self._error(way, value, given), self._cloud(way, value)
        quantity = middle.decided.get(value)
        if quantity is None:
            return cloud.test(error)
        edge = st.group_limit(1) * self._moved(way, value)
        wrong = np.where(quantity.allows(given, edge), 0.0, np.abs(error))
        if not wrong.any():
            return st.GroupTest(0.0, "all")
        return st.GroupTest(float(np.inf), "element")

    def _moved(self, way: Way, value: str) -> np.ndarray:
        """How far rounding before a shown step moves what it rounds: standard deviation."""
        middle = self._middle(way)
        real = middle.decided[value].real
        frozen = [self._run(way, 1.0, middle.steps) for _ in range(st.SAMPLES_MANY)]
        return st.sampled_sigma(np.mean([(r.decided[value].real - real) ** 2 for r in frozen], 0))

    def _cloud(self, way: Way, value: str) -> _Cloud:
        """Runs in which no step takes another integer."""
        if (way, value) not in self._calm:
            middle = self._middle(way)

            def draw() -> np.ndarray | None:
                run = self._run(way, 1.0, middle.steps)
                return _apart(run.shown[value], middle.shown[value])

            self._calm[way, value] = _Cloud(draw, st.SAMPLES_MANY)
        return self._calm[way, value]

    def _tipped(self, way: Way, value: str, given: np.ndarray) -> st.GroupTest | None:
        """The error against those of runs in which integers tip; None where no tipped integer
        reaches the value."""
        middle, moved = self._middle(way), self._moving_runs(way, value)
        if moved is None:
            return None
        if not moved:
            return st.GroupTest(st.SUSPICIOUS_T, "all")  # every such run is of another shape
        honest = [st.largest_groups(d) for d in moved]
        own = st.largest_groups(given.astype(np.float64) - middle.shown[value])
        found = {
            name: size / (st.SAME_SIZE * max(h[name] for h in honest) + TINY)
            for name, size in own.items()
        }
        worst = max(found, key=lambda name: found[name])
        return st.GroupTest(found[worst], worst)

    def _moving_runs(self, way: Way, value: str) -> list[np.ndarray] | None:
        """Distances of runs in which the value moves because an integer inside tipped."""
        middle, size = self._middle(way), 0.0
        if value not in middle.decided:
            size = st.SAME_SIZE * st.root_mean_square(self._cloud(way, value).sigma)
        found: list[np.ndarray] = []
        other_shapes = False
        for noise in (*NOISES, *(NOISES[-1],) * MORE_DRAWS):
            for _ in range(DRAWS):
                run = self._run(way, noise)
                apart = _apart(run.shown[value], middle.shown[value])
                other_shapes |= apart is None
                tipped = any(not np.array_equal(s, middle.steps[v]) for v, s in run.steps.items())
                if apart is not None and tipped and st.root_mean_square(apart) > noise * size:
                    found.append(apart)
            if len(found) >= ENOUGH:
                break
        return found if found or other_shapes else None

    def _middle(self, way: Way) -> _Run:
        if way not in self._middles:
            self._middles[way] = self._run(way, 0.0)
        return self._middles[way]

    def _run(self, way: Way, noise: float, frozen: Values | None = None) -> _Run:
        """One evaluation. noise: multiple of rounding; frozen: what the steps give instead."""
        run = _Run({})
        hidden = self.sampler.region.hidden
        scalars = dict(self.sampler.shown)
        left_out = way.left_out(self.graph, self.sampler.region.nodes) & hidden

        def after(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            if all(v in self.sampler.parameters for v in node.outputs):
                known = [(v, self.sampler.inner[v]) for v in node.outputs if v in hidden]
                if len(known) == len(node.outputs):
                    return tuple(self.sampler.noise(node, v, y, noise) for v, y in known)
            if node.op.kind == "DequantizeLinear" and arrays[0].dtype.kind == "f":
                scale, zero = (np.asarray(a, np.float64) for a in (*arrays[1:], 0.0)[:2])
                y = (arrays[0] - zero) * scale
                return (self.sampler.noise(node, node.outputs[0], y, noise),)
            found = self.sampler.evaluate(node, arrays)
            exact = way.outputs(self.graph, node, arrays, found.outputs, scalars)
            decided = quantities(node, found.ev, arrays)
            outputs = []
            for v, y, quantity in zip(node.outputs, exact, decided):
                if quantity is not None and v in left_out:
                    outputs.append(np.clip(quantity.real, quantity.low, quantity.high))
                    continue
                if quantity is not None and v in self.sampler.region.shown:
                    run.decided[v] = quantity
                if frozen is not None and v in frozen:
                    y = frozen[v]
                elif noise and quantity is not None:
                    y = rounded_otherwise(quantity, y, self.sampler.random, noise)
                elif noise:
                    y = self.sampler.noise(node, v, y, noise)
                if v in self.nodes and (quantity is not None or node.op.kind in FLOAT_STEPS
                                        or y.dtype.kind != "f"):  # fmt: skip
                    run.steps[v] = y
                outputs.append(y)
            scalars.update((v, y) for v, y in zip(node.outputs, outputs) if y.size == 1)
            return tuple(outputs)

        run.shown = self.sampler.run(after)
        return run


def named_integers(
    graph: Graph,
    region: Region,
    shown: Mapping[str, np.ndarray],
    findings: list[Finding],
    seed: int,
) -> list[Finding]:
    """The same, where a mistake is explained by a coarser arithmetic of integers."""
    guilty = [f for f in findings if f.kind is Kind.mistake]
    if not guilty or not any(ways(graph, region.nodes)):
        return findings
    try:
        steps = Steps(Sampler(graph, region, shown, seed))
    except VeraxError:
        return findings  # the meaning cannot be evaluated
    named = []
    for found in findings:
        given = conform(shown[found.value], graph.types[found.value].dtype)
        fits = found in guilty and given.shape == steps.sampler.expected[found.value].shape
        decision = steps.named(found.value, given) if fits else None
        if decision is not None:
            found = recorded(
                replace(
                    found,
                    kind=decision.kind,
                    reason=decision.reason,
                    test=decision.test,
                    statistic=decision.statistic,
                    group=decision.group,
                    bound_ratio=None,
                )
            )
        named.append(found)
    return named


def recorded(found: Finding) -> Finding:
    """The finding, with the record of the arithmetic of integers that explains it."""
    if found.kind is not Kind.precision or found.precision is not None:
        return found
    return replace(
        found, precision=Precision(found.value, found.node, found.test, INTEGER_UNIT, True)
    )


INTEGER_UNIT = 2.0**-8
"""Unit roundoff of numbers of 8 bits."""
EVERY_BIT = "every bit"
NAMED = (
    "the numbers are exactly what {} gives, which is not the graph's own arithmetic; nothing else "
    "differs"
)

NAMED_TIPPED = (
    "the numbers are what {} gives, which is not the graph's own arithmetic, but for integers that "
    "lie so near to an edge that rounding tips them"
)


def _apart(one: np.ndarray, other: np.ndarray) -> np.ndarray | None:
    if one.shape != other.shape:
        return None
    return one.astype(np.float64) - other.astype(np.float64)
