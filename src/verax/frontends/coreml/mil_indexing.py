"""ML program operations that pick, place and rank elements by position.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.context import MAX_MADE, Result
from verax.frontends.coreml.mil_rows import Mil, mil
from verax.frontends.coreml.suppression import suppressed, threshold_above
from verax.ir.types import DType


def _unchecked(c: Mil) -> None:
    c.attributes.irrelevant("validate_indices", "indices outside of the input are an error here")


@mil("gather")
def gather(c: Mil) -> Result:
    """With batch_dims, the first axes of x and of the indices run together."""
    _unchecked(c)
    axis, batch = c.integer("axis", 0), c.integer("batch_dims", 0)
    return shapes.gathered(c, c.tensor("x"), c.positions("indices"), axis, batch)


@mil("gather_along_axis")
def gather_along_axis(c: Mil) -> Result:
    _unchecked(c)
    inputs = [c.tensor("x"), c.tensor("indices")]
    return c.result("GatherElements", inputs, axis=c.integer("axis", 0))


@mil("gather_nd")
def gather_nd(c: Mil) -> Result:
    _unchecked(c)
    batch = c.integer("batch_dims", 0)
    return c.result("GatherND", [c.tensor("x"), c.positions("indices")], batch_dims=batch)


MODES = {"update": "none", "add": "add", "sub": "add", "mul": "mul", "max": "max", "min": "min"}


def _updates(c: Mil) -> tuple[str, str]:
    """What is placed, and how it joins what is there."""
    mode = c.choice("mode", MODES, "")
    updates = c.tensor("updates")
    _unchecked(c)
    return c.add("Neg", [updates]) if mode == "sub" else updates, MODES[mode]


@mil("scatter_nd")
def scatter_nd(c: Mil) -> Result:
    updates, mode = _updates(c)
    return c.result("ScatterND", [c.tensor("data"), c.positions("indices"), updates],
                    reduction=mode)  # fmt: skip


@mil("scatter_along_axis")
def scatter_along_axis(c: Mil) -> Result:
    updates, mode = _updates(c)
    inputs = [c.tensor("data"), c.positions("indices"), updates]
    return c.result("ScatterElements", inputs, axis=c.integer("axis", 0), reduction=mode)


@mil("scatter")
def scatter(c: Mil) -> Result:
    """Slices of the data across `axis`, at indices of any shape."""
    updates, mode = _updates(c)
    data, indices = c.tensor("data"), c.positions("indices")
    return shapes.scattered_slices(c, data, indices, updates, c.integer("axis", 0), mode)


@mil("topk")
def topk(c: Mil) -> Result:
    """Values and, unless return_indices is false, their positions."""
    k, axis, largest = c.integer("k", 1), c.integer("axis", -1), not c.flag("ascending")
    c.attributes.irrelevant("sort", "ordered elements are as good as others")
    output_count = 2 if c.flag("return_indices", True) else 1
    kind = c.text("output_indices_dtype", "int32")
    if len(c.node.outputs) > output_count:
        raise ModelError("there are outputs for no indices", place=c.node.place)
    values, indices = c.add_all("TopK", [c.tensor("x"), c.ints((k,))], axis=axis, largest=largest)
    return c.named([values, c.add("Cast", [indices], to=kind)])


@mil("argsort")
def argsort(c: Mil) -> Result:
    x, axis = c.tensor("x"), c.integer("axis", -1)
    size, largest = c.known_size(x, axis, "the number of positions"), not c.flag("ascending")
    _, indices = c.add_all("TopK", [x, c.ints((size,))], axis=axis, largest=largest)
    return c.apply("Cast", [indices], to="int32")


@mil("one_hot")
def one_hot(c: Mil) -> Result:
    """on_value where the position is the index; an index outside is nowhere."""
    indices, size = c.positions("indices"), c.integer("one_hot_vector_size")
    rank, stated_axis = c.rank(indices), c.integer("axis", -1)
    axis = stated_axis if stated_axis >= 0 else stated_axis + rank + 1
    if not 0 <= axis <= rank or not 0 < size <= MAX_MADE:
        raise ModelError(f"vectors of {size} along axis {stated_axis}", place=c.node.place)
    along = [1] * (rank + 1)
    along[axis] = size
    classes = c.constant(np.arange(size).reshape(along), np.int64)
    hot = c.add("Equal", [c.add("Unsqueeze", [indices, c.ints((axis,))]), classes])
    values = [c.fixed(n) for n in ("on_value", "off_value")]
    kind = next((np.asarray(v).dtype for v in values if v is not None), np.dtype(np.int32))
    on, off = (d if v is None else v for v, d in zip(values, (1, 0)))
    if kind.kind == "b":
        on_values = c.add("And", [hot, c.constant(bool(on))])
        off_values = c.add("And", [c.add("Not", [hot]), c.constant(bool(off))])
        return c.result("Or", [on_values, off_values])
    return c.result("Where", [hot, c.constant(on, kind), c.constant(off, kind)])


@mil("non_zero")
def non_zero(c: Mil) -> Result:
    return c.apply("Cast", [c.append(shapes.positions(c, c.tensor("x")))], to="int32")


@mil("reverse_sequence")
def reverse_sequence(c: Mil) -> Result:
    x, lengths = c.tensor("x"), c.positions("lengths")
    batch, time = (c.integer(f"{n}_axis", 0) % c.rank(x) for n in ("batch", "seq"))
    if batch == time:
        raise ModelError("the batch and the sequence are one axis", place=c.node.place)
    return c.result("ReverseSequence", [x, lengths], batch_axis=batch, time_axis=time)


@mil("sliding_windows")
def sliding_windows(c: Mil) -> Result:
    """Axis -> two axes, [windows, size]."""
    width, step = c.integer("size"), c.integer("stride", 1)
    return shapes.windows_along(c, c.tensor("x"), c.integer("axis"), width, step)


@mil("non_maximum_suppression")
def non_maximum_suppression(c: Mil) -> Result:
    """Boxes, scores, their positions and, up to iOS 16, how many they are.

    From iOS 17 on the boxes are the last axis, and there is no threshold of the score.
    """
    boxes, scores, rows = c.tensor("boxes"), c.tensor("scores"), c.integer("max_boxes")
    is_new = c.version >= 7
    if {c.type(scores).dtype, c.type(boxes).dtype} != {DType.float32}:
        c.refuse("boxes that are not float32")
    if not 0 < rows <= MAX_MADE:
        raise ModelError(f"{rows} boxes", place=c.node.place)
    overlap = c.like(c.scalar("iou_threshold"), scores)
    lowest = float(np.finfo(np.float32).min)
    min_score = lowest if is_new else c.scalar("score_threshold")
    if is_new:
        boxes, scores = (c.add("Transpose", [v], perm=(0, 2, 1)) for v in (boxes, scores))
    boxes, scores, indices, count = suppressed(
        c, boxes, scores, overlap, c.constant(threshold_above(min_score)),
        per_class=c.flag("per_class_suppression"), rows=rows,
    )  # fmt: skip
    indices = c.add("Cast", [indices], to="int32")
    if is_new:
        transposed = [c.add("Transpose", [v], perm=(0, 2, 1)) for v in (boxes, scores)]
        return c.named([*transposed, indices])
    return c.named([boxes, scores, indices, c.add("Cast", [count], to="int32")])
