"""Keras layers other than windows: activations, normalization, merging, shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.bicubic import STEPS, resized_bicubic
from verax.frontends.common.channels_last import channels_back, channels_first
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import (
    TRAINING,
    LayerLayout,
    activated,
    array_of,
    begins_and_ends,
    data_input,
    only_input,
    row,
    sizes,
    spatial_rank,
    weights,
)
from verax.frontends.keras.table_operations import promoted


@row("Activation")
def activation(c: Conversion) -> Result:
    return c.same(activated(c, only_input(c)))


@row("ReLU")
def relu(c: Conversion) -> Result:
    """max_value caps it; up to threshold, which must not be negative, it is
    negative_slope (x - threshold)."""
    a = c.attributes
    top, slope = a.scalar("max_value"), a.scalar("negative_slope", 0.0)
    threshold = a.scalar("threshold", 0.0)
    x = only_input(c)
    if threshold < 0:
        a.refuse("threshold", "Keras has no negative one")
    if threshold:
        edge = c.constant(threshold, np.float32)
        below = c.add("Mul", [c.add("Sub", [x, edge]), c.constant(slope, np.float32)])
        y = c.add("Where", [c.add("Greater", [x, edge]), x, below])
    elif slope:
        y = c.add("LeakyRelu", [x], alpha=slope)
    else:
        y = c.add("Relu", [x])
    return c.same(y) if top is None else formulas.clipped(c, y, None, top)


@row("LeakyReLU")
def leaky_relu(c: Conversion) -> Result:
    """The slope is `alpha` in Keras 2."""
    a = c.attributes
    slope = a.scalar("negative_slope", 0.3) if a.has("negative_slope") else a.scalar("alpha", 0.3)
    return c.result("LeakyRelu", [only_input(c)], alpha=slope)


@row("PReLU")
def prelu(c: Conversion) -> Result:
    """alpha has the shape of the input without batch, 1 on shared axes."""
    (alpha,) = weights(c, 1)
    shape, shared = list(array_of(c, alpha).shape), c.attributes.get("shared_axes", ())
    fits = all(type(a) is int and 1 <= a <= len(shape) and shape[a - 1] == 1 for a in shared)
    if not fits or len(set(shared)) != len(shared):
        raise ModelError(f"shared_axes {shared} do not fit the weights {shape}", place=c.node.place)
    return c.result("PRelu", [data_input(c, 1), alpha])


@row("ELU")
def elu(c: Conversion) -> Result:
    return c.result("Elu", [only_input(c)], alpha=c.scalar("alpha", 1.0))


@row("ThresholdedReLU")
def thresholded_relu(c: Conversion) -> Result:
    theta = c.scalar("theta", 1.0)
    return c.result("ThresholdedRelu", [only_input(c)], alpha=theta)


@row("Softmax")
def softmax(c: Conversion) -> Result:
    """Along an axis; along several, exp(x - log(sum(exp(x))))."""
    axis = c.attributes.get("axis", -1)
    axis = axis[0] if isinstance(axis, tuple) and len(axis) == 1 else axis
    if not isinstance(axis, tuple):
        return c.result("Softmax", [only_input(c)], axis=axis)
    x = only_input(c)
    total = c.add("ReduceLogSumExp", [x, c.ints(axis)], keepdims=True)
    return c.result("Exp", [c.add("Sub", [x, total])])


@row("Dropout", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "AlphaDropout",
     "GaussianNoise", "GaussianDropout", "ActivityRegularization", "Identity")  # fmt: skip
def identity(c: Conversion) -> Result:
    c.irrelevant("rate", "noise_shape", "stddev", "l1", "l2", "data_format", reason=TRAINING)
    return c.same(only_input(c))


@row("Dense")
def dense(c: Conversion) -> Result:
    """x [..., in] @ kernel [in, units] + bias."""
    biased = c.flag("use_bias", True)
    kernel, *bias = weights(c, 1 + biased)
    c.attributes.expect("units", array_of(c, kernel).shape[-1], reason="the weights have another")
    x = data_input(c, 1 + biased)
    if c.rank() == 2:
        y = c.add("Gemm", [x, kernel, *bias])
    else:
        y = c.add("MatMul", [x, kernel])
        y = c.add("Add", [y, *bias]) if bias else y
    return c.same(activated(c, y))


@row("Embedding")
def embedding(c: Conversion) -> Result:
    a = c.attributes
    (table,) = weights(c, 1)
    a.expect("output_dim", array_of(c, table).shape[-1], reason="the weights have another")
    a.expect("mask_zero", False, reason="masks are not supported")
    index = c.add("Cast", [data_input(c, 1)], to="int64")
    return c.result("Gather", [table, index], axis=0)


MERGES = {"Add": "Add", "Subtract": "Sub", "Multiply": "Mul", "Maximum": "Max", "Minimum": "Min"}


@row(*MERGES, "Average")
def merge(c: Conversion) -> Result:
    """Of two or more tensors, from left to right. Axes are counted from the batch: a tensor of
    fewer ones gets new ones behind it."""
    weights(c, 0)
    kind = MERGES.get(c.node.op_type, "Add")
    values = c.operands
    if len(values) < 2 or (kind == "Sub" and len(values) != 2):
        raise ModelError(f"it is called on {len(values)} tensors", place=c.node.place)
    ranks = [c.rank(i) for i in range(len(values))]
    for i, rank in enumerate(ranks):
        missing = max(ranks) - rank
        if rank and missing:
            new = c.ints(tuple(range(1, 1 + missing)))
            values[i] = c.add("Unsqueeze", [values[i], new])
    values = promoted(c, values)
    y = values[0]
    for value in values[1:]:
        y = c.add(kind, [y, value])
    if c.node.op_type == "Average":
        y = c.add("Div", [y, c.constant(len(values), np.float32)])
    return c.same(y)


@row("Concatenate")
def concatenate(c: Conversion) -> Result:
    weights(c, 0)
    values = c.operands
    return c.result("Concat", values, axis=c.integer("axis", -1))


@row("Flatten")
def flatten(c: Conversion) -> Result:
    """In channels-last order, whatever the layout."""
    layout = LayerLayout(c)
    x = only_input(c)
    if not layout.last and c.rank() > 2:
        x = c.add("Transpose", [x], perm=(0, *range(2, c.rank()), 1))
    return c.result("Reshape", [x, c.ints((0, -1))])


@row("Reshape")
def reshape(c: Conversion) -> Result:
    shape = c.integers("target_shape", ())
    return c.result("Reshape", [only_input(c), c.ints((0, *shape))])


@row("Permute")
def permute(c: Conversion) -> Result:
    """dims count from 1, without the batch."""
    dims = c.integers("dims", ())
    return c.result("Transpose", [only_input(c)], perm=(0, *dims))


@row("RepeatVector")
def repeat_vector(c: Conversion) -> Result:
    x = c.add("Unsqueeze", [only_input(c), c.ints((1,))])
    return c.result("Tile", [x, c.ints((1, c.integer("n", 1), 1))])


@row("UpSampling1D", "UpSampling2D", "UpSampling3D")
def upsampling(c: Conversion) -> Result:
    """Repeats elements, or interpolates between pixel centers. Of cubic ones TensorFlow rounds
    positions to one of 1024 between two pixels: factors that this moves need known sizes."""
    rank, layout = spatial_rank(c), LayerLayout(c)
    factors = sizes(c, "size", rank)
    modes = ("nearest", "bilinear", "bicubic") if rank == 2 else ("nearest", "bilinear")
    mode = c.choice("interpolation", modes, "nearest")
    x = layout.first(only_input(c))
    fields: dict[str, object] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    if mode == "bicubic":
        if any(STEPS % (2 * f) for f in factors):
            old = c.known_sizes(x, (2, 3), "how an image is resampled")
            new = [n * f for n, f in zip(old, factors)]
            last = channels_back(c, x)
            y = resized_bicubic(c, last, old, new, aligned=False, half=True)
            return c.same(layout.back(channels_first(c, y)))
        fields |= {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": True}
    elif mode == "nearest":
        fields = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    scales = c.constant(factors, np.float32)
    y = c.add("Resize", [x, None, scales], axes=tuple(range(2, rank + 2)), **fields)
    return c.same(layout.back(y))


@row("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(c: Conversion) -> Result:
    return _padded(c, begins_and_ends(c, "padding", spatial_rank(c)))


@row("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(c: Conversion) -> Result:
    return _padded(c, [(-a, -b) for a, b in begins_and_ends(c, "cropping", spatial_rank(c))])


def _padded(c: Conversion, ends: Sequence[tuple[int, int]]) -> Result:
    """Zeros around the spatial axes; negative numbers crop."""
    none = [(0, 0)]
    all_ends = [*none, *ends, *none] if LayerLayout(c).last else [*none, *none, *ends]
    flat = [begin for begin, _ in all_ends] + [end for _, end in all_ends]
    return c.result("Pad", [only_input(c), c.ints(flat)])


@row("Rescaling")
def rescaling(c: Conversion) -> Result:
    """x scale + offset, numbers or one per channel; whole numbers become float32 first."""
    x = c.cast(only_input(c), "float32")
    scale, offset = (np.asarray(c.attributes.get(n, d), np.float32)
                     for n, d in (("scale", 1.0), ("offset", 0.0)))  # fmt: skip
    return c.result("Add", [c.add("Mul", [x, c.constant(scale)]), c.constant(offset)])


@row("LayerScale")
def layer_scale(c: Conversion) -> Result:
    """Of `keras.applications.ConvNeXt*`: x times a weight per channel."""
    c.attributes.irrelevant("init_values", "the file has the values")
    (gamma,) = weights(c, 1)
    size = array_of(c, gamma).shape[-1]
    c.attributes.expect("projection_dim", size, reason="the weights have another")
    return c.result("Mul", [data_input(c, 1), gamma])


@row("CustomScaleLayer")
def custom_scale(c: Conversion) -> Result:
    """Of `keras.applications.InceptionResNetV2`: first + second scale."""
    weights(c, 0)
    if len(c.inputs) != 2:
        raise ModelError(f"it is called on {len(c.inputs)} tensors", place=c.node.place)
    scale = c.constant(c.scalar("scale", 1.0), np.float32)
    return c.result("Add", [c.required(0), c.add("Mul", [c.required(1), scale])])
