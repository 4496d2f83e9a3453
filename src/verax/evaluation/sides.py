"""How a network takes labeled samples, and the scores that an implementation gives for them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.evaluation.data import InputFormat, Samples
from verax.evaluation.labels import as_written, numbered, read_classes
from verax.images import ImageOptions
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels
from verax.judge.agreement import chosen_output, takes_batches
from verax.judge.protocol import Runner

BATCH, BATCH_BYTES = 32, 1 << 24
"""Samples that run together where the network takes any number: so many, or fewer that together
have so many bytes."""


@dataclass(frozen=True)
class ClassifierSide:
    """How a network takes samples: `batch` at a time, along the first axis where it is `batched`;
    any number where that axis is `open`."""

    graph: Graph
    input: str
    output: str
    batch: int
    batched: bool
    open: bool

    @property
    def classes(self) -> int | None:
        """Classes that it scores, None where its shape does not tell."""
        last = self.graph.types[self.output].dims[-1]
        return last if isinstance(last, int) else None

    @property
    def alone(self) -> ClassifierSide:
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
        own = np.asarray(answer[self.output])
        rows = self.batch if self.batched else 1
        if own.ndim == 0 or own.size != rows * own.shape[-1] or own.dtype.kind not in "fiu":
            raise UsageError(
                f"{self.output!r} is {own.dtype}{list(own.shape)} for {rows} samples, not one "
                "row of scores for each",
                place=runner.name,
                next_step="name the output with the scores of classes: --output NAME",
            )
        return own.reshape(rows, -1)[: len(arrays)]


def side_of(
    graph: Graph,
    output: str | None,
    image: ImageOptions | None,
    pixels: Mapping[str, Pixels] | None,
) -> tuple[ClassifierSide, InputFormat]:
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
    stated_pixels = (pixels or {}).get(name)
    side = ClassifierSide(graph, name, value, 0 if open_ else max(1, fixed), batched, open_)
    return side, InputFormat(name, one, batched, image or ImageOptions(), stated_pixels)


def batch_of(side: ClassifierSide, samples: Samples, requested: int) -> int:
    """Samples that run together. Raises `UsageError` for what the network does not take."""
    if requested < 0:
        raise UsageError(f"a batch of {requested} samples is none", next_step="give 1 or more")
    if side.batch:
        if requested not in (0, side.batch):
            raise UsageError(
                f"the network takes {side.batch} samples at a time, not {requested}",
                next_step="leave --batch out, or load the model with another batch",
            )
        return side.batch
    size = max(1, samples.load(0)[0].nbytes)
    return min(len(samples.names), requested or max(1, min(BATCH, BATCH_BYTES // size)))


def scores_of(side: ClassifierSide, runner: Runner, arrays: list[np.ndarray]) -> np.ndarray:
    """Scores of loaded samples; those of different sizes run one by one."""
    if len({a.shape for a in arrays}) == 1:
        return side.scores(runner, arrays)
    scores = [side.alone.scores(runner, [a]) for a in arrays]
    if len({s.shape for s in scores}) != 1:
        raise UsageError("images of other sizes get other numbers of scores", place=runner.name)
    return np.concatenate(scores)


def labels_of(
    side: ClassifierSide,
    samples: Samples,
    labels: Any,
    classes: Sequence[str] | str | os.PathLike[str] = (),
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """As `labels.numbered`, of what the user gave (None: what the data state). Raises
    `UsageError`, `InputError`."""
    values, location = as_written(samples.labels if labels is None else labels, samples.names)
    if values is None:
        raise UsageError(
            "nothing says which class each sample is",
            place=samples.location,
            next_step="give --labels FILE (lines `name,label`, one label per line, or .npy), or "
            "images in one sub-folder per class; without labels, `verax check --images` compares "
            "the choices of two implementations",
        )
    location = samples.location if labels is None else location
    listed = read_classes(classes) if isinstance(classes, str | os.PathLike) else tuple(classes)
    return numbered(values, samples.names, listed, side.classes, location)
