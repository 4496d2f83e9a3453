"""`bisect`: a check that goes on until it names the node, its cause and the optimisation.

The guilty nodes come from values inside where the subject shows them, and from a search over parts
of the network where it does not (`truncate`). Each is explained, the subject's own optimisations
are searched (`optimisations`), and what is needed to show each mistake by itself is handed on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.base.options import CHECKED_AS_USUAL, CheckOptions, changed
from verax.ir.cut import cut
from verax.ir.graph import Graph, specialise
from verax.ir.pixels import Pixels
from verax.judge.check import EXPLAINED, check, judging
from verax.judge.explain.causes import diagnose
from verax.judge.inputs import draw_inputs
from verax.judge.locate.consecutive import Inputs, in_steps
from verax.judge.locate.steps import search_steps
from verax.judge.locate.truncate import Guilty, Located, locate
from verax.judge.protocol import Runner
from verax.judge.regions.network import Progress, fits, survey
from verax.numerics import statistics as st
from verax.records.bisection import Bisection, Optimisations
from verax.records.verdict import Blame, Kind, Verdict
from verax.reference.evaluate import bind_symbols

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Bisected:
    """The record; each guilty part with its arrays, and the network's inputs, for minimal cases."""

    record: Bisection
    guilty: tuple[Guilty, ...]
    inputs: Arrays


def bisect(
    graph: Graph,
    subject: Runner,
    inputs: Inputs = None,
    *,
    sizes: Mapping[str, int] | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Any,
) -> Bisected:
    """Judge `subject` as `check` does, then find what each mistake is and what brought it.

    A fault of what surrounds the network (the layout of its input, ...) ends the search: no node
    is to blame for it. Arguments and errors are those of `check`; its `timeout` is for the verdict,
    the searches after that take what they take.
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
) -> Bisected:
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
        return Bisected(Bisection(verdict, "the surroundings of the network"), (), arrays)
    fixed = specialise(graph, bind_symbols(graph, arrays))
    shown = _shown(fixed, subject, arrays, verdict, watch)
    verdict = _without_consequences(verdict)
    guilty, method = _by_values(fixed, arrays, shown, verdict), verdict.method
    levels = _optimisations(fixed, subject, arrays, seed, verdict, progress)
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
        verdict, guilty = _with_located(verdict, located, guilty)
    first, rest = guilty[:EXPLAINED], guilty[EXPLAINED:]
    guilty = (*(_explained(g, subject, seed) for g in first), *rest)
    if levels is not None and levels.guilty:
        guilty = tuple(_brought_by(g, levels) for g in guilty)
    by_value = {g.blame.value: g.blame for g in guilty}
    blame = tuple(by_value.get(b.value, b) for b in verdict.blame)
    record = Bisection(
        dataclasses.replace(verdict, blame=blame),
        method,
        located.evaluations if located else 0,
        located.refused if located else {},
        located.undecided if located else {},
        levels,
    )
    return Bisected(record, guilty, arrays)


def with_accuracy(found: Bisected, accuracy: Optimisations, samples: tuple[str, ...]) -> Bisected:
    """With what the accuracy on labelled samples said; samples: names of those that were judged."""
    verdict = found.record.verdict
    origin = f"samples: {', '.join(samples)}"
    inputs = tuple(dataclasses.replace(i, origin=origin) for i in verdict.inputs)
    verdict = dataclasses.replace(verdict, inputs=inputs)
    record = dataclasses.replace(found.record, verdict=verdict, accuracy=accuracy)
    return dataclasses.replace(found, record=record)


def _actual(
    graph: Graph,
    subject: Runner,
    inputs: Arrays | None,
    seed: int,
    sizes: Mapping[str, int] | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[Arrays | None, dict[str, str]]:
    """The inputs, and how they were drawn; None for those that the subject brings along."""
    if inputs is not None or subject.stored_inputs is not None:
        return inputs, {}
    return draw_inputs(graph, seed, sizes, pixels)


def _shown(
    graph: Graph, subject: Runner, inputs: Arrays, verdict: Verdict, watch: bool
) -> dict[str, np.ndarray]:
    """The subject's values around the guilty nodes, as far as it shows them."""
    if not verdict.blame or not (watch or subject.stored_inputs is not None):
        return {}
    wanted = [v for node in graph.nodes for v in node.outputs]
    try:
        shown = subject.run(graph, inputs, wanted if subject.capabilities.watches else None)
    except VeraxError:
        return {}
    return {v: np.asarray(a) for v, a in shown.items() if v in graph.producers}


def _by_values(graph: Graph, inputs: Arrays, shown: Arrays, verdict: Verdict) -> tuple[Guilty, ...]:
    """Guilty parts between values that the subject shows; regions whose inputs are hidden are not
    among them."""
    known = {**inputs, **{v: a for v, a in shown.items() if fits(graph.types[v], a)}}
    found = []
    for blame in verdict.blame:
        nodes = [n for n in graph.nodes if (n.name or n.outputs[0]) in blame.region]
        nodes = nodes or [graph.producers[blame.value]]
        made = {v for n in nodes for v in n.outputs}
        taken = {v for n in nodes for v in n.inputs if v in known and v not in made}
        given = {v: shown[v] for v in nodes[-1].outputs if v in shown}
        try:
            part = cut(graph, taken, given)
        except VeraxError:
            continue
        if given:
            found.append(Guilty(blame, part, {v: known[v] for v in part.inputs}, given))
    return tuple(found)


