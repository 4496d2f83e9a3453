"""What can happen to any operator: not computed, another order, fused activation, a factor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from verax.judge.explain.hypotheses.base import (
    Hypothesis,
    Prior,
    Suspect,
    axis_name,
    edited,
    from_inputs,
    permuted,
    pointwise,
    rearranged,
    shifted,
    unpermuted,
    zeroed,
)
from verax.judge.explain.hypotheses.edges import edges
from verax.judge.explain.hypotheses.fitting import LEAST, factor, line, offset

BLOCKS = (2, 4, 8, 16)
"""Elements that vector code takes together; the rest is easily forgotten."""
MOST_PLACES = 4096
"""Images or channels that are compared with one another."""
FEW_PLACES = 3
"""Images or channels that are named one by one."""
MAX_OFFSET = 3
"""Places by which a shift is looked for."""


def generic(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on any node with a numeric output."""
    shape = suspect.expected.shape
    if suspect.actual.dtype.kind in "biu" and suspect.actual.size < LEAST:
        return  # so few choices agree with anything by chance
    yield from _uncomputed(suspect, shape)
    if suspect.actual.dtype.kind == "b":
        return
    yield from _fused()
    yield from _copied(suspect, shape)
    yield from _reordered(shape)
    yield from _inputs(suspect)
    yield from _fitted(suspect)
    yield from edges(suspect)
    yield from _blank(suspect)
    yield from _taken_from_others(suspect)


def _uncomputed(suspect: Suspect, shape: tuple[int, ...]) -> Iterator[Hypothesis]:
    yield Hypothesis(
        "nothing computed", "the output is all 0", Prior.common, after=rearranged(np.zeros_like)
    )
    for axis, n in enumerate(shape):
        name = axis_name(axis, len(shape))
        tails = {1, *(n % b for b in BLOCKS)} - {0, n}
        for count in sorted(tails):
            if n > 1:
                yield Hypothesis(
                    f"last {count} along the {name} axis not computed",
                    f"the last {count} of {n} along the {name} axis were left 0",
                    Prior.anything,
                    after=rearranged(lambda y, a=axis, k=n - count: zeroed(y, a, slice(k, None))),
                )
        for count in sorted(tails if n > 2 else ()):
            yield Hypothesis(
                f"last {count} along the {name} axis repeated",
                f"the last {count} of {n} along the {name} axis repeat the one before them",
                Prior.anything,
                after=rearranged(lambda y, a=axis, k=n - count - 1: _repeated_to_end(y, a, k)),
            )
        if n > 1:
            yield Hypothesis(
                f"first along the {name} axis everywhere",
                f"along the {name} axis the first place was repeated",
                Prior.anything,
                after=rearranged(lambda y, a=axis: np.take(y, np.zeros(y.shape[a], int), a)),
            )
        if n - 1 not in tails and n > 1:
            yield Hypothesis(
                f"only the first along the {name} axis",
                f"along the {name} axis only the first place was computed, the rest is 0",
                Prior.anything,
                after=rearranged(lambda y, a=axis: zeroed(y, a, slice(1, None))),
            )


def _repeated_to_end(y: np.ndarray, axis: int, last: int) -> np.ndarray:
    """`y` with the element at index `last` along an axis repeated to the end."""
    return np.take(y, np.minimum(np.arange(y.shape[axis]), last), axis)


def _fused() -> Iterator[Hypothesis]:
    changes: tuple[tuple[str, str, Prior, Callable[[np.ndarray], np.ndarray], float], ...] = (
        ("extra Relu", "a Relu was applied to the result", Prior.common, _relu, 0),
        ("extra Relu6", "a Relu6 was applied to the result", Prior.uncommon, _relu6, 0),
        ("negated", "the sign of the result was changed", Prior.common, np.negative, 0),
        ("absolute value", "the sign of the result was lost", Prior.uncommon, np.abs, 0),
        ("rounded to integers", "the result was rounded to integers", Prior.anything, np.rint, 0),
        ("doubled", "the result was added twice", Prior.uncommon, lambda y: 2 * y, 0),
    )
    for name, words, prior, change, roundings in changes:
        slope = 2.0 if name == "doubled" else 1.0
        yield Hypothesis(name, words, prior, after=pointwise(change, slope, roundings))


def _relu(y: np.ndarray) -> np.ndarray:
    return np.maximum(y, 0)


def _relu6(y: np.ndarray) -> np.ndarray:
    return np.clip(y, 0, 6)


