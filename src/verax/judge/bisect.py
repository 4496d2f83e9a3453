"""`bisect`: a check that continues until it names the node, its cause and the optimization.

The faulty nodes come from observed inner values, or from a search over parts of the network where
there are none (`truncate`). Each is explained, the subject's own optimizations are searched
(`optimization_search`), and the arrays that show each mistake by itself are returned.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from verax.base.errors import VeraxError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckKeywords, CheckOptions, changed
from verax.ir.cut import cut
from verax.ir.graph import Graph, specialize
from verax.ir.pixels import Pixels
from verax.judge.check import EXPLAINED, check, judging
from verax.judge.explain.causes import diagnose
from verax.judge.inputs import draw_inputs
from verax.judge.locate.consecutive import Inputs, in_steps
from verax.judge.locate.step_search import search_steps
from verax.judge.locate.truncate import FaultyPart, Located, locate
from verax.judge.protocol import Runner
from verax.judge.regions.network import Progress, fits, survey
from verax.numerics import statistics as st
from verax.records.bisection import Bisection, Optimizations
from verax.records.verdict import Blame, Kind, Verdict
from verax.reference.evaluate import bind_symbols

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class BisectionResult:
    """The record; each faulty part with its arrays, and the network's inputs, for minimal cases."""

    record: Bisection
    faulty: tuple[FaultyPart, ...]
    inputs: Arrays


@with_options(CheckOptions)
def bisect(
    graph: Graph,
    subject: Runner,
    inputs: Inputs = None,
    *,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[CheckKeywords],
) -> BisectionResult:
    """Judge `subject` as `check` does, then find the cause of each mistake and its optimization.

    A fault outside the network (the layout of its input, ...) ends the search: no node is faulty
    then. Arguments and errors are those of `check`; its `timeout` is for the verdict, the searches
    after that have no limit.
    """
    options = changed(options, keywords)
    with judging(subject, options):
        graph, subject, arrays = in_steps(graph, subject, inputs, options.steps)
        arrays, origins = _actual(graph, subject, arrays, options.seed, sizes, pixels)
        once = dataclasses.replace(options, steps=None)  # unrolled already
        verdict = check(graph, subject, arrays, progress=progress, options=once)
        return _searched(graph, subject, arrays, origins, verdict, options, progress)


def _searched(
    graph: Graph,
    subject: Runner,
    arrays: Arrays | None,
    origins: Mapping[str, str],
    verdict: Verdict,
    options: CheckOptions,
    progress: Progress | None,
) -> BisectionResult:
    """What the guilty nodes of a verdict did, and what brought it. origins: of drawn inputs."""
    seed, watch = options.seed, options.watch
    if arrays is None:
        stored = subject.stored_inputs or {}
        arrays = {v: stored[v] for v in graph.inputs if v in stored}
    arrays = {**graph.initial, **arrays}
    verdict = dataclasses.replace(
        verdict,
        inputs=tuple(
            dataclasses.replace(i, origin=origins.get(i.name, i.origin)) for i in verdict.inputs
        ),
    )
    if verdict.causes:
        return BisectionResult(Bisection(verdict, "the surroundings of the network"), (), arrays)
    fixed = specialize(graph, bind_symbols(graph, arrays))
    observed = _observed_values(fixed, subject, arrays, verdict, watch)
    verdict = _without_consequences(verdict)
    faulty, method = _by_values(fixed, arrays, observed, verdict), verdict.method
    levels = _search_optimizations(fixed, subject, arrays, seed, verdict, progress)
    located = None
    if subject.capabilities.truncates and _is_vague(verdict) and not _is_clear(verdict, levels):
        located = locate(
            fixed,
            subject,
            arrays,
            wrong=verdict.kind is Kind.mistake,
            seed=seed,
            progress=progress,
        )
        method = f"parts of the network, {located.evaluations} runs of the subject"
        verdict, faulty = _with_located(verdict, located, faulty)
    first, remaining = faulty[:EXPLAINED], faulty[EXPLAINED:]
    faulty = (*(_explained(g, subject, seed) for g in first), *remaining)
    if levels is not None and levels.guilty:
        faulty = tuple(_with_pass(g, levels) for g in faulty)
    by_value = {g.blame.value: g.blame for g in faulty}
    blame = tuple(by_value.get(b.value, b) for b in verdict.blame)
    record = Bisection(
        dataclasses.replace(verdict, blame=blame),
        method,
        located.evaluations if located else 0,
        located.refused if located else {},
        located.undecided if located else {},
        levels,
    )
    return BisectionResult(record, faulty, arrays)


