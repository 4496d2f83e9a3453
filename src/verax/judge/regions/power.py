"""The power of a region's check: from which size on errors inside would have shown.

Derivatives tell that for every inner value at once. Where they cannot answer (a jump, an operator
without a rule) some inner values are disturbed instead. Claims are made of errors that show nearly
always (`statistics.CLAIMED`); a check is called blind by errors of the usual effect.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from verax.judge.decide.visibility import smallest_error
from verax.judge.regions.adjoint import NoRule, Reach, directions, reaches
from verax.judge.regions.sampler import Sampler, Values
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.records.verdict import Power

PROBES = 4
"""Inner values whose disturbance is tried to measure the power of the check."""
FEW_DRAWS, MANY_DRAWS = 3, 2
"""Disturbances of each inner value when there are few shown elements to see them by, and many."""


class Visibility:
    """What would have shown of errors inside a region.

    power: by value, of errors that show nearly always; usual: the same of errors of the usual
    effect. scale: standard deviation of the shown values.
    """

    def __init__(self, sampler: Sampler, scale: Values) -> None:
        self.sampler, self.scale = sampler, scale
        self.graph, self.region, self.expected = sampler.graph, sampler.region, sampler.expected
        self.power: list[Power] = []
        self.usual: list[Power] = []

    def by_derivatives(self, found: Mapping[str, Reach] | None = None) -> None:
        """Measure every value inside. found: what `spreads` gave. Raises `NoRule`."""
        sampler = self.sampler
        if found is None:
            found = reaches(sampler.tape, self.scale, sampler.sigma, sampler.random)
        for value, array in sampler.tape.values.items():
            if value in sampler.tape.steady or value in sampler.parameters:
                continue
            if array.dtype.kind == "f" and np.any(array):
                r = found.get(value, Reach(0.0, 0.0))
                usual, visible = _shown_from(r.statistic), _shown_from(r.least)
                self._add(value, usual, visible, _shown_from(r.least_factor), share=r.rounded)

    def by_disturbing(self) -> None:
        """Measure some values, disturbing PROBES of them and watching the result.

        Between quantizations they are disturbed by one step: what less does is left to chance.
        """
        inner = [
            v
            for v in self.sampler.sigma
            if v in self.region.hidden
            and v not in self.sampler.parameters
            and np.any(self.sampler.inner[v])
        ]
        spaced = np.linspace(0, len(inner) - 1, min(PROBES, len(inner)))
        elements = sum(self.expected[v].size for v in self.region.observed)
        draws = FEW_DRAWS if elements < st.MANY_ELEMENTS else MANY_DRAWS
        for target in dict.fromkeys(inner[round(i)] for i in spaced):
            step = self.sampler.steps.get(target, 0.0)
            size = max(st.PROBE, step)
            runs = [self.sampler.disturbed(target, size) for _ in range(draws)]
            strongest = st.root_mean_square(np.array([self._reached(r) for r in runs]))
            whole = self.sampler.propagated({target: self.sampler.inner[target] * (1 + size)})
            least = strongest * st.least_share(self._directions(runs))
            usual, visible, factor = (
                max(size * _shown_from(t), step) for t in (strongest, least, self._reached(whole))
            )
            self._add(target, usual, visible, factor, step=step)

    def _add(
        self,
        value: str,
        usual: float,
        visible: float,
        factor: float,
        share: float = 0.0,
        step: float = 0.0,
    ) -> None:
        node = self.graph.producers[value]
        least = smallest_error(self.sampler.tape.values[value], self.graph.types[value].dtype)
        usual, visible, factor = (max(float(x), least) for x in (usual, visible, factor))
        power = Power(value, node.name or node.outputs[0], visible, share, step, factor)
        self.power.append(power)
        self.usual.append(dataclasses.replace(power, smallest_visible=usual))

    def _directions(self, results: Sequence[Values]) -> float:
        """How many independent directions there are in what drawn disturbances do."""
        moved = []
        for result in results:
            parts = [
                (st.standardised(result[v] - self.expected[v], s + TINY) / np.sqrt(s.size)).ravel()
                for v, s in self.scale.items()
                if v in result and s.size and result[v].shape == self.expected[v].shape
            ]
            moved.append(np.nan_to_num(np.concatenate([np.zeros(1), *parts])))
        if len({part.size for part in moved}) > 1:  # another shape, as of kept boxes, shows
            return math.inf
        stacked = np.array(moved)
        return directions(stacked @ stacked.T, len(results))

    def _reached(self, result: Values) -> float:
        """How far beyond rounding a disturbance shows; another shape, as of kept boxes, shows."""
        if any(v in result and result[v].shape != self.expected[v].shape for v in self.scale):
            return st.SUSPICIOUS_T
        statistics = [
            st.group_test(st.standardised(result[v] - self.expected[v], s + TINY)).statistic
            for v, s in self.scale.items()
            if v in result
        ]
        return max(statistics, default=0.0)


def measured(
    sampler: Sampler, scale: Values, found: Mapping[str, Reach] | None, no_rule: str
) -> tuple[Visibility, str]:
    """What would have shown, and why derivatives do not tell ("" where they do).

    found, no_rule: what `spreads` gave, and why it gave nothing, where it was asked.
    """
    seen = Visibility(sampler, scale)
    if not no_rule:
        try:
            seen.by_derivatives(found)
        except NoRule as reason:
            no_rule = str(reason)
    if no_rule:
        seen.by_disturbing()
    return seen, no_rule


def _shown_from(statistic: float) -> float:
    """How much of an error that gives T `statistic` is seen, infinite where all of it is not."""
    return st.SUSPICIOUS_T / statistic if statistic > 0 else math.inf
