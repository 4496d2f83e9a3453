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
from verax.base.figures import times
from verax.ir.graph import Graph, Node
from verax.judge.decide.criterion import Decision
from verax.judge.decide.local import conform
from verax.judge.decide.ties import quantities, rounded_otherwise, rounds_freely
from verax.judge.regions.honest_runs import Cloud, apart
from verax.judge.regions.int8 import Way, best_mixture, mixed, ways
from verax.judge.regions.int8_products import PRODUCTS
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.numerics import statistics as st
from verax.numerics import strassen
from verax.numerics.compare import same_value
from verax.numerics.error_model import TINY, Quantity, U
from verax.numerics.winograd import NAMES
from verax.records.verdict import Finding, Kind, Precision

DRAWS = {1.0: 12, 4.0: 8, 16.0: 12}
"""Multiples of rounding that are tried until integers tip, and runs drawn at each; a single element
may honestly show the last (`statistics.group_limit`)."""
ENOUGH = 3
"""Runs with a visible effect that suffice."""
MOST_PARTS = 40
"""Nodes that a way changes up to which it is tried which of them a runtime computed otherwise."""
LIKELIEST = 4
"""Ways whose mixtures are tried; in large networks only the first."""
RICHEST = 2
"""Ways that differ from the meaning in most respects, tried last: their parts can be spared."""
MOST_NUMBERS = 1 << 24
"""Numbers that may be computed for the mixtures of a way, unless once for each node is more."""
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
    """One evaluation: shown values, results of the steps inside, what shown steps rounded, and the
    first outputs of nodes that a way computed otherwise."""

    shown: Values
    steps: Values = field(default_factory=dict)
    decided: dict[str, Quantity] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class Steps:
    """Judges the shown values of one region with steps inside."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.graph = sampler, sampler.graph
        self.nodes = {v for n in sampler.region.nodes if is_step(self.graph, n) for v in n.outputs}
        self.judged = self._reached()
        self.last = self._only_last()
        self._middles: dict[Way, _Run] = {}
        self._calm: dict[tuple[Way, str], Cloud] = {}

    def _reached(self) -> set[str]:
        """Shown values that depend on a quantisation inside, choices (places, masks) left out."""
        found: set[str] = set()
        for node in self.sampler.region.nodes:
            if rounds_freely(node.op) or any(v in found for v in node.inputs):
                types = zip(node.outputs, self.graph.output_types(node))
                chosen = is_step(self.graph, node) and not rounds_freely(node.op)
                found.update(v for v, t in types if t.dtype.is_float or not chosen)
        return found & set(self.sampler.region.shown)

    def _only_last(self) -> set[str]:
        """Shown values that are quantised at the end, with no other step before them inside."""
        behind: set[str] = set()
        found: set[str] = set()
        for node in self.sampler.region.nodes:
            after = any(v in behind for v in node.inputs)
            if rounds_freely(node.op) and not after:
                found.update(node.outputs)
            if after or is_step(self.graph, node):
                behind.update(node.outputs)
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
        """The likeliest ways, the simplest first, with those nodes spared that a runtime computed
        as the graph says and those turned whose products it paired the other way: of each way the
        mixture that leaves least of the error, without turned ones at first."""
        simplest = list(self._ways(value))
        likely = sorted(simplest, key=lambda w: self._left(w, value, given))[:LIKELIEST]
        runs = MOST_NUMBERS // max(1, sum(a.size for a in self.sampler.inner.values()))
        nearest = likely[:1]
        likely.sort(key=simplest.index)
        richest = [w for w in simplest if w.softmax == any(o.softmax for o in simplest)]
        richest = [w for w in richest if w.pairs and not w.halved and w.sums in ("", "both")]
        likely += [w for w in richest[::-1] if w not in likely][:RICHEST]
        for turns in (False, True):
            for way in likely:
                if turns and (not way.pairs or way.halved):
                    continue
                parts, counts = self._parts(way, turns)
                large = runs <= len(parts) and (turns or way not in nearest)
                if 1 < len(parts) <= MOST_PARTS and not large:
                    most = max(runs, sum(counts))
                    best = best_mixture(counts, self._sizes(way, parts, value, given), most)
                    if any(best):
                        yield mixed(way, parts, best)

    def _parts(self, way: Way, turns: bool) -> tuple[list[str], list[int]]:
        """First outputs of nodes that a way changes, if need be turned, and the states of each."""
        changed = self._middle(way).changed
        products: set[str] = set()
        if turns and way.pairs:
            nodes = self.sampler.region.nodes
            products = {n.outputs[0] for n in nodes if n.op.kind in PRODUCTS}
            changed = changed | self._middle(replace(way, turned=frozenset(products))).changed
        order = [v for n in self.sampler.region.nodes for v in n.outputs if v in changed]
        return order, [3 if v in products else 2 for v in order]

    def _sizes(
        self, way: Way, parts: Sequence[str], value: str, given: np.ndarray
    ) -> Callable[[tuple[int, ...]], float]:
        """How far the answer is from a mixture; nothing is kept of the run."""

        def size(states: tuple[int, ...]) -> float:
            run = self._run(mixed(way, parts, states), 0.0)
            distance = apart(given, run.shown[value])
            return np.inf if distance is None else st.root_mean_square(distance)

        return size

    def _left(self, way: Way, value: str, given: np.ndarray) -> float:
        """The part of the error that a way leaves, integers at their edges apart."""
        whole = st.root_mean_square(self._wrong(EXACTLY, value, given))
        left = st.root_mean_square(self._wrong(way, value, given))
        return left / whole if whole > 0 else np.inf

    def _wrong(self, way: Way, value: str, given: np.ndarray) -> np.ndarray:
        """The error, zero where a shown integer may honestly be what was given."""
        error, quantity = self._error(way, value, given), self._middle(way).decided.get(value)
        return error if quantity is None else np.where(quantity.allows(given), 0.0, error)

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

    def _cloud(self, way: Way, value: str) -> Cloud:
        """Runs in which no step takes another integer."""
        if (way, value) not in self._calm:
            middle = self._middle(way)

            def draw() -> np.ndarray | None:
                run = self._run(way, 1.0, middle.steps)
                return apart(run.shown[value], middle.shown[value])

            self._calm[way, value] = Cloud(draw, st.SAMPLES_MANY)
        return self._calm[way, value]

    def calm_sigma(self, value: str) -> np.ndarray:
        """Standard deviation of honest runs in which no step takes another integer."""
        return self._cloud(EXACTLY, value).sigma

    def _tipped(self, way: Way, value: str, given: np.ndarray) -> st.GroupTest | None:
        """The error against those of runs in which integers inside tip; None where none of those
        reaches the value."""
        if value in self.last:
            return None  # nothing but its own edges, which were looked at already
        moved = self._moving_runs(way, value)
        if moved is None:
            return None
        if not moved:
            return st.GroupTest(st.SUSPICIOUS_T, "all")  # every such run is of another shape
        honest = [st.largest_groups(d) for d in moved]
        own = st.largest_groups(given.astype(np.float64) - self._middle(way).shown[value])
        found = {
            name: size / (st.SAME_SIZE * max(h[name] for h in honest) + TINY)
            for name, size in own.items()
        }
        worst = max(found, key=lambda name: found[name])
        return st.GroupTest(found[worst], worst)

    def _quiet_size(self, way: Way, value: str) -> np.ndarray | float:
        """What an element may move without any tipped integer."""
        if value in self._middle(way).decided:
            return 0.0
        return st.group_limit(1) * self._cloud(way, value).sigma + TINY

    def _moving_runs(self, way: Way, value: str) -> list[np.ndarray] | None:
        """Distances of runs in which the value moves because an integer inside tipped, of as little
        noise as makes such runs; none where they are of another shape."""
        middle, size = self._middle(way), self._quiet_size(way, value)

        def drawn(noise: float, count: int) -> Iterator[np.ndarray]:
            for _ in range(count):
                run = self._run(way, noise)
                distance = apart(run.shown[value], middle.shown[value])
                tipped = any(not np.array_equal(s, middle.steps[v]) for v, s in run.steps.items())
                if tipped and distance is None:
                    shapes.append(noise)
                elif tipped and distance is not None and bool((np.abs(distance) > size).any()):
                    yield distance

        shapes: list[float] = []
        found: list[np.ndarray] = []
        for noise, draws in DRAWS.items():
            found += drawn(noise, draws)
            if len(found) >= ENOUGH:
                break
        return found if found or shapes else None

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
            if any(y is not e and not np.array_equal(y, e) for y, e in zip(exact, found.outputs)):
                run.changed.add(node.outputs[0])
            decided = way.quantities(self.graph, node, quantities(node, found.ev, arrays))
            outputs = []
            for v, y, quantity in zip(node.outputs, exact, decided):
                if quantity is not None and v in left_out:
                    run.changed.add(v)
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
    """The finding, with the record of the arithmetic that explains it: one of integers, or a fast
    algorithm."""
    if found.kind is not Kind.precision or found.precision is not None:
        return found
    unit = INTEGER_UNIT
    if found.test in (*NAMES.values(), strassen.NAME):
        unit = U * max(1.0, found.error / found.sigma) if found.sigma else U
    return replace(found, precision=Precision(found.value, found.node, found.test, unit, True))


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
