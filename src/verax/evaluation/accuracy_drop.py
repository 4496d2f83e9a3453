"""At which step of an optimization the accuracy falls: labeled samples in the place of a verdict.

It answers a question that people have, and less than the judge does: a step that turns a few
choices either way is no fall, and one that is wrong and harms no choice is none either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import UsageError
from verax.evaluation.data import Samples, read_samples
from verax.evaluation.figures import choices, mcnemar
from verax.evaluation.labels import require_classes
from verax.evaluation.sides import ClassifierSide, batch_of, labels_of, scores_of, side_of
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge.locate.step_search import search_steps
from verax.judge.protocol import Optimizing, Runner
from verax.records.bisection import Optimizations
from verax.records.verdict import Kind

CHANCE = 0.01
"""A smaller probability that chance divides the samples so (McNemar's test) makes it a fall."""
KEPT_BYTES = 1 << 30
"""Samples that take no more are read once; others for each step."""
Progress = Callable[[int, int, str], None]
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class AccuracyDrop:
    """search: the steps that were tried, and the one at which the accuracy falls. inputs: of up to
    two samples that the whole optimization turns from right to wrong, else of the first; names:
    theirs."""

    search: Optimizations
    inputs: Arrays
    names: tuple[str, ...]


def find_accuracy_drop(
    graph: Graph,
    subject: Runner,
    data: Any,
    labels: Any = None,
    *,
    output: str | None = None,
    classes: Sequence[str] | str | os.PathLike[str] = (),
    image: ImageOptions | None = None,
    pixels: Mapping[str, Pixels] | None = None,
    progress: Progress | None = None,
) -> AccuracyDrop:
    """The step of `subject` at which the accuracy drops below the mean of the plain subject's and
    the fully optimized one's.

    Arguments and errors are those of `evaluation.evaluate.evaluate`; raises `UsageError` for a
    subject that has no steps.
    """
    side, input_format = side_of(graph, output, image, pixels)
    samples = read_samples(data, input_format)
    truth, _, _ = labels_of(side, samples, labels, classes)
    side = replace(side, batch=batch_of(side, samples, 0))
    if not isinstance(subject, Optimizing):
        raise UsageError(
            "this subject's optimizations cannot be run one by one",
            place=subject.name,
            next_step="leave --images out; `verax evaluate --against` counts where it differs",
        )
    load = _loader(samples)
    first = side.inputs([load(i) for i in range(min(side.batch, len(truth)))])
    counted = _Counted(truth)

    def run(runner: Runner) -> dict[str, np.ndarray]:
        """The choices [n] of a step."""
        rows = []
        for begin in range(0, len(truth), side.batch):
            end = min(begin + side.batch, len(truth))
            scores = scores_of(side, runner, [load(i) for i in range(begin, end)])
            require_classes(
                truth[begin:end], samples.names[begin:end], scores.shape[1], samples.location
            )
            rows.append(choices(scores))
        return {"choices": np.concatenate(rows)}

    result = search_steps(graph, subject, first, counted.kind, progress, run, counted.words)
    if result is None:
        raise UsageError("this subject has no optimization to search", place=subject.name)
    lost_samples = counted.lost_samples[:2] or [0]
    if not side.batched or not side.open:
        lost_samples = lost_samples[:1]
    shown_side = side.alone if side.open else side
    inputs = _together(shown_side, [load(i) for i in lost_samples])
    return AccuracyDrop(
        counted.record(result), inputs, tuple(samples.names[i] for i in lost_samples)
    )


def _together(side: ClassifierSide, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    if side.open and len({a.shape for a in arrays}) == 1:
        return {side.input: np.concatenate(arrays)}
    return side.inputs(arrays[:1])


def _loader(samples: Samples) -> Callable[[int], np.ndarray]:
    """A function that reads a sample by index; each once, as long as they fit into memory."""
    cached: dict[int, np.ndarray] = {}
    max_cached = KEPT_BYTES // max(1, samples.load(0)[0].nbytes)

    def load(i: int) -> np.ndarray:
        if i in cached:
            return cached[i]
        array = samples.load(i)[0]
        if len(cached) < max_cached:
            cached[i] = array
        return array

    return load


class _Counted:
    """Says of choices whether they are a fall. The first ones that it is asked of are those of the
    plain subject, the second those of the whole."""

    def __init__(self, truth: np.ndarray) -> None:
        self.truth = truth
        self.right: list[np.ndarray] = []
        self.limit = -1.0
        self.lost_samples: list[int] = []

    def kind(self, outputs: Arrays) -> Kind:
        right = outputs["choices"] == self.truth
        if len(self.right) == 1:
            plain = self.right[0]
            lost, won = int((plain & ~right).sum()), int((right & ~plain).sum())
            self.lost_samples = np.flatnonzero(plain & ~right).tolist()
            if lost > won and mcnemar(lost, won) < CHANCE:
                self.limit = (plain.sum() + right.sum()) / 2
        if len(self.right) < 2:
            self.right.append(right)
        return Kind.mistake if right.sum() < self.limit else Kind.rounding

    def words(self, outputs: Arrays) -> str:
        count = len(self.truth)
        right = int((outputs["choices"] == self.truth).sum())
        return f"right on {right} of {count} ({right / count:.1%})"

    def record(self, search: Optimizations) -> Optimizations:
        """The record of the search in terms of accuracy."""
        if search.guilty:
            words = search.words.replace("the mistake appears with", "accuracy falls with", 1)
            return replace(search, words=words.replace("it is right", "it does not fall"))
        texts = [t.words for t in search.tried]
        same = f"accuracy does not fall: {texts[0]} without optimizations, {texts[-1]} with all"
        return replace(search, words=same)
