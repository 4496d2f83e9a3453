"""Pools: what the padding counts as, where windows begin, and which statistic is taken."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    hypotheses_of,
    pointwise,
    rearranged,
    with_attributes,
)
from verax.judge.explain.hypotheses.windows import begins, mixed_begins, padded_by_modes
from verax.ops.windows.global_pooling import GlobalAveragePool, GlobalLpPool, GlobalMaxPool
from verax.ops.windows.pooling import AveragePool, LpPool, MaxPool, Pool
from verax.ops.windows.windows import Ints, Windows


@hypotheses_of("MaxPool", "AveragePool", "LpPool")
def pool(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on MaxPool, AveragePool and LpPool."""
    op = suspect.op
    assert isinstance(op, Pool)
    if suspect.output:
        yield from _indices(op)
        return
    windows = op.windows(suspect.x.shape)
    for name, words, prior, begin in (*begins(windows), *mixed_begins(windows)):
        yield from _begin_at(op, windows, name, words, prior, begin)
    yield from _steps(op, windows)
    yield from _last_window(op, windows)
    yield from _kinds(op)
    if isinstance(op, MaxPool | LpPool):
        yield from _padded(suspect, op, windows)
    if isinstance(op, AveragePool):
        yield from _divisors(op, windows)
        yield from _padded(suspect, op, windows)


def _begin_at(
    op: Pool, windows: Windows, name: str, words: str, prior: Prior, begin: Ints
) -> Iterator[Hypothesis]:
    """The pool with other begin pads: what is left of them at the end, or what the output needs.

    It is the same to all pools but means that count the padding.
    """
    needed = tuple(
        (b, max(0, (o - 1) * s + e - n - b))
        for b, o, s, e, n in zip(
            begin, windows.output, windows.strides, windows.extent, windows.input
        )
    )
    left = tuple((b, max(0, sum(pair) - b)) for b, pair in zip(begin, windows.pads))
    counts = isinstance(op, AveragePool) and op.count_include_pad
    alternatives = {"": (needed, False), ", the rest at the end": (left, op.ceil_mode)}
    for label, (pads, ceil_mode) in alternatives.items():
        if not label or counts:
            yield Hypothesis(
                name + label,
                words + label,
                prior,
                op=dataclasses.replace(op, pads=pads, ceil_mode=ceil_mode),
                attributes={"pads": str(pads)},
                crop=True,
            )


def _indices(op: Pool) -> Iterator[Hypothesis]:
    assert isinstance(op, MaxPool)
    yield from with_attributes(
        op,
        "storage order",
        "positions were counted in the other storage order",
        Prior.usual,
        storage_order=1 - op.storage_order,
    )


def _steps(op: Pool, windows: Windows) -> Iterator[Hypothesis]:
    for field in ("kernel_shape", "strides", "dilations"):
        values = getattr(windows, field)
        if values[::-1] != values:
            yield Hypothesis(
                f"{field} exchanged",
                f"the {field} of height and width was exchanged",
                Prior.common,
                op=dataclasses.replace(op, **{field: values[::-1]}),  # type: ignore[arg-type]
                attributes={field: str(values[::-1])},
                crop=True,
            )
    if any(d > 1 for d in windows.dilations):
        ones = (1,) * windows.rank
        yield from (
            dataclasses.replace(h, crop=True)
            for h in with_attributes(
                op, "dilation ignored", "the dilation was ignored", Prior.usual, dilations=ones
            )
        )
    yield from (
        dataclasses.replace(h, crop=True)
        for h in with_attributes(
            op,
            "ceil_mode the other way",
            "the output's size was rounded the other way",
            Prior.usual,
            ceil_mode=not op.ceil_mode,
        )
    )


def _last_window(op: Pool, windows: Windows) -> Iterator[Hypothesis]:
    """The windows that ceil_mode adds: not computed, or moved inside."""
    over = [
        a
        for a, (n, o, s, e, (b, end)) in enumerate(
            zip(windows.input, windows.output, windows.strides, windows.extent, windows.pads)
        )
        if o > 1 and (o - 1) * s + e > b + n + end
    ]
    if not (op.ceil_mode and over):
        return

    def blank(y: np.ndarray) -> np.ndarray:
        y = y.copy()
        for a in over:
            y[(slice(None),) * (a + y.ndim - windows.rank) + (-1,)] = 0
        return y

    yield Hypothesis(
        "last window not computed",
        "the last window, which ceil_mode adds, was not computed and left 0",
        Prior.usual,
        after=rearranged(blank),
    )
    steps = tuple(1 if a in over else s for a, s in enumerate(windows.strides))

    def inside(y: np.ndarray) -> np.ndarray:
        for a in over:
            axis, own = a + y.ndim - windows.rank, windows.strides[a]
            at = np.minimum(np.arange(windows.output[a]) * own, y.shape[axis] - 1)
            y = np.take(y, at, axis)
        return y

    yield Hypothesis(
        "last window moved inside",
        "the last window, which ceil_mode adds, was moved back until it lies inside",
        Prior.usual,
        op=dataclasses.replace(op, strides=steps, pads=windows.pads, ceil_mode=False),
        after=rearranged(inside),
    )


