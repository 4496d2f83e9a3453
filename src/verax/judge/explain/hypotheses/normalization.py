"""Layer, instance, group and RMS normalization, and normalization by the neighbors' response."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Arrays,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    with_attributes,
)
from verax.judge.explain.hypotheses.batch_norm import epsilons
from verax.judge.explain.hypotheses.channel_axis import parameters_along_other_axes
from verax.judge.explain.hypotheses.epsilons import epsilons_of_norms
from verax.ops.sums.layer_normalization import LayerNormalization, RMSNormalization
from verax.ops.sums.normalization import GroupNormalization, InstanceNormalization
from verax.ops.sums.response_normalization import LRN, LpNormalization, neighbor_sums

Normalization = LayerNormalization | RMSNormalization | InstanceNormalization | GroupNormalization


@hypotheses_of(
    *("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"),
)
def normalization(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on normalizations by statistics of the input itself."""
    op = suspect.op
    assert isinstance(op, Normalization)
    if suspect.output:
        return
    yield from epsilons(suspect, op.epsilon)
    yield from _groupings(suspect)
    yield from _parameters(suspect)
    if isinstance(op, InstanceNormalization | GroupNormalization):
        yield from parameters_along_other_axes(suspect)
    yield from _variances(suspect, op)


def _groupings(suspect: Suspect) -> Iterator[Hypothesis]:
    """Statistics over other elements."""
    op, x = suspect.op, suspect.x
    if isinstance(op, LayerNormalization | RMSNormalization):
        for axis in range(x.ndim):
            if axis != op.axis % x.ndim:
                yield from with_attributes(
                    op,
                    f"statistics from axis {axis} on",
                    f"the statistics were taken from axis {axis} on",
                    Prior.usual,
                    axis=axis,
                )
    channels = x.shape[1] if x.ndim > 2 else 0
    if isinstance(op, GroupNormalization) and not op.per_group:
        for groups in (g for g in range(1, channels + 1) if channels % g == 0):
            yield from with_attributes(
                op,
                f"{groups} groups",
                f"the channels were normalized in {groups} groups, not {op.num_groups}",
                Prior.usual,
                num_groups=groups,
            )
    if isinstance(op, InstanceNormalization):
        for groups in (g for g in range(1, channels) if channels % g == 0):
            yield Hypothesis(
                f"{groups} groups",
                f"the channels were normalized in {groups} groups, not each alone",
                Prior.common,
                op=GroupNormalization(num_groups=groups, epsilon=op.epsilon),
                attributes={"num_groups": str(groups)},
            )
    if isinstance(op, InstanceNormalization | GroupNormalization) and channels:
        yield Hypothesis(
            "statistics of the whole batch",
            "the statistics were taken over the whole batch (batch normalization)",
            Prior.common,
            after=After(lambda y, inputs: _over_batch(op, inputs), roundings=8),
        )


def _over_batch(op: Any, inputs: Arrays) -> np.ndarray:
    x, scale, bias = (v.astype(np.float64) for v in inputs[:3])
    axes = (0, *range(2, x.ndim))
    shape = (1, -1, *(1,) * (x.ndim - 2))
    mean, var = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    y = (x - mean) / np.sqrt(var + op.epsilon) * scale.reshape(shape) + bias.reshape(shape)
    return np.asarray(y)


def _parameters(suspect: Suspect) -> Iterator[Hypothesis]:
    one: tuple[tuple[int, str, float], ...] = ((1, "scale", 1.0), (2, "bias", 0.0))
    for index, label, neutral in one:
        if not suspect.has(index):
            continue
        yield Hypothesis(
            f"{label} missing",
            f"the {label} was left out",
            Prior.usual,
            inputs=edited(index, lambda v, n=neutral: np.full_like(v, n)),
        )
        for name, words, change in (
            ("reversed", "was read backwards", np.flip),
            ("of the neighbor", "was read from its neighbor", _neighbor),
        ):
            yield Hypothesis(
                f"{label} {name}", f"the {label} {words}", Prior.rare, inputs=edited(index, change)
            )
    yield Hypothesis(
        "scale plus one",
        "1 was added to the scale (weights stored as distances from 1)",
        Prior.common,
        inputs=edited(1, lambda v: v.astype(np.float64) + 1),
    )
    yield Hypothesis(
        "scale minus one",
        "1 was subtracted from the scale",
        Prior.uncommon,
        inputs=edited(1, lambda v: v.astype(np.float64) - 1),
    )
    if suspect.has(2):
        yield Hypothesis(
            "scale and bias exchanged",
            "scale and bias were exchanged",
            Prior.usual,
            inputs=lambda a: [a[0], a[2], a[1], *a[3:]],
        )
        yield Hypothesis(
            "bias doubled",
            "the bias was added twice",
            Prior.uncommon,
            inputs=edited(2, lambda v: v * 2),
        )


