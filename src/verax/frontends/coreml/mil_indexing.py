"""ML program operations that pick, place and rank elements by position.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.coreml.mil_rows import (
    dtype_of,
    flag,
    integer,
    known,
    mil,
    named,
    needed,
    number,
    positions,
    refuse,
    text,
)
from verax.frontends.coreml.rows import windows_along
from verax.frontends.coreml.suppression import padded, picked, suppress, threshold_above


def _unchecked(c: Conversion) -> None:
    c.attributes.irrelevant("validate_indices", "indices outside of the input are an error here")


@mil("gather")
def gather(c: Conversion) -> Result:
    """With batch_dims, the first axes of x and of the indices run together."""
    x, indices, axis = needed(c, "x"), positions(c, "indices"), integer(c, "axis", 0)
    batch, rank = integer(c, "batch_dims", 0), c.rank(x)
    _unchecked(c)
    if not batch:
        return c.result("Gather", [x, indices], axis=axis)
    axis = axis if axis >= 0 else axis + rank
    more = c.rank(indices) - batch
    if not 0 < batch <= axis < rank or more < 0:
        raise ModelError(f"batch_dims {batch}, axis {axis}", place=c.node.place)
    between = range(batch, axis)
    order = (*range(batch), axis, *between, *range(axis + 1, rank))
    index = c.add("Unsqueeze", [indices, c.ints((batch + more,))])
    found = c.add("GatherND", [c.add("Transpose", [x], perm=order), index], batch_dims=batch)
    # Now [batch, those of the indices, those between, the rest].
    first = range(batch, batch + more)
    moved = range(batch + more, batch + more + len(between))
    last = range(batch + more + len(between), rank - 1 + more)
    return c.result("Transpose", [found], perm=(*range(batch), *moved, *first, *last))


@mil("gather_along_axis")
def gather_along_axis(c: Conversion) -> Result:
    _unchecked(c)
    inputs = [needed(c, "x"), needed(c, "indices")]
    return c.result("GatherElements", inputs, axis=integer(c, "axis", 0))


@mil("gather_nd")
def gather_nd(c: Conversion) -> Result:
    _unchecked(c)
    batch = integer(c, "batch_dims", 0)
    return c.result("GatherND", [needed(c, "x"), positions(c, "indices")], batch_dims=batch)


MODES = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "max": "max", "min": "min"}


def _updates(c: Conversion) -> tuple[str, str]:
    """What is placed, and how it joins what is there."""
    mode = text(c, "mode", "")
    if mode not in MODES:
        refuse(c, "mode", "it is not supported, and its default differs within the documentation")
    updates = needed(c, "updates")
    _unchecked(c)
    return c.add("Neg", [updates]) if mode == "sub" else updates, MODES[mode]


@mil("scatter_nd")
def scatter_nd(c: Conversion) -> Result:
    updates, mode = _updates(c)
    return c.result("ScatterND", [needed(c, "data"), positions(c, "indices"), updates],
                    reduction=mode)  # fmt: skip


@mil("scatter_along_axis")
def scatter_along_axis(c: Conversion) -> Result:
    updates, mode = _updates(c)
    inputs = [needed(c, "data"), positions(c, "indices"), updates]
    return c.result("ScatterElements", inputs, axis=integer(c, "axis", 0), reduction=mode)


@mil("scatter")
def scatter(c: Conversion) -> Result:
    """Slices of the data across `axis`, at indices [count]."""
    updates, mode = _updates(c)
    data, indices = needed(c, "data"), positions(c, "indices")
    rank, axis = c.rank(data), integer(c, "axis", 0)
    axis = axis if axis >= 0 else axis + rank
    if not 0 <= axis < rank or c.rank(indices) != 1 or c.rank(updates) != rank:
        raise ModelError(f"axis {axis}, data {c.type(data)}", place=c.node.place)
    order = (axis, *(i for i in range(rank) if i != axis))
    back = tuple(int(i) for i in np.argsort(order))
    parts = [c.add("Transpose", [v], perm=order) for v in (data, updates)]
    index = c.add("Unsqueeze", [indices, c.ints((1,))])
    found = c.add("ScatterND", [parts[0], index, parts[1]], reduction=mode)
    return c.result("Transpose", [found], perm=back)


def _ranked(c: Conversion, k: int, axis: int, *, largest: bool) -> tuple[str, str]:
    op = c.operator("TopK", axis=axis, largest=largest)
    names = [c.fresh(f"{c.first_output}/{n}") for n in ("values", "positions")]
    found = c.builder.add_all(op, [needed(c, "x"), c.ints((k,))], names, c.node.name)
    return found[0], found[1]


@mil("topk")
def topk(c: Conversion) -> Result:
    """Values and, unless return_indices is false, their positions."""
    k, axis, ascending = integer(c, "k", 1), integer(c, "axis", -1), flag(c, "ascending")
    c.attributes.irrelevant("sort", "ordered elements are as good as others")
    wanted = 2 if flag(c, "return_indices", True) else 1
    kind = text(c, "output_indices_dtype", "int32")
    if len(c.node.outputs) > wanted:
        raise ModelError("there are outputs for no indices", place=c.node.place)
    values, found = _ranked(c, k, axis, largest=not ascending)
    return named(c, [values, c.add("Cast", [found], to=kind)])


@mil("argsort")
def argsort(c: Conversion) -> Result:
    x, axis = needed(c, "x"), integer(c, "axis", -1)
    size = c.type(x).dims[axis]
    if not isinstance(size, int):
        c.refuse(f"positions in {c.type(x)}, its sizes must be known")
    _, found = _ranked(c, size, axis, largest=not flag(c, "ascending"))
    return c.result("Cast", [found], to="int32")


@mil("one_hot")
def one_hot(c: Conversion) -> Result:
    """on_value where the position is the index; an index outside is nowhere."""
    indices, size = positions(c, "indices"), integer(c, "one_hot_vector_size")
    rank, given = c.rank(indices), integer(c, "axis", -1)
    axis = given if given >= 0 else given + rank + 1
    if not 0 <= axis <= rank or not 0 < size <= MAX_MADE:
        raise ModelError(f"vectors of {size} along axis {given}", place=c.node.place)
    along = [1] * (rank + 1)
    along[axis] = size
    places = c.constant(np.arange(size).reshape(along), np.int64)
    hot = c.add("Equal", [c.add("Unsqueeze", [indices, c.ints((axis,))]), places])
    values = [known(c, n) for n in ("on_value", "off_value")]
    kind = next((np.asarray(v).dtype for v in values if v is not None), np.dtype(np.int32))
    on, off = (d if v is None else v for v, d in zip(values, (1, 0)))
    if kind.kind == "b":
        found = c.add("And", [hot, c.constant(bool(on))])
        rest = c.add("And", [c.add("Not", [hot]), c.constant(bool(off))])
        return c.result("Or", [found, rest])
    return c.result("Where", [hot, c.constant(on, kind), c.constant(off, kind)])


@mil("non_zero")
def non_zero(c: Conversion) -> Result:
    found = c.add("Transpose", [c.add("NonZero", [needed(c, "x")])], perm=(1, 0))
    return c.result("Cast", [found], to="int32")


@mil("reverse_sequence")
def reverse_sequence(c: Conversion) -> Result:
    x, lengths = needed(c, "x"), positions(c, "lengths")
    batch, time = (integer(c, f"{n}_axis", 0) % c.rank(x) for n in ("batch", "seq"))
    if batch == time:
        raise ModelError("the batch and the sequence are one axis", place=c.node.place)
    return c.result("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)


@mil("sliding_windows")
def sliding_windows(c: Conversion) -> Result:
    """Axis -> two axes, [windows, size]."""
    x, given, width = needed(c, "x"), integer(c, "axis"), integer(c, "size")
    step, type_ = integer(c, "stride", 1), c.type(x)
    axis = given if given >= 0 else given + type_.rank
    size = type_.dims[axis] if axis < type_.rank else 0
    if not isinstance(size, int):
        c.refuse(f"windows of {type_}, its sizes must be known")
    return windows_along(c, x, axis, size, width=width, step=step)


@mil("non_maximum_suppression")
def non_maximum_suppression(c: Conversion) -> Result:
    """Boxes, scores, their positions and, up to iOS 16, how many they are.

    From iOS 17 on the boxes are the last axis, and there is no threshold of the score.
    """
    boxes, scores, rows = needed(c, "boxes"), needed(c, "scores"), integer(c, "max_boxes")
    is_new = c.version >= 7
    if dtype_of(c, scores) != np.float32 or dtype_of(c, boxes) != np.float32:
        c.refuse("boxes that are not float32")
    if not 0 < rows <= MAX_MADE:
        raise ModelError(f"{rows} boxes", place=c.node.place)
    overlap = c.like(number(c, "iou_threshold"), scores)
    lowest = float(np.finfo(np.float32).min)
    least = lowest if is_new else number(c, "score_threshold")
    if is_new:
        boxes, scores = (c.add("Transpose", [v], perm=(0, 2, 1)) for v in (boxes, scores))
    kept = suppress(
        c, boxes, scores, overlap, c.constant(threshold_above(least)),
        per_class=flag(c, "per_class_suppression"), rows=rows, never_empty=True,
    )  # fmt: skip
    have = c.type(kept.order).dims[1]
    assert isinstance(have, int)
    places = c.add("Where", [kept.alive, kept.order, c.constant(-1, np.int64)])
    places = c.add("Cast", [padded(c, places, have, rows, -1)], to="int32")
    found = [picked(c, kept, boxes, rows), picked(c, kept, scores, rows)]
    if is_new:
        return named(c, [*(c.add("Transpose", [v], perm=(0, 2, 1)) for v in found), places])
    return named(c, [*found, places, c.add("Cast", [kept.count], to="int32")])
