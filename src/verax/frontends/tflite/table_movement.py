"""TFLite operators that only move data. Quantised data moves alike (see `rows`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    longs,
    mirror_mode,
    pads,
    static_dims,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.rows import MAX_POSITIONS, activation, finish_activated, row

END = 2**31 - 1
"""Beyond the end of any axis."""


@row("RESHAPE", moves=True)
def reshape(c: Conversion) -> Result:
    """To operand 1, or to the option new_shape where that is missing."""
    if c.input(1) is not None:
        c.attributes.irrelevant("new_shape", "operand 1 gives the shape")
        shape = longs(c, 1)
    else:
        sizes = c.integers("new_shape", ())
        shape = c.ints(() if sizes == (0,) else sizes)  # old files write a scalar as [0]
    return c.result("Reshape", [c.required(0), shape], allowzero=True)


@row("SQUEEZE", moves=True)
def squeeze(c: Conversion) -> Result:
    axes = c.integers("squeeze_dims", ())
    return c.result("Squeeze", [c.required(0), c.ints(axes)] if axes else [c.required(0)])


@row("EXPAND_DIMS", moves=True)
def expand_dims(c: Conversion) -> Result:
    axes = constant_ints(c, 1, "the axis")
    return c.result("Unsqueeze", [c.required(0), c.ints(axes)])


@row("TRANSPOSE", moves=True)
def transpose(c: Conversion) -> Result:
    return c.result("Transpose", [c.required(0)], perm=constant_ints(c, 1, "the permutation"))


@row("CONCATENATION")
def concatenation(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    inputs: list[str | None] = [c.required(i) for i in range(len(c.inputs))]
    return finish_activated(c, activation(c), "Concat", inputs, axis=axis)


@row("PACK", moves=True)
def pack(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    c.attributes.expect("values_count", len(c.inputs), why="it counts the operands")
    at = c.ints((axis,))
    parts = [c.add("Unsqueeze", [c.required(i), at]) for i in range(len(c.inputs))]
    return c.result("Concat", parts, axis=axis)


@row("UNPACK", moves=True)
def unpack(c: Conversion) -> Result:
    axis, count = c.integer("axis", 0), c.integer("num", 0)
    parts = _split(c, [c.required(0)], [], num_outputs=count, axis=axis)
    at = c.ints((axis,))
    squeeze_ = c.operator("Squeeze")
    return tuple(
        c.builder.add(squeeze_, [part, at], [name])
        for part, name in zip(parts, c.node.outputs, strict=True)
    )


@row("SPLIT", moves=True)
def split(c: Conversion) -> Result:
    """Operands: axis, data."""
    (axis,) = constant_ints(c, 0, "the axis")
    count = c.integer("num_splits", 0)
    size = c.type(1).dims[axis]
    if isinstance(size, int) and count and size % count:
        raise ModelError(f"{size} elements cannot be split into {count}", place=c.node.place)
    return _split(c, [c.required(1)], c.node.outputs, num_outputs=count, axis=axis)


@row("SPLIT_V", moves=True)
def split_v(c: Conversion) -> Result:
    """Operands: data, sizes (-1: what is left), axis."""
    sizes, (axis,) = list(constant_ints(c, 1, "the sizes")), constant_ints(c, 2, "the axis")
    c.attributes.expect("num_splits", len(sizes), why="it counts the sizes")
    if -1 in sizes:
        whole = static_dims(c, 0, "the input")[axis]
        sizes[sizes.index(-1)] = whole - (sum(sizes) + 1)
    inputs = [c.required(0), c.ints(sizes)]
    return _split(c, inputs, c.node.outputs, num_outputs=len(sizes), axis=axis)


def _split(
    c: Conversion, inputs: Sequence[str], names: Sequence[str], num_outputs: int, axis: int
) -> tuple[str, ...]:
    if num_outputs != len(c.node.outputs):
        raise ModelError(
            f"{num_outputs} parts for {len(c.node.outputs)} outputs", place=c.node.place
        )
    op = c.operator("Split", num_outputs=num_outputs, axis=axis)
    names = names or [c.fresh(f"{name}/part") for name in c.node.outputs]
    return c.builder.add_all(op, inputs, names)


@row("GATHER", moves=True)
def gather(c: Conversion) -> Result:
    batch, axis = c.integer("batch_dims", 0), c.integer("axis", 0)
    if not batch:
        return c.operator("Gather", axis=axis)
    if axis % c.rank() != batch or batch < 0:
        c.attributes.refuse("batch_dims", f"together with axis {axis}")
    indices = c.add("Unsqueeze", [c.required(1), c.ints((-1,))])
    return c.result("GatherND", [c.required(0), indices], batch_dims=batch)


@row("GATHER_ND", moves=True)
def gather_nd(c: Conversion) -> Result:
    return c.operator("GatherND", batch_dims=0)


@row("TILE", moves=True)
def tile(c: Conversion) -> Result:
    return c.result("Tile", [c.required(0), longs(c, 1)])


@row("BROADCAST_TO", moves=True)
def broadcast_to(c: Conversion) -> Result:
    return c.result("Expand", [c.required(0), longs(c, 1)])


@row("FILL", moves=True)
def fill(c: Conversion) -> Result:
    """Operands: shape, value."""
    return c.result("Expand", [c.required(1), longs(c, 0)])


@row("PAD", "PADV2")
def pad(c: Conversion) -> Result:
    """Operand 1 holds (begin, end) per axis; operand 2 of PADV2 is the value."""
    return c.result("Pad", [c.required(0), pads(c), c.input(2)])


@row("MIRROR_PAD", moves=True)
def mirror_pad(c: Conversion) -> Result:
    """SYMMETRIC repeats the border element, REFLECT does not."""
    if c.text("mode", "REFLECT") != "SYMMETRIC":
        return c.result("Pad", [c.required(0), pads(c)], mode=mirror_mode(c))
    ends = constant_ints(c, 1, "the paddings")
    value = c.required(0)
    for axis, (begin, end) in enumerate(zip(ends[::2], ends[1::2], strict=True)):
        size = c.type(0).dims[axis]
        if not begin and not end:
            continue
        if not isinstance(size, int):
            c.refuse(f"the sizes of the input, {c.type(0)}, are not known: give shapes")
        if not (0 <= begin <= size <= MAX_POSITIONS and 0 <= end <= size):
            raise ModelError(f"{begin} and {end} around {size} elements", place=c.node.place)
        rest = range(size - 1, size - 1 - end, -1)
        index = c.ints((*range(begin - 1, -1, -1), *range(size), *rest))
        value = c.add("Gather", [value, index], axis=axis)
    return c.result("Identity", [value])


@row("SLICE", moves=True)
def slice_(c: Conversion) -> Result:
    """Operands: data, begins, sizes (-1: to the end)."""
    begins, sizes = constant_ints(c, 1, "the begins"), constant_ints(c, 2, "the sizes")
    ends = [END if n == -1 else b + n for b, n in zip(begins, sizes)]
    if min(begins, default=0) < 0 or len(begins) != c.rank() or len(sizes) != c.rank():
        raise ModelError(f"it begins at {begins}, sizes {sizes}", place=c.node.place)
    return c.result("Slice", [c.required(0), c.ints(begins), c.ints(ends)])


@row("STRIDED_SLICE", moves=True)
def strided_slice(c: Conversion) -> Result:
    """Masks: bit i of begin_mask / end_mask leaves that bound out, of shrink_axis_mask takes one
    element and drops the axis."""
    a = c.attributes
    for name in ("ellipsis_mask", "new_axis_mask", "offset"):
        a.expect(name, 0, why="it changes which axes the bounds mean")
    begin_mask, end_mask = a.integer("begin_mask", 0), a.integer("end_mask", 0)
    shrink = a.integer("shrink_axis_mask", 0)
    bounds = [constant_ints(c, i, what) for i, what in ((1, "begins"), (2, "ends"), (3, "strides"))]
    if len({len(b) for b in bounds}) != 1 or 0 in bounds[2]:
        raise ModelError(f"begins, ends and strides are {bounds}", place=c.node.place)
    if min(begin_mask, end_mask, shrink) < 0 or max(begin_mask, end_mask, shrink) >> len(bounds[0]):
        raise ModelError("a mask names an axis that has no bounds", place=c.node.place)
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    for i, (begin, end, step) in enumerate(zip(*bounds)):
        if shrink >> i & 1:
            starts, ends, steps = [*starts, begin], [*ends, begin + 1 or END], [*steps, 1]
            continue
        first, last = (0, END) if step > 0 else (END, -END)
        starts.append(first if begin_mask >> i & 1 else begin)
        ends.append(last if end_mask >> i & 1 else end)
        steps.append(step)
    operands = [*(c.ints(v) for v in (starts, ends, range(len(starts)), steps))]
    dropped = [i for i in range(len(starts)) if shrink >> i & 1]
    if not dropped:
        return c.result("Slice", [c.required(0), *operands])
    return c.result("Squeeze", [c.add("Slice", [c.required(0), *operands]), c.ints(dropped)])


@row("RESIZE_BILINEAR")
def resize_bilinear(c: Conversion) -> Result:
    return resize(c, "linear")


@row("RESIZE_NEAREST_NEIGHBOR", moves=True)
def resize_nearest(c: Conversion) -> Result:
    return resize(c, "nearest")


def resize(c: Conversion, mode: str) -> Result:
    """Operands: data, (height, width).

    Nearest: floor of the scaled position; with half-pixel centres floor((i + 1/2) scale), with
    aligned corners the position rounded, halves up.
    """
    aligned, half = c.flag("align_corners"), c.flag("half_pixel_centers")
    if aligned and half:
        c.attributes.refuse("half_pixel_centers", "together with align_corners")
    rounded = "round_prefer_ceil" if aligned or half else "floor"
    x = channels_first(c, c.required(0))
    sizes = c.ints(constant_ints(c, 1, "the size"))
    y = c.add(
        "Resize",
        [x, None, None, sizes],
        mode=mode,
        coordinate_transformation_mode=(
            "align_corners" if aligned else "half_pixel" if half else "asymmetric"
        ),
        axes=(2, 3),
        **({"nearest_mode": rounded} if mode == "nearest" else {}),
    )
    return finish_channels_last(c, y)


@row("SPACE_TO_BATCH_ND", moves=True)
def space_to_batch(c: Conversion) -> Result:
    """Operands: data [n, *spatial, c], block, (begin, end) pads. Blocks become batches, the
    position in the block being the outer index. Quantised data is padded by its zero point."""
    block, ends = constant_ints(c, 1, "the block"), constant_ints(c, 2, "the paddings")
    *spatial, depth = _images(c, block, ends)
    m = len(block)
    spatial = [n + a + b for n, a, b in zip(spatial, ends[::2], ends[1::2])]
    if any(n % b for n, b in zip(spatial, block)):
        raise ModelError(f"{spatial} is not a multiple of {block}", place=c.node.place)
    x = c.required(0)
    if any(ends):
        begin_end = (0, *ends[::2], 0, 0, *ends[1::2], 0)
        zero = c.attributes.tensor("input0.zero_point")
        value = None if zero is None else c.like(zero[0])
        x = c.add("Pad", [x, c.ints(begin_end), value])
    inner = [n // b for n, b in zip(spatial, block)]
    pairs = [k for pair in zip(inner, block) for k in pair]
    x = c.add("Reshape", [x, c.ints((-1, *pairs, depth))])
    positions, places = range(2, 2 * m + 1, 2), range(1, 2 * m, 2)
    x = c.add("Transpose", [x], perm=(*positions, 0, *places, 2 * m + 1))
    return c.result("Reshape", [x, c.ints((-1, *inner, depth))])


@row("BATCH_TO_SPACE_ND", moves=True)
def batch_to_space(c: Conversion) -> Result:
    """Operands: data [n blocks, *spatial, c], block, (begin, end) crops."""
    block, crops = constant_ints(c, 1, "the block"), constant_ints(c, 2, "the crops")
    *spatial, depth = _images(c, block, crops)
    m, n = len(block), c.type(0).dims[0]
    if isinstance(n, int) and n % math.prod(block):
        raise ModelError(f"{n} batches in blocks of {block}", place=c.node.place)
    x = c.add("Reshape", [c.required(0), c.ints((*block, -1, *spatial, depth))])
    pairs = [k for i in range(m) for k in (m + 1 + i, i)]
    x = c.add("Transpose", [x], perm=(m, *pairs, 2 * m + 1))
    whole = [n * b for n, b in zip(spatial, block)]
    shape = c.ints((-1, *whole, depth))
    if not any(crops):
        return c.result("Reshape", [x, shape])
    ends = [n - crop for n, crop in zip(whole, crops[1::2])]
    x = c.add("Reshape", [x, shape])
    return c.result("Slice", [x, *(c.ints(b) for b in (crops[::2], ends, range(1, m + 1)))])


def _images(c: Conversion, block: tuple[int, ...], ends: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes of the data but for its batch; refuses what is no stack of images or rows."""
    m = len(block)
    if c.rank() != m + 2 or m not in (1, 2) or len(ends) != 2 * m or min((*block, *ends, 1)) < 0:
        c.refuse(f"blocks of {block} on {c.type(0)} are not supported")
    if 0 in block:
        raise ModelError(f"the block is {block}", place=c.node.place)
    sizes = c.type(0).dims[1:]
    if not all(isinstance(n, int) for n in sizes):
        c.refuse(f"the sizes of the input, {c.type(0)}, are not known: give shapes")
    return tuple(n for n in sizes if isinstance(n, int))