def _without_consequences(verdict: Verdict) -> Verdict:
    """Without regions in which a node is known to be guilty by itself: that explains them."""
    exact = {b.node for b in verdict.blame if not b.region}
    kept = tuple(b for b in verdict.blame if not exact & set(b.region))
    return dataclasses.replace(verdict, blame=kept)


def _is_vague(verdict: Verdict) -> bool:
    """Whether parts of the network could say more than the values that were shown."""
    regions = any(b.region for b in verdict.blame)
    return regions or (verdict.kind is Kind.undecided and not verdict.blame)


def _is_clear(verdict: Verdict, levels: Optimisations | None) -> bool:
    """Whether the regions are what one optimisation made into one, and no wider: their parts would
    say nothing more."""
    if levels is None or not levels.cured or not levels.steps:
        return False
    rewritten = {*levels.steps[0].region}
    within = any({*b.region} <= rewritten for b in verdict.blame)
    return within and all(len(b.region) <= len(rewritten) for b in verdict.blame)


def _with_located(
    verdict: Verdict, located: Located, guilty: tuple[Guilty, ...]
) -> tuple[Verdict, tuple[Guilty, ...]]:
    """The verdict with the nodes found by parts in the place of the regions they lie in."""
    inside = {n for g in located.guilty for n in (*g.blame.region, g.blame.node)}

    def narrowed(blame: Blame) -> bool:
        return bool(inside & {*blame.region, blame.node})

    kept = tuple(b for b in verdict.blame if not narrowed(b))
    found = tuple(g for g in guilty if g.blame in kept) + located.guilty
    if not located.guilty:
        return verdict, guilty
    name = verdict.subject["name"]
    reasons = [
        f"{name} is wrong in {'one of ' * bool(b.region)}{', '.join(b.region) or b.node} "
        f"({b.operator}): {b.reason}"
        for b in (*kept, *located.blame)
    ]
    return (
        dataclasses.replace(
            verdict,
            kind=Kind.mistake,
            blame=(*kept, *located.blame),
            reasons=tuple(reasons),
        ),
        found,
    )


def _explained(guilty: Guilty, subject: Runner, seed: int) -> Guilty:
    """With what one node, guilty by itself, did instead."""
    if guilty.blame.explanations or guilty.blame.structure:
        return guilty
    values = {**guilty.inputs, **guilty.given}
    blame = diagnose(guilty.blame, guilty.graph, values, subject, seed=seed)
    return dataclasses.replace(guilty, blame=blame)


def _brought_by(guilty: Guilty, found: Optimisations) -> Guilty:
    """With the step that is guilty; with its part where that step did not change these nodes."""
    name, region = found.guilty, {*guilty.blame.region, guilty.blame.node}
    if found.steps and found.cured and not region & {*found.steps[0].region}:
        name = found.steps[0].part
    blame = dataclasses.replace(guilty.blame, guilty_pass=name)
    return dataclasses.replace(guilty, blame=blame)


def _optimisations(
    graph: Graph,
    subject: Runner,
    inputs: Arrays,
    seed: int,
    verdict: Verdict,
    progress: Progress | None,
) -> Optimisations | None:
    """The optimisation that brings the mistake, when the subject can stop between them.

    Steps are judged by their outputs. verdict: on the whole subject, which may rest on values
    inside: where it knows better than to call the whole's outputs a mistake, so do the steps. Where
    precision is lost, a step is wrong whose outputs err by more than may be lost.
    """
    lost = verdict.kind is Kind.precision_lost
    better = verdict.kind not in (Kind.mistake, Kind.undecided)
    if better and subject.capabilities.slow_steps:
        return None

    def judged(outputs: Arrays) -> set[Kind]:
        found = survey(
            graph,
            inputs,
            outputs,
            seed=seed,
            measure_power=False,
            find_precision=bool(verdict.precisions),
        ).findings
        if lost and any(f.ratio > st.LOST for f in found):
            return {Kind.mistake}
        return {f.kind for f in found}

    @functools.cache
    def is_known_better() -> bool:
        shown = subject.run(graph, inputs)
        whole = {v: np.asarray(shown[v]) for v in graph.outputs if v in shown}
        return Kind.mistake in judged(whole)

    def kind(outputs: Arrays) -> Kind:
        kinds = judged(outputs)
        if better and not lost and Kind.mistake in kinds and is_known_better():
            kinds = kinds - {Kind.mistake} | {verdict.kind}
        worst = (Kind.mistake, Kind.undecided, Kind.precision, Kind.rounding)
        return next((k for k in worst if k in kinds), Kind.identical)

    return search_steps(graph, subject, inputs, kind, progress)
