"""Judging several nodes together, when what passes between them was not shown.

A region is a set of nodes between values that the subject did show. How far rounding inside it may
move them comes from derivatives when few numbers were shown (`adjoint`: exact, a backward pass for
each), else from Monte Carlo arithmetic: in float64, normal noise of each node's own sigma is added
to the node's output, and the scatter of a few such runs is what rounding may do.

A region can be blind: when a disturbance inside it hardly reaches the shown values, agreement
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
from verax.judge.decide.local import conform, finding, undecided
from verax.judge.decide.nan_origin import Trail, masked_as_zeros, nan_decision, overflowed
from verax.judge.regions.adjoint import NoRule, Reach, spreads
from verax.judge.regions.fast import fast_decision
from verax.judge.regions.jumps import decide_at_a_jump, varies
from verax.judge.regions.orders import order_decision
from verax.judge.regions.ordinary import honest_values, left_by_rounding
from verax.judge.regions.power import measured
from verax.judge.regions.precision_network import best_match
from verax.judge.regions.sampler import Region, Sampler, Values
from verax.judge.regions.steps import Steps, quantises_inside, recorded
from verax.numerics import statistics as st
from verax.numerics.compare import same_value
from verax.numerics.error_model import TINY
from verax.records.verdict import Finding, Kind, Power


def check_region(
    graph: Graph,
    region: Region,
    shown: Mapping[str, np.ndarray],
    seed: int,
    *,
    winograd: bool = True,
    measure_power: bool = True,
    find_precision: bool | frozenset[str] = True,
    sampler: Sampler | None = None,
) -> tuple[list[Finding], list[Power]]:
    """Judge the shown values of a region. `shown` holds inputs, constants and shown values.

    winograd: whether the subject may use Winograd's algorithm, which errs more. measure_power:
    whether to find out what the check could not see. find_precision: whether errors
    too large for float32 are tried in coarser arithmetics (slow), or names of products that are
    known to be in bfloat16. sampler: what `drawn_ahead` gave
    for the same, to be used once. Values stay in their declared dtypes; float64 is used inside.
    Deterministic for a seed.
    """
    try:
        if sampler is None:
            sampler = Sampler(graph, region, shown, seed)
        sampler.shown = shown
        judgement = _Judgement(sampler, winograd)
        return judgement.judge(measure_power, find_precision)
    except VeraxError as error:
        reason = f"the meaning cannot be evaluated: {error.cause} ({error.place})"
        return [
            undecided(graph.producers[v], v, shown[v], reason, region.names) for v in region.shown
        ], []


def drawn_ahead(
    graph: Graph, region: Region, shown: Mapping[str, np.ndarray], seed: int
) -> Sampler:
    """What judging a region begins with, and does not need its shown values for: they may be absent
    from `shown`. Raises the `VeraxError` that it would fail with."""
    sampler = Sampler(graph, region, shown, seed)
    elements = sum(sampler.expected[v].size for v in _floats(sampler))
    if elements > st.ADJOINT_ELEMENTS:
        sampler.draw_ahead(_samples(elements))
    return sampler


def _floats(sampler: Sampler) -> list[str]:
    """The shown values that are no integers."""
    return [v for v in sampler.region.shown if sampler.expected[v].dtype.kind == "f"]


def _samples(elements: int) -> int:
    """How many samples are drawn where so many elements are shown."""
    return st.SAMPLES_MANY if elements >= st.MANY_ELEMENTS else st.SAMPLES_FEW


def rounding_samples(
    graph: Graph, region: Region, shown: Mapping[str, np.ndarray], seed: int, count: int
) -> tuple[Values, list[Values]]:
    """Shown values of a region in float64, and `count` times with honest rounding at every node."""
    sampler = Sampler(graph, region, shown, seed)
    return sampler.expected, [sampler.sample() for _ in range(count)]


class _Judgement:
    """The findings on one region."""

    def __init__(self, sampler: Sampler, winograd: bool) -> None:
        self.sampler, self.winograd = sampler, winograd
        self.graph, self.region, self.shown = sampler.graph, sampler.region, sampler.shown
        self.expected, self.no_rule = sampler.expected, ""
        self.drawn: list[Values] | None = None
        self.steps = Steps(sampler) if quantises_inside(sampler) else None

    def judge(
        self, measure_power: bool, find_precision: bool | frozenset[str]
    ) -> tuple[list[Finding], list[Power]]:
        """Findings on the shown values, and the power of the check at the values inside."""
        floats = _floats(self.sampler)
        elements = sum(self.expected[v].size for v in floats)
        samples: list[Values] = []
        found: dict[str, Reach] | None = None
        scale: Values | None = None
        if 0 < elements <= st.ADJOINT_ELEMENTS:
            try:
                scale, found = spreads(self.sampler.tape, floats, self.sampler.sigma)
            except NoRule as reason:
                self.no_rule = str(reason)
        if scale is None:
            samples = [self.sampler.sample() for _ in range(_samples(elements))]
            scale = {v: self._spread(v, samples) for v in floats}
        given = {v: conform(self.shown[v], self.graph.types[v].dtype) for v in self.region.shown}
        decisions = {
            v: self._decide(v, a, self.expected[v], samples, scale.get(v)) for v, a in given.items()
        }
        power, usual, late = list[Power](), list[Power](), ""
        try:
            if measure_power:
                calm = self._calm(scale, decisions)
                seen, self.no_rule = measured(self.sampler, calm, found, self.no_rule)
                power, usual = seen.power, seen.usual
        except OutOfTime as error:
            late = f"whether the check is blind was not found out: {error}"
        limit = limits(self.region.nodes, self.region.shown, self.graph.types, st.blind_from)
        findings = []
        for value, decision in decisions.items():
            node, expected = self.graph.producers[value], self.expected[value]
            if value in scale:  # choices (integers) are what they are: nothing inside shows there
                decision = unless_blind(decision, usual, limit)
                if late and decision.kind in AGREEING:
                    decision = Decision(
                        Kind.undecided, late, "power", decision.statistic, decision.group
                    )
            found_here = finding(node, value, decision, given[value], expected, self.region.names)
            findings.append(recorded(found_here))
        if not find_precision:
            return findings, power
        names = find_precision if isinstance(find_precision, frozenset) else None
        return self._with_precision(findings, scale, names), power

    def _calm(self, scale: Values, decisions: Mapping[str, Decision]) -> Values:
        """The scale by which the power is measured: where every answer is the one without a tipped
        integer, no integer was tipped, and an error would have had to tip none either."""
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
        """The same, where errors too large for rounding are explained by a coarser arithmetic.
        names: of the products in bfloat16, where that is known."""
        large = [
            f
            for f in findings
            if f.statistic > st.COARSE_T and f.value in scale and f.kind is not Kind.precision
        ]
        if not large or any(not np.isfinite(f.statistic) for f in large):
            return findings
        given = {v: self.shown[v].astype(np.float64) for v in scale}
        try:
            match = best_match(self.sampler, given, names)
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
        """How far the samples lie from the meaning, leaving out those of another shape."""
        expected = self.expected[value]
        with np.errstate(invalid="ignore"):  # infinities of both are no distance
            gaps = [s[value] - expected for s in samples if s[value].shape == expected.shape]
        return [np.nan_to_num(gap) for gap in gaps]

    def _more(self, samples: list[Values]) -> list[Values]:
        """The samples and as many more as make SAMPLES_FEW, drawn once."""
        if self.drawn is None:
            missing = st.SAMPLES_FEW - len(samples)
            self.drawn = [*samples, *(self.sampler.sample() for _ in range(missing))]
        return self.drawn

    def _honest(self, value: str, samples: Sequence[Values]) -> float:
        """The largest statistic of an honest run, each held against the spread of the others."""
        distances = self._distances(value, samples)
        if len(distances) < 3:
            return 0.0
        total = np.sum([d * d for d in distances], axis=0)
        found = [
            st.group_test(
                st.standardised(d, st.sampled_sigma((total - d * d) / (len(distances) - 1)) + TINY)
            ).statistic
            for d in distances
        ]
        return max(found, default=0.0)

    def _decide(
        self,
        value: str,
        given: np.ndarray,
        expected: np.ndarray,
        samples: list[Values],
        sigma: np.ndarray | None,
    ) -> Decision:
        if given.shape != expected.shape:
            moved = any(s[value].shape != expected.shape for s in samples)
            kind = Kind.undecided if moved else Kind.mistake
            reason = f"the shape is {given.shape}, it should be {expected.shape}"
            return Decision(kind, reason + (" or nearly so" if moved else ""), "shape", np.inf)
        stepped = self.steps is not None and value in self.steps.judged
        if not stepped and (sigma is None or given.dtype.kind in "biu"):
            return self._decide_ties(value, given, expected)
        finite = np.isfinite(expected)
        if not finite.all() or not np.isfinite(given.astype(np.float64)).all():
            agree = bool((np.isfinite(given.astype(np.float64)) == finite).all())
            if agree or not finite.all():
                return self._decide_made_nan(value, given) or Decision(
                    Kind.undecided, "NaN or infinite numbers: a NaN proves nothing", "non-finite"
                )
            return self._decide_stray(value, given)
        if bool(same_value(given, expected.astype(given.dtype)).all()):
            return Decision(
                Kind.identical, "every bit is the meaning's value rounded once", "equality"
            )
        if self.sampler.problems:
            return Decision(Kind.undecided, self.sampler.problems[0], "none")
        if self.steps is not None and (stepped or sigma is None):
            return self.steps.decide(value, given)
        assert sigma is not None
        decision = self._decide_spread(value, given, expected, samples, sigma)
        z = st.standardised(given.astype(np.float64) - expected, sigma + TINY)
        return dataclasses.replace(decision, ratio=st.ratio(z))

    def _decide_made_nan(self, value: str, given: np.ndarray) -> Decision | None:
        """Ordinary numbers where a node inside makes NaN by its meaning; None where none does."""
        sampler, trail = self.sampler, Trail()
        reads = {v for node in self.region.nodes for v in node.inputs if v in self.shown}
        if overflowed((self.graph.types[v].dtype, self.shown[v]) for v in reads if v):
            return None

        def follow(node: Node, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
            outputs = sampler.evaluate(node, arrays).outputs
            trail.add(node, arrays, outputs)
            return outputs

        sampler.run(follow)
        origin = trail.found.get(value)
        return None if origin is None else nan_decision(
            given,
            self.expected[value],
            origin,
            lambda: honest_values(sampler, value),
            lambda: self._is_masked_as_zeros(value),
        )  # fmt: skip

    def _is_masked_as_zeros(self, value: str) -> bool:
        """Whether a shown value is right where what is masked whole gives zeros."""
        nodes = tuple(map(masked_as_zeros, self.region.nodes))
        if nodes == self.region.nodes:
            return False
        region = dataclasses.replace(self.region, nodes=nodes)
        sampler = Sampler(self.graph, region, self.shown, seed=0)
        if np.isnan(sampler.expected[value]).any():
            return False
        findings, _ = _Judgement(sampler, self.winograd).judge(False, False)
        good = (Kind.identical, Kind.rounding)
        return any(f.value == value and f.kind in good for f in findings)

    def _decide_stray(self, value: str, given: np.ndarray) -> Decision:
        """NaN or infinite where the meaning is an ordinary number."""
        words = "NaN or infinite where the meaning is an ordinary number"
        first = left_by_rounding(self.sampler, value, ~np.isfinite(given.astype(np.float64)))
        if first:
            words += f"; so they are once every value has its declared type, from {first!r} on"
            return Decision(Kind.undecided, words, "non-finite")
        return Decision(Kind.mistake, words, "non-finite", np.inf)

    def _decide_spread(
        self,
        value: str,
        given: np.ndarray,
        expected: np.ndarray,
        samples: list[Values],
        sigma: np.ndarray,
    ) -> Decision:
        error = given.astype(np.float64) - expected
        found = st.group_test(st.standardised(error, sigma + TINY))
        if samples and st.ROUNDING_T < found.statistic <= st.CALIBRATED_T:
            samples = self._more(samples)
            sigma, honest = self._spread(value, samples), self._honest(value, samples)
            found = st.group_test(st.standardised(error, sigma + TINY))
            found = dataclasses.replace(found, statistic=found.statistic / max(1.0, honest))
        numbers = (
            found.statistic,
            found.group,
            None,
            st.root_mean_square(sigma),
            st.root_mean_square(error),
        )
        test = f"Monte Carlo arithmetic, {len(samples)} samples" if samples else "adjoint"
        if self.no_rule:
            test += f" ({self.no_rule})"
        distances = self._distances(value, samples)
        if given.size >= st.HEAVY_TAIL_ELEMENTS and varies(distances) and self.sampler.jump:
            open_ = decide_at_a_jump(error, distances, self.sampler.jump)
            if open_ is not None:
                kind, reason = open_
                return Decision(kind, reason, test, *numbers)
        if found.statistic > st.ROUNDING_T:
            z = st.standardised(error, sigma + TINY)
            alike = st.equal_rows_test(z, expected, error)
            found = alike if alike.statistic <= st.ROUNDING_T else found
        if found.statistic <= st.ROUNDING_T:
            return Decision(
                Kind.rounding,
                f"the difference is {found.statistic:.3g} of the most that honest rounding inside "
                f"these {len(self.region.nodes)} nodes shows",
                test,
                *numbers,
            )
        late = ""
        try:
            ordered = order_decision(self.sampler, value, error, sigma)
            if ordered is not None:
                return ordered
            fast = fast_decision(self.sampler, value, error, sigma) if self.winograd else None
            if fast is not None:
                return fast
        except OutOfTime as exception:
            late = f"; what else may explain it was not tried: {exception}"
        reason = (
            f"the difference is {times(found.statistic)} times the most that honest rounding "
            f"inside these {len(self.region.nodes)} nodes shows (worst in {found.group})"
        )
        suspicious = found.statistic <= st.SUSPICIOUS_T
        return Decision(
            Kind.undecided if suspicious or late else Kind.mistake,
            reason + ("; too near to call" if suspicious else "") + late,
            test,
            *numbers,
        )

    def _decide_ties(self, value: str, given: np.ndarray, expected: np.ndarray) -> Decision:
        """Integers and booleans: a difference is honest where rounding could tip the choice."""
        wrong = ~same_value(given, expected.astype(given.dtype))
        count = int(wrong.sum())
        if count == 0:
            return Decision(Kind.identical, "every integer agrees", "exact")
        tipped = np.zeros(expected.shape, bool)
        matched = np.zeros(expected.shape, bool)
        for _ in range(st.SAMPLES_FEW):
            other = self.sampler.sample(st.TIE_NOISE)[value]
            if other.shape == expected.shape:
                tipped |= other != expected
                matched |= other == given
        share = f"{count} of {given.size} choices differ"
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
