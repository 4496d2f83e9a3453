"""Judges regions that quantize inside: rounding may tip an integer there, or the subject computed
its integers more coarsely.

A quantization is a step function. Rounding that stays on a step has no effect; at an edge it moves
the result by a whole quantum, and everything after it. So three questions are asked, the sharpest
first:

1. Is the result the reference's with every inner integer unchanged, within rounding?
2. Is it that of a known coarser arithmetic of integers (`int8`), equally sharply?
3. Is it no further from the reference than baseline runs in which rounding tipped inner integers?
Tipped runs are rare, so the noise is raised until they occur, at most to the largest error that
rounding gives a single number.

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
from verax.judge.decide.ties import quantities, rounded_otherwise, rounds_to_integers
from verax.judge.regions.baseline_runs import Cloud, apart
from verax.judge.regions.int8 import IntegerScheme, applicable_schemes, best_mixture, mixed
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
EXACTLY = IntegerScheme()
"""The meaning itself."""
FLOAT_STEPS = ("Floor", "Ceil", "Round", "Sign")


def is_step(graph: Graph, node: Node) -> bool:
    """True if a node turns floats, which rounding may have changed, into integers or choices."""
    if node.op.kind in FLOAT_STEPS or rounds_to_integers(node.op):
        return True
    floats = any(t is not None and t.dtype.is_float for t in graph.input_types(node))
    return floats and any(not t.dtype.is_float for t in graph.output_types(node))


def quantizes_inside(sampler: Sampler) -> bool:
    """True if the region quantizes to hidden values, or hidden values to observed ones."""
    return any(
        rounds_to_integers(node.op)
        and (
            any(v in sampler.region.hidden for v in node.outputs)
            or any(v in sampler.region.hidden for v in node.inputs)
        )
        for node in sampler.region.nodes
    )


@dataclass
class _StepRun:
    """One evaluation of a region.

    observed: values by name; steps: results of quantizations; decided: quantities that observed
    quantizations round; changed: first outputs of nodes that the scheme computed differently."""

    observed: Values
    steps: Values = field(default_factory=dict)
    decided: dict[str, Quantity] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)


class StepJudge:
    """Judges the observed values of one region with quantizations inside."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.graph = sampler, sampler.graph
        self.nodes = {v for n in sampler.region.nodes if is_step(self.graph, n) for v in n.outputs}
        self.judged = self._reached()
        self.last = self._only_last()
        self._noiseless_runs: dict[IntegerScheme, _StepRun] = {}
        self._calm: dict[tuple[IntegerScheme, str], Cloud] = {}

    def _reached(self) -> set[str]:
        """Observed values that depend on a quantization inside, except choices (indices, masks)."""
        reached: set[str] = set()
        for node in self.sampler.region.nodes:
            if rounds_to_integers(node.op) or any(v in reached for v in node.inputs):
                types = zip(node.outputs, self.graph.output_types(node))
                is_choice = is_step(self.graph, node) and not rounds_to_integers(node.op)
                reached.update(v for v, t in types if t.dtype.is_float or not is_choice)
        return reached & set(self.sampler.region.observed)

    def _only_last(self) -> set[str]:
        """Observed values that are quantized at the end, with no other step before them inside."""
        behind: set[str] = set()
        quantized: set[str] = set()
        for node in self.sampler.region.nodes:
            after = any(v in behind for v in node.inputs)
            if rounds_to_integers(node.op) and not after:
                quantized.update(node.outputs)
            if after or is_step(self.graph, node):
                behind.update(node.outputs)
        return quantized & set(self.sampler.region.observed)

    def decide(self, value: str, actual: np.ndarray) -> Decision:
        """The decision on an observed value of the right shape whose numbers are finite."""
        fit = self._quiet(EXACTLY, value, actual)
        if fit.statistic <= st.ROUNDING_T:
            if fit.group == EVERY_BIT:
                return Decision(Kind.identical, "every number is the meaning's", "equality")
            reason = (
                "no integer inside these nodes was rounded otherwise, and the rest is within "
                f"{fit.statistic:.3g} of what rounding may do"
            )
            return self._decision(Kind.rounding, reason, "quantum", fit, value, actual)
        named = self.named(value, actual)
        if named is not None:
            return named
        tipped = self._tipped(EXACTLY, value, actual)
        if tipped is not None and tipped.statistic <= st.ROUNDING_T:
            reason = (
                "integers inside these nodes lie so near to an edge that rounding tips them, and "
                f"honest runs differ by as much ({tipped.statistic:.3g} of the most they show)"
            )
            return self._decision(Kind.rounding, reason, "near ties", tipped, value, actual)
        for scheme in (*self._schemes(value), *self._mixtures(value, actual)):
            if self._left(scheme, value, actual) > st.CONFIRMED:
                continue
            scheme_fit = self._quiet(scheme, value, actual)
            reason = NAMED.format(scheme.name)
            if scheme_fit.statistic > st.ROUNDING_T:
                scheme_fit = self._tipped(scheme, value, actual) or scheme_fit
                reason = NAMED_TIPPED.format(scheme.name)
            if scheme_fit.statistic <= st.ROUNDING_T:
                return self._decision(
                    Kind.precision, reason, scheme.name, scheme_fit, value, actual, scheme
                )
        worst = fit if tipped is None else tipped
        suspicious = tipped is not None and tipped.statistic <= st.SUSPICIOUS_T
        limit = "float32 rounding shows" if tipped is None else "honest runs show that tip integers"
        reason = (
            f"the difference is {times(worst.statistic)} times the most that {limit} inside these "
            f"{len(self.sampler.region.nodes)} nodes (worst in {worst.group})"
        )
        kind = Kind.undecided if suspicious else Kind.mistake
        reason += "; too near to call" if suspicious else ""
        return self._decision(kind, reason, "near ties", worst, value, actual)

    def named(self, value: str, actual: np.ndarray) -> Decision | None:
        """The coarser arithmetic of integers that gives these numbers; None when none does."""
        for scheme in self._schemes(value):
            if self._left(scheme, value, actual) > st.CONFIRMED:
                continue
            fit = self._quiet(scheme, value, actual)
            if fit.statistic <= st.ROUNDING_T:
                reason = NAMED.format(scheme.name)
                return self._decision(
                    Kind.precision, reason, scheme.name, fit, value, actual, scheme
                )
        return None

    def _decision(
        self,
        kind: Kind,
        reason: str,
        test: str,
        fit: st.GroupTest,
        value: str,
        actual: np.ndarray,
        scheme: IntegerScheme = EXACTLY,
    ) -> Decision:
        error = self._error(scheme, value, actual)
        return Decision(
            kind,
            reason,
            test,
            fit.statistic,
            "all" if fit.group == EVERY_BIT else fit.group,
            None,
            st.root_mean_square(self._cloud(scheme, value).sigma),
            st.root_mean_square(error),
        )

    def _schemes(self, value: str) -> Iterator[IntegerScheme]:
        """Coarser arithmetics that change this value here."""
        seen = [self._noiseless(EXACTLY).observed[value]]
        for scheme in applicable_schemes(self.graph, self.sampler.region.nodes):
            result = self._noiseless(scheme).observed[value]
            same = any(np.array_equal(result, earlier) for earlier in seen)
            if result.shape == seen[0].shape and not same:
                seen.append(result)
                yield scheme

    def _mixtures(self, value: str, actual: np.ndarray) -> Iterator[IntegerScheme]:
        """Yield the likeliest schemes, the simplest first, with some nodes spared or swapped: of
        each scheme the mixture with the smallest remaining error, first without swapped nodes."""
        simplest = list(self._schemes(value))
        likely = sorted(simplest, key=lambda w: self._left(w, value, actual))[:LIKELIEST]
        runs = MOST_NUMBERS // max(1, sum(a.size for a in self.sampler.inner.values()))
        nearest = likely[:1]
        likely.sort(key=simplest.index)
        richest = [w for w in simplest if w.softmax == any(o.softmax for o in simplest)]
        richest = [w for w in richest if w.pairing and not w.halved and w.sums in ("", "both")]
        likely += [w for w in richest[::-1] if w not in likely][:RICHEST]
        for swaps in (False, True):
            for scheme in likely:
                if swaps and (not scheme.pairing or scheme.halved):
                    continue
                nodes, counts = self._changed_nodes(scheme, swaps)
                large = runs <= len(nodes) and (swaps or scheme not in nearest)
                if 1 < len(nodes) <= MOST_PARTS and not large:
                    max_trials = max(runs, sum(counts))
                    best = best_mixture(
                        counts, self._sizes(scheme, nodes, value, actual), max_trials
                    )
                    if any(best):
                        yield mixed(scheme, nodes, best)

    def _changed_nodes(self, scheme: IntegerScheme, swaps: bool) -> tuple[list[str], list[int]]:
        """First outputs of nodes that a scheme changes, and the number of states of each (3 for
        products with `swaps`, else 2)."""
        changed = self._noiseless(scheme).changed
        products: set[str] = set()
        if swaps and scheme.pairing:
            nodes = self.sampler.region.nodes
            products = {n.outputs[0] for n in nodes if n.op.kind in PRODUCTS}
            changed = (
                changed | self._noiseless(replace(scheme, swapped=frozenset(products))).changed
            )
        order = [v for n in self.sampler.region.nodes for v in n.outputs if v in changed]
        return order, [3 if v in products else 2 for v in order]

    def _sizes(
        self, scheme: IntegerScheme, nodes: Sequence[str], value: str, actual: np.ndarray
    ) -> Callable[[tuple[int, ...]], float]:
        """Function from the states of a mixture to the distance of `actual` from its run."""

        def size(states: tuple[int, ...]) -> float:
            run = self._run(mixed(scheme, nodes, states), 0.0)
            distance = apart(actual, run.observed[value])
            return np.inf if distance is None else st.root_mean_square(distance)

        return size

    def _left(self, scheme: IntegerScheme, value: str, actual: np.ndarray) -> float:
        """Fraction of the error that remains in a scheme, except of integers at an edge."""
        total = st.root_mean_square(self._wrong(EXACTLY, value, actual))
        left = st.root_mean_square(self._wrong(scheme, value, actual))
        return left / total if total > 0 else np.inf

    def _wrong(self, scheme: IntegerScheme, value: str, actual: np.ndarray) -> np.ndarray:
        """The error, zero where rounding allows the observed integer."""
        error, quantity = (
            self._error(scheme, value, actual),
            self._noiseless(scheme).decided.get(value),
        )
        return error if quantity is None else np.where(quantity.allows(actual), 0.0, error)

    def _error(self, scheme: IntegerScheme, value: str, actual: np.ndarray) -> np.ndarray:
        return actual.astype(np.float64) - self._noiseless(scheme).observed[value].astype(
            np.float64
        )

    def _quiet(self, scheme: IntegerScheme, value: str, actual: np.ndarray) -> st.GroupTest:
        """T of the error against runs in which no inner integer is tipped."""
        noiseless = self._noiseless(scheme)
        if bool(same_value(actual, noiseless.observed[value].astype(actual.dtype)).all()):
            return st.GroupTest(0.0, EVERY_BIT)
        error, cloud = self._error(scheme, value, actual), self._cloud(scheme, value)
        quantity = noiseless.decided.get(value)
        if quantity is None:
            return cloud.test(error)
        edge = st.group_limit(1) * self._input_deviation(scheme, value)
        wrong = np.where(quantity.allows(actual, edge), 0.0, np.abs(error))
        if not wrong.any():
            return st.GroupTest(0.0, "all")
        return st.GroupTest(float(np.inf), "element")

    def _input_deviation(self, scheme: IntegerScheme, value: str) -> np.ndarray:
        """Standard deviation, by rounding, of what an observed quantization rounds."""
        noiseless = self._noiseless(scheme)
        real = noiseless.decided[value].real
        frozen = [self._run(scheme, 1.0, noiseless.steps) for _ in range(st.SAMPLES_MANY)]
        return st.sampled_sigma(np.mean([(r.decided[value].real - real) ** 2 for r in frozen], 0))

    def _cloud(self, scheme: IntegerScheme, value: str) -> Cloud:
        """Baseline runs in which no integer is tipped."""
        if (scheme, value) not in self._calm:
            noiseless = self._noiseless(scheme)

            def draw() -> np.ndarray | None:
                run = self._run(scheme, 1.0, noiseless.steps)
                return apart(run.observed[value], noiseless.observed[value])

            self._calm[scheme, value] = Cloud(draw, st.SAMPLES_MANY)
        return self._calm[scheme, value]

    def calm_sigma(self, value: str) -> np.ndarray:
        """Standard deviation of baseline runs in which no integer is tipped."""
        return self._cloud(EXACTLY, value).sigma

    def _tipped(self, scheme: IntegerScheme, value: str, actual: np.ndarray) -> st.GroupTest | None:
        """T of the error against runs in which inner integers tip; None where no such run changes
        the value."""
        if value in self.last:
            return None  # nothing but its own edges, which were looked at already
        distances = self._moving_runs(scheme, value)
        if distances is None:
            return None
        if not distances:
            return st.GroupTest(st.SUSPICIOUS_T, "all")  # every such run is of another shape
        baseline = [st.largest_groups(d) for d in distances]
        own = st.largest_groups(actual.astype(np.float64) - self._noiseless(scheme).observed[value])
        ratios = {
            name: size / (st.SAME_SIZE * max(h[name] for h in baseline) + TINY)
            for name, size in own.items()
        }
        worst = max(ratios, key=lambda name: ratios[name])
        return st.GroupTest(ratios[worst], worst)

    def _quiet_size(self, scheme: IntegerScheme, value: str) -> np.ndarray | float:
        """Largest change of an element without a tipped integer."""
        if value in self._noiseless(scheme).decided:
            return 0.0
        return st.group_limit(1) * self._cloud(scheme, value).sigma + TINY

    def _moving_runs(self, scheme: IntegerScheme, value: str) -> list[np.ndarray] | None:
        """Distances of runs in which a tipped inner integer changes the value, with the least noise
        that gives such runs; [] if all are of another shape, None if there are none."""
        noiseless, size = self._noiseless(scheme), self._quiet_size(scheme, value)

        def drawn(noise: float, count: int) -> Iterator[np.ndarray]:
            for _ in range(count):
                run = self._run(scheme, noise)
                distance = apart(run.observed[value], noiseless.observed[value])
                tipped = any(
                    not np.array_equal(s, noiseless.steps[v]) for v, s in run.steps.items()
                )
                if tipped and distance is None:
                    shapes.append(noise)
                elif tipped and distance is not None and bool((np.abs(distance) > size).any()):
                    yield distance

        shapes: list[float] = []
        distances: list[np.ndarray] = []
        for noise, draws in DRAWS.items():
            distances += drawn(noise, draws)
            if len(distances) >= ENOUGH:
                break
        return distances if distances or shapes else None

    def _noiseless(self, scheme: IntegerScheme) -> _StepRun:
        if scheme not in self._noiseless_runs:
            self._noiseless_runs[scheme] = self._run(scheme, 0.0)
        return self._noiseless_runs[scheme]

    def _run(self, scheme: IntegerScheme, noise: float, frozen: Values | None = None) -> _StepRun:
        """One evaluation. noise: multiple of rounding; frozen: results that replace those of
        steps."""
        run = _StepRun({})
        hidden = self.sampler.region.hidden
        scalars = dict(self.sampler.observed)
        left_out = scheme.left_out(self.graph, self.sampler.region.nodes) & hidden

        def after(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            if all(v in self.sampler.parameters for v in node.outputs):
                constants = [(v, self.sampler.inner[v]) for v in node.outputs if v in hidden]
                if len(constants) == len(node.outputs):
                    return tuple(self.sampler.noise(node, v, y, noise) for v, y in constants)
            if node.op.kind == "DequantizeLinear" and arrays[0].dtype.kind == "f":
                scale, zero = (np.asarray(a, np.float64) for a in (*arrays[1:], 0.0)[:2])
                y = (arrays[0] - zero) * scale
                return (self.sampler.noise(node, node.outputs[0], y, noise),)
            evaluated = self.sampler.evaluate(node, arrays)
            exact = scheme.outputs(self.graph, node, arrays, evaluated.outputs, scalars)
            if any(
                y is not e and not np.array_equal(y, e) for y, e in zip(exact, evaluated.outputs)
            ):
                run.changed.add(node.outputs[0])
            decided = scheme.quantities(self.graph, node, quantities(node, evaluated.ev, arrays))
            outputs = []
            for v, y, quantity in zip(node.outputs, exact, decided):
                if quantity is not None and v in left_out:
                    run.changed.add(v)
                    outputs.append(np.clip(quantity.real, quantity.low, quantity.high))
                    continue
                if quantity is not None and v in self.sampler.region.observed:
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

        run.observed = self.sampler.run(after)
        return run


def named_integers(
    graph: Graph,
    region: Region,
    observed: Mapping[str, np.ndarray],
    findings: list[Finding],
    seed: int,
) -> list[Finding]:
    """`findings`, those on mistakes explained by a coarser integer arithmetic where one fits."""
    faulty = [f for f in findings if f.kind is Kind.mistake]
    if not faulty or not any(applicable_schemes(graph, region.nodes)):
        return findings
    try:
        steps = StepJudge(Sampler(graph, region, observed, seed))
    except VeraxError:
        return findings  # the meaning cannot be evaluated
    named = []
    for finding in findings:
        actual = conform(observed[finding.value], graph.types[finding.value].dtype)
        fits = finding in faulty and actual.shape == steps.sampler.expected[finding.value].shape
        decision = steps.named(finding.value, actual) if fits else None
        if decision is not None:
            finding = recorded(
                replace(
                    finding,
                    kind=decision.kind,
                    reason=decision.reason,
                    test=decision.test,
                    statistic=decision.statistic,
                    group=decision.group,
                    bound_ratio=None,
                )
            )
        named.append(finding)
    return named


def recorded(finding: Finding) -> Finding:
    """The finding, with the record of the arithmetic that explains it: one of integers, or a fast
    algorithm."""
    if finding.kind is not Kind.precision or finding.precision is not None:
        return finding
    unit = INTEGER_UNIT
    if finding.test in (*NAMES.values(), strassen.NAME):
        unit = U * max(1.0, finding.error / finding.sigma) if finding.sigma else U
    return replace(
        finding, precision=Precision(finding.value, finding.node, finding.test, unit, True)
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