def with_accuracy(
    result: BisectionResult, accuracy: Optimizations, samples: tuple[str, ...]
) -> BisectionResult:
    """`result` with the search by accuracy on labeled samples; samples: names of those judged."""
    verdict = result.record.verdict
    origin = f"samples: {', '.join(samples)}"
    inputs = tuple(dataclasses.replace(i, origin=origin) for i in verdict.inputs)
    verdict = dataclasses.replace(verdict, inputs=inputs)
    record = dataclasses.replace(result.record, verdict=verdict, accuracy=accuracy)
    return dataclasses.replace(result, record=record)


def _actual(
    graph: Graph,
    subject: Runner,
    inputs: Arrays | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[Arrays | None, dict[str, str]]:
    """The inputs, and how they were drawn; None for those that the subject has stored."""
    if inputs is not None or subject.stored_inputs is not None:
        return inputs, {}
    return draw_inputs(graph, seed, sizes, pixels)


def _observed_values(
    graph: Graph, subject: Runner, inputs: Arrays, verdict: Verdict, watch: bool
) -> dict[str, np.ndarray]:
    """The subject's inner values, as far as it gives them; {} if no node is faulty."""
    if not verdict.blame or not (watch or subject.stored_inputs is not None):
        return {}
    names = [v for node in graph.nodes for v in node.outputs]
    try:
        results = subject.run(graph, inputs, names if subject.capabilities.watches else None)
    except VeraxError:
        return {}
    return {v: np.asarray(a) for v, a in results.items() if v in graph.producers}


def _by_values(
    graph: Graph, inputs: Arrays, observed: Arrays, verdict: Verdict
) -> tuple[FaultyPart, ...]:
    """Faulty parts between observed values; without regions whose inputs are hidden."""
    arrays = {**inputs, **{v: a for v, a in observed.items() if fits(graph.types[v], a)}}
    faulty_parts = []
    for blame in verdict.blame:
        nodes = [n for n in graph.nodes if (n.name or n.outputs[0]) in blame.region]
        nodes = nodes or [graph.producers[blame.value]]
        produced = {v for n in nodes for v in n.outputs}
        boundary = {v for n in nodes for v in n.inputs if v in arrays and v not in produced}
        actual = {v: observed[v] for v in nodes[-1].outputs if v in observed}
        try:
            subgraph = cut(graph, boundary, actual)
        except VeraxError:
            continue
        if actual:
            faulty_parts.append(
                FaultyPart(blame, subgraph, {v: arrays[v] for v in subgraph.inputs}, actual)
            )
    return tuple(faulty_parts)


def _without_consequences(verdict: Verdict) -> Verdict:
    """`verdict` without regions that hold a node that is faulty by itself, which explains them."""
    exact = {b.node for b in verdict.blame if not b.region}
    remaining = tuple(b for b in verdict.blame if not exact & set(b.region))
    return dataclasses.replace(verdict, blame=remaining)


def _is_vague(verdict: Verdict) -> bool:
    """True if running parts of the network can be more precise than the observed values."""
    regions = any(b.region for b in verdict.blame)
    return regions or (verdict.kind is Kind.undecided and not verdict.blame)


def _is_clear(verdict: Verdict, levels: Optimizations | None) -> bool:
    """True if the regions are exactly what one optimization fused: their parts would tell nothing
    more."""
    if levels is None or not levels.cured or not levels.steps:
        return False
    rewritten = {*levels.steps[0].region}
    within = any({*b.region} <= rewritten for b in verdict.blame)
    return within and all(len(b.region) <= len(rewritten) for b in verdict.blame)


def _with_located(
    verdict: Verdict, located: Located, faulty: tuple[FaultyPart, ...]
) -> tuple[Verdict, tuple[FaultyPart, ...]]:
    """The verdict with the nodes found by parts in the place of the regions they lie in."""
    inside = {n for g in located.faulty for n in (*g.blame.region, g.blame.node)}

    def narrowed(blame: Blame) -> bool:
        return bool(inside & {*blame.region, blame.node})

    remaining = tuple(b for b in verdict.blame if not narrowed(b))
    all_faulty = tuple(g for g in faulty if g.blame in remaining) + located.faulty
    if not located.faulty:
        return verdict, faulty
    name = verdict.subject["name"]
    reasons = [
        f"{name} is wrong in {'one of ' * bool(b.region)}{', '.join(b.region) or b.node} "
        f"({b.operator}): {b.reason}"
        for b in (*remaining, *located.blame)
    ]
    return (
        dataclasses.replace(
            verdict,
            kind=Kind.mistake,
            blame=(*remaining, *located.blame),
            reasons=tuple(reasons),
        ),
        all_faulty,
    )


def _explained(faulty: FaultyPart, subject: Runner, seed: int) -> FaultyPart:
    """The part with the explanations of its mistake."""
    if faulty.blame.explanations or faulty.blame.structure:
        return faulty
    values = {**faulty.inputs, **faulty.actual}
    blame = diagnose(faulty.blame, faulty.graph, values, subject, seed=seed)
    return dataclasses.replace(faulty, blame=blame)


def _with_pass(faulty: FaultyPart, optimizations: Optimizations) -> FaultyPart:
    """The part with the name of the faulty step; of its pass where that step did not change these
    nodes."""
    name, region = optimizations.guilty, {*faulty.blame.region, faulty.blame.node}
    if (
        optimizations.steps
        and optimizations.cured
        and not region & {*optimizations.steps[0].region}
    ):
        name = optimizations.steps[0].part
    blame = dataclasses.replace(faulty.blame, guilty_pass=name)
    return dataclasses.replace(faulty, blame=blame)


def _search_optimizations(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    seed: int,
    verdict: Verdict,
    progress: Progress | None,
) -> Optimizations | None:
    """The optimization that brings the mistake, when the subject can stop between them.

    Steps are judged by their outputs. verdict: on the whole subject, which may rest on values
    inside: where it knows better than to call the whole's outputs a mistake, so do the steps. Where
    precision is lost, a step is wrong whose outputs err by more than may be lost.
    """
    lost = verdict.kind is Kind.precision_lost
    better = verdict.kind not in (Kind.mistake, Kind.undecided)
    if better and subject.capabilities.slow_steps:
        return None

    def judged(outputs: Arrays) -> set[Kind]:
        findings = survey(
            graph,
            inputs,
            outputs,
            seed=seed,
            measure_power=False,
            find_precision=bool(verdict.precisions),
        ).findings
        if lost and any(f.ratio > st.LOST for f in findings):
            return {Kind.mistake}
        return {f.kind for f in findings}

    @functools.cache
    def is_known_better() -> bool:
        results = subject.run(graph, inputs)
        outputs = {v: np.asarray(results[v]) for v in graph.outputs if v in results}
        return Kind.mistake in judged(outputs)

    def kind(outputs: Arrays) -> Kind:
        kinds = judged(outputs)
        if better and not lost and Kind.mistake in kinds and is_known_better():
            kinds = kinds - {Kind.mistake} | {verdict.kind}
        worst = (Kind.mistake, Kind.undecided, Kind.precision, Kind.rounding)
        return next((k for k in worst if k in kinds), Kind.identical)

    return search_steps(graph, subject, inputs, kind, progress)