def _neighbor(v: np.ndarray) -> np.ndarray:
    return np.roll(v, 1, axis=-1)


def _variances(suspect: Suspect, op: Any) -> Iterator[Hypothesis]:
    """The variance by another definition."""
    x = suspect.x
    axes = _axes(op, x)
    count = float(np.prod([_grouped(op, x).shape[a] for a in axes]))
    if count > 1 and not isinstance(op, RMSNormalization):
        ratio = (count - 1) / count
        yield Hypothesis(
            "variance over N - 1",
            "the variance was divided by N - 1, not N",
            Prior.usual,
            after=After(
                lambda y, inputs: _rescaled(
                    op, y, inputs, lambda v: np.sqrt((v + op.epsilon) / (v / ratio + op.epsilon))
                ),
                roundings=2,
            ),
        )
    if not isinstance(op, RMSNormalization):
        yield Hypothesis(
            "epsilon outside of the root",
            "epsilon was added to the standard deviation, not to the variance",
            Prior.usual,
            after=After(
                lambda y, inputs: _rescaled(
                    op, y, inputs, lambda v: np.sqrt(v + op.epsilon) / (np.sqrt(v) + op.epsilon)
                ),
                roundings=2,
            ),
        )
    if not isinstance(op, RMSNormalization):
        for block in _blocks(int(count)):
            lanes = block - int(count)
            yield Hypothesis(
                f"{lanes} lanes behind the row's end",
                f"the variance counted {lanes} zeros behind the end of each row of {int(count)} "
                f"(a block of {block} without a mask)",
                Prior.common,
                after=After(lambda y, inputs, n=lanes: _with_lanes(op, y, inputs, n), roundings=2),
            )
    if isinstance(op, LayerNormalization):
        yield Hypothesis(
            "mean not subtracted",
            "the mean was not subtracted (RMS normalization)",
            Prior.usual,
            after=After(lambda y, inputs: _root_mean_square(op, inputs), roundings=8),
        )
    if isinstance(op, RMSNormalization):
        yield Hypothesis(
            "mean subtracted",
            "the mean was subtracted (layer normalization)",
            Prior.usual,
            op=LayerNormalization(axis=op.axis, epsilon=op.epsilon),
        )


def _blocks(count: int) -> list[int]:
    """Powers of two above a row's length, in which kernels load it."""
    first = 1 << count.bit_length()
    return [first, 2 * first, 4 * first]


def _with_lanes(op: Any, y: np.ndarray, inputs: Arrays, lanes: int) -> np.ndarray:
    """y where the sum of squared distances from the mean has `lanes` zeros more, but the count has
    not."""
    x = inputs[0].astype(np.float64)
    grouped, axes = _grouped(op, x), _axes(op, x)
    count = np.prod([grouped.shape[a] for a in axes])
    mean = grouped.mean(axis=axes, keepdims=True)

    def ratio(variance: np.ndarray) -> np.ndarray:
        counted = variance + lanes / count * mean**2
        return np.asarray(np.sqrt((variance + op.epsilon) / (counted + op.epsilon)))

    return _rescaled(op, y, inputs, ratio)


def _grouped(op: Any, x: np.ndarray) -> np.ndarray:
    if isinstance(op, GroupNormalization):
        return x.reshape(x.shape[0], op.num_groups, -1, *x.shape[2:])
    return x


def _axes(op: Any, x: np.ndarray) -> tuple[int, ...]:
    if isinstance(op, LayerNormalization | RMSNormalization):
        return tuple(range(op.axis % x.ndim, x.ndim))
    return tuple(range(2, _grouped(op, x).ndim))


