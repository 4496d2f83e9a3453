"""ONNX convolutions, pools, normalisations and matrix products."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common.context import Conversion
from verax.frontends.onnx.rows import Result, pairs, plain, require_test_mode, row, window_pads
from verax.frontends.onnx.tensors import dtype_of

plain("GlobalAveragePool", "GlobalMaxPool", "MatMul")


@row("Conv")
def conv(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "Conv",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=window_pads(c),
        dilations=a.integers("dilations", ()),
        groups=a.integer("group", 1),
    )


@row("ConvInteger")
def conv_integer(c: Conversion) -> Result:
    """Inputs: data, weights, their zero points; sums are int32."""
    a = c.attributes
    return c.operator(
        "ConvInteger",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=window_pads(c),
        dilations=a.integers("dilations", ()),
        groups=a.integer("group", 1),
    )


@row("ConvTranspose")
def conv_transpose(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "ConvTranspose",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=_transposed_pads(c),
        dilations=a.integers("dilations", ()),
        groups=a.integer("group", 1),
        output_padding=a.integers("output_padding", ()),
        output_shape=a.integers("output_shape", ()),
    )


def _transposed_pads(c: Conversion) -> object:
    """ONNX: an output_shape decides the pads, and explicit ones are ignored."""
    if c.attributes.has("output_shape"):
        c.attributes.irrelevant("pads", "ONNX ignores pads where output_shape is given")
        rule = c.attributes.text("auto_pad", "NOTSET")
        return rule if rule in ("SAME_UPPER", "SAME_LOWER") else ()
    return window_pads(c)


@row("MaxPool")
def max_pool(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "MaxPool",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=window_pads(c),
        dilations=a.integers("dilations", ()),
        ceil_mode=a.flag("ceil_mode"),
        storage_order=a.integer("storage_order", 0),
        with_indices=c.output_used(1),
    )


@row("AveragePool")
def average_pool(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "AveragePool",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=window_pads(c),
        dilations=a.integers("dilations", ()),
        ceil_mode=a.flag("ceil_mode"),
        count_include_pad=a.flag("count_include_pad"),
    )


@row("LpPool")
def lp_pool(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "LpPool",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=window_pads(c),
        dilations=a.integers("dilations", ()),
        ceil_mode=a.flag("ceil_mode"),
        p=a.integer("p", 2),
    )


@row("GlobalLpPool")
def global_lp_pool(c: Conversion) -> Result:
    return c.operator("GlobalLpPool", p=c.attributes.integer("p", 2))


@row("Col2Im")
def col2im(c: Conversion) -> Result:
    """Sums of overlapping windows: a transposed convolution that puts every element at its place in
    the window, channel by channel. Input [batch, channels * window, windows]."""
    image, kernel = (
        [int(n) for n in c.constant_input(i, what)]
        for i, what in ((1, "the image's size"), (2, "the window's size"))
    )
    rank, (_, total, windows) = len(image), c.type(0).dims
    a = c.attributes
    strides, dilations = a.integers("strides", (1,) * rank), a.integers("dilations", (1,) * rank)
    pads = pairs(c, a.integers("pads", (0,) * 2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == len(pads) == rank or rank < 1:
        c.refuse("its sizes, pads, strides and dilations are of different numbers of axes")
    if min(*image, *kernel, *strides, *dilations) < 1 or any(p < 0 for pair in pads for p in pair):
        c.refuse("sizes, strides and dilations below 1, or pads below 0")
    room = [n + sum(p) - d * (k - 1) - 1 for n, p, d, k in zip(image, pads, dilations, kernel)]
    counts = [r // s + 1 for r, s in zip(room, strides)]
    size = math.prod(kernel)
    if not isinstance(total, int) or total % size or windows != math.prod(counts) or min(room) < 0:
        c.refuse(f"{c.type(0)} is not what windows of {kernel} on an image of {image} give")
    c.must_be_few(total * size)
    places = np.tile(np.eye(size).reshape(size, 1, *kernel), (total // size, *(1,) * (rank + 1)))
    batch = c.add("Shape", [c.required(0)], end=1)
    shape = c.add("Concat", [batch, c.ints([total, *counts])], axis=0)
    return c.result(
        "ConvTranspose",
        [
            c.add("Reshape", [c.required(0), shape]),
            c.constant(places, c.type(0).dtype.numpy),
        ],
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=total // size,
        output_padding=tuple(r % s for r, s in zip(room, strides)),
    )


@row("MaxUnpool")
def max_unpool(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "MaxUnpool",
        kernel_shape=a.integers("kernel_shape", ()),
        strides=a.integers("strides", ()),
        pads=pairs(c, a.integers("pads", ())),
    )


@row("BatchNormalization")
def batch_normalization(c: Conversion) -> Result:
    """training_mode is an attribute since opset 14; before, further outputs meant training."""
    a = c.attributes
    training = a.flag("training_mode")
    if c.version < 7:
        require_test_mode(c)
    a.expect("spatial", 1, why="statistics per element are not supported")
    if not training:
        a.irrelevant("momentum", "it only updates statistics in training")
        if any(c.output_used(i) for i in range(1, 5)):
            c.refuse("the outputs of training are not supported")
    return c.operator(
        "BatchNormalization",
        epsilon=a.number("epsilon", 1e-5),
        training_mode=training,
        **({"momentum": a.number("momentum", 0.9)} if training else {}),
    )


@row("InstanceNormalization")
def instance_normalization(c: Conversion) -> Result:
    return c.operator("InstanceNormalization", epsilon=c.attributes.number("epsilon", 1e-5))


@row("LayerNormalization")
def layer_normalization(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "LayerNormalization",
        axis=a.integer("axis", -1),
        epsilon=a.number("epsilon", 1e-5),
        stash_type=dtype_of(a.integer("stash_type", 1), c.node.place),
        with_statistics=c.output_used(1) or c.output_used(2),
    )


@row("RMSNormalization")
def rms_normalization(c: Conversion) -> Result:
    a = c.attributes
    a.expect("stash_type", 1, why="statistics in another type than float32")
    return c.operator(
        "RMSNormalization", axis=a.integer("axis", -1), epsilon=a.number("epsilon", 1e-5)
    )


@row("GroupNormalization")
def group_normalization(c: Conversion) -> Result:
    """Scale and bias are per channel since opset 21, per group before."""
    a = c.attributes
    a.expect("stash_type", 1, why="statistics in another type than float32")
    return c.operator(
        "GroupNormalization",
        num_groups=a.integer("num_groups", 0),
        epsilon=a.number("epsilon", 1e-5),
        per_group=c.version < 21,
    )


@row("LRN")
def lrn(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "LRN",
        size=a.integer("size", 0),
        alpha=a.number("alpha", 1e-4),
        beta=a.number("beta", 0.75),
        bias=a.number("bias", 1.0),
    )


@row("LpNormalization")
def lp_normalization(c: Conversion) -> Result:
    a = c.attributes
    return c.operator("LpNormalization", axis=a.integer("axis", -1), p=a.integer("p", 2))


@row("MeanVarianceNormalization")
def mean_variance_normalization(c: Conversion) -> Result:
    axes = c.attributes.integers("axes", (0, 2, 3))
    return c.operator("MeanVarianceNormalization", axes=axes)


@row("Gemm")
def gemm(c: Conversion) -> Result:
    a = c.attributes
    if c.version < 7:
        a.irrelevant("broadcast", "the shape of C says whether it broadcasts")
    return c.operator(
        "Gemm",
        alpha=a.number("alpha", 1.0),
        beta=a.number("beta", 1.0),
        trans_a=a.flag("transA"),
        trans_b=a.flag("transB"),
    )


@row("Einsum")
def einsum(c: Conversion) -> Result:
    return c.operator("Einsum", equation=c.attributes.text("equation", ""))
