"""TensorFlow operators that move elements or compute with shapes."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import channels_last as moves
from verax.frontends.common import shapes
from verax.frontends.common.channels_last import (
    constant_ints,
    longs,
    mirror_mode,
    pads,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import (
    MAX_COMPUTED,
    TABLE,
    NodeLayout,
    as_long,
    bounded,
    row,
    stated_integer,
)
from verax.ir.types import DType


@row("Reshape")
def reshape(c: Conversion) -> Result:
    return c.result("Reshape", [c.required(0), longs(c, 1)], allowzero=True)


row("Squeeze")(moves.squeeze)
row("ExpandDims")(moves.expand_dims)
row("Transpose")(moves.transpose)
row("Tile")(moves.tile)
row("BroadcastTo")(moves.broadcast_to)


@row("ConcatV2", "Concat")
def concat(c: Conversion) -> Result:
    """The axis is the last operand, in the old form the first."""
    new = c.node.op_type == "ConcatV2"
    (axis,) = constant_ints(c, len(c.inputs) - 1 if new else 0, "the axis")
    tensors = c.inputs[:-1] if new else c.inputs[1:]
    c.attributes.expect("N", len(tensors), reason="it counts the operands")
    return c.result("Concat", tensors, axis=axis)


@row("Pack")
def pack(c: Conversion) -> Result:
    c.attributes.expect("N", len(c.inputs), reason="it counts the operands")
    tensors = c.operands
    return shapes.stacked(c, tensors, c.integer("axis", 0))


@row("Unpack")
def unpack(c: Conversion) -> Result:
    axis, count = c.integer("axis", 0), stated_integer(c, "num")
    size = c.type(0).dims[axis]
    if isinstance(size, int) and size != count:
        raise ModelError(f"{size} elements are not {count}", place=c.node.place)
    names = [n or c.fresh(f"{c.node.name}.{i}") for i, n in enumerate(c.node.outputs)]
    op = c.operator("Gather", axis=axis)
    return tuple(
        c.builder.add(op, [c.required(0), c.constant(i, np.int64)], [name], c.node.name)
        for i, name in enumerate(names)
    )


@row("Pad", "PadV2")
def pad(c: Conversion) -> Result:
    return c.result("Pad", [c.required(0), pads(c), c.input(2)])


@row("MirrorPad")
def mirror_pad(c: Conversion) -> Result:
    if not c.attributes.has("mode"):
        raise ModelError("it does not say how it mirrors", place=c.node.place)
    return c.result("Pad", [c.required(0), pads(c)], mode=mirror_mode(c))


@row("Fill")
def fill(c: Conversion) -> Result:
    c.attributes.expect("index_type", str(c.type(0).dtype), reason="it repeats an operand's type")
    return moves.fill(c)


@row("GatherV2", "Gather")
def gather(c: Conversion) -> Result:
    """The first batch_dims axes of data and indices are walked together."""
    c.attributes.irrelevant("validate_indices", "indices out of range are errors either way")
    axis = constant_ints(c, 2, "the axis")[0] if c.node.op_type == "GatherV2" else 0
    axis, batch = axis % max(c.rank(0), 1), c.integer("batch_dims", 0)
    return shapes.gathered(c, c.required(0), c.required(1), axis, batch)


@row("GatherNd")
def gather_nd(c: Conversion) -> Result:
    c.attributes.expect("bad_indices_policy", "", "DEFAULT", "ERROR", reason="what is out of range")
    return c.result("GatherND", [c.required(0), as_long(c, 1)])


TABLE.formula(shapes.positions, "Where")


@row("ScatterNd", "TensorScatterUpdate", "TensorScatterAdd")
def scatter(c: Conversion) -> Result:
    """Operands of ScatterNd: indices, updates, shape; it adds to zeros. Of the others: data,
    indices, updates."""
    c.attributes.expect("bad_indices_policy", "", "DEFAULT", "ERROR", reason="what is out of range")
    if c.node.op_type != "ScatterNd":
        reduction = "add" if c.node.op_type.endswith("Add") else "none"
        operands = [c.required(0), as_long(c, 1), c.required(2)]
        return c.result("ScatterND", operands, reduction=reduction)
    return moves.scatter(c)


@row("Roll")
def roll(c: Conversion) -> Result:
    """Along each axis by a constant number of places, forward."""
    value = c.required(0)
    for shift, axis in zip(constant_ints(c, 1, "the shift"), constant_ints(c, 2, "the axis")):
        value = shapes.rolled(c, value, shift, axis)
    return c.apply("Identity", [value])


@row("ReverseSequence")
def reverse_sequence(c: Conversion) -> Result:
    a = c.attributes
    a.expect("Tlen", str(c.type(1).dtype), reason="it repeats an operand's type")
    time, batch = stated_integer(c, "seq_dim"), a.integer("batch_dim", 0)
    operands = [c.required(0), as_long(c, 1)]
    return c.result("ReverseSequence", operands, batch_axis=batch, time_axis=time)


@row("LinSpace")
def linear_space(c: Conversion) -> Result:
    """Operands, all constant: start, stop, count. Multiples of the step in the operands' type, the
    last one the stop itself, as TensorFlow computes them."""
    first, last = (c.constant_input(i, "a bound").reshape(()) for i in (0, 1))
    (count,) = constant_ints(c, 2, "the count")
    if bounded(c, count, MAX_COMPUTED) < 1:
        raise ModelError(f"{count} numbers", place=c.node.place)
    step = (last - first) / first.dtype.type(max(count - 1, 1))
    values = first + step * np.arange(count, dtype=first.dtype)
    values[count - 1 if count > 1 else 1 :] = last
    return c.named_constant(values.astype(first.dtype))


@row("BroadcastArgs")
def broadcast_shape(c: Conversion) -> Result:
    """Operands: two shapes, constant. The one that both are broadcast to."""
    shapes_ = [constant_ints(c, i, "a shape") for i in (0, 1)]
    common = np.broadcast_shapes(*shapes_)
    return c.named_constant(np.array(common, c.type(0).dtype.numpy))


@row("InvertPermutation")
def inverse(c: Conversion) -> Result:
    return c.named_constant(np.argsort(c.constant_input(0, "the permutation")).astype(
        c.type(0).dtype.numpy))  # fmt: skip


@row("OneHot")
def one_hot(c: Conversion) -> Result:
    """Operands: indices, depth, value at the index, value elsewhere."""
    axis = c.integer("axis", -1)
    scalars = [c.add("Unsqueeze", [c.required(i), c.ints([0])]) for i in (3, 2)]
    values = c.add("Concat", scalars, axis=0)
    depth = c.ints(constant_ints(c, 1, "the depth"))
    return c.result("OneHot", [as_long(c, 0), depth, values], axis=axis)


@row("Shape", "Size", "Rank")
def shape(c: Conversion) -> Result:
    target = DType(c.text("out_type", "int32"))
    if c.node.op_type == "Rank":
        return c.named_constant(np.array(c.rank(0), np.int32))
    return c.result("Cast", [c.add(c.node.op_type, [c.required(0)])], to=target)


TABLE.operator("Range")


@row("SpaceToDepth", "DepthToSpace")
def space_to_depth(c: Conversion) -> Result:
    layout = NodeLayout(c, "NHWC")
    size = stated_integer(c, "block_size")
    return layout.finish(c.node.op_type, [layout.first(c.required(0))], blocksize=size)


def _block(c: Conversion) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Size of the blocks, and the (begin, end) pads or crops, the last operand."""
    ends = constant_ints(c, len(c.inputs) - 1, "the paddings or crops")
    if c.node.op_type.endswith("ND"):
        return constant_ints(c, 1, "the block"), ends
    return (stated_integer(c, "block_size"),) * 2, ends


@row("SpaceToBatchND", "SpaceToBatch")
def space_to_batch(c: Conversion) -> Result:
    """Operands: data [n, *spatial, ...], block, (begin, end) pads; the old form has square blocks
    of two axes as an attribute."""
    return shapes.space_to_batch(c, c.required(0), *_block(c))


@row("BatchToSpaceND", "BatchToSpace")
def batch_to_space(c: Conversion) -> Result:
    """Operands: data [n * blocks, *spatial, ...], block, (begin, end) crops."""
    return shapes.batch_to_space(c, c.required(0), *_block(c))
