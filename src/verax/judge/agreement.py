"""`agree`: does a subject choose the same classes as the reference, image after image?

A choice may flip without any mistake where two classes are so near to each other that rounding
decides. So each disagreement is measured: the margin between the two classes in float64, against
the standard deviation of that margin by rounding. The image with the largest disagreement is judged
as a whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Unpack

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CHECKED_AS_USUAL, CheckKeywords, CheckOptions, changed
from verax.base.process.helpers import helper_scope
from verax.ir.graph import Graph, specialize
from verax.judge.check import check
from verax.judge.protocol import Runner
from verax.judge.regions.network import regions
from verax.judge.regions.region import rounding_samples
from verax.numerics import statistics as st
from verax.records.agreement import Agreement, Disagreement
from verax.records.environment import array_hash, environment
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import bind_symbols, evaluate

Arrays = Mapping[str, np.ndarray]
Progress = Callable[[str, float], None]
Named = tuple[str, Arrays]
"""An image's name and the network's inputs."""
CHUNK = 16
"""Images that are run in one batch where the network takes any."""
MEASURED = 12
"""Disagreements whose margin is measured by sampling; further ones borrow the largest sigma."""


@with_options(CheckOptions)
@helper_scope()
def agree(
    graph: Graph,
    subject: Runner,
    images: Mapping[str, Callable[[], Arrays]],
    *,
    output: str | None = None,
    progress: Progress | None = None,
    options: CheckOptions = CHECKED_AS_USUAL,
    **keywords: Unpack[CheckKeywords],
) -> Agreement:
    """Compare a subject's choices with the float64 meaning's over images.

    images: by name, each a function that gives the network's inputs (called once, so that a folder
    need not fit into memory); one that raises `InputError` counts as unread. output: whose largest
    element along the last axis is the choice; the network's only output with several classes when
    not given. options, keywords: those of `check`, for the image that is judged as a whole.
    Raises `InputError` when no image can be read, `UsageError` when the output is not clear.
    """
    options = changed(options, keywords)
    say = progress or (lambda description, done: None)
    value = chosen_output(graph, output)
    disagreements_on: list[tuple[Disagreement, Arrays]] = []
    refused: dict[str, str] = {}
    if graph.state:
        raise UsageError(
            "the network remembers: what it answers to an image depends on those before it",
            place=", ".join(graph.state),
            next_step="run `verax check` without --images",
        )
    hashes: dict[str, str] = {}
    first: tuple[str, Arrays] | None = None
    batch_size = CHUNK if takes_batches(graph, value) else 1
    waiting: list[Named] = []
    for i, (name, load) in enumerate(images.items(), 1):
        say(name, (i - 1) / (len(images) + 1))
        try:
            arrays = load()
        except InputError as error:
            refused[name] = error.cause
        else:
            hashes[name] = "".join(array_hash(np.asarray(arrays[v])) for v in graph.inputs)
            first = first or (name, arrays)
            if waiting and _shapes(waiting[0][1]) != _shapes(arrays):
                disagreements_on += _compared(graph, subject, value, waiting)
                waiting = []
            waiting.append((name, arrays))
        if waiting and (len(waiting) == batch_size or i == len(images)):
            disagreements_on += _compared(graph, subject, value, waiting)
            waiting = []
    if first is None:
        raise InputError(
            "no image of the folder can be read" if refused else "the folder holds no image",
            place=next(iter(refused), ""),
            next_step=next(iter(refused.values()), "give a folder of .png or .jpg files"),
        )
    disagreements_on = _measured(graph, value, disagreements_on, options.seed)
    say("judging the worst", len(images) / (len(images) + 1))
    judged, arrays = (
        (disagreements_on[0][0].image, disagreements_on[0][1]) if disagreements_on else first
    )
    verdict = check(graph, subject, arrays, options=options)
    disagreements = tuple(d for d, _ in disagreements_on)
    kind = _kind(disagreements, verdict)
    return Agreement(
        kind,
        tuple(_reasons(kind, disagreements, len(hashes), judged, verdict)),
        verdict.subject,
        value,
        len(hashes),
        disagreements,
        judged,
        verdict,
        refused,
        hashes,
        environment=environment(),
        seed=options.seed,
    )


def chosen_output(graph: Graph, output: str | None) -> str:
    """The output whose last axis is a choice. Raises `UsageError` when there is not exactly one."""
    if output is not None:
        if output in graph.outputs:
            return output
        raise UsageError(
            f"the network has no output {output!r}", next_step=f"it has {', '.join(graph.outputs)}"
        )
    scores = [v for v in graph.outputs if graph.types[v].dtype.is_float]
    scores = [v for v in scores if graph.types[v].rank > 1 and graph.types[v].dims[-1] != 1]
    # One row of scores for each image is what a classifier gives; anything else is a guess.
    able = [v for v in scores if graph.types[v].rank == 2] or scores
    if len(able) != 1:
        raise UsageError(
            f"{len(able)} outputs could be scores of classes",
            place=", ".join(able or graph.outputs),
            next_step="name one of them with --output",
        )
    return able[0]


def takes_batches(graph: Graph, value: str) -> bool:
    """Whether images can be judged side by side: one symbol is the first axis of all inputs and of
    the output."""
    first = {graph.types[v].dims[0] if graph.types[v].rank else 1 for v in (*graph.inputs, value)}
    return len(first) == 1 and not isinstance(next(iter(first)), int)


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {v: np.shape(a) for v, a in arrays.items()}


def _compared(
    graph: Graph, subject: Runner, value: str, group: list[Named]
) -> list[tuple[Disagreement, Arrays]]:
    """Disagreements on images of one shape, which are run in one batch."""
    arrays = {v: np.concatenate([a[v] for _, a in group]) for v in graph.inputs}
    if len(group) == 1:
        arrays = {v: np.asarray(a) for v, a in group[0][1].items()}
    expected = evaluate(graph, arrays)[value]
    answer = subject.run(graph, arrays, None)
    if value not in answer:
        raise UsageError(
            f"the subject gave no {value!r}",
            place=subject.name,
            next_step=f"name its answers as the network does: {', '.join(graph.outputs)}",
        )
    actual = np.asarray(answer[value]).astype(np.float64)
    if actual.shape != expected.shape:
        raise UsageError(
            f"the subject's {value!r} has the shape {actual.shape}, it should be {expected.shape}",
            place=subject.name,
            next_step="run `verax check` without --images",
        )
    split_arrays = (np.split(x, len(group)) for x in (expected, actual))
    return [
        (d, one)
        for (name, one), y, g in zip(group, *split_arrays)
        for d in _disagreements(name, y, g)
    ]


def _disagreements(name: str, expected: np.ndarray, actual: np.ndarray) -> list[Disagreement]:
    """Disagreements on one image; one per row of the output (batch, boxes)."""
    rows, actual_rows = (x.reshape(-1, x.shape[-1]) for x in (expected, actual))
    results = []
    for row, (y, g) in enumerate(zip(rows, actual_rows)):
        a, b = int(y.argmax()), int(np.where(np.isnan(g), -np.inf, g).argmax())
        if a != b or not np.isfinite(g).all():
            label = name if len(rows) == 1 else f"{name}, row {row}"
            margin = float(y[a] - y[b]) if np.isfinite(g).all() else np.inf
            results.append(Disagreement(label, a, b, margin, 0.0, near=False))
    return results


def _measured(
    graph: Graph, value: str, disagreements: list[tuple[Disagreement, Arrays]], seed: int
) -> list[tuple[Disagreement, Arrays]]:
    """Disagreements with the sigma of their margins, the widest beyond rounding first."""
    measured = []
    widest = 0.0
    for i, (d, arrays) in enumerate(sorted(disagreements, key=lambda pair: -pair[0].margin)):
        if i < MEASURED and np.isfinite(d.margin):
            row = d.image.rpartition(", row ")[2]
            sigma = margin_sigma(
                graph, value, (d.expected, d.given), arrays, seed, int(row) if row.isdigit() else 0
            )
            widest = max(widest, sigma)
        else:
            sigma = widest
        near = bool(d.margin <= st.group_limit(1) * sigma)
        measured.append((dataclasses.replace(d, sigma=sigma, near=near), arrays))
    return sorted(measured, key=lambda pair: (pair[0].near, -pair[0].margin))


def margin_sigma(
    graph: Graph,
    value: str,
    classes: tuple[int, int],
    arrays: Arrays,
    seed: int,
    row: int = 0,
) -> float:
    """Standard deviation of the margin between two classes under honest rounding.

    row: of the scores, all their axes but the last taken as one.
    """
    fixed = specialize(graph, bind_symbols(graph, arrays))
    if value not in fixed.producers:
        return 0.0
    (region,) = list(regions(fixed, {value}))
    observed = {**fixed.constants, **{k: np.asarray(v) for k, v in arrays.items()}}
    expected, samples = rounding_samples(fixed, region, observed, seed, st.SAMPLES_FEW)
    y = expected[value].reshape(-1, expected[value].shape[-1]).astype(np.float64)
    at = row if len(y) > 1 else 0
    deviations = [s[value].reshape(y.shape)[at] - y[at] for s in samples]
    first, second = classes
    return st.root_mean_square(np.array([m[first] - m[second] for m in deviations]))


def _kind(disagreements: tuple[Disagreement, ...], verdict: Verdict) -> Kind:
    """The verdict on the worst image, unless it cannot explain choices that are no near ties."""
    wide = [d for d in disagreements if not d.near]
    if wide and verdict.kind in (Kind.identical, Kind.rounding):
        return Kind.undecided
    return verdict.kind


def _reasons(
    kind: Kind,
    disagreements: tuple[Disagreement, ...],
    images: int,
    judged: str,
    verdict: Verdict,
) -> list[str]:
    near = sum(d.near for d in disagreements)
    if not disagreements:
        lead = f"the same choice on all {images} images"
    else:
        count = len(disagreements)
        summary = (
            "all of them near ties, which rounding decides"
            if near == count
            else (
                f"{near} of them near ties, {count - near} not"
                if near
                else "none of them a near tie"
            )
        )
        lead = f"{count} choice{'s' * (count != 1)} differ on {images} images, {summary}"
    reasons = [
        lead,
        f"the numbers on {judged}: {verdict.kind.value}; " + "; ".join(verdict.reasons[:1]),
    ]
    if kind is not verdict.kind:
        reasons.append("rounding explains the numbers of that image, but not the choices")
    return reasons
