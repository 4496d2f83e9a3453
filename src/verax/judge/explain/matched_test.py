"""Causes below the rounding of 16 bits in a region, seen by projecting its errors onto them.

It explains a mistake and accuses nobody: of a million simulated honest verdicts none was accused,
and of some 500 real ones 24, as kernels depart from a network in ways that look like small mistakes
(casts left out, constants in float32, factors of a channel rounded once).

One number cannot show an epsilon or lanes behind a row's end in bfloat16; thousands can. With e the
region's errors and d what a known mistake would change, a = <e, d> / <d, d> is one plus or minus
its standard error where the mistake was made, and zero where not (the matched filter; North 1963).

Errors of a coarse arithmetic are correlated, as many results read one rounded factor. The standard
error is therefore that of clusters (Liang and Zeger 1986): of the slices along one axis, along the
axis where it is largest, each sum divided by what its slice leaves to the others (the jackknife,
MacKinnon and White 1985); the threshold is Student's with one degree of freedom less than there are
effectively slices (Kish 1965). Which
hypotheses are worth evaluating through the whole region is told by derivatives: <e, d> and |d| to
first order from one backward pass of e and a few of random seeds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.deadline import clock
from verax.base.errors import VeraxError
from verax.ir.graph import Graph, Node
from verax.judge.decide.coarse import on_grid
from verax.judge.explain.hypotheses.base import Prior
from verax.judge.explain.node import IMPOSSIBLE
from verax.judge.explain.region import RegionSearch
from verax.judge.explain.region_hypothesis import RegionHypothesis, region_nodes
from verax.judge.explain.region_screen import sensitivities
from verax.judge.regions.programs import SHORT
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.numerics.formats import FORMATS
from verax.numerics.student import upper_tail
from verax.records.verdict import Explanation

LONGEST = 256
"""Nodes of a region that is looked at."""
WORK = 1 << 28
"""Products and elements that may be computed for all regions, of the usual hypotheses first."""
LARGEST = 1 << 28
"""Products and elements of a region that is looked at: it is gone through some twenty times."""
SEEDS = 8
"""Random seeds from which the size of a hypothesis's effect is estimated."""


@dataclass(frozen=True)
class Projection:
    """Of errors on a hypothesis's effect. share: 1 where the mistake was made, 0 where not; error:
    its standard error; freedom: degrees of freedom of that."""

    share: float
    error: float
    freedom: int

    @property
    def statistic(self) -> float:
        """Student's t against no mistake."""
        return self.share / self.error if self.error > 0 else 0.0

    @property
    def chance(self) -> float:
        """With which honest errors reach the statistic."""
        return upper_tail(self.statistic, self.freedom) if self.statistic > 0 else 1.0

    def is_detection(self, eligible: int) -> bool:
        """Whether no hypothesis of so many is held like this by chance."""
        return self.is_whole and self.chance * max(1, eligible) <= st.MATCHED_CHANCE

    @property
    def is_whole(self) -> bool:
        """Whether the errors hold the effect once."""
        margin = min(st.DISTINCT * self.error, st.MATCHED_UNSURE) + st.MATCHED_CURVATURE
        return abs(self.share - 1) <= margin


def projected(error: np.ndarray, effect: np.ndarray) -> Projection:
    """The projection of errors on an effect of the same shape, which is not zero everywhere."""
    energy = float(np.vdot(effect, effect))
    share = float(np.vdot(error, effect)) / energy
    remainder = (error - share * effect) * effect
    single = float(np.sqrt(np.vdot(remainder, remainder))) / energy
    best = Projection(share, single, error.size)
    for axes in _clusters(error.shape):
        outside = tuple(a for a in range(error.ndim) if a not in axes)
        weight = np.square(effect).sum(axis=outside).ravel() / energy
        sums = remainder.sum(axis=outside).ravel() / np.maximum(1 - weight, TINY)
        spread = float(np.sqrt(np.vdot(sums, sums))) / energy
        clustered = Projection(share, spread, max(1, int(1 / np.vdot(weight, weight)) - 1))
        if clustered.chance > best.chance:
            best = clustered
    return best


