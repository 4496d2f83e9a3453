"""How one array becomes another: reshaped, transposed, its channels reordered.

Files disagree on layout (NCHW, NHWC), on the order of channels (RGB, BGR) and of outputs. Only the
numbers tell: an arrangement is accepted when it makes two arrays agree within a given distance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from verax.numerics.statistics import CLEARLY, root_mean_square

MAX_RANK = 6
"""Arrays of higher rank are compared as they are and reshaped only."""
FLAT_RANK = 2
"""Arrays up to this rank may be flattened images, whose numbers stand in any order."""
MAX_PAIRS = 1 << 26
"""Differences of elements computed at most to pair slices one by one."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Arrangement:
    """How to read an array in another shape: transpose by `axes`, take `channels` along `axis`.

    axes: of the array, without its axes of size 1 when `squeeze`; empty for none. shape: of the
    result. axis -1: no reordering. Where `shuffled`, only the set of numbers agrees, and `apply`
    cannot be used.
    """

    shape: Shape
    axes: tuple[int, ...] = ()
    squeeze: bool = False
    axis: int = -1
    channels: tuple[int, ...] = ()
    shuffled: bool = False

    def apply(self, array: np.ndarray) -> np.ndarray:
        """The array rearranged to `shape`."""
        if self.shuffled:
            raise ValueError("a shuffled array cannot be put in order")
        if self.squeeze:
            array = array.squeeze()
        if self.axes:
            array = array.transpose(self.axes)
        array = array.reshape(self.shape)
        return array if self.axis < 0 else np.take(array, self.channels, axis=self.axis)

    @property
    def plain(self) -> bool:
        """Whether neither order nor layout changes."""
        return not self.axes and self.axis < 0 and not self.shuffled

    def __str__(self) -> str:
        if self.shuffled:
            return "the same numbers in another order"
        phrases = []
        if self.axes:
            phrases.append(_layout_words(self.axes))
        if self.axis >= 0:
            phrases.append(f"axis {self.axis} {order_words(self.channels)}")
        return ", ".join(phrases) or "as it is"


def order_words(channels: tuple[int, ...]) -> str:
    """`reversed`, `in the order [1, 0, 3, 2]`, or `in another order (4420 places)`."""
    if channels == tuple(reversed(range(len(channels)))):
        return "reversed"
    if len(channels) <= 16:
        return f"in the order {list(channels)}"
    return f"in another order ({len(channels)} places)"


def _layout_words(axes: tuple[int, ...]) -> str:
    names: dict[tuple[int, ...], str] = {(0, 2, 3, 1): "NCHW to NHWC", (0, 3, 1, 2): "NHWC to NCHW"}
    return names.get(axes, f"axes {axes}")


@cache
def arrangements(source: Shape, target: Shape) -> tuple[Arrangement, ...]:
    """Every layout in which an array of shape `source` can have the shape `target`, likeliest
    first: as it is, reshaped, then transposed."""
    return tuple(_arrangements(source, target))


def _arrangements(source: Shape, target: Shape) -> Iterator[Arrangement]:
    if math.prod(source) != math.prod(target):
        return
    yield Arrangement(target)
    squeeze = len(source) != len(target)
    shape, target_shape = (_dense(source), _dense(target)) if squeeze else (source, target)
    if (
        len(shape) != len(target_shape)
        or not 2 <= len(shape) <= MAX_RANK
        or sorted(shape) != sorted(target_shape)
    ):
        return
    seen = {_order_of_long_axes(tuple(range(len(shape))), shape)}
    for axes in sorted(itertools.permutations(range(len(shape))), key=_unlikeliness):
        order = _order_of_long_axes(axes, shape)
        if order not in seen and tuple(shape[a] for a in axes) == target_shape:
            seen.add(order)
            yield Arrangement(target, axes, squeeze)


