"""TFLite operators that only move data. Quantized data moves alike (see `rows`)."""

from __future__ import annotations

from collections.abc import Sequence

from verax.base.errors import ModelError
from verax.frontends.common import channels_last as moves
from verax.frontends.common import shapes
from verax.frontends.common.channels_last import (
    constant_ints,
    longs,
    mirror_mode,
    pads,
    resized,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.rows import MAX_POSITIONS, activation, finish_activated, row


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


row("SQUEEZE", moves=True)(moves.squeeze)
row("EXPAND_DIMS", moves=True)(moves.expand_dims)
row("TRANSPOSE", moves=True)(moves.transpose)
row("TILE", moves=True)(moves.tile)
row("BROADCAST_TO", moves=True)(moves.broadcast_to)
row("FILL", moves=True)(moves.fill)
row("REVERSE_V2", moves=True)(moves.reverse)
row("SCATTER_ND")(moves.scatter)
row("CUMSUM")(moves.running_sum)


@row("CONCATENATION")
def concatenation(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    inputs = c.operands
    return finish_activated(c, activation(c), "Concat", inputs, axis=axis)


@row("PACK", moves=True)
def pack(c: Conversion) -> Result:
    c.attributes.expect("values_count", len(c.inputs), reason="it counts the operands")
    tensors = c.operands
    return shapes.stacked(c, tensors, c.integer("axis", 0))


@row("UNPACK", moves=True)
def unpack(c: Conversion) -> Result:
    axis, count = c.integer("axis", 0), c.integer("num", 0)
    slices = _split(c, [c.required(0)], [], num_outputs=count, axis=axis)
    at = c.ints((axis,))
    squeeze_ = c.operator("Squeeze")
    return tuple(
        c.builder.add(squeeze_, [slice_, at], [name])
        for slice_, name in zip(slices, c.node.outputs, strict=True)
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
    c.attributes.expect("num_splits", len(sizes), reason="it counts the sizes")
    sizes = shapes.split_sizes(c, c.required(0), axis, sizes)
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
    axis, batch = c.integer("axis", 0), c.integer("batch_dims", 0)
    return shapes.gathered(c, c.required(0), c.required(1), axis, batch)


@row("GATHER_ND", moves=True)
def gather_nd(c: Conversion) -> Result:
    return c.operator("GatherND", batch_dims=0)


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
        if not begin and not end:
            continue
        size = c.known_size(0, axis, "what is mirrored")
        if not (0 <= begin <= size <= MAX_POSITIONS and 0 <= end <= size):
            raise ModelError(f"{begin} and {end} around {size} elements", place=c.node.place)
        end_indices = range(size - 1, size - 1 - end, -1)
        index = c.ints((*range(begin - 1, -1, -1), *range(size), *end_indices))
        value = c.add("Gather", [value, index], axis=axis)
    return c.result("Identity", [value])


@row("SLICE", moves=True)
def slice_(c: Conversion) -> Result:
    """Operands: data, begins, sizes (-1: to the end)."""
    begins, sizes = constant_ints(c, 1, "the begins"), constant_ints(c, 2, "the sizes")
    return shapes.slice_of_sizes(c, c.required(0), begins, sizes)


@row("STRIDED_SLICE", moves=True)
def strided_slice(c: Conversion) -> Result:
    """Masks: bit i of begin_mask / end_mask leaves that bound out, of shrink_axis_mask takes one
    element and drops the axis."""
    a = c.attributes
    for name in ("ellipsis_mask", "new_axis_mask", "offset"):
        a.expect(name, 0, reason="it changes which axes the bounds mean")
    begin_mask, end_mask = a.integer("begin_mask", 0), a.integer("end_mask", 0)
    shrink = a.integer("shrink_axis_mask", 0)
    bounds = [
        constant_ints(c, i, description)
        for i, description in ((1, "begins"), (2, "ends"), (3, "strides"))
    ]
    bits = (begin_mask, end_mask, shrink)
    if min(bits) < 0 or max(bits) >> len(bounds[0]):
        raise ModelError("a mask names an axis that has no bounds", place=c.node.place)
    masks = [[bit >> i & 1 for i in range(len(bounds[0]))] for bit in bits]
    return shapes.strided(c, c.required(0), *bounds, *masks)


@row("RESIZE_BILINEAR")
def resize_bilinear(c: Conversion) -> Result:
    return resized(c, c.required(0), "linear")


@row("RESIZE_NEAREST_NEIGHBOR", moves=True)
def resize_nearest(c: Conversion) -> Result:
    return resized(c, c.required(0), "nearest")


@row("SPACE_TO_BATCH_ND", moves=True)
def space_to_batch(c: Conversion) -> Result:
    """Operands: data, block, (begin, end) pads. Quantized data is padded by its zero point."""
    zero = c.attributes.tensor("input0.zero_point")
    value = None if zero is None else c.like(zero[0])
    return shapes.space_to_batch(c, c.required(0), *_block(c), value)


def _block(c: Conversion) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes of the blocks, and the pads or crops; LiteRT has one or two axes of them."""
    block, ends = constant_ints(c, 1, "the block"), constant_ints(c, 2, "the paddings or crops")
    if len(block) not in (1, 2) or c.rank() != len(block) + 2:
        c.refuse(f"blocks of {block} on {c.type(0)} are not supported")
    return block, ends


@row("BATCH_TO_SPACE_ND", moves=True)
def batch_to_space(c: Conversion) -> Result:
    """Operands: data, block, (begin, end) crops."""
    return shapes.batch_to_space(c, c.required(0), *_block(c))
