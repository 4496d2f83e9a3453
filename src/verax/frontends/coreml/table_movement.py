"""CoreML layers that move data, and the borders of a network."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.shapes import sliced
from verax.frontends.common.table import integer, integers
from verax.frontends.coreml.mil_rows import GraphValue, inputs, layer, operation
from verax.frontends.coreml.rows import LEGACY, amounts, require_rank, row, two, weights


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
    c.irrelevant(
        "redBias", "greenBias", "blueBias", "grayBias", reason="the image has no such channel"
    )
    product = c.add("Mul", [c.required(0), c.like(a.scalar("channelScale", 0.0))])
    return c.result("Add", [product, c.constant(bias.reshape(-1, 1, 1))])


@row("preprocessing.meanImage")
def preprocessing_mean_image(c: Conversion) -> Result:
    mean = np.array(c.attributes.numbers("meanImage", ()), np.float32)
    shape = c.known_sizes(0, (1, 2, 3), "the mean image's shape")
    return c.result("Sub", [c.required(0), c.constant(mean.reshape(shape))])


@row("crop")
def crop(c: Conversion) -> Result:
    """Border amounts, or the size of a second input at an offset."""
    if len(c.inputs) == 2:
        c.attributes.irrelevant("cropAmounts", "it is used only where there is one input")
        axes = (c.rank() - 2, c.rank() - 1)
        start, size = two(c, "offset", (0, 0)), c.known_sizes(1, axes, "the size of the crop")
        return sliced(c, c.required(0), axes, start, [s + n for s, n in zip(start, size)])
    c.attributes.irrelevant("offset", "it is used only where there are two inputs")
    height, width = amounts(c, "cropAmounts")
    return operation(c, "crop", x=GraphValue(c.required(0)), crop_height=height, crop_width=width)


PADDINGS = {"constant": "constant", "reflection": "reflect", "replication": "replicate"}


@row("padding")
def padding(c: Conversion) -> Result:
    mode = PADDINGS[c.text("PaddingType", "constant")]
    value = c.scalar("constant.value", 0.0) if mode == "constant" else None
    flat = np.ravel(amounts(c, "paddingAmounts"))
    return operation(c, "pad", x=GraphValue(c.required(0)), pad=flat, mode=mode, constant_val=value)


@row("loadConstant")
def load_constant(c: Conversion) -> Result:
    """[1, C, H, W] in legacy networks; elsewhere [1, 1, C, H, W]."""
    shape = c.integers("shape", ())
    lead = (1,) if c.version <= LEGACY else (1, 1)
    return c.named_constant(weights(c, "data", (*lead, *shape)))


@row("loadConstantND")
def load_constant_nd(c: Conversion) -> Result:
    return c.named_constant(weights(c, "data", c.integers("shape", ())))


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
    channels_last = c.add("Reshape", [_last(c), c.ints((0, height, width, channels))])
    return c.result("Transpose", [channels_last], perm=(0, 3, 1, 2))


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
    is_sequence = c.flag("sequenceConcat")
    if is_sequence and c.rank() < 5:
        c.refuse(f"{c.type(0)} has no sequence")
    return c.operator("Concat", axis=c.rank() - (5 if is_sequence else 3))


@row("concatND")
def concat_nd(c: Conversion) -> Result:
    axis, interleave = c.integer("axis", 0), c.flag("interleave")
    return operation(c, "concat", values=inputs(c), axis=axis, interleave=interleave)


@row("split")
def split(c: Conversion) -> Result:
    return operation(
        c,
        "split",
        x=GraphValue(c.required(0)),
        num_splits=c.integer("nOutputs", 0),
        axis=c.rank() - 3,
    )


@row("splitND")
def split_nd(c: Conversion) -> Result:
    sizes, count = c.integers("splitSizes", ()) or None, c.integer("numSplits", 0) or None
    return operation(
        c,
        "split",
        x=GraphValue(c.required(0)),
        axis=c.integer("axis", 0),
        split_sizes=sizes,
        num_splits=count,
    )


REORDERED = {
    "SPACE_TO_DEPTH": ("space_to_depth", "block_size"),
    "DEPTH_TO_SPACE": ("depth_to_space", "block_size"),
    "PIXEL_SHUFFLE": ("pixel_shuffle", "upscale_factor"),
}


@row("reorganizeData")
def reorganize_data(c: Conversion) -> Result:
    """Blocks go first in the channels (as TensorFlow has it); pixel shuffle puts them last."""
    kind, size = REORDERED[c.text("mode", "SPACE_TO_DEPTH")]
    return operation(c, kind, x=GraphValue(c.required(0)), **{size: c.integer("blockSize", 0)})


@row("slice")
def slice_(c: Conversion) -> Result:
    """[startIndex, endIndex) of one of the last three axes; negative indices count from the end."""
    a = c.attributes
    axis = {"CHANNEL_AXIS": 3, "HEIGHT_AXIS": 2, "WIDTH_AXIS": 1}[a.text("axis", "CHANNEL_AXIS")]
    start, end, step = (a.integer(n, 0) for n in ("startIndex", "endIndex", "stride"))
    if step < 1:
        raise ModelError(f"the stride is {step}", place=c.node.place)
    return sliced(c, c.required(0), [c.rank() - axis], [start], [end], [step])


BOUNDS = ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")
PARAMETERS = ("beginIds", "endIds", "strides", "beginMasks", "endMasks", "squeezeMasks")


@row("sliceStatic", "sliceDynamic")
def slice_static(c: Conversion) -> Result:
    """Per axis; a mask means from the first element, or to the last; squeezed axes go. The dynamic
    one has inputs in the place of parameters, which must follow from the shapes."""
    bounds: dict[str, Any] = {}
    for i, (name, bound) in enumerate(zip(PARAMETERS, BOUNDS), 1):
        if c.input(i) is None:
            bounds[bound] = c.attributes.get(name, ()) or None
        else:
            c.attributes.irrelevant(name, "an input gives it")
            bounds[bound] = c.constant_input(i, name).astype(np.int64)
    return operation(c, "slice_by_index", x=GraphValue(c.required(0)), **bounds)


layer("transpose", "transpose", perm=integers(name="axes"))
layer("squeeze", "squeeze", axes=lambda c: None if c.flag("squeezeAll") else c.integers("axes", ()))
layer("expandDims", "expand_dims", axes=integers(()))
layer("flattenTo2D", "flatten2d", axis=integer(0))
layer("tile", "tile", reps=integers(()))
layer(
    "gather",
    "gather",
    ("x",),
    indices=lambda c: GraphValue(c.add("Cast", [c.required(1)], to="int64")),
    axis=integer(0),
)


@row("stack")
def stack(c: Conversion) -> Result:
    return operation(c, "stack", values=inputs(c), axis=c.integer("axis", 0))
