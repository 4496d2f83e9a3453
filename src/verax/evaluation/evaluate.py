"""`evaluate`: run samples in batches, note them, count, compare with a second subject."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.base.machine.cores import available_cores
from verax.base.process.helpers import helper_scope
from verax.evaluation.data import Samples, read_samples
from verax.evaluation.figures import choices, mcnemar, ranks, share
from verax.evaluation.flips import explained
from verax.evaluation.journal import Journal, SampleRow, journal
from verax.evaluation.labels import require_classes
from verax.evaluation.metric import Metric, load_metric, measured
from verax.evaluation.sides import ClassifierSide, batch_of, labels_of, scores_of, side_of
from verax.evaluation.wording import reasons
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge.protocol import Runner, described_apart
from verax.records.environment import array_hash, environment
from verax.records.evaluation import (
    Accuracy,
    ComparedImplementation,
    Confusion,
    EvaluationRecord,
    Flip,
)
from verax.replay import network_hash

TOP = 5
MAX_SCORES = 1 << 32
"""Bytes of scores that are kept for a metric; more is refused."""
Progress = Callable[[str, float], None]
Loaded = tuple[np.ndarray, tuple[str, ...]]
Scores = Sequence[np.ndarray]
"""[n, classes] of the model and, where there is one, of the subject."""
Scorer = Callable[
    [ClassifierSide, Samples, Callable[[int], list[range]]], Generator[tuple[int, Scores]]
]
"""Is called with the side, the samples, and what is missing (in ranges of at most so many samples):
gives the first of some samples and their scores, in any order, each sample once."""


@helper_scope()
def evaluate(
    graph: Graph,
    model: Runner,
    data: Any,
    labels: Any = None,
    *,
    against: Runner | None = None,
    output: str | None = None,
    classes: Sequence[str] | str | os.PathLike[str] = (),
    arrays: tuple[str, str] | None = None,
    image: ImageOptions | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    metric: Metric | str | None = None,
    batch: int = 0,
    readers: int = 0,
    scorer: Scorer | None = None,
    resume: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> EvaluationRecord:
    """How often `model` is right on labeled samples, and where `against` chooses differently.

    data: a folder of images, an .npz file, an array [n, ...] or arrays by name. labels: a file, an
    array [n] of class numbers or names, or labels by name; else what the data state (sub-folders,
    an array of the .npz). output: whose largest element along the last axis is the choice, if not
    clear. classes: their names, or a file with them. arrays: names of samples and labels in an
    .npz. image, pixels: how pictures become inputs, as asked for and as the file says. metric: a
    function of predictions [n, classes] and labels [n], or "FILE.py:FUNCTION", which runs that
    file. batch: samples run together where the network leaves that open, 0 to choose. readers:
    threads that read images, 0 for the cores. scorer: who runs the samples, if not this process.
    resume: a file that notes what is done.
    Raises `UsageError` and `InputError` for whatever does not fit.
    """
    say = progress or (lambda description, done: None)
    compute = load_metric(metric) if isinstance(metric, str) else metric
    side, input_format = side_of(graph, output, image, pixels)
    for runner in (model, against):
        if runner is not None and runner.stored_inputs is not None:
            raise UsageError(
                "recorded answers cannot be run on samples",
                place=runner.name,
                next_step="give a runner, a model or a program",
            )
    say("reading the data", 0.0)
    samples = read_samples(data, input_format, arrays)
    truth, listed, assumed = labels_of(side, samples, labels, classes)
    side = replace(side, batch=batch_of(side, samples, batch))
    hashes = {
        "network": network_hash(graph),
        "data": samples.digest,
        "labels": array_hash(truth),
    }
    key = {
        **hashes,
        "model": str({"name": model.name, **model.describe()}),
        "subject": str({"name": against.name, **against.describe()}) if against else "",
        "options": str((side.output, image, sorted((pixels or {}).items()), compute is not None)),
        "batch": str(side.batch),
    }
    score_sets = 0 if compute is None else 2 if against else 1
    with journal(resume, {k: _short(v) for k, v in key.items()}, score_sets, len(truth)) as notes:
        runners = [model, *([against] if against else [])]
        if scorer is None:
            scorer = partial(_scored_here, runners, readers)
        scored = scorer(side, samples, notes.missing)
        _run(side, runners, samples, truth, notes, scored, lambda w, d: say(w, 0.9 * d))
        accuracies = _accuracies(
            notes, truth, compute, side.classes or _top_classes(notes), score_sets
        )
        comparison = None
        if against is not None:
            flips = explained(
                graph,
                side.output,
                _flips(notes.rows, samples.names, truth),
                lambda name: side.alone.inputs([samples.load(samples.names.index(name))[0]]),
                seed,
                lambda w, d: say(w, 0.9 + 0.1 * d),
            )
            comparison = _comparison(against, notes.rows, samples, flips, accuracies)
    steps = (*samples.load(0)[1], *samples.steps, *assumed)
    return EvaluationRecord(
        {"name": model.name, **described_apart(model)[0]},
        side.output,
        len(truth),
        accuracies[0],
        comparison,
        reasons(accuracies[0], comparison, model.name),
        listed,
        steps,
        hashes,
        {**environment(), **{k: v for r in runners for k, v in described_apart(r)[1].items()}},
        seed,
    )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _run(
    side: ClassifierSide,
    runners: Sequence[Runner],
    samples: Samples,
    truth: np.ndarray,
    notes: Journal,
    scored: Generator[tuple[int, Scores]],
    say: Progress,
) -> None:
    """Add scores of the samples that the journal lacks, as they come."""
    total = len(truth)
    say(f"sample {notes.done + 1} of {total}", notes.done / total)
    with closing(scored):
        for first, scores in scored:
            if scores[0].shape != scores[-1].shape:
                raise UsageError(
                    f"the subject gives {scores[-1].shape[1]} scores, "
                    f"the model {scores[0].shape[1]}",
                    place=runners[-1].name,
                )
            count = len(scores[0])
            labels = truth[first : first + count]
            names = samples.names[first : first + count]
            require_classes(labels, names, scores[0].shape[1], samples.location)
            if notes.sides and scores[0].nbytes * len(scores) * total > MAX_SCORES * count:
                raise UsageError(
                    "the scores of all samples are more than 4 GiB, too much for a metric",
                    next_step="leave --metric out, or give fewer samples",
                )
            notes.add(first, _rows(scores, labels), scores if notes.sides else ())
            say(f"sample {min(notes.done + 1, total)} of {total}", notes.done / total)
    say("counting", 1.0)


def _scored_here(
    runners: Sequence[Runner],
    readers: int,
    side: ClassifierSide,
    samples: Samples,
    missing: Callable[[int], list[range]],
) -> Generator[tuple[int, Scores]]:
    """Scores of every batch that is missing, by this process."""
    ranges = missing(side.batch)
    with _loading(samples, ranges, readers) as batches:
        for own, loaded in zip(ranges, batches):
            arrays = [array for array, _ in loaded]
            yield own.start, [scores_of(side, runner, arrays) for runner in runners]


@contextmanager
def _loading(
    samples: Samples, ranges: Sequence[range], readers: int
) -> Iterator[Iterator[list[Loaded]]]:
    """Batches of samples; threads read the next two while one is run."""
    pool = ThreadPoolExecutor(readers or max(1, available_cores()), "verax-samples")
    waiting: deque[list[Future[Loaded]]] = deque()
    following = iter(ranges)

    def batches() -> Iterator[list[Loaded]]:
        while True:
            for own in islice(following, 3 - len(waiting)):
                waiting.append([pool.submit(samples.load, i) for i in own])
            if not waiting:
                return
            yield [future.result() for future in waiting.popleft()]

    try:
        yield batches()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _rows(side_scores: Sequence[np.ndarray], labels: np.ndarray) -> list[SampleRow]:
    """The journal's row of each sample of a batch."""
    scores, selected, rank = side_scores[0], choices(side_scores[0]), ranks(side_scores[0], labels)
    nan = np.isnan(scores).any(axis=1) if scores.dtype.kind == "f" else np.zeros(len(scores), bool)
    if len(side_scores) == 1:
        return [SampleRow(int(c), int(r), nan=bool(n)) for c, r, n in zip(selected, rank, nan)]
    subject_scores = side_scores[1]
    subject_choices, other_rank = choices(subject_scores), ranks(subject_scores, labels)
    lost = (
        np.isnan(subject_scores).any(axis=1)
        if subject_scores.dtype.kind == "f"
        else np.zeros(len(subject_scores), bool)
    )
    i = np.arange(len(scores))
    a, b = scores.astype(np.float64), subject_scores.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = a[i, selected] - a[i, subject_choices]
        apart = np.where(a == b, 0.0, np.abs(a - b))
    largest = np.where(np.isnan(apart), np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), apart)
    columns = (selected, rank, subject_choices, other_rank, gap, largest.max(axis=1), nan, lost)
    return [SampleRow(*row) for row in zip(*(column.tolist() for column in columns))]