def _clusters(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the axes whose slices are clusters: each with the batch, as what reads one factor of
    the data, and each alone, as what reads one of the weights, where there are enough."""
    for axis in range(len(shape)):
        together = tuple(sorted({0, axis}))
        if math.prod(shape[a] for a in together) >= st.MATCHED_CLUSTERS:
            yield together
        if axis and shape[axis] >= st.MATCHED_MANY_CLUSTERS:
            yield (axis,)


def explanations_by_projection(
    graph: Graph,
    arrays: Mapping[str, np.ndarray],
    region: Collection[str],
    value: str,
    seed: int = 0,
) -> list[Explanation]:
    """The known mistakes in a region that its errors hold once and beyond chance, best first; none
    where its value does not have 16 bits."""
    if value not in arrays or not _has_16_bits(graph, np.asarray(arrays[value]), value):
        return []
    nodes, read = region_nodes(graph, region, value)
    if not nodes or nodes[-1].outputs[0] != value or not read <= arrays.keys():
        return []
    if len(nodes) > LONGEST:
        return []
    try:
        search = RegionSearch(
            nodes, {v: arrays[v] for v in read}, arrays[value], graph.types, graph.constants, seed
        )
    except VeraxError:
        return []
    if search.costs[0] > LARGEST:
        return []
    return _Matched(search, nodes, seed).explanations()


def _has_16_bits(graph: Graph, array: np.ndarray, value: str) -> bool:
    """Whether a value is declared so, or all its numbers are."""
    is_declared = str(graph.types[value].dtype) in SHORT
    return is_declared or any(on_grid(array, FORMATS[n]) for n in SHORT)


class _Matched:
    """The hypotheses on a region held against its errors."""

    def __init__(self, search: RegionSearch, nodes: Sequence[Node], seed: int) -> None:
        self.search, self.nodes = search, nodes
        self.error = search.wide - search.expected
        self.noise = st.root_mean_square(self.error)
        fitting = [n for n in SHORT if on_grid(search.actual, FORMATS[n])]
        self.unit = max((FORMATS[n].unit_roundoff for n in fitting), default=0.0)
        random = np.random.default_rng(seed)
        seeds = [random.standard_normal(self.error.shape) for _ in range(SEEDS)]
        self.by_seed = sensitivities(nodes, search.meanings, search.truth, [self.error, *seeds])
        self.eligible = 0

    def explanations(self) -> list[Explanation]:
        """What is found, best first."""
        if not self.by_seed[0] or not self.noise or not np.isfinite(self.noise):
            return []
        projections = [
            (candidate, projection)
            for candidate in self._promising()
            if (projection := self._projection(candidate)) is not None
        ]
        detected = [
            (candidate, projection)
            for candidate, projection in projections
            if projection.is_detection(self.eligible)
        ]
        detected.sort(key=lambda one: -one[1].statistic)
        # What overlaps with the mistake that was made is held in part, and less surely.
        detected = [d for d in detected if 2 * d[1].statistic >= detected[0][1].statistic]
        return [
            Explanation(
                c.hypothesis,
                f"{c.words}: over {self.error.size} numbers together the errors hold {p.share:.2f} "
                f"of what that changes, plus or minus {p.error:.2f}",
                dict(c.attributes),
                p.statistic,
            )
            for c, p in detected[: st.MATCHED_NAMED]
        ]

    def _promising(self) -> list[RegionHypothesis]:
        """The usual hypotheses whose first-order projection may be a detection."""
        candidates = [
            c for c in self.search.hypotheses() if not c.fitted and c.prior <= Prior.uncommon
        ]
        costs, behind = self.search.costs, self.search.behind
        candidates.sort(key=lambda c: (c.prior, costs[c.step] - behind(c.step)))
        promising: list[RegionHypothesis] = []
        spent = 0.0
        for candidate in candidates:
            spent += costs[candidate.step] - behind(candidate.step)
            if spent > WORK or clock().is_up:
                break
            effect = self._first_order(candidate)
            if effect is None:
                continue
            along, size = effect
            power = size / self.noise
            if st.MATCHED_LEAST <= power <= st.MATCHED_MOST:
                self.eligible += 1
            share = along / size**2 if size else 0.0
            if (
                share * power >= st.MATCHED_LEAST
                and 1 / st.MATCHED_ROUGH < share < st.MATCHED_ROUGH
            ):
                promising.append(candidate)
        return promising

    def _is_within_rounding(self, candidate: RegionHypothesis, changed: np.ndarray) -> bool:
        """Whether what a hypothesis changes is at most one rounding of its node's results:
        arithmetic does that too. A fused kernel leaves casts out, and has constants in float32
        that a network declares in 16 bits (the scale of attention)."""
        before = self.search.truth[self.nodes[candidate.step].outputs[0]]
        if changed.shape != before.shape or before.dtype.kind != "f":
            return False
        return bool((np.abs(changed - before) <= self.unit * np.abs(before)).all())

    def _first_order(self, candidate: RegionHypothesis) -> tuple[float, float] | None:
        """<e, d> and |d| for a hypothesis's effect d, to first order."""
        changed = self.search.changed(candidate)
        if changed is None:
            return None
        if self._is_within_rounding(candidate, changed[0]):
            return None
        sums = np.zeros(len(self.by_seed))
        for value, array in zip(self.nodes[candidate.step].outputs, changed):
            before = self.search.truth[value]
            if array.shape != before.shape or before.dtype.kind != "f":
                return None
            for i, gradients in enumerate(self.by_seed):
                if value in gradients:
                    with np.errstate(all="ignore"):
                        sums[i] += float(np.vdot(gradients[value], array - before))
        if not np.isfinite(sums).all():
            return None
        return float(sums[0]), st.root_mean_square(sums[1:])

    def _projection(self, candidate: RegionHypothesis) -> Projection | None:
        try:
            with np.errstate(all="ignore"):
                value = self.search.carried(candidate)
        except IMPOSSIBLE:
            return None
        if value is None or value.shape != self.error.shape or not np.isfinite(value).all():
            return None
        effect = value - self.search.expected
        return projected(self.error, effect) if effect.any() else None
