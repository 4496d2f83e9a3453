"""Batch normalization: epsilon, which variance, parameters missing, exchanged or misplaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Arrays,
    Edit,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    with_attributes,
)
from verax.judge.explain.hypotheses.channel_axis import normalized_along_other_axes
from verax.judge.explain.hypotheses.fitting import agreed, slopes_per_channel
from verax.ops.sums.normalization import BatchNormalization

EPSILONS = (1e-3, 1e-5, 1.001e-5, 1e-6, 1e-4, 1e-7, 1e-2, 2e-5, 1e-8, 1e-12, 0.0)
"""Defaults of frameworks: Keras 1e-3; ONNX, torch 1e-5; Flax 1e-5; older MXNet 2e-5; none; and the
smallest that TensorFlow's fused kernel takes, 1.001e-5, with which converters fold."""
SCALE, BIAS, MEAN, VARIANCE = 1, 2, 3, 4
PARAMETERS = {SCALE: "gamma", BIAS: "beta", MEAN: "mean", VARIANCE: "variance"}


@hypotheses_of("BatchNormalization")
def batch_norm(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on BatchNormalization with given statistics."""
    op = suspect.op
    assert isinstance(op, BatchNormalization)
    yield from epsilons(suspect, op.epsilon)
    for training in {True, False} - {op.training_mode}:
        yield Hypothesis(
            "statistics of the batch" if training else "stored statistics",
            "the batch's own mean and variance were used (training mode)"
            if training
            else "the stored mean and variance were used (inference mode)",
            Prior.common,
            op=dataclasses.replace(op, training_mode=False),
            inputs=_batch_statistics if training else None,
            attributes={"training_mode": str(training)},
        )
    for name, words, prior, edit in _edits(op.epsilon):
        yield Hypothesis(name, words, prior, inputs=edit)
    yield from normalized_along_other_axes(suspect)
    yield from _fitted(suspect, op)


def epsilons(suspect: Suspect, actual: float) -> Iterator[Hypothesis]:
    """Other usual values of epsilon."""
    for value in EPSILONS:
        if value != actual:
            yield from with_attributes(
                suspect.op,
                f"epsilon {value:g}",
                f"epsilon was {value:g}, not {actual:g}",
                Prior.usual,
                epsilon=value,
            )


def _batch_statistics(arrays: Arrays) -> Arrays:
    x = arrays[0].astype(np.float64)
    axes = (0, *range(2, x.ndim))
    return [*arrays[:MEAN], x.mean(axis=axes), x.var(axis=axes)]


def _edits(epsilon: float) -> Iterator[tuple[str, str, Prior, Edit]]:
    """(name, words, prior, edit of the inputs)."""

    def root(v: Any) -> Any:
        return np.sqrt(v.astype(np.float64) + epsilon)

    def at_variance(change: Any) -> Edit:
        return edited(VARIANCE, lambda v: change(v.astype(np.float64)))

    def exchanged(i: int, j: int) -> Edit:
        def edit(a: Arrays) -> Arrays:
            a = list(a)
            a[i], a[j] = a[j], a[i]
            return a

        return edit

    def gain(a: Arrays) -> Any:
        return a[SCALE] / root(a[VARIANCE])

    usual, uncommon = Prior.usual, Prior.uncommon
    yield (
        "epsilon outside of the root",
        "epsilon was added to the standard deviation, not to the variance",
        usual,
        at_variance(lambda v: (np.sqrt(v) + epsilon) ** 2 - epsilon),
    )
    yield (
        "variance taken for the deviation",
        "the variance was divided by, not its square root",
        usual,
        at_variance(lambda v: (v + epsilon) ** 2 - epsilon),
    )
    yield "root twice", "the root of the deviation was divided by", uncommon, at_variance(np.sqrt)
    yield (
        "multiplied by the deviation",
        "the deviation was multiplied by, not divided by",
        uncommon,
        at_variance(lambda v: 1 / (v + epsilon) - epsilon),
    )
    for index, label, neutral in (
        (SCALE, "gamma", 1.0),
        (BIAS, "beta", 0.0),
        (MEAN, "mean", 0.0),
    ):
        yield (
            f"{label} missing",
            f"{label} was left out",
            usual,
            edited(index, lambda v, n=neutral: np.full_like(v, n)),
        )
    yield (
        "variance missing",
        "nothing was divided by",
        usual,
        at_variance(lambda v: np.full_like(v, 1 - epsilon)),
    )
    yield ("mean and beta exchanged", "mean and beta were exchanged", usual, exchanged(MEAN, BIAS))
    yield (
        "gamma and beta exchanged",
        "gamma and beta were exchanged",
        usual,
        exchanged(SCALE, BIAS),
    )
    yield (
        "mean and variance exchanged",
        "mean and variance were exchanged",
        usual,
        exchanged(MEAN, VARIANCE),
    )
    yield (
        "gamma and variance exchanged",
        "gamma and variance were exchanged",
        uncommon,
        exchanged(SCALE, VARIANCE),
    )
    yield (
        "beta before gamma",
        "beta was added before the scaling",
        usual,
        lambda a: [a[0], a[SCALE], a[BIAS] * gain(a), *a[MEAN:]],
    )
    yield (
        "beta scaled by gamma",
        "beta was multiplied by gamma too",
        usual,
        lambda a: [a[0], a[SCALE], a[BIAS] * a[SCALE], *a[MEAN:]],
    )
    yield (
        "mean after the scaling",
        "the mean was subtracted after the scaling",
        uncommon,
        lambda a: [*a[:MEAN], a[MEAN] / gain(a), a[VARIANCE]],
    )
    yield "mean added", "the mean was added, not subtracted", uncommon, edited(MEAN, lambda v: -v)
    yield "beta subtracted", "beta was subtracted", uncommon, edited(BIAS, lambda v: -v)
    yield "gamma squared", "gamma was applied twice", uncommon, edited(SCALE, lambda v: v * v)
    yield (
        "absolute gamma",
        "the sign of gamma was lost",
        Prior.common,
        edited(SCALE, np.abs),
    )
    for index, label in ((SCALE, "gamma"), (BIAS, "beta"), (MEAN, "mean"), (VARIANCE, "variance")):
        yield (
            f"{label} of the neighbor",
            f"each channel got its neighbor's {label}",
            Prior.rare,
            edited(index, lambda v: np.roll(v, 1)),
        )
    for name, words, change in (
        ("parameters reversed", "the parameters were read backwards", lambda v: v[::-1]),
        (
            "parameters of the neighbor",
            "each channel got its neighbor's parameters",
            lambda v: np.roll(v, 1),
        ),
        (
            "parameters of channel 0",
            "every channel got the first one's parameters",
            lambda v: np.broadcast_to(v[:1], v.shape),
        ),
    ):
        yield name, words, uncommon, lambda a, c=change: [a[0], *map(c, a[1:])]


def _fitted(suspect: Suspect, op: BatchNormalization) -> Iterator[Hypothesis]:
    """The variance scaled, or another epsilon, by the value that the numbers themselves show."""
    epsilon, slopes = op.epsilon, slopes_per_channel(suspect)
    if slopes is None:
        return
    scale, variance = (suspect.inputs[i].astype(np.float64) for i in (SCALE, VARIANCE))
    with np.errstate(all="ignore"):
        used = (scale / slopes) ** 2
        factor = agreed((used - epsilon) / variance)
        added = agreed(used - variance)
    if factor is not None and factor > 0:
        words = f"the variance was {factor:.6g} times what it should be"
        if factor > 1:
            words += f" (as N / (N - 1) is for N = {factor / (factor - 1):.4g})"
        yield Hypothesis(
            "variance scaled",
            words,
            Prior.common,
            inputs=edited(VARIANCE, lambda v: v.astype(np.float64) * factor),
            attributes={"variance": f"variance * {factor:.6g}"},
            fitted=1,
        )
    if added is not None and added >= 0:
        yield Hypothesis(
            "epsilon of its own",
            f"epsilon was about {added:.4g}, not {epsilon:g}",
            Prior.common,
            op=dataclasses.replace(op, epsilon=added),
            attributes={"epsilon": f"{added:.4g}"},
            fitted=1,
        )


def same_by_another(
    suspect: Suspect, index: int, values: np.ndarray
) -> tuple[int, np.ndarray] | None:
    """The vector that gives, channel by channel, what `values` for input `index` give: the variance
    for gamma, the mean for beta, and the other way round; NaN where none does. None for what is no
    BatchNormalization with given statistics."""
    op = suspect.op
    if not isinstance(op, BatchNormalization) or op.training_mode or index not in PARAMETERS:
        return None
    old = {i: suspect.inputs[i].astype(np.float64) for i in PARAMETERS}
    with np.errstate(all="ignore"):
        deviation = np.sqrt(old[VARIANCE] + op.epsilon)
        gain = old[SCALE] / deviation
        if index == SCALE:
            ratio = values / old[SCALE]
            found = np.where(ratio > 0, (deviation / ratio) ** 2 - op.epsilon, np.nan)
            return VARIANCE, np.where(found >= 0, found, np.nan)
        if index == VARIANCE:
            return SCALE, gain * deviation**2 / np.sqrt(values + op.epsilon)
        if index == BIAS:
            return MEAN, old[MEAN] - (values - old[BIAS]) / gain
        return BIAS, old[BIAS] - (values - old[MEAN]) * gain
