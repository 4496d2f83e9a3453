"""What is still seen of a value once wider views may excuse it.

A value that its own node cannot explain is looked at together with the nodes before it, back to the
network's inputs (`enlarge`), and more rounding is allowed for there. So what a check claims to see
of a value that the subject showed is what the widest of those views would not have excused: a run
of the whole network with honest rounding at every node says how far that is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from verax.base.deadline import OutOfTime
from verax.base.errors import VeraxError
from verax.ir.graph import Graph
from verax.judge.decide.ties import rounds_to_integers
from verax.judge.decide.visibility import shown_by_sigma, smallest_error
from verax.judge.regions.budget import needs, why_too_large
from verax.judge.regions.network import Survey
from verax.judge.regions.sampler import Region, Sampler
from verax.numerics import statistics as st
from verax.records.verdict import Finding, Kind, Power

WIDER_SAMPLES = 2
"""Runs with rounding that measure how far the widest view lets a value go."""
WIDENED = ", widened"
"""How the test of a value ends that only a wider view explains."""
Arrays = Mapping[str, np.ndarray]


def limit_by_wider_views(graph: Graph, survey: Survey, known: Arrays, seed: int) -> list[Power]:
    """`survey.power`, claiming no more than the widest view of each shown value would see.

    known: constants, inputs and shown values in their declared types. Where the whole network does
    not fit into the memory or time of this check, the claims stay those of the narrow views.
    """
    judged = [
        f
        for f in survey.findings
        if f.kind in (Kind.identical, Kind.rounding)
        and not f.test.endswith(WIDENED)
        and graph.types[f.value].dtype.is_float
    ]
    region = _whole(graph, known)
    if not any(f.value in region.observed for f in judged) or not _is_cut(graph, region):
        return survey.power
    if why_too_large(needs(graph, region, known)):
        return survey.power
    try:
        sampler = Sampler(graph, region, known, seed)
        samples = [sampler.sample() for _ in range(WIDER_SAMPLES)]
    except (OutOfTime, VeraxError):
        return survey.power
    wide: dict[str, np.ndarray] = {}
    for finding in judged:
        expected = sampler.expected.get(finding.value)
        runs = [s[finding.value] for s in samples if finding.value in s]
        if expected is not None and all(r.shape == expected.shape for r in runs):
            with np.errstate(all="ignore"):
                squares = [np.nan_to_num(r - expected) ** 2 for r in runs]
            wide[finding.value] = st.sampled_sigma(np.mean(squares, axis=0))
    return _limited(graph, survey.power, judged, wide, sampler.expected)


def _whole(graph: Graph, known: Arrays) -> Region:
    """All nodes from the network's inputs on; shown integers that were quantized are read as they
    were shown, as in every wider view."""
    stops = {
        v for v, node in graph.producers.items() if v in known and rounds_to_integers(node.op)
        and not graph.types[v].dtype.is_float
    }  # fmt: skip
    made = [v for n in graph.nodes for v in n.outputs]
    shown = tuple(v for v in made if v in known)
    return Region(graph.nodes, frozenset(v for v in made if v not in stops), shown)


def _is_cut(graph: Graph, region: Region) -> bool:
    """Whether any node reads a shown value: else no view is wider than that of the outputs."""
    return any(v in region.hidden and graph.consumers.get(v) for v in region.observed)


def _limited(
    graph: Graph,
    power: list[Power],
    judged: list[Finding],
    wide: Mapping[str, np.ndarray],
    expected: Arrays,
) -> list[Power]:
    """The same power, as far as the `wide` sigma of the shown values lets it show."""
    known = {p.value for p in power}
    larger: dict[str, float] = {}
    found: list[Power] = []
    for finding in (f for f in judged if f.value in wide):
        sigma, value = wide[finding.value], finding.value
        if value not in known and finding.visible < np.inf:
            least = max(
                shown_by_sigma(expected[value], sigma, st.WIDER_T),
                smallest_error(expected[value], graph.types[value].dtype),
            )
            found.append(Power(value, finding.node, max(finding.visible, least)))
        if finding.sigma > 0:
            ratio = st.root_mean_square(sigma) / finding.sigma * st.WIDER_T / st.SUSPICIOUS_T
            for name in finding.region:
                larger[name] = max(ratio, larger.get(name, 1.0))
    for one in power:
        by = larger.get(one.node, 1.0)
        factor = None if one.smallest_factor is None else one.smallest_factor * by
        found.append(
            dataclasses.replace(
                one, smallest_visible=one.smallest_visible * by, smallest_factor=factor
            )
        )
    return found
