"""TensorFlow operators that cut: slices, strided ones with their masks, splits, reversals.

Bounds are mostly constants; what is computed, from a shape or by the network, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import shapes
from verax.frontends.common.channels_last import constant_ints, reverse, static_dims
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.shapes import END
from verax.frontends.tensorflow.rows import as_long, bounded, row, stated_integer

Bound = int | str
"""A number, or the name of a value that holds it, int64 [1]."""


@row("Slice")
def slice_(c: Conversion) -> Result:
    """Operands: data, begins, sizes (-1: to the end)."""
    begins, sizes = _entries(c, 1, "begins"), _entries(c, 2, "sizes")
    numbers = [b for b in begins if isinstance(b, int)]
    if min(numbers, default=0) < 0 or not len(begins) == len(sizes) == c.rank(0):
        raise ModelError(f"it begins at {begins}, sizes {sizes}", place=c.node.place)
    ends = [_end(c, b, n) for b, n in zip(begins, sizes)]
    return c.result("Slice", [c.required(0), _vector(c, begins), _vector(c, ends)])


def _end(c: Conversion, begin: Bound, size: Bound) -> Bound:
    """Where a slice ends; a size of -1 goes to the end."""
    if size == -1:
        return END
    if isinstance(begin, int) and isinstance(size, int):
        return begin + size
    values = [c.ints((v,)) if isinstance(v, int) else v for v in (begin, size)]
    end = c.add("Add", values)
    if isinstance(size, int) or c.builder.known.get(size) is not None:
        return end
    return c.add("Where", [c.add("Equal", [size, c.ints((-1,))]), c.ints((END,)), end])


@row("StridedSlice")
def strided_slice(c: Conversion) -> Result:
    """Bit i of a mask speaks of entry i of the bounds: begin_mask and end_mask leave a bound out,
    shrink_axis_mask takes one element and drops the axis, new_axis_mask inserts an axis, and one
    entry in ellipsis_mask stands for all axes that the others leave."""
    a = c.attributes
    masks = {n: a.integer(n, 0) for n in ("begin_mask", "end_mask", "shrink_axis_mask")}
    new, ellipsis = a.integer("new_axis_mask", 0), a.integer("ellipsis_mask", 0)
    begins, stops = _entries(c, 1, "begins"), _entries(c, 2, "ends")
    strides = constant_ints(c, 3, "the strides")
    count = len(begins)
    if not count == len(stops) == len(strides) or 0 in strides:
        raise ModelError(
            f"begins, ends and strides are {begins}, {stops}, {strides}", place=c.node.place
        )
    if (
        ellipsis & (ellipsis - 1)
        or max(*masks.values(), new, ellipsis) >> count
        or min(*masks.values(), new, ellipsis) < 0
    ):
        raise ModelError("a mask names an entry that there is not", place=c.node.place)
    named = sum(not (new | ellipsis) >> i & 1 for i in range(count))
    axis = output_axis = 0
    starts: list[Bound] = []
    ends: list[Bound] = []
    steps: list[int] = []
    axes: list[int] = []
    dropped: list[int] = []
    inserted: list[int] = []
    gathers: list[tuple[int, str]] = []
    for i, (begin, end, step) in enumerate(zip(begins, stops, strides)):
        if ellipsis >> i & 1:
            axis, output_axis = axis + c.rank(0) - named, output_axis + c.rank(0) - named
            continue
        if new >> i & 1:
            inserted.append(output_axis)
            output_axis += 1
            continue
        if masks["shrink_axis_mask"] >> i & 1:
            dropped.append(axis)
            if isinstance(begin, str):
                gathers.append((axis, begin))
                begin, end = 0, END
            else:
                end = begin + 1 or END
            step = 1
        else:
            first, last = (0, END) if step > 0 else (END, -END)
            begin = first if masks["begin_mask"] >> i & 1 else begin
            end = last if masks["end_mask"] >> i & 1 else end
            output_axis += 1
        starts, ends, steps = [*starts, begin], [*ends, end], [*steps, step]
        axes.append(axis)
        axis += 1
    if axis > c.rank(0):
        raise ModelError(f"{axis} bounds for {c.type(0)}", place=c.node.place)
    bounds = (_vector(c, starts), _vector(c, ends), c.ints(axes), c.ints(steps))
    value = c.add("Slice", [c.required(0), *bounds])
    for at, index in gathers:
        value = c.add("Gather", [value, index], axis=at)
    if dropped:
        value = c.add("Squeeze", [value, c.ints(dropped)])
    if inserted:
        value = c.add("Unsqueeze", [value, c.ints(inserted)])
    return c.result("Identity", [value])


def _entries(c: Conversion, index: int, description: str) -> list[Bound]:
    """The entries of an operand that holds bounds."""
    content = c.known_value(index)
    if content is None:
        (count,) = static_dims(c, index, description)
        flat: Sequence[object] = [None] * count
    else:
        flat = list(content.reshape(-1))
    if all(isinstance(v, int | np.integer) for v in flat):
        return [int(v) for v in flat]  # type: ignore[call-overload]
    value = as_long(c, index)
    return [
        int(v)
        if isinstance(v, int | np.integer)
        else c.add("Slice", [value, c.ints((i,)), c.ints((i + 1,))])
        for i, v in enumerate(flat)
    ]


def _vector(c: Conversion, entries: Sequence[Bound]) -> str:
    """The entries as one value, int64 [count]."""
    numbers = [v for v in entries if isinstance(v, int)]
    if len(numbers) == len(entries):
        return c.ints(numbers)
    return c.add("Concat", [c.ints((v,)) if isinstance(v, int) else v for v in entries], axis=0)


@row("Split", "SplitV")
def split(c: Conversion) -> Result:
    """Operands of Split: axis, data; of SplitV: data, sizes (-1: what is left), axis."""
    if c.node.op_type == "Split":
        (axis,), data = constant_ints(c, 0, "the axis"), c.required(1)
        size, count = c.type(1).dims[axis], stated_integer(c, "num_split")
        if not isinstance(size, int) or bounded(c, count) < 1 or size % count:
            c.refuse(f"an axis of size {size} in {count} parts")
        sizes = [int(size) // count] * count
    else:
        (axis,), data = constant_ints(c, 2, "the axis"), c.required(0)
        sizes = list(constant_ints(c, 1, "the sizes"))
        if stated_integer(c, "num_split") != len(sizes):
            c.attributes.refuse("num_split", f"there are {len(sizes)} sizes")
        sizes = shapes.split_sizes(c, data, axis, sizes)
    names = [n or c.fresh(f"{c.node.name}.{i}") for i, n in enumerate(c.node.outputs)]
    names += [c.fresh(f"{c.node.name}.{i}") for i in range(len(names), len(sizes))]
    op = c.operator("Split", num_outputs=len(sizes), axis=axis)
    return c.builder.add_all(op, [data, c.ints(sizes)], names, c.node.name)


row("ReverseV2")(reverse)