def _copied(suspect: Suspect, shape: tuple[int, ...]) -> Iterator[Hypothesis]:
    """An input passed on."""
    for i, x in enumerate(suspect.inputs):
        if x is not None and x.size == suspect.expected.size and x.dtype.kind == "f":
            same = x.shape == shape
            yield Hypothesis(
                f"input {i} passed on",
                f"input {i} was passed on" + ("" if same else ", its numbers as they lie"),
                Prior.uncommon,
                after=from_inputs(lambda a, i=i: a[i].reshape(shape)),
            )


def _reordered(shape: tuple[int, ...]) -> Iterator[Hypothesis]:
    rank = len(shape)
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        along = f"along the {axis_name(axis, rank)} axis"
        yield Hypothesis(
            f"reversed {along}",
            f"the result is reversed {along}",
            Prior.uncommon,
            after=rearranged(lambda y, a=axis: np.flip(y, a)),
        )
        reach = min(MAX_OFFSET if axis >= 2 else 1, n - 1)
        for by in (k for k in range(-reach, reach + 1) if k):
            yield Hypothesis(
                f"shifted by {by} {along}",
                f"the result is shifted by {by} {along}, zeros moving in",
                Prior.uncommon,
                after=rearranged(lambda y, a=axis, by=by: shifted(y, a, by)),
            )
            # Of two rolls that are one, the shorter is named; of two places it is a reversal.
            if n > 2 and (2 * abs(by) < n or 2 * by == n):
                yield Hypothesis(
                    f"rolled by {by} {along}",
                    f"the result is shifted by {by} {along}, around its end",
                    Prior.uncommon,
                    after=rearranged(lambda y, a=axis, by=by: np.roll(y, by, a)),
                )
    for a, b in itertools.combinations(range(rank), 2):
        if shape[a] == shape[b] and shape[a] > 1:
            names = f"{axis_name(a, rank)} and {axis_name(b, rank)}"
            yield Hypothesis(
                f"{names} axes exchanged",
                f"the {names} axes of the result are exchanged",
                Prior.uncommon,
                after=rearranged(lambda y, a=a, b=b: y.swapaxes(a, b)),
            )
    if rank >= 3:
        last = (0, *range(2, rank), 1)
        for name, change in (
            ("channels last, taken as they lie", lambda y: permuted(y, last)),
            ("taken as channels last", lambda y: unpermuted(y, last)),
        ):
            yield Hypothesis(
                name,
                f"the numbers of the result lie in another layout ({name})",
                Prior.uncommon,
                after=rearranged(change),
            )
    if rank >= 2:
        order = (*range(rank - 2), rank - 1, rank - 2)
        yield Hypothesis(
            "transposed where it lies",
            "the last two axes of the result are exchanged, and the numbers read as they lie",
            Prior.anything,
            after=rearranged(lambda y: permuted(y, order)),
        )
    if rank >= 2:
        for groups in (g for g in range(2, shape[1] // 2 + 1) if shape[1] % g == 0):
            yield Hypothesis(
                f"channels interleaved by {groups}",
                f"the channels of the result were shuffled in {groups} groups",
                Prior.anything,
                after=rearranged(lambda y, g=groups: _shuffled(y, g)),
            )


def _shuffled(y: np.ndarray, groups: int) -> np.ndarray:
    n, c = y.shape[:2]
    return y.reshape(n, groups, c // groups, *y.shape[2:]).swapaxes(1, 2).reshape(y.shape)


def _inputs(suspect: Suspect) -> Iterator[Hypothesis]:
    """The first input in another order, where that is not the same order of the output."""
    x = suspect.x
    alike = len(suspect.inputs) == 1 and x.shape == suspect.expected.shape
    if x.dtype.kind != "f" or x.ndim < 2 or alike:
        return
    if x.ndim >= 3:
        last = (0, *range(2, x.ndim), 1)
        for name, change in (
            ("input in channels last, taken as it lies", lambda x: permuted(x, last)),
            ("input taken as channels last", lambda x: unpermuted(x, last)),
        ):
            yield Hypothesis(
                name,
                f"the first input was read in another layout ({name})",
                Prior.uncommon,
                inputs=edited(0, change),
            )
    for axis, n in enumerate(x.shape):
        if n > 1 and axis >= 2:
            name = axis_name(axis, x.ndim)
            yield Hypothesis(
                f"input reversed along the {name} axis",
                f"the first input was read backwards along the {name} axis",
                Prior.anything,
                inputs=edited(0, lambda x, a=axis: np.flip(x, a)),
            )


def _fitted(suspect: Suspect) -> Iterator[Hypothesis]:
    """One factor, one offset or one line for the whole result."""
    actual, expected = suspect.wide, suspect.expected
    if (
        actual.shape != expected.shape
        or actual.dtype.kind != "f"
        or suspect.actual.dtype.kind != "f"
    ):
        return
    k = factor(expected, actual)
    if k is not None and k != 0:
        yield Hypothesis(
            "scaled",
            f"the result is {k:.6g} times what it should be",
            Prior.anything,
            after=pointwise(lambda y: y * k, slope=abs(k), roundings=1),
            attributes={"factor": f"{k:.6g}"},
            fitted=1,
        )
    c = offset(expected, actual)
    if c is not None and c != 0:
        yield Hypothesis(
            "offset",
            f"{c:.6g} was added to the result",
            Prior.anything,
            after=pointwise(lambda y: y + c, roundings=1),
            attributes={"offset": f"{c:.6g}"},
            fitted=1,
        )
    fit = line(expected, actual)
    if fit is not None and fit[0] != 0:
        yield Hypothesis(
            "scaled and offset",
            f"the result is {fit[0]:.6g} times what it should be, plus {fit[1]:.6g}",
            Prior.anything,
            after=pointwise(lambda y: y * fit[0] + fit[1], slope=abs(fit[0]), roundings=2),
            attributes={"factor": f"{fit[0]:.6g}", "offset": f"{fit[1]:.6g}"},
            fitted=2,
        )


def _blank(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on indices along an axis that hold only zeros and should not."""
    actual, expected = suspect.wide, suspect.expected
    if actual.shape != expected.shape or actual.size < LEAST:
        return
    blanks: dict[int, np.ndarray] = {}
    for axis, n in enumerate(actual.shape):
        other_axes = tuple(a for a in range(actual.ndim) if a != axis)
        blank = np.flatnonzero((actual == 0).all(other_axes) & (expected != 0).any(other_axes))
        if 0 < len(blank) < n:
            blanks[axis] = blank
    candidates = [{axis: blank} for axis, blank in blanks.items()]
    for selected in [*candidates, blanks] if len(blanks) > 1 else candidates:
        names = " and ".join(axis_name(axis, actual.ndim) for axis in selected)
        listed = "; ".join(
            f"{_listed(blank)} along the {axis_name(axis, actual.ndim)} axis"
            for axis, blank in selected.items()
        )
        yield Hypothesis(
            f"places along the {names} axis not computed",
            f"some places were left 0: {listed}",
            Prior.anything,
            after=rearranged(lambda y, selected=selected: _blanked(y, selected)),
            fitted=1,
        )


def _blanked(y: np.ndarray, blanks: Mapping[int, np.ndarray]) -> np.ndarray:
    """`y` with these indices along these axes set to 0."""
    y = y.copy()
    for axis, indices in blanks.items():
        y[(slice(None),) * axis + (indices,)] = 0
    return y


def _listed(indices: np.ndarray) -> str:
    return ", ".join(map(str, indices[:8])) + (" ..." if len(indices) > 8 else "")


def _taken_from_others(suspect: Suspect) -> Iterator[Hypothesis]:
    """Images or channels that hold the results of others, as the numbers themselves show."""
    actual, expected = suspect.wide, suspect.expected
    if actual.shape != expected.shape or actual.ndim < 2 or not np.isfinite(actual).all():
        return
    for axis in (0, 1):
        n = actual.shape[axis]
        g, e = (np.moveaxis(a, axis, 0).reshape(n, -1) for a in (actual, expected))
        if n < 2 or g.shape[1] < LEAST or n > MOST_PLACES or not np.isfinite(e).all():
            continue
        # The nearest by the square of the distance, each place's own where that is as near.
        distance = (g * g).sum(1)[:, None] - 2 * g @ e.T + (e * e).sum(1)[None]
        order = np.argmin(distance, axis=1)
        own = np.diagonal(distance) <= distance[np.arange(n), order]
        order = np.where(own, np.arange(n), order)
        if (order == np.arange(n)).all():
            continue
        name = axis_name(axis, actual.ndim)
        changed = np.flatnonzero(order != np.arange(n))
        words = f"along the {name} axis the result holds in turn the results of {_listed(order)}"
        if len(changed) <= min(FEW_PLACES, n - 1):
            phrases = [f"index {i} holds the result of index {order[i]}" for i in changed]
            words = f"along the {name} axis {', '.join(phrases)}"
        yield Hypothesis(
            f"places along the {name} axis taken from others",
            words,
            Prior.anything,
            after=rearranged(lambda y, a=axis, order=order: np.take(y, order, axis=a)),
            fitted=1,
        )