def _kinds(op: Pool) -> Iterator[Hypothesis]:
    """Another statistic over the same windows."""
    form: dict[str, Any] = {
        f: getattr(op, f) for f in ("kernel_shape", "strides", "pads", "dilations", "ceil_mode")
    }
    for name, alternative in (
        ("maximum", MaxPool(**form)),
        ("mean", AveragePool(**form)),
        ("mean, padding counted", AveragePool(**form, count_include_pad=True)),
        ("2-norm", LpPool(**form)),
        ("1-norm", LpPool(**form, p=1)),
    ):
        if alternative.kind != op.kind:
            yield Hypothesis(
                f"{name} of the window",
                f"the {name} of each window was taken",
                Prior.common,
                op=alternative,
                attributes={"operator": alternative.kind},
            )
    if not isinstance(op, MaxPool):
        return
    yield Hypothesis(
        "minimum of the window",
        "the smallest element of each window was taken",
        Prior.uncommon,
        op=dataclasses.replace(op, with_indices=False),
        inputs=edited(0, np.negative),
        after=pointwise(np.negative),
    )


def _padded(suspect: Suspect, op: Pool, windows: Windows) -> Iterator[Hypothesis]:
    """Padding with numbers of its own."""
    if not any(map(any, windows.pads)) and not op.ceil_mode:
        return
    reach = [
        (b, max(e, (o - 1) * s + x - n - b))
        for (b, e), o, s, x, n in zip(
            windows.pads, windows.output, windows.strides, windows.extent, windows.input
        )
    ]
    widths = ((0, 0),) * (suspect.x.ndim - windows.rank) + tuple(reach)
    bare = dataclasses.replace(op, pads=((0, 0),) * windows.rank, ceil_mode=False)
    extended = dataclasses.replace(windows, pads=tuple(reach), output=windows.output)
    if not extended.can_store_pads(suspect.x):
        return
    if isinstance(op, MaxPool):
        yield Hypothesis(
            "padding counts as zero",
            "the padding took part in the maximum as zeros",
            Prior.usual,
            op=bare,
            inputs=edited(0, lambda x: np.pad(x, widths)),
            attributes={"padding value": "0"},
            crop=True,
        )
        return
    for name, words, edit in padded_by_modes(extended, suspect.x):
        yield Hypothesis(name, words, Prior.rare, op=bare, inputs=edit, crop=True)


def _divisors(op: AveragePool, windows: Windows) -> Iterator[Hypothesis]:
    """Means that divide by another count."""
    yield from with_attributes(
        op,
        "count_include_pad",
        "the padding was counted" if not op.count_include_pad else "the padding was not counted",
        Prior.usual,
        count_include_pad=not op.count_include_pad,
    )
    counts = windows.counts(include_pad=op.count_include_pad).astype(np.float64)
    for name, words, divisor in (
        (
            "divided by the kernel's size",
            "every window's sum was divided by the size of the whole kernel",
            np.full_like(counts, windows.taps),
        ),
        ("sum of the window", "the sums were not divided", np.ones_like(counts)),
        ("divided by one more", "the sums were divided by one more than counted", counts + 1),
        (
            "padding counted in full",
            "padding and overhang were counted",
            windows.counts(include_pad=True).astype(np.float64),
        ),
    ):
        if not np.array_equal(divisor, counts):
            slope = float(np.max(counts / divisor))
            ratio = counts / divisor
            yield Hypothesis(
                name,
                words,
                Prior.common,
                after=After(lambda y, inputs, r=ratio: y * r, slope=slope, roundings=1),
            )


@hypotheses_of("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on the global pools."""
    op = suspect.op
    spatial = tuple(range(2, suspect.x.ndim))
    count = float(np.prod([suspect.x.shape[a] for a in spatial]))
    for name, alternative in (
        ("maximum", GlobalMaxPool()),
        ("mean", GlobalAveragePool()),
        ("2-norm", GlobalLpPool()),
        ("1-norm", GlobalLpPool(p=1)),
    ):
        if alternative != op:
            yield Hypothesis(
                f"{name} of the channel",
                f"the {name} of each channel was taken",
                Prior.common,
                op=alternative,
                attributes={"operator": alternative.kind},
            )
    if isinstance(op, GlobalAveragePool):
        for name, words, ratio in (
            ("sum of the channel", "the sums were not divided", count),
            ("divided by one more", "the sums were divided by N + 1", count / (count + 1)),
            ("divided by one less", "the sums were divided by N - 1", count / max(1, count - 1)),
        ):
            yield Hypothesis(
                name,
                words,
                Prior.common,
                after=pointwise(lambda y, r=ratio: y * r, slope=ratio, roundings=1),
            )
    for a in spatial:
        n = suspect.x.shape[a]
        for label, keep in (("first", slice(1, None)), ("last", slice(0, n - 1))):
            if n > 1:
                yield Hypothesis(
                    f"{label} along axis {a} ignored",
                    f"the {label} of {n} positions along axis {a} was left out",
                    Prior.uncommon,
                    inputs=edited(0, lambda x, a=a, k=keep: x[(slice(None),) * a + (k,)]),
                )