def _top_classes(notes: Journal) -> int:
    """As many classes as are known of, for a network whose shape does not tell."""
    return 1 + max(max(r.choice, r.rank) for r in notes.rows)


def _accuracies(
    notes: Journal, truth: np.ndarray, compute: Metric | None, classes: int, score_sets: int
) -> list[Accuracy]:
    """Of the model and, if there is one, of the subject."""
    k, total = min(TOP, classes), len(truth)
    rows = notes.rows
    accuracies = [
        Accuracy(
            share(sum(r == 0 for r in rank), total),
            share(sum(r < k for r in rank), total),
            k,
            sum(nan),
        )
        for rank, nan in (
            ([r.rank for r in rows], [r.nan for r in rows]),
            ([r.other_rank for r in rows], [r.other_nan for r in rows]),
        )
    ]
    if compute is None:
        return accuracies
    sides = [np.concatenate(scores) for scores in notes.scores[:score_sets]]
    metrics = [measured(compute, scores, truth) for scores in sides]
    return [replace(a, metrics=m) for a, m in zip(accuracies, metrics)]


def _flips(rows: Sequence[SampleRow], names: Sequence[str], truth: np.ndarray) -> list[Flip]:
    flips = []
    for row, name, label in zip(rows, names, truth.tolist()):
        if row.choice == row.other_choice and row.nan == row.other_nan:
            continue
        one_nan = row.nan != row.other_nan
        flips.append(
            Flip(
                name,
                label,
                row.choice,
                row.other_choice,
                None,
                float("inf") if one_nan or np.isnan(row.gap) else row.gap,
                0.0,
                False if one_nan else None,
                "one of the two gave a NaN" if one_nan else "",
            )
        )
    return flips


def _comparison(
    against: Runner,
    rows: Sequence[SampleRow],
    samples: Samples,
    flips: tuple[Flip, ...],
    accuracies: Sequence[Accuracy],
) -> ComparedImplementation:
    confusions = Counter((f.model, f.subject) for f in flips)
    confusion = tuple(
        Confusion(a, b, n) for (a, b), n in sorted(confusions.items(), key=lambda w: (-w[1], w[0]))
    )
    worst = max(range(len(rows)), key=lambda i: rows[i].difference)
    only_model = sum(r.rank == 0 and r.other_rank != 0 for r in rows)
    only_subject = sum(r.rank != 0 and r.other_rank == 0 for r in rows)
    return ComparedImplementation(
        {"name": against.name, **described_apart(against)[0]},
        accuracies[1],
        len(rows) - len(flips),
        flips,
        confusion,
        rows[worst].difference,
        samples.names[worst],
        only_model,
        only_subject,
        mcnemar(only_model, only_subject),
    )
