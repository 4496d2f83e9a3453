"""Non-maximum suppression as CoreML means it, out of the operators of the house.

Boxes are ranked by their largest class score. Those below the threshold go first; then the best
box that is left is kept and drops every later one that overlaps it by more than the threshold, of
its own class or of all. Source: NonMaximumSuppression.proto, NeuralNetwork.proto.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.frontends.common.context import Conversion

LOWEST = float(np.finfo(np.float32).min)
"""The score of a box that is out; no score that a network gives is as low."""


@dataclass(frozen=True)
class Suppression:
    """What a suppression leaves of N boxes in each of B batches, best first.

    order: [B, rows] positions of the boxes, int64. alive: [B, rows] whether a row is a box that
    stays; those come first. count: [B] how many stay, int64.
    """

    order: str
    alive: str
    count: str


def threshold_above(value: float) -> np.float32:
    """The least float32 that is not below `value`: for float32 scores both say the same."""
    near = np.float32(value)
    return near if float(near) >= value else np.nextafter(near, np.float32(np.inf))


def suppress(
    c: Conversion, boxes: str, scores: str, overlap: str, min_score: str, *,
    per_class: bool, rows: int, never_empty: bool = False,
) -> Suppression:  # fmt: skip
    """Suppress boxes [B, N, 4] of center, width, height with scores [B, N, C], float32.

    overlap, min_score: the thresholds, values of one element. rows: the limit of selected boxes.
    never_empty: the best box stays, whatever its score, where none would.
    Raises `UnsupportedError` while the sizes are not known.
    """
    batch, count, classes = c.known_sizes(scores, dependent="which boxes overlap")
    if not (batch and count and classes):
        c.refuse(f"the scores are {c.type(scores)}")
    rows = min(rows, count)
    lowest = c.constant(LOWEST, np.float32)
    top = c.add("ReduceMax", [scores, c.ints((2,))], keepdims=False)
    passed = c.add("Where", [c.add("GreaterOrEqual", [top, min_score]), top, lowest])
    ranked = c.add("Unsqueeze", [passed, c.ints((1,))])
    if per_class:
        label = c.add("ArgMax", [scores], axis=2, keepdims=False)
        label = c.add("Unsqueeze", [label, c.ints((1,))])
        class_indices = c.constant(np.arange(classes).reshape(1, -1, 1), np.int64)
        ranked = c.add("Where", [c.add("Equal", [label, class_indices]), ranked, lowest])
    selected = c.add(
        "NonMaxSuppression",
        [boxes, ranked, c.ints((count,)), overlap, lowest],
        center_point_box=True,
    )
    positions = c.add("Gather", [selected, c.ints((0, 2))], axis=1)
    length = c.add("Slice", [c.add("Shape", [selected]), c.ints((0,)), c.ints((1,))])
    ones = c.add("Expand", [c.constant(1, np.int64), length])
    none = c.constant(np.zeros((batch, count), np.int64))
    stays = c.add("ScatterND", [none, positions, ones])
    if never_empty:
        best = c.add("ArgMax", [top], axis=1)
        is_best = c.add("Equal", [best, c.constant(np.arange(count)[None], np.int64)])
        total = c.add("ReduceSum", [stays, c.ints((1,))])
        is_empty = c.add("Equal", [total, c.constant(0, np.int64)])
        rescued = c.add("Cast", [c.add("And", [is_best, is_empty])], to="int64")
        stays = c.add("Max", [stays, rescued])
    total = c.add("ReduceSum", [stays, c.ints((1,))], keepdims=False)
    score = c.add("Where", [c.add("Cast", [stays], to="bool"), top, lowest])
    best, order = c.add_all("TopK", [score, c.ints((rows,))], axis=1)
    alive = c.add("Greater", [best, lowest])
    max_rows = c.constant(rows, np.int64)
    return Suppression(order, alive, c.add("Min", [total, max_rows]))


def suppressed(
    c: Conversion,
    boxes: str,
    scores: str,
    overlap: str,
    min_score: str,
    *,
    per_class: bool,
    rows: int,
) -> tuple[str, str, str, str]:
    """Boxes, scores and positions (int64) of what stays, filled up to `rows` with zeros and -1, and
    how many stay (int64). The best box of all stays where none would."""
    suppression = suppress(
        c, boxes, scores, overlap, min_score, per_class=per_class, rows=rows, never_empty=True
    )
    indices = c.add("Where", [suppression.alive, suppression.order, c.constant(-1, np.int64)])
    (have,) = c.known_sizes(suppression.order, (1,))
    filled = [picked(c, suppression, values, rows) for values in (boxes, scores)]
    return filled[0], filled[1], padded(c, indices, have, rows, -1), suppression.count


def picked(c: Conversion, suppression: Suppression, values: str, rows: int) -> str:
    """The rows of values [B, N, K] that stay, then rows of zeros: [B, rows, K]."""
    width = c.known_size(values, 2)
    index = c.add("Unsqueeze", [suppression.order, c.ints((2,))])
    have = c.known_size(suppression.order, 1)
    shape = c.ints((1, 1, width))
    rows_of_values = c.add("GatherElements", [values, c.add("Tile", [index, shape])], axis=1)
    mask = c.add("Unsqueeze", [suppression.alive, c.ints((2,))])
    rows_of_values = c.add("Where", [mask, rows_of_values, c.constant(0, np.float32)])
    return padded(c, rows_of_values, have, rows, 0.0)


def padded(c: Conversion, values: str, have: int, rows: int, filler: float) -> str:
    """Values with rows of `filler` after their `have` rows, axis 1, up to `rows`."""
    if rows <= have:
        return values
    rank = c.rank(values)
    pads = [0] * (2 * rank)
    pads[rank + 1] = rows - have
    dtype = c.type(values).dtype.numpy
    return c.add("Pad", [values, c.ints(pads), c.constant(filler, dtype)])
