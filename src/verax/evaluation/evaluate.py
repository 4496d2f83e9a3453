"""`evaluate`: run samples in batches, note them, count, compare with a second subject."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.cores import available_cores
from verax.base.errors import InputError, UsageError
from verax.base.kept import keeping
from verax.evaluation.data import Samples, Wanted, read_samples
from verax.evaluation.figures import choices, mcnemar, ranks, share
from verax.evaluation.flips import explained
from verax.evaluation.journal import Journal, Row, journal
from verax.evaluation.labels import as_written, numbered, read_classes, require_classes
from verax.evaluation.metric import Metric, load_metric, measured
from verax.evaluation.words import reasons
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge.agreement import chosen_output, takes_batches
from verax.judge.protocol import Runner
from verax.records.environment import array_hash, environment
from verax.records.evaluation import Accuracy, Comparison, Confusion, Evaluation, Flip
from verax.replay import network_hash

BATCH, BATCH_BYTES = 32, 1 << 24
"""Samples that run together where the network takes any number: so many, or fewer that together
have so many bytes."""
TOP = 5
MAX_SCORES = 1 << 32
"""Bytes of scores that are kept for a metric; more is refused."""
Progress = Callable[[str, float], None]
Loaded = tuple[np.ndarray, tuple[str, ...]]


@dataclass(frozen=True)
class _Side:
    """How a network takes samples: `batch` at a time, along the first axis where it is `batched`;
    any number where that axis is `open`."""

    graph: Graph
    input: str
    output: str
    batch: int
    batched: bool
    open: bool

    @property
    def alone(self) -> _Side:
        """For single samples."""
        return replace(self, batch=1) if self.open else self

    def inputs(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Samples side by side; what a batch lacks is filled up with its last sample, so that
        every batch has one shape."""
        if not self.batched:
            return {self.input: arrays[0]}
        filled = [*arrays, *[arrays[-1]] * (self.batch - len(arrays))]
        return {self.input: np.concatenate(filled)}

    def scores(self, runner: Runner, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """What `runner` makes of samples of one shape: [n, classes]."""
        try:
            answer = runner.run(self.graph, self.inputs(arrays), None)
        except (InputError, UsageError) as error:
            if not self.open or self.batch == 1:
                raise
            raise type(error)(
                error.cause,
                place=f"{runner.name}, {error.place}",
                next_step=f"{self.batch} samples are run together: if it takes one at a time, "
                "give --batch 1",
            ) from error
        if self.output not in answer:
            raise UsageError(
                f"the subject gave no {self.output!r}",
                place=runner.name,
                next_step=f"name its answers as the network does: {', '.join(self.graph.outputs)}",
            )
        given = np.asarray(answer[self.output])
        rows = self.batch if self.batched else 1
        if given.ndim == 0 or given.size != rows * given.shape[-1] or given.dtype.kind not in "fiu":
            raise UsageError(
                f"{self.output!r} is {given.dtype}{list(given.shape)} for {rows} samples, not one "
                "row of scores for each",
                place=runner.name,
                next_step="name the output with the scores of classes: --output NAME",
            )
        return given.reshape(rows, -1)[: len(arrays)]


@keeping()
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
    workers: int = 0,
    resume: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """How often `model` is right on labelled samples, and where `against` chooses differently.

    data: a folder of images, an .npz file, an array [n, ...] or arrays by name. labels: a file, an
    array [n] of class numbers or names, or labels by name; else what the data state (sub-folders,
    an array of the .npz). output: whose largest element along the last axis is the choice, if not
    clear. classes: their names, or a file with them. arrays: names of samples and labels in an
    .npz. image, pixels: how pictures become inputs, as asked for and as the file says. metric: a
    function of predictions [n, classes] and labels [n], or "FILE.py:FUNCTION", which runs that
    file. batch: samples run together where the network leaves that open, 0 to choose. workers:
    threads that read images, 0 for the cores. resume: a file that notes what is done.
    Raises `UsageError` and `InputError` for whatever does not fit.
    """
    say = progress or (lambda what, done: None)
    compute = load_metric(metric) if isinstance(metric, str) else metric
    side, wanted = _side(graph, output, image, pixels)
    for runner in (model, against):
        if runner is not None and runner.stored_inputs is not None:
            raise UsageError(
                "recorded answers cannot be run on samples",
                place=runner.name,
                next_step="give a runner, a model or a program",
            )
    say("reading the data", 0.0)
    samples = read_samples(data, wanted, arrays)
    given, place = as_written(samples.labels if labels is None else labels, samples.names)
    if given is None:
        raise UsageError(
            "nothing says which class each sample is",
            place=samples.place,
            next_step="give --labels FILE (lines `name,label`, one label per line, or .npy), or "
            "images in one sub-folder per class; without labels, `verax check --images` compares "
            "the choices of two implementations",
        )
    place = samples.place if labels is None else place
    listed = read_classes(classes) if isinstance(classes, str | os.PathLike) else tuple(classes)
    last = graph.types[side.output].dims[-1]
    count = last if isinstance(last, int) else None
    truth, listed, assumed = numbered(given, samples.names, listed, count, place)
    side = replace(side, batch=_batch(side, samples, batch))
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
    kept = 0 if compute is None else 2 if against else 1
    with journal(resume, {k: _short(v) for k, v in key.items()}, kept, len(truth)) as notes:
        runners = [model, *([against] if against else [])]
        _run(side, runners, samples, truth, notes, workers, lambda w, d: say(w, 0.9 * d))
        accuracies = _accuracies(notes, truth, compute, count or _top_classes(notes), kept)
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
    return Evaluation(
        {"name": model.name, **model.describe()},
        side.output,
        len(truth),
        accuracies[0],
        comparison,
        reasons(accuracies[0], comparison, model.name),
        listed,
        steps,
        hashes,
        environment(),
        seed,
    )


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _side(
    graph: Graph,
    output: str | None,
    image: ImageOptions | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[_Side, Wanted]:
    """How the network takes samples. Raises `UsageError` for one that cannot be evaluated so."""
    if graph.state:
        raise UsageError(
            "the network remembers: what it answers to a sample depends on those before it",
            place=", ".join(graph.state),
        )
    if len(graph.inputs) != 1:
        raise UsageError(
            f"the network has {len(graph.inputs)} inputs; samples suit networks with one",
            place=", ".join(graph.inputs),
        )
    only = graph.results[0] if output is None and len(graph.results) == 1 else output
    value, (name,) = only or chosen_output(graph, None), graph.inputs
    if value not in graph.outputs or value in graph.state.values():
        raise UsageError(
            f"the network has no output {value!r}", next_step=f"it has {', '.join(graph.results)}"
        )
    type_, scores = graph.types[name], graph.types[value]
    if not scores.rank or scores.dims[-1] == 1:
        raise UsageError(
            f"{value!r} is {scores}: no scores of classes, of which the largest could be chosen",
            next_step="name another output with --output, or write a class's score for each class",
        )
    open_ = takes_batches(graph, value)
    first = type_.dims[0] if type_.rank else 0
    fixed = first if isinstance(first, int) and scores.rank and scores.dims[0] == first else 0
    batched = open_ or bool(fixed)
    one = replace(type_, dims=(1, *type_.dims[1:])) if batched else type_
    said = (pixels or {}).get(name)
    side = _Side(graph, name, value, 0 if open_ else max(1, fixed), batched, open_)
    return side, Wanted(name, one, batched, image or ImageOptions(), said)


def _batch(side: _Side, samples: Samples, asked: int) -> int:
    """Samples that run together. Raises `UsageError` for what the network does not take."""
    if asked < 0:
        raise UsageError(f"a batch of {asked} samples is none", next_step="give 1 or more")
    if side.batch:
        if asked not in (0, side.batch):
            raise UsageError(
                f"the network takes {side.batch} samples at a time, not {asked}",
                next_step="leave --batch out, or load the model with another batch",
            )
        return side.batch
    size = max(1, samples.load(0)[0].nbytes)
    return min(len(samples.names), asked or max(1, min(BATCH, BATCH_BYTES // size)))


def _run(
    side: _Side,
    runners: Sequence[Runner],
    samples: Samples,
    truth: np.ndarray,
    notes: Journal,
    workers: int,
    say: Progress,
) -> None:
    """Run what the journal lacks, and note it batch by batch."""
    total = len(truth)
    with _loading(samples, len(notes.rows), side.batch, workers) as batches:
        for loaded in batches:
            first = len(notes.rows)
            say(f"sample {first + 1} of {total}", first / total)
            found = [_scores(side, runner, [a for a, _ in loaded]) for runner in runners]
            if found[0].shape != found[-1].shape:
                raise UsageError(
                    f"the subject gives {found[-1].shape[1]} scores, the model {found[0].shape[1]}",
                    place=runners[-1].name,
                )
            labels = truth[first : first + len(loaded)]
            names = samples.names[first : first + len(loaded)]
            require_classes(labels, names, found[0].shape[1], samples.place)
            if notes.scores and found[0].nbytes * len(found) * total > MAX_SCORES * len(loaded):
                raise UsageError(
                    "the scores of all samples are more than 4 GiB, too much for a metric",
                    next_step="leave --metric out, or give fewer samples",
                )
            notes.add(_rows(found, labels), found if notes.scores else ())
    say("counting", 1.0)


def _scores(side: _Side, runner: Runner, arrays: list[np.ndarray]) -> np.ndarray:
    """Scores of loaded samples; those of different sizes run one by one."""
    if len({a.shape for a in arrays}) == 1:
        return side.scores(runner, arrays)
    found = [side.alone.scores(runner, [a]) for a in arrays]
    if len({s.shape for s in found}) != 1:
        raise UsageError("images of other sizes get other numbers of scores", place=runner.name)
    return np.concatenate(found)


@contextmanager
def _loading(
    samples: Samples, first: int, batch: int, workers: int
) -> Iterator[Iterator[list[Loaded]]]:
    """Batches from sample `first` on; threads read the next two while one is run."""
    pool = ThreadPoolExecutor(workers or max(1, available_cores()), "verax-samples")
    waiting: deque[Future[Loaded]] = deque()
    following = iter(range(first, len(samples.names)))

    def batches() -> Iterator[list[Loaded]]:
        while True:
            for i in following:
                waiting.append(pool.submit(samples.load, i))
                if len(waiting) >= 3 * batch:
                    break
            if not waiting:
                return
            yield [waiting.popleft().result() for _ in range(min(batch, len(waiting)))]

    try:
        yield batches()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _rows(found: Sequence[np.ndarray], labels: np.ndarray) -> list[Row]:
    """What is kept of each sample of a batch."""
    scores, chosen, rank = found[0], choices(found[0]), ranks(found[0], labels)
    nan = np.isnan(scores).any(axis=1) if scores.dtype.kind == "f" else np.zeros(len(scores), bool)
    if len(found) == 1:
        return [Row(int(c), int(r), nan=bool(n)) for c, r, n in zip(chosen, rank, nan)]
    given = found[1]
    other, other_rank = choices(given), ranks(given, labels)
    lost = np.isnan(given).any(axis=1) if given.dtype.kind == "f" else np.zeros(len(given), bool)
    i = np.arange(len(scores))
    a, b = scores.astype(np.float64), given.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = a[i, chosen] - a[i, other]
        apart = np.where(a == b, 0.0, np.abs(a - b))
    largest = np.where(np.isnan(apart), np.where(np.isnan(a) & np.isnan(b), 0.0, np.inf), apart)
    columns = (chosen, rank, other, other_rank, gap, largest.max(axis=1), nan, lost)
    return [Row(*row) for row in zip(*(column.tolist() for column in columns))]


def _top_classes(notes: Journal) -> int:
    """As many classes as are known of, for a network whose shape does not tell."""
    return 1 + max(max(r.choice, r.rank) for r in notes.rows)


def _accuracies(
    notes: Journal, truth: np.ndarray, compute: Metric | None, classes: int, kept: int
) -> list[Accuracy]:
    """Of the model and, if there is one, of the subject."""
    k, total = min(TOP, classes), len(truth)
    rows = notes.rows
    found = [
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
        return found
    sides = [np.concatenate(scores) for scores in notes.scores[:kept]]
    metrics = [measured(compute, scores, truth) for scores in sides]
    return [replace(a, metrics=m) for a, m in zip(found, metrics)]


def _flips(rows: Sequence[Row], names: Sequence[str], truth: np.ndarray) -> list[Flip]:
    found = []
    for row, name, label in zip(rows, names, truth.tolist()):
        if row.choice == row.other_choice and row.nan == row.other_nan:
            continue
        one_nan = row.nan != row.other_nan
        found.append(
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
    return found


def _comparison(
    against: Runner,
    rows: Sequence[Row],
    samples: Samples,
    flips: tuple[Flip, ...],
    accuracies: Sequence[Accuracy],
) -> Comparison:
    ways = Counter((f.model, f.subject) for f in flips)
    confusion = tuple(
        Confusion(a, b, n) for (a, b), n in sorted(ways.items(), key=lambda w: (-w[1], w[0]))
    )
    worst = max(range(len(rows)), key=lambda i: rows[i].difference)
    only_model = sum(r.rank == 0 and r.other_rank != 0 for r in rows)
    only_subject = sum(r.rank != 0 and r.other_rank == 0 for r in rows)
    return Comparison(
        {"name": against.name, **against.describe()},
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
