"""Judges several nodes together, when the values between them were not observed.

A region is a set of nodes between observed values. How far rounding inside it may move them comes
from derivatives when few numbers were observed (`adjoint`: exact, one backward pass for each), else
from Monte Carlo arithmetic: in float64, normal noise of each node's own sigma is added to the
node's output, and the scatter of a few such runs is the size of rounding.

A region can be blind: when a disturbance inside it hardly reaches the observed values, agreement
proves nothing. Derivatives tell that for every inner value at once. Where they cannot answer (a
jump, an operator without a rule) some inner values are disturbed instead, and the finding says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.deadline import OutOfTime
from verax.base.errors import VeraxError
from verax.base.figures import times
from verax.ir.graph import Graph, Node
from verax.judge.decide.blindness import AGREEING, limits, unless_blind
from verax.judge.decide.criterion import Decision
from verax.judge.decide.error_distribution import noted
from verax.judge.decide.local import conform, finding, undecided
from verax.judge.decide.nan_origin import (
    Trail,
    infinity_decision,
    masked_as_zeros,
    nan_decision,
    overflowed,
)
from verax.judge.regions.adjoint import NoRule, Reach, spreads
from verax.judge.regions.approximate_functions import table_decision
from verax.judge.regions.fast_algorithms import fast_decision
from verax.judge.regions.jumps import decide_at_a_jump, varies
from verax.judge.regions.non_finite import baseline_values, left_by_rounding
from verax.judge.regions.orders import order_decision
from verax.judge.regions.power import measured
from verax.judge.regions.precision_network import best_match
from verax.judge.regions.quantized_steps import StepJudge, quantizes_inside, recorded
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.judge.regions.short_sums import short_sum_decision
from verax.judge.regions.split_products import split_decision
from verax.judge.regions.stored_as_declared import reproduced_as_declared
from verax.judge.regions.unit_products import unit_decision
from verax.numerics import statistics as st
from verax.numerics.compare import same_value
from verax.numerics.error_model import TINY
from verax.records.verdict import Finding, Kind, Power

AS_DECLARED = "bits of the declared types"


def check_region(
    graph: Graph,
    region: Region,
    observed: Mapping[str, np.ndarray],
    seed: int,
    *,
    measure_power: bool = True,
    find_precision: bool | frozenset[str] = True,
    sampler: Sampler | None = None,
) -> tuple[list[Finding], list[Power]]:
    """Findings on the observed values of a region, and the check's power at its inner values.

    observed: inputs, constants and observed values by name.

    measure_power: whether to find out what the check could not see. find_precision: whether errors
    too large for float32 are tried in coarser arithmetics (slow), or names of products that are
    known to be in bfloat16. sampler: the result of `drawn_ahead` for the same region, to be used
    once. Values stay in their declared dtypes; float64 is used inside.
    Deterministic for a seed.
    """
    try:
        if sampler is None:
            sampler = Sampler(graph, region, observed, seed)
        sampler.observed = observed
        judgement = _Judgement(sampler)
        return judgement.judge(measure_power, find_precision)
    except VeraxError as error:
        reason = f"the meaning cannot be evaluated: {error.cause} ({error.place})"
        return [
            undecided(graph.producers[v], v, observed[v], reason, region.names)
            for v in region.observed
        ], []


def drawn_ahead(
    graph: Graph, region: Region, observed: Mapping[str, np.ndarray], seed: int
) -> Sampler:
    """The sampler with which judging a region begins; the region's results may be absent from
    `observed`. Raises the `VeraxError` that judging would fail with."""
    sampler = Sampler(graph, region, observed, seed)
    elements = sum(sampler.expected[v].size for v in _floats(sampler))
    if elements > st.ADJOINT_ELEMENTS:
        sampler.draw_ahead(_samples(elements))
    return sampler


def _floats(sampler: Sampler) -> list[str]:
    """The shown values that are no integers."""
    return [v for v in sampler.region.observed if sampler.expected[v].dtype.kind == "f"]


def _samples(elements: int) -> int:
    """How many samples are drawn where so many elements are shown."""
    return st.SAMPLES_MANY if elements >= st.MANY_ELEMENTS else st.SAMPLES_FEW


def rounding_samples(
    graph: Graph, region: Region, observed: Mapping[str, np.ndarray], seed: int, count: int
) -> tuple[Values, list[Values]]:
    """Observed values of a region in float64, and `count` samples with rounding at every node."""
    sampler = Sampler(graph, region, observed, seed)
    return sampler.expected, sampler.samples(count)


class _Judgement:
    """The findings on one region."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler
        self.graph, self.region, self.observed = sampler.graph, sampler.region, sampler.observed
        self.expected, self.no_rule = sampler.expected, ""
        self.drawn: list[Values] | None = None
        self.steps = StepJudge(sampler) if quantizes_inside(sampler) else None

    def judge(
        self, measure_power: bool, find_precision: bool | frozenset[str]
    ) -> tuple[list[Finding], list[Power]]:
        """Findings on the shown values, and the power of the check at the values inside."""
        floats = _floats(self.sampler)
        elements = sum(self.expected[v].size for v in floats)
        samples: list[Values] = []
        reach: dict[str, Reach] | None = None
        scale: Values | None = None
        if 0 < elements <= st.ADJOINT_ELEMENTS:
            try:
                scale, reach = spreads(self.sampler.tape, floats, self.sampler.sigma)
            except NoRule as reason:
                self.no_rule = str(reason)
        if scale is None:
            samples = self.sampler.samples(_samples(elements))
            scale = {v: self._spread(v, samples) for v in floats}
        actual = {
            v: conform(self.observed[v], self.graph.types[v].dtype) for v in self.region.observed
        }
        decisions = {
            v: self._decide(v, a, self.expected[v], samples, scale.get(v))
            for v, a in actual.items()
        }
        power, usual, late = list[Power](), list[Power](), ""
        try:
            if measure_power:
                calm = self._calm(scale, decisions)
                seen, self.no_rule = measured(self.sampler, calm, reach, self.no_rule)
                power, usual = seen.power, seen.usual
        except OutOfTime as error:
            late = f"whether the check is blind was not found out: {error}"
        limit = limits(self.region.nodes, self.region.observed, self.graph.types, st.blind_from)
        findings = []
        for value, decision in decisions.items():
            node, expected = self.graph.producers[value], self.expected[value]
            if value in scale:  # choices (integers) are what they are: nothing inside shows there
                decision = unless_blind(decision, usual, limit)
                if late and decision.kind in AGREEING:
                    decision = Decision(
                        Kind.undecided, late, "power", decision.statistic, decision.group
                    )
            if value in scale:
                noted(value, actual[value], expected, scale[value])
            found_here = finding(node, value, decision, actual[value], expected, self.region.names)
            findings.append(recorded(found_here))
        findings = self._reproduced(findings, actual)
        if not find_precision:
            return findings, power
        names = find_precision if isinstance(find_precision, frozenset) else None
        return self._with_precision(findings, scale, names), power

    def _reproduced(self, findings: list[Finding], actual: Values) -> list[Finding]:
        """`findings`, those undecided for want of power decided where a run with every value stored
        as declared gives the subject's numbers."""
        blind = [f for f in findings if f.test == "power" and f.kind is Kind.undecided]
        if not blind:
            return findings
        shown = {f.value: actual[f.value].astype(np.float64) for f in blind}
        same = reproduced_as_declared(self.sampler, shown)
        if same is None:
            return findings
        reason = (
            f"computed with every value stored as declared, {same.equal} of {same.elements} "
            f"numbers are equal to the last bit, and {same.left:.1g} of the rounding error is left"
        )
        return [
            dataclasses.replace(f, kind=Kind.rounding, test=AS_DECLARED, reason=reason)
            if f in blind
            else f
            for f in findings
        ]

    def _calm(self, scale: Values, decisions: Mapping[str, Decision]) -> Values:
        """The scale by which the power is measured: of runs without a tipped integer, where every
        decision is one without a tipped integer; else `scale`."""
        steps = self.steps
        quiet = ("equality", "quantum")
        if steps is None or any(
            v not in steps.judged or decisions[v].test not in quiet for v in scale
        ):
            return scale
        return {v: steps.calm_sigma(v) for v in scale}

    def _with_precision(
        self, findings: list[Finding], scale: Values, names: frozenset[str] | None
    ) -> list[Finding]:
        """`findings`, those too large for rounding explained by a coarser arithmetic where one
        fits. names: of the products in bfloat16, where that is known."""
        large = [
            f
            for f in findings
            if f.statistic > st.COARSE_T and f.value in scale and f.kind is not Kind.precision
        ]
        if not large or any(not np.isfinite(f.statistic) for f in large):
            return findings
        actual = {v: self.observed[v].astype(np.float64) for v in scale}
        try:
            match = best_match(self.sampler, actual, names, [f.value for f in large])
        except OutOfTime as error:
            late = f"; coarser arithmetics were not tried: {error}"
            return [
                dataclasses.replace(f, kind=Kind.undecided, reason=f.reason + late)
                if f in large and f.kind is Kind.mistake
                else f
                for f in findings
            ]
        if match is None:
            return findings
        return [match.explain(f) if f in large else f for f in findings]

    def _spread(self, value: str, samples: Iterable[Values]) -> np.ndarray:
        """Sampled sigma of a shown value."""
        distances = self._distances(value, samples)
        if not distances:
            return np.zeros(self.expected[value].shape)
        with np.errstate(over="ignore"):
            return st.sampled_sigma(np.mean([d * d for d in distances], axis=0))

    def _distances(self, value: str, samples: Iterable[Values]) -> list[np.ndarray]:
        """Distances of the samples from the reference, leaving out those of another shape."""
        expected = self.expected[value]
        with np.errstate(invalid="ignore"):  # infinities of both are no distance
            gaps = [s[value] - expected for s in samples if s[value].shape == expected.shape]
        return [np.nan_to_num(gap) for gap in gaps]

    def _more(self, samples: list[Values]) -> list[Values]:
        """The samples, extended to SAMPLES_FEW; drawn once."""
        if self.drawn is None:
            missing = st.SAMPLES_FEW - len(samples)
            self.drawn = [*samples, *self.sampler.samples(missing)]
        return self.drawn

    def _largest_baseline(self, value: str, samples: Sequence[Values]) -> float:
        """The largest statistic of a sample against the spread of the others."""
        distances = self._distances(value, samples)
        if len(distances) < 3:
            return 0.0
        total = np.sum([d * d for d in distances], axis=0)
        statistics = [
            st.group_test(
                st.standardised(d, st.sampled_sigma((total - d * d) / (len(distances) - 1)) + TINY)
            ).statistic
            for d in distances
        ]
        return max(statistics, default=0.0)

    def _decide(
        self,
        value: str,
        actual: np.ndarray,
        expected: np.ndarray,
        samples: list[Values],
        sigma: np.ndarray | None,
    ) -> Decision:
        if actual.shape != expected.shape:
            shape_varies = any(s[value].shape != expected.shape for s in samples)
            kind = Kind.undecided if shape_varies else Kind.mistake
            reason = f"the shape is {actual.shape}, it should be {expected.shape}"
            return Decision(
                kind, reason + (" or nearly so" if shape_varies else ""), "shape", np.inf
            )
        stepped = self.steps is not None and value in self.steps.judged
        if not stepped and (sigma is None or actual.dtype.kind in "biu"):
            return self._decide_ties(value, actual, expected)
        finite = np.isfinite(expected)
        if not finite.all() or not np.isfinite(actual.astype(np.float64)).all():
            agree = bool((np.isfinite(actual.astype(np.float64)) == finite).all())
            if agree or not finite.all():
                return (
                    self._decide_made_nan(value, actual)
                    or infinity_decision(
                        self.region.nodes,
                        actual,
                        expected,
                        lambda: baseline_values(self.sampler, value),
                    )
                    or Decision(
                        Kind.undecided,
                        "NaN or infinite numbers: a NaN proves nothing",
                        "non-finite",
                    )
                )
            return self._decide_stray(value, actual)
        if bool(same_value(actual, expected.astype(actual.dtype)).all()):
            return Decision(
                Kind.identical, "every bit is the meaning's value rounded once", "equality"
            )
        if self.sampler.problems:
            return Decision(Kind.undecided, self.sampler.problems[0], "none")
        if self.steps is not None and (stepped or sigma is None):
            return self.steps.decide(value, actual)
        assert sigma is not None
        decision = self._decide_spread(value, actual, expected, samples, sigma)
        z = st.standardised(actual.astype(np.float64) - expected, sigma + TINY)
        return dataclasses.replace(decision, ratio=st.ratio(z))

    def _decide_made_nan(self, value: str, actual: np.ndarray) -> Decision | None:
        """The decision on finite numbers where the reference of an inner node is NaN; None where
        none is."""
        sampler, trail = self.sampler, Trail()
        reads = {v for node in self.region.nodes for v in node.inputs if v in self.observed}
        if overflowed((self.graph.types[v].dtype, self.observed[v]) for v in reads if v):
            return None

        def follow(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            outputs = sampler.evaluate(node, arrays).outputs
            trail.add(node, arrays, outputs)
            return outputs

        sampler.run(follow)
        origin = trail.origins.get(value)
        return None if origin is None else nan_decision(
            actual,
            self.expected[value],
            origin,
            lambda: baseline_values(sampler, value),
            lambda: self._is_masked_as_zeros(value),
        )  # fmt: skip

    def _is_masked_as_zeros(self, value: str) -> bool:
        """True if an observed value is right where a fully masked row gives zeros."""
        nodes = tuple(map(masked_as_zeros, self.region.nodes))
        if nodes == self.region.nodes:
            return False
        region = dataclasses.replace(self.region, nodes=nodes)
        sampler = Sampler(self.graph, region, self.observed, seed=0)
        if np.isnan(sampler.expected[value]).any():
            return False
        findings, _ = _Judgement(sampler).judge(False, False)
        good = (Kind.identical, Kind.rounding)
        return any(f.value == value and f.kind in good for f in findings)

    def _decide_stray(self, value: str, actual: np.ndarray) -> Decision:
        """The decision on NaN or infinity where the reference is finite."""
        reason = "NaN or infinite where the meaning is an ordinary number"
        first = left_by_rounding(self.sampler, value, ~np.isfinite(actual.astype(np.float64)))
        if first:
            reason += f"; so they are once every value has its declared type, from {first!r} on"
            return Decision(Kind.undecided, reason, "non-finite")
        return Decision(Kind.mistake, reason, "non-finite", np.inf)

    def _decide_spread(
        self,
        value: str,
        actual: np.ndarray,
        expected: np.ndarray,
        samples: list[Values],
        sigma: np.ndarray,
    ) -> Decision:
        error = actual.astype(np.float64) - expected
        fit = st.group_test(st.standardised(error, sigma + TINY))
        if samples and st.ROUNDING_T < fit.statistic <= st.CALIBRATED_T:
            samples = self._more(samples)
            sigma, baseline = self._spread(value, samples), self._largest_baseline(value, samples)
            fit = st.group_test(st.standardised(error, sigma + TINY))
            fit = dataclasses.replace(fit, statistic=fit.statistic / max(1.0, baseline))
        numbers = (
            fit.statistic,
            fit.group,
            None,
            st.root_mean_square(sigma),
            st.root_mean_square(error),
        )
        test = f"Monte Carlo arithmetic, {len(samples)} samples" if samples else "adjoint"
        if self.no_rule:
            test += f" ({self.no_rule})"
        distances = self._distances(value, samples)
        if actual.size >= st.HEAVY_TAIL_ELEMENTS and varies(distances) and self.sampler.jump:
            open_ = decide_at_a_jump(error, distances, self.sampler.jump)
            if open_ is not None:
                kind, reason = open_
                return Decision(kind, reason, test, *numbers)
        if fit.statistic > st.ROUNDING_T:
            z = st.standardised(error, sigma + TINY)
            alike = st.equal_rows_test(z, expected, error)
            fit = alike if alike.statistic <= st.ROUNDING_T else fit
        if fit.statistic <= st.ROUNDING_T:
            return Decision(
                Kind.rounding,
                f"the difference is {fit.statistic:.3g} of the most that honest rounding inside "
                f"these {len(self.region.nodes)} nodes shows",
                test,
                *numbers,
            )
        late = ""
        try:
            ordered = order_decision(self.sampler, value, error, sigma)
            if ordered is not None:
                return ordered
            table = table_decision(self.sampler, value, error, sigma)
            if table is not None:
                return table
            in_units = unit_decision(self.sampler, value, actual, error, sigma)
            if in_units is not None:
                return in_units
            fast = fast_decision(self.sampler, value, error, sigma)
            if fast is not None:
                return fast
            short = short_sum_decision(self.sampler, value, error, sigma)
            if short is not None:
                return short
            if fit.statistic <= st.CALIBRATED_T:
                split = split_decision(self.sampler, value, error, sigma)
                if split is not None:
                    return split
        except OutOfTime as exception:
            late = f"; what else may explain it was not tried: {exception}"
        reason = (
            f"the difference is {times(fit.statistic)} times the most that honest rounding "
            f"inside these {len(self.region.nodes)} nodes shows (worst in {fit.group})"
        )
        suspicious = fit.statistic <= st.SUSPICIOUS_T
        return Decision(
            Kind.undecided if suspicious or late else Kind.mistake,
            reason + ("; too near to call" if suspicious else "") + late,
            test,
            *numbers,
        )

    def _decide_ties(self, value: str, actual: np.ndarray, expected: np.ndarray) -> Decision:
        """The decision on integers and booleans: a difference is rounding where that tips the
        choice."""
        wrong = ~same_value(actual, expected.astype(actual.dtype))
        count = int(wrong.sum())
        if count == 0:
            return Decision(Kind.identical, "every integer agrees", "exact")
        tipped = np.zeros(expected.shape, bool)
        matched = np.zeros(expected.shape, bool)
        for _ in range(st.SAMPLES_FEW):
            sample = self.sampler.sample(st.TIE_NOISE)[value]
            if sample.shape == expected.shape:
                tipped |= sample != expected
                matched |= sample == actual
        share = f"{count} of {actual.size} choices differ"
        if bool(matched[wrong].all()):
            return Decision(
                Kind.rounding,
                f"{share}, each between candidates so near to each other that rounding decides",
                "near ties",
            )
        if bool(tipped[wrong].all()):
            return Decision(
                Kind.undecided,
                f"{share}, where rounding could tip the choice, though not seen to this answer",
                "near ties",
            )
        return Decision(
            Kind.mistake,
            f"{share}, and {int((wrong & ~tipped).sum())} of them are no near ties",
            "near ties",
            np.inf,
        )