def _dense(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _order_of_long_axes(axes: tuple[int, ...], shape: Shape) -> tuple[int, ...]:
    """Order of the axes longer than 1 after a transposition."""
    return tuple(a for a in axes if shape[a] != 1)


def _unlikeliness(axes: tuple[int, ...]) -> tuple[bool, bool, tuple[int, ...]]:
    """Layout changes keep the batch first and the spatial axes in order."""
    remaining = [a for a in axes if a != 0]
    rotated = any(
        remaining == [*range(k, len(axes)), *range(1, k)] for k in range(1, len(axes) + 1)
    )
    return axes[0] != 0, not rotated and remaining[::-1] != sorted(remaining), axes


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square of a - b, arrays of one shape."""
    return root_mean_square(a - b)


def nearest(source: np.ndarray, target: np.ndarray) -> tuple[Arrangement, float] | None:
    """The layout of `source` nearest to `target`, and their distance; None when none fits."""
    best: tuple[Arrangement, float] | None = None
    for layout in arrangements(source.shape, target.shape):
        d = distance(layout.apply(source), target)
        if best is None or d < best[1]:
            best = layout, d
    return best


def likeliest(source: np.ndarray, target: np.ndarray) -> Arrangement | None:
    """The likeliest layout, unless another brings arrays that differ anyway clearly nearer."""
    best = nearest(source, target)
    if best is None:
        return None
    usual = arrangements(source.shape, target.shape)[0]
    return best[0] if best[1] < CLEARLY * distance(usual.apply(source), target) else usual


def arrange(source: np.ndarray, target: np.ndarray, limit: float) -> Arrangement | None:
    """How `source` is `target` within a distance of `limit`; None when it is not.

    Layouts are tried first, then layouts with the slices of one axis reordered, then the set of
    numbers alone (of flattened images). The smallest distance between the sets bounds every other
    one from below, so that strangers are dismissed by sorting.
    """
    if source.size != target.size:
        return None
    layouts = arrangements(source.shape, target.shape)
    for layout in layouts:
        if distance(layout.apply(source), target) <= limit:
            return layout
    if distance(np.sort(source, axis=None), np.sort(target, axis=None)) > limit:
        return None
    for layout in layouts:
        arranged = layout.apply(source)
        for axis in _orderless(target.shape):
            channels = match_slices(arranged, target, axis, limit)
            if channels is not None:
                return Arrangement(layout.shape, layout.axes, layout.squeeze, axis, channels)
    flat = min(source.ndim, target.ndim) <= FLAT_RANK
    return Arrangement(target.shape, shuffled=True) if flat else None


def _orderless(shape: Shape) -> list[int]:
    """Axes along which two files may keep another order: channels, classes, boxes; not pixels."""
    if len(shape) <= 3:
        return list(range(len(shape)))
    return [a for a in range(1, len(shape)) if a == 1 or shape[a] == math.prod(shape[1:]) > 1]


def match_slices(
    source: np.ndarray, target: np.ndarray, axis: int, limit: float
) -> tuple[int, ...] | None:
    """The order of the slices of `source` along `axis` that gives `target`, or None.

    Slices are ranked by one projection each; where rounding has swapped neighbors in that
    ranking, they are paired by distance.
    """
    rows = [np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (source, target)]
    count, width = rows[1].shape
    if count < 2:
        return None
    direction = np.random.default_rng(0).standard_normal(width)
    ranks = [np.argsort(r @ direction, kind="stable") for r in rows]
    order = np.empty(count, np.int64)
    order[ranks[1]] = ranks[0]
    off = np.sqrt(np.mean((rows[0][order] - rows[1]) ** 2, axis=1))
    wrong = np.flatnonzero(off > limit * math.sqrt(count))
    if wrong.size > max(4, count // 8):
        return None
    free = list(order[wrong])
    for i in wrong:
        gaps = [root_mean_square(rows[0][j] - rows[1][i]) for j in free]
        order[i] = free.pop(int(np.argmin(gaps)))
    if root_mean_square(rows[0][order] - rows[1]) > limit:
        return None
    return tuple(int(i) for i in order)


def nearest_slices(source: np.ndarray, target: np.ndarray, axis: int) -> tuple[int, ...] | None:
    """The order of the slices of `source` along `axis` in which each is nearest to its place in
    `target`, though some may differ; None when slices are too many, or one is nearest twice."""
    rows = [np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1) for x in (source, target)]
    count, width = rows[0].shape
    if count < 2 or count * count * width > MAX_PAIRS:
        return None
    order = [int(np.argmin(np.square(rows[0] - row).sum(axis=1))) for row in rows[1]]
    return tuple(order) if len(set(order)) == count else None