def _rescaled(op: Any, y: np.ndarray, inputs: Arrays, ratio: Any) -> np.ndarray:
    """y with its normalized part multiplied by ratio(variance), its bias left alone."""
    x = inputs[0].astype(np.float64)
    grouped = _grouped(op, x)
    variance = grouped.var(axis=_axes(op, x), keepdims=True)
    factor = np.broadcast_to(ratio(variance), grouped.shape).reshape(x.shape)
    bias: Any = inputs[2] if len(inputs) > 2 and inputs[2] is not None else np.zeros(1)
    if not isinstance(op, LayerNormalization):
        repeats = x.shape[1] // bias.size if bias.size > 1 else 1
        bias = np.repeat(bias, repeats).reshape(1, -1, *(1,) * (x.ndim - 2))
    return np.asarray((y - bias) * factor + bias)


def _root_mean_square(op: LayerNormalization, inputs: Arrays) -> np.ndarray:
    x = inputs[0].astype(np.float64)
    mean = np.mean(x * x, axis=_axes(op, x), keepdims=True)
    y = x / np.sqrt(mean + op.epsilon) * inputs[1]
    return y if len(inputs) < 3 or inputs[2] is None else y + inputs[2]


@hypotheses_of("LRN")
def response(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on LRN."""
    op = suspect.op
    assert isinstance(op, LRN)
    changes: list[tuple[str, str, Prior, dict[str, float]]] = [
        (
            "alpha not divided by the size",
            "alpha was not divided by the size",
            Prior.usual,
            {"alpha": op.alpha * op.size},
        ),
        (
            "alpha divided by the size twice",
            "alpha was divided by the size twice",
            Prior.usual,
            {"alpha": op.alpha / op.size},
        ),
        (
            "alpha divided by the square of the size",
            "alpha was divided by the area of a spatial window",
            Prior.uncommon,
            {"alpha": op.alpha / op.size**2},
        ),
        *(
            (f"bias {b:g}", f"the bias was {b:g}, not {op.bias:g}", Prior.usual, {"bias": b})
            for b in (1.0, 2.0, 0.0)
        ),
        *(
            (f"beta {b:g}", f"beta was {b:g}, not {op.beta:g}", Prior.usual, {"beta": b})
            for b in (0.75, 0.5, 1.0)
        ),
    ]
    for name, words, prior, changed in changes:
        yield from with_attributes(op, name, words, prior, **changed)
    sizes = range(max(1, op.size // 2), 2 * op.size + 2)
    if op.size > 2 * suspect.x.shape[1]:  # all channels, whatever the size: only its share tells
        sizes = range(op.size - 2, op.size + 3)
    for size in sizes:
        share = op.alpha / op.size
        for label, alpha in (("", op.alpha), (", alpha per channel kept", share * size)):
            if size != op.size:
                yield Hypothesis(
                    f"size {size}{label}",
                    f"{size} channels were summed, not {op.size}{label}",
                    Prior.common,
                    op=dataclasses.replace(op, size=size, alpha=alpha),
                    attributes={"size": str(size), "alpha": f"{alpha:g}"},
                )
    for axis in range(suspect.x.ndim):
        if axis != 1:
            yield Hypothesis(
                f"neighbors along axis {axis}",
                f"the neighbors along axis {axis} were summed, not the channels",
                Prior.common,
                after=After(lambda y, inputs, a=axis: _along(op, inputs[0], a), roundings=8),
                attributes={"axis": str(axis)},
            )
    if op.size % 2 == 0:
        yield Hypothesis(
            "the longer side first",
            "the even window reached further to lower channels than to higher ones",
            Prior.common,
            after=After(
                lambda y, inputs: np.flip(_along(op, np.flip(inputs[0], 1), 1), 1), roundings=8
            ),
        )


def _along(op: LRN, x: np.ndarray, axis: int) -> np.ndarray:
    """The meaning with another axis in the place of the channels."""
    wide = np.moveaxis(x.astype(np.float64), axis, 0)
    total = neighbor_sums(wide**2, *op.reach, axis=0)
    return np.moveaxis(wide / (op.bias + op.alpha / op.size * total) ** op.beta, 0, axis)


@hypotheses_of("LpNormalization")
def lp_normalization(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on LpNormalization."""
    op, rank = suspect.op, suspect.x.ndim
    assert isinstance(op, LpNormalization)
    yield from with_attributes(
        op,
        "the other norm",
        f"the {3 - op.p}-norm was taken, not the {op.p}-norm",
        Prior.usual,
        p=3 - op.p,
    )
    for axis in range(rank):
        if axis != op.axis % rank:
            yield from with_attributes(
                op, f"axis {axis}", f"the norm was taken along axis {axis}", Prior.usual, axis=axis
            )
    yield from epsilons_of_norms(suspect, op)
