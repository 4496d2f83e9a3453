"""CoreML layers that move data, and the borders of a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.rows import (
    LEGACY,
    amounts,
    require_rank,
    row,
    sizes_of,
    sliced,
    two,
    weights,
)

MOST = 2**31 - 1
"""An end that no axis reaches."""


@row("array.input")
def array_input(c: Conversion) -> Result:
    """A declared array as layers see it: float32, and in legacy networks [1, C, H, W]."""
    x = c.required(0)
    c.attributes.irrelevant("dataType", "the input itself has this type")
    if c.text("mapping", "EXACT_ARRAY_MAPPING") == "EXACT_ARRAY_MAPPING":
        return c.operator("Cast", to="float32")
    axes = {1: (0, 2, 3), 3: (0,)}.get(c.rank())
    if axes is None:
        c.refuse("an array of a legacy network has 1 or 3 axes")
    if c.type(0).dtype != "float32":
        x = c.add("Cast", [x], to="float32")
    return c.result("Unsqueeze", [x, c.ints(axes)])


@row("array.output")
def array_output(c: Conversion) -> Result:
    """A result as it is declared: of shape [C, H, W] or [C] in legacy networks."""
    a, x = c.attributes, c.required(0)
    dtype, shape = a.text("dataType", "float32"), a.integers("shape", ())
    if dtype != "float32":
        x = c.add("Cast", [x], to=dtype)
    if a.text("mapping", "EXACT_ARRAY_MAPPING") == "EXACT_ARRAY_MAPPING":
        return c.result("Identity", [x])
    require_rank(c, 4)
    if not shape:
        return c.result("Squeeze", [x, c.ints((0,))])
    if a.flag("isDefault") and len(shape) == 3:
        # Height and width are those of the default input; another may be given.
        channels = c.type(0).dims[1]
        if isinstance(channels, int) and channels != shape[0]:
            raise ModelError(f"{c.type(0)} is declared as {shape}", place=c.node.place)
        return c.result("Squeeze", [x, c.ints((0,))])
    if c.type(0).size != int(np.prod(shape)):
        raise ModelError(f"{c.type(0)} is declared as {shape}", place=c.node.place)
    return c.result("Reshape", [x, c.ints(shape)])


@row("preprocessing.scaler")
def preprocessing_scaler(c: Conversion) -> Result:
    """channelScale * pixel + bias, per channel."""
    a = c.attributes
    bias = np.array(a.numbers("bias", ()), np.float32)
    for name in ("redBias", "greenBias", "blueBias", "grayBias"):
        a.irrelevant(name, "the image has no such channel")
    product = c.add("Mul", [c.required(0), c.like(a.number("channelScale", 0.0))])
    return c.result("Add", [product, c.constant(bias.reshape(-1, 1, 1))])


@row("preprocessing.meanImage")
def preprocessing_mean_image(c: Conversion) -> Result:
    mean = np.array(c.attributes.numbers("meanImage", ()), np.float32)
    shape = sizes_of(c, 0, (1, 2, 3), "the mean image's shape")
    return c.result("Sub", [c.required(0), c.constant(mean.reshape(shape))])


@row("crop")
def crop(c: Conversion) -> Result:
    """Border amounts, or the size of a second input at an offset."""
    a, rank = c.attributes, c.rank()
    axes = (rank - 2, rank - 1)
    if len(c.inputs) == 2:
        a.irrelevant("cropAmounts", "it is used only where there is one input")
        start, size = two(c, "offset", (0, 0)), sizes_of(c, 1, axes, "the size of the crop")
        return sliced(c, axes, start, [s + n for s, n in zip(start, size)])
    a.irrelevant("offset", "it is used only where there are two inputs")
    cut = amounts(c, "cropAmounts")
    return sliced(c, axes, [s for s, _ in cut], [-e if e else MOST for _, e in cut])


@row("padding")
def padding(c: Conversion) -> Result:
    a, borders = c.attributes, amounts(c, "paddingAmounts")
    lead = [0] * (c.rank() - 2)
    pads = c.ints([*lead, *(s for s, _ in borders), *lead, *(e for _, e in borders)])
    kind = a.text("PaddingType", "constant")
    if kind == "constant":
        value = c.like(a.number("constant.value", 0.0))
        return c.result("Pad", [c.required(0), pads, value], mode="constant")
    mode = "reflect" if kind == "reflection" else "edge"
    return c.result("Pad", [c.required(0), pads], mode=mode)


@row("loadConstant")
def load_constant(c: Conversion) -> Result:
    """[1, C, H, W] in legacy networks; elsewhere [1, 1, C, H, W]."""
    shape = c.integers("shape", ())
    lead = (1,) if c.version <= LEGACY else (1, 1)
    return c.named_constant(weights(c, "data", (*lead, *shape)))


@row("loadConstantND")
def load_constant_nd(c: Conversion) -> Result:
    return c.named_constant(weights(c, "data", c.integers("shape", ())))


@row("fillStatic")
def fill_static(c: Conversion) -> Result:
    a = c.attributes
    shape = c.ints(a.integers("targetShape", ()))
    return c.result("Expand", [c.constant(a.number("value", 0.0), np.float32), shape])


def _last(c: Conversion) -> str:
    """Input 0 with channels last."""
    require_rank(c, 4)
    return c.add("Transpose", [c.required(0)], perm=(0, 2, 3, 1))


@row("flatten")
def flatten(c: Conversion) -> Result:
    """[B, C, H, W] -> [B, C * H * W, 1, 1], reading channels first or last."""
    is_last = c.text("mode", "CHANNEL_FIRST") == "CHANNEL_LAST"
    require_rank(c, 4)
    flat = c.add("Flatten", [_last(c) if is_last else c.required(0)], axis=1)
    return c.result("Unsqueeze", [flat, c.ints((2, 3))])


@row("reshape")
def reshape(c: Conversion) -> Result:
    """To [C, H, W], or [1, C, H, W] with a sequence of 1; the batch stays."""
    a, shape = c.attributes, c.integers("targetShape", ())
    require_rank(c, 4)
    if len(shape) == 4 and shape[0] == 1:
        shape = shape[1:]
    if len(shape) != 3:
        a.refuse("targetShape", "sequences are not supported")
    if a.text("mode", "CHANNEL_FIRST") == "CHANNEL_FIRST":
        return c.result("Reshape", [c.required(0), c.ints((0, *shape))])
    channels, height, width = shape
    turned = c.add("Reshape", [_last(c), c.ints((0, height, width, channels))])
    return c.result("Transpose", [turned], perm=(0, 3, 1, 2))


@row("permute")
def permute(c: Conversion) -> Result:
    """The order of [sequence, channel, height, width]; here the sequence is the batch."""
    perm = c.integers("axis", ()) or (0, 1, 2, 3)
    require_rank(c, 4)
    if len(perm) != 4 or perm[0] != 0:
        c.attributes.refuse("axis", "sequences are not supported")
    return c.operator("Transpose", perm=perm)


@row("concat")
def concat(c: Conversion) -> Result:
    if not c.flag("sequenceConcat"):
        return c.operator("Concat", axis=c.rank() - 3)
    if c.rank() < 5:
        c.refuse(f"{c.type(0)} has no sequence")
    return c.operator("Concat", axis=c.rank() - 5)


@row("concatND")
def concat_nd(c: Conversion) -> Result:
    a, axis = c.attributes, c.integer("axis", 0)
    if not a.flag("interleave"):
        return c.operator("Concat", axis=axis)
    return c.result(
        "Identity", [interleaved(c, [c.required(i) for i in range(len(c.inputs))], axis)]
    )


def interleaved(c: Conversion, values: Sequence[str], axis: int) -> str:
    """The first elements of all values along an axis, then the second ones, and so on."""
    type_ = c.builder.types[values[0]]
    if any(c.type(v).dims != type_.dims for v in values):
        raise ModelError("interleaved values of several shapes", place=c.node.place)
    axis = axis if axis >= 0 else axis + type_.rank
    apart = [c.add("Unsqueeze", [v, c.ints((axis + 1,))]) for v in values]
    joined = c.add("Concat", apart, axis=axis + 1)
    shape = [0] * type_.rank
    shape[axis] = -1
    if any(d == 0 for d in type_.dims):
        raise ModelError(f"interleaved values of {type_}", place=c.node.place)
    if all(isinstance(d, int) for d in type_.dims):
        shape = [int(d) for d in type_.dims]  # type: ignore[call-overload]
        shape[axis] *= len(values)
    elif axis + 1 < type_.rank:
        c.refuse(f"interleaving of {type_}, its sizes must be known")
    return c.add("Reshape", [joined, c.ints(shape)])


@row("split")
def split(c: Conversion) -> Result:
    count, axis = c.integer("nOutputs", 0), c.rank() - 3
    size = c.type(0).dims[axis]
    if count != len(c.node.outputs) or (isinstance(size, int) and size % count):
        raise ModelError(f"{size} channels in {count} parts", place=c.node.place)
    return c.operator("Split", num_outputs=count, axis=axis)


@row("splitND")
def split_nd(c: Conversion) -> Result:
    a, axis = c.attributes, c.integer("axis", 0)
    sizes, count = a.integers("splitSizes", ()), len(c.node.outputs)
    if a.integer("numSplits", 0) not in (0, count) or len(sizes) not in (0, count):
        raise ModelError(f"the layer has {count} outputs", place=c.node.place)
    parts = [c.ints(sizes)] if sizes else []
    return c.finish(c.operator("Split", num_outputs=count, axis=axis), [c.required(0), *parts])


@row("reorganizeData")
def reorganize_data(c: Conversion) -> Result:
    """Blocks go first in the channels (as TensorFlow has it); pixel shuffle puts them last."""
    a = c.attributes
    mode, size = a.text("mode", "SPACE_TO_DEPTH"), a.integer("blockSize", 0)
    if mode == "SPACE_TO_DEPTH":
        return c.operator("SpaceToDepth", blocksize=size)
    order = "CRD" if mode == "PIXEL_SHUFFLE" else "DCR"
    return c.operator("DepthToSpace", blocksize=size, mode=order)


@row("slice")
def slice_(c: Conversion) -> Result:
    """[startIndex, endIndex) of one of the last three axes; negative indices count from the end."""
    a = c.attributes
    axis = {"CHANNEL_AXIS": 3, "HEIGHT_AXIS": 2, "WIDTH_AXIS": 1}[a.text("axis", "CHANNEL_AXIS")]
    start, end, step = (a.integer(n, 0) for n in ("startIndex", "endIndex", "stride"))
    if step < 1:
        raise ModelError(f"the stride is {step}", place=c.node.place)
    return sliced(c, [c.rank() - axis], [start], [end], [step])


@row("sliceStatic")
def slice_static(c: Conversion) -> Result:
    """Per axis; a mask means from the first element, or to the last; squeezed axes go."""
    a, rank = c.attributes, c.rank()
    begin, end, steps = (list(a.integers(n, ())) for n in ("beginIds", "endIds", "strides"))
    masks = [a.get(n, ()) for n in ("beginMasks", "endMasks", "squeezeMasks")]
    return _sliced_static(c, begin, end, steps or [1] * rank, masks)


@row("sliceDynamic")
def slice_dynamic(c: Conversion) -> Result:
    """As sliceStatic, with inputs in the place of parameters; they must follow from the shapes."""
    a = c.attributes
    names = ("beginIds", "endIds", "strides", "beginMasks", "endMasks", "squeezeMasks")
    lists = []
    for i, name in enumerate(names, 1):
        if c.input(i) is not None:
            a.irrelevant(name, "an input gives it")
            lists.append([int(v) for v in c.constant_input(i, name).ravel()])
        else:
            lists.append([int(v) for v in a.get(name, ())])
    begin, end, steps, *masks = lists
    return _sliced_static(c, begin, end or [0] * c.rank(), steps or [1] * c.rank(), masks)


def _sliced_static(
    c: Conversion,
    begin: list[int],
    end: list[int],
    steps: list[int],
    masks: Sequence[Sequence[bool | int]],
) -> Result:
    """The slice that lists with an entry per axis describe; an empty mask is none."""
    rank = c.rank()
    masks = [m or (False,) * rank for m in masks]
    if any(len(v) != rank for v in (begin, end, steps, *masks)):
        raise ModelError(f"the slice does not speak of {rank} axes", place=c.node.place)
    for i in range(rank):
        if masks[2][i]:
            begin[i], steps[i] = begin[i], 1
            end[i] = begin[i] + 1 if begin[i] != -1 else MOST
            continue
        if masks[0][i]:
            begin[i] = 0 if steps[i] > 0 else MOST
        if masks[1][i]:
            end[i] = MOST if steps[i] > 0 else -MOST
    gone = [i for i in range(rank) if masks[2][i]]
    lists = [c.ints(v) for v in (begin, end, range(rank), steps)]
    if not gone:
        return c.result("Slice", [c.required(0), *lists])
    return c.result("Squeeze", [c.add("Slice", [c.required(0), *lists]), c.ints(gone)])


@row("transpose")
def transpose(c: Conversion) -> Result:
    return c.operator("Transpose", perm=c.integers("axes", ()))


@row("squeeze")
def squeeze(c: Conversion) -> Result:
    a, axes = c.attributes, c.integers("axes", ())
    if a.flag("squeezeAll"):
        return c.result("Squeeze", [c.required(0)])
    return c.result("Squeeze", [c.required(0), c.ints(axes)])


@row("expandDims")
def expand_dims(c: Conversion) -> Result:
    return c.result("Unsqueeze", [c.required(0), c.ints(c.integers("axes", ()))])


@row("flattenTo2D")
def flatten_to_2d(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    return c.operator("Flatten", axis=axis if axis >= 0 else axis + c.rank())


@row("reshapeStatic")
def reshape_static(c: Conversion) -> Result:
    shape = c.integers("targetShape", ())
    if 0 in shape:
        c.attributes.refuse("targetShape", "a size of 0")
    return c.result("Reshape", [c.required(0), c.ints(shape)])


@row("rankPreservingReshape")
def rank_preserving_reshape(c: Conversion) -> Result:
    shape = c.integers("targetShape", ())
    if len(shape) != c.rank():
        c.attributes.refuse("targetShape", f"the input has {c.rank()} axes")
    return c.result("Reshape", [c.required(0), c.ints(shape)])


@row("broadcastToStatic")
def broadcast_to_static(c: Conversion) -> Result:
    return c.result("Expand", [c.required(0), c.ints(c.integers("targetShape", ()))])


@row("tile")
def tile(c: Conversion) -> Result:
    return c.result("Tile", [c.required(0), c.ints(c.integers("reps", ()))])


@row("stack")
def stack(c: Conversion) -> Result:
    axis = c.integer("axis", 0)
    axis = axis if axis >= 0 else axis + c.rank() + 1
    parts = [c.add("Unsqueeze", [c.required(i), c.ints((axis,))]) for i in range(len(c.inputs))]
    return c.result("Concat", parts, axis=axis)


@row("gather")
def gather(c: Conversion) -> Result:
    indices = c.add("Cast", [c.required(1)], to="int64")
    return c.result("Gather", [c.required(0), indices], axis=c.integer("axis", 0))
