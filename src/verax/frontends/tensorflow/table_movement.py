"""TensorFlow operators that move elements or compute with shapes."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    longs,
    mirror_mode,
    pads,
    static_dims,
)
from verax.frontends.conversion import Conversion
from verax.frontends.tensorflow.rows import Layout, Result, row
from verax.ir.types import DType

END = 2**31 - 1
"""Beyond the end of any axis."""


@row("Reshape")
def reshape(c: Conversion) -> Result:
    return c.result("Reshape", [c.required(0), longs(c, 1)], allowzero=True)


@row("Squeeze")
def squeeze(c: Conversion) -> Result:
    axes = c.attributes.integers("squeeze_dims", ())
    return c.result("Squeeze", [c.required(0), c.ints(axes)] if axes else [c.required(0)])


@row("ExpandDims")
def expand_dims(c: Conversion) -> Result:
    return c.result("Unsqueeze", [c.required(0), c.ints(constant_ints(c, 1, "the axis"))])


@row("Transpose")
def transpose(c: Conversion) -> Result:
    perm = constant_ints(c, 1, "the permutation")
    return c.result("Transpose", [c.required(0)], perm=perm)


@row("ConcatV2", "Concat")
def concat(c: Conversion) -> Result:
    """The axis is the last operand, in the old form the first."""
    new = c.node.op_type == "ConcatV2"
    (axis,) = constant_ints(c, len(c.inputs) - 1 if new else 0, "the axis")
    parts = c.inputs[:-1] if new else c.inputs[1:]
    c.attributes.expect("N", len(parts), why="it counts the operands")
    return c.result("Concat", parts, axis=axis)


@row("Pack")
def pack(c: Conversion) -> Result:
    axis = c.attributes.integer("axis", 0)
    c.attributes.expect("N", len(c.inputs), why="it counts the operands")
    at = c.ints((axis,))
    parts = [c.add("Unsqueeze", [c.required(i), at]) for i in range(len(c.inputs))]
    return c.result("Concat", parts, axis=axis)


@row("Unpack")
def unpack(c: Conversion) -> Result:
    axis, count = c.attributes.integer("axis", 0), c.attributes.integer("num", 0)
    size = c.type(0).dims[axis]
    if isinstance(size, int) and size != count:
        raise ModelError(f"{size} elements are not {count}", place=c.node.place)
    names = [n or c.fresh(f"{c.node.name}.{i}") for i, n in enumerate(c.node.outputs)]
    op = c.operator("Gather", axis=axis)
    return tuple(
        c.builder.add(op, [c.required(0), c.constant(i, np.int64)], [name], c.node.name)
        for i, name in enumerate(names)
    )


@row("Split", "SplitV")
def split(c: Conversion) -> Result:
    """Operands of Split: axis, data; of SplitV: data, sizes (-1: what is left), axis."""
    if c.node.op_type == "Split":
        (axis,), data = constant_ints(c, 0, "the axis"), c.required(1)
        size, count = c.type(1).dims[axis], c.attributes.integer("num_split", 1)
        if not isinstance(size, int) or size % count:
            c.refuse(f"an axis of size {size} in {count} parts")
        sizes = [int(size) // count] * count
    else:
        (axis,), data = constant_ints(c, 2, "the axis"), c.required(0)
        sizes = list(constant_ints(c, 1, "the sizes"))
        c.attributes.expect("num_split", len(sizes), why="it counts the sizes")
        if -1 in sizes:
            whole = static_dims(c, 0, "the input")[axis]
            sizes[sizes.index(-1)] = whole - (sum(sizes) + 1)
    names = [n or c.fresh(f"{c.node.name}.{i}") for i, n in enumerate(c.node.outputs)]
    names += [c.fresh(f"{c.node.name}.{i}") for i in range(len(names), len(sizes))]
    op = c.operator("Split", num_outputs=len(sizes), axis=axis)
    return c.builder.add_all(op, [data, c.ints(sizes)], names, c.node.name)


@row("Slice")
def slice_(c: Conversion) -> Result:
    """Operands: data, begins, sizes (-1: to the end)."""
    begins, sizes = constant_ints(c, 1, "the begins"), constant_ints(c, 2, "the sizes")
    if min(begins, default=0) < 0 or not len(begins) == len(sizes) == c.rank(0):
        raise ModelError(f"it begins at {begins}, sizes {sizes}", place=c.node.place)
    ends = [END if n == -1 else b + n for b, n in zip(begins, sizes)]
    return c.result("Slice", [c.required(0), c.ints(begins), c.ints(ends)])


@row("StridedSlice")
def strided_slice(c: Conversion) -> Result:
    """Bit i of a mask speaks of entry i of the bounds: begin_mask and end_mask leave a bound out,
    shrink_axis_mask takes one element and drops the axis, new_axis_mask inserts an axis, and one
    entry in ellipsis_mask stands for all axes that the others leave."""
    a = c.attributes
    masks = {n: a.integer(n, 0) for n in ("begin_mask", "end_mask", "shrink_axis_mask")}
    new, dots = a.integer("new_axis_mask", 0), a.integer("ellipsis_mask", 0)
    bounds = [constant_ints(c, i, what) for i, what in ((1, "begins"), (2, "ends"), (3, "strides"))]
    count = len(bounds[0])
    if len({len(b) for b in bounds}) != 1 or 0 in bounds[2]:
        raise ModelError(f"begins, ends and strides are {bounds}", place=c.node.place)
    if (
        dots & (dots - 1)
        or max(*masks.values(), new, dots) >> count
        or min(*masks.values(), new) < 0
    ):
        raise ModelError("a mask names an entry that there is not", place=c.node.place)
    named = sum(not (new | dots) >> i & 1 for i in range(count))
    axis = 0
    starts: list[int] = []
    ends: list[int] = []
    steps: list[int] = []
    axes: list[int] = []
    dropped: list[int] = []
    inserted: list[int] = []
    made = 0
    for i, (begin, end, step) in enumerate(zip(*bounds)):
        if dots >> i & 1:
            axis, made = axis + c.rank(0) - named, made + c.rank(0) - named
            continue
        if new >> i & 1:
            inserted.append(made)
            made += 1
            continue
        if masks["shrink_axis_mask"] >> i & 1:
            starts, ends, steps = [*starts, begin], [*ends, begin + 1 or END], [*steps, 1]
            dropped.append(axis)
        else:
            first, last = (0, END) if step > 0 else (END, -END)
            starts.append(first if masks["begin_mask"] >> i & 1 else begin)
            ends.append(last if masks["end_mask"] >> i & 1 else end)
            steps.append(step)
            made += 1
        axes.append(axis)
        axis += 1
    if axis > c.rank(0):
        raise ModelError(f"{axis} bounds for {c.type(0)}", place=c.node.place)
    value = c.add("Slice", [c.required(0), *(c.ints(v) for v in (starts, ends, axes, steps))])
    if dropped:
        value = c.add("Squeeze", [value, c.ints(dropped)])
    if inserted:
        value = c.add("Unsqueeze", [value, c.ints(inserted)])
    return c.result("Identity", [value])


@row("Pad", "PadV2")
def pad(c: Conversion) -> Result:
    return c.result("Pad", [c.required(0), pads(c), c.input(2)])


@row("MirrorPad")
def mirror_pad(c: Conversion) -> Result:
    return c.result("Pad", [c.required(0), pads(c)], mode=mirror_mode(c))


@row("Tile")
def tile(c: Conversion) -> Result:
    return c.result("Tile", [c.required(0), longs(c, 1)])


@row("BroadcastTo")
def broadcast_to(c: Conversion) -> Result:
    return c.result("Expand", [c.required(0), longs(c, 1)])


@row("Fill")
def fill(c: Conversion) -> Result:
    c.attributes.expect("index_type", str(c.type(0).dtype), why="it repeats an operand's type")
    return c.result("Expand", [c.required(1), longs(c, 0)])


@row("GatherV2", "Gather")
def gather(c: Conversion) -> Result:
    c.attributes.irrelevant("validate_indices", "indices out of range are errors either way")
    c.attributes.expect("batch_dims", 0, why="batched gathering")
    axis = constant_ints(c, 2, "the axis")[0] if c.node.op_type == "GatherV2" else 0
    return c.result("Gather", [c.required(0), c.required(1)], axis=axis)


@row("GatherNd")
def gather_nd(c: Conversion) -> Result:
    c.attributes.irrelevant("bad_indices_policy", "indices out of range are errors")
    places = c.required(1)
    if c.type(1).dtype is not DType.int64:
        places = c.add("Cast", [places], to=DType.int64)
    return c.result("GatherND", [c.required(0), places])


@row("ReverseV2")
def reverse(c: Conversion) -> Result:
    axes = constant_ints(c, 1, "the axes")
    bounds = [c.ints([v] * len(axes)) for v in (-1, -END)]
    return c.result("Slice", [c.required(0), *bounds, c.ints(axes), c.ints([-1] * len(axes))])


@row("OneHot")
def one_hot(c: Conversion) -> Result:
    """Operands: indices, depth, value at the index, value elsewhere."""
    axis = c.attributes.integer("axis", -1)
    scalars = [c.add("Unsqueeze", [c.required(i), c.ints([0])]) for i in (3, 2)]
    values = c.add("Concat", scalars, axis=0)
    depth = c.ints(constant_ints(c, 1, "the depth"))
    return c.result("OneHot", [longs(c, 0), depth, values], axis=axis)


@row("Shape", "Size", "Rank")
def shape(c: Conversion) -> Result:
    target = DType(c.attributes.text("out_type", "int32"))
    if c.node.op_type == "Rank":
        return c.named_constant(np.array(c.rank(0), np.int32))
    return c.result("Cast", [c.add(c.node.op_type, [c.required(0)])], to=target)


@row("Range")
def range_(c: Conversion) -> Result:
    return c.operator("Range")


@row("ResizeBicubic")
def resize_bicubic(c: Conversion) -> Result:
    """TensorFlow looks the weights up in a table of 1024 positions between two pixels."""
    c.refuse("its weights are taken from a table, not computed from the positions")


@row("ResizeBilinear", "ResizeNearestNeighbor")
def resize(c: Conversion) -> Result:
    """Positions: corners aligned, half-pixel centres, or neither."""
    aligned, half = c.attributes.flag("align_corners"), c.attributes.flag("half_pixel_centers")
    if aligned and half:
        c.attributes.refuse("half_pixel_centers", "together with align_corners")
    mode = {"B": "linear", "N": "nearest"}[c.node.op_type[6]]
    fields: dict[str, object] = {}
    if mode == "nearest":
        fields = {"nearest_mode": "round_prefer_ceil" if aligned or half else "floor"}
    position = "align_corners" if aligned else "half_pixel" if half else "asymmetric"
    x = channels_first(c, c.required(0))
    sizes = c.ints(constant_ints(c, 1, "the size"))
    y = c.add(
        "Resize",
        [x, None, None, sizes],
        mode=mode,
        coordinate_transformation_mode=position,
        axes=(2, 3),
        **fields,
    )
    return finish_channels_last(c, y)


@row("SpaceToDepth", "DepthToSpace")
def space_to_depth(c: Conversion) -> Result:
    layout = Layout(c, "NHWC")
    size = c.attributes.integer("block_size")
    return layout.finish(c.node.op_type, [layout.first(c.required(0))], blocksize=size)


@row("SpaceToBatchND")
def space_to_batch(c: Conversion) -> Result:
    """Operands: data [n, *spatial, ...], block, (begin, end) pads. Blocks become batches, the
    position in the block being the outer index."""
    block, ends = constant_ints(c, 1, "the block"), constant_ints(c, 2, "the paddings")
    dims, m = list(static_dims(c, 0, "the input")), len(block)
    if len(ends) != 2 * m or min(*block, 1) < 1 or min(*ends, 0) < 0 or m >= len(dims):
        raise ModelError(f"blocks of {block}, pads {ends} on {c.type(0)}", place=c.node.place)
    rest = len(dims) - m - 1
    widths = [0, *ends[::2], *[0] * rest, 0, *ends[1::2], *[0] * rest]
    x = c.add("Pad", [c.required(0), c.ints(widths)]) if any(ends) else c.required(0)
    inner = [d + ends[2 * i] + ends[2 * i + 1] for i, d in enumerate(dims[1 : m + 1])]
    if any(d % b for d, b in zip(inner, block)):
        raise ModelError(f"{inner} is not a multiple of {block}", place=c.node.place)
    cut = [v for d, b in zip(inner, block) for v in (d // b, b)]
    x = c.add("Reshape", [x, c.ints([dims[0], *cut, *dims[m + 1 :]])])
    order = [
        *range(2, 2 * m + 2, 2),
        0,
        *range(1, 2 * m + 1, 2),
        *range(2 * m + 1, 2 * m + 1 + rest),
    ]
    x = c.add("Transpose", [x], perm=tuple(order))
    small = [d // b for d, b in zip(inner, block)]
    batch = dims[0] * int(np.prod(block))
    return c.result("Reshape", [x, c.ints([batch, *small, *dims[m + 1 :]])])


@row("BatchToSpaceND")
def batch_to_space(c: Conversion) -> Result:
    """Operands: data [n * blocks, *spatial, ...], block, (begin, end) crops."""
    block, crops = constant_ints(c, 1, "the block"), constant_ints(c, 2, "the crops")
    dims, m = list(static_dims(c, 0, "the input")), len(block)
    whole = int(np.prod(block))
    if len(crops) != 2 * m or min(*block, 1) < 1 or dims[0] % whole or m >= len(dims):
        raise ModelError(f"blocks of {block}, crops {crops} on {c.type(0)}", place=c.node.place)
    rest = len(dims) - m - 1
    x = c.add("Reshape", [c.required(0), c.ints([*block, dims[0] // whole, *dims[1:]])])
    pairs = [v for i in range(m) for v in (m + 1 + i, i)]
    x = c.add("Transpose", [x], perm=(m, *pairs, *range(2 * m + 1, 2 * m + 1 + rest)))
    big = [d * b for d, b in zip(dims[1 : m + 1], block)]
    shape = c.ints([dims[0] // whole, *big, *dims[m + 1 :]])
    if not any(crops):
        return c.result("Reshape", [x, shape])
    x = c.add("Reshape", [x, shape])
    ends = [d - e for d, e in zip(big, crops[1::2])]
    return c.result("Slice", [x, c.ints(crops[::2]), c.ints(ends), c.ints(range(1, m + 1))])


@row("NonMaxSuppressionV3")
def non_max_suppression(c: Conversion) -> Result:
    """Operands: boxes [n, 4] as (y1, x1, y2, x2), scores [n], count, IoU, score thresholds."""
    boxes = c.add("Unsqueeze", [c.required(0), c.ints([0])])
    scores = c.add("Unsqueeze", [c.required(1), c.ints([0, 1])])
    count = c.ints(constant_ints(c, 2, "the count"))
    limits = [c.add("Unsqueeze", [c.required(i), c.ints([0])]) for i in (3, 4)]
    found = c.add("NonMaxSuppression", [boxes, scores, count, *limits])
    column = c.add("Gather", [found, c.constant(2, np.int64)], axis=1)
    return c.result("Cast", [column], to=DType.int32)
