"""TensorFlow convolutions, pools, normalizations and matrix products.

Filters lie as [*kernel, in, out], depthwise ones as [*kernel, channels, multiplier], those of
transposed convolutions as [*kernel, out, in].
"""

from __future__ import annotations

from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.channels_last import (
    constant_ints,
    reshaped,
    static_dims,
    transposed,
    transposed_pads,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import NodeLayout, known_sizes, row


def _out_in(c: Conversion, value: str) -> str:
    """[*kernel, a, b] -> [b, a, *kernel]."""
    rank = c.rank(value)
    return transposed(c, value, (rank - 1, rank - 2, *range(rank - 2)))


@row("Conv2D", "Conv3D")
def convolution(c: Conversion) -> Result:
    layout = NodeLayout(c, "NHWC" if c.node.op_type == "Conv2D" else "NDHWC")
    if c.node.op_type == "Conv3D":
        c.attributes.irrelevant("use_cudnn", "it chooses an implementation")
    channels = c.type(0).dims[-1 if layout.last else 1]
    seen = c.type(1).dims[-2]
    groups = 1
    if isinstance(channels, int) and isinstance(seen, int):
        if seen < 1 or channels % seen:
            raise ModelError(f"filters of {seen} channels on {channels}", place=c.node.place)
        groups = channels // seen
    return layout.finish(
        "Conv",
        [layout.first(c.required(0)), _out_in(c, c.required(1))],
        strides=layout.spatial("strides"),
        pads=layout.pads(),
        dilations=layout.spatial("dilations", (1,) * layout.rank),
        groups=groups,
    )


@row("DepthwiseConv2dNative")
def depthwise_convolution(c: Conversion) -> Result:
    """Output channel k * multiplier + q is filter q of channel k."""
    layout = NodeLayout(c, "NHWC")
    height, width, channels, multiplier = static_dims(c, 1, "the filter")
    filters = transposed(c, c.required(1), (2, 3, 0, 1))
    filters = reshaped(c, filters, (channels * multiplier, 1, height, width))
    return layout.finish(
        "Conv",
        [layout.first(c.required(0)), filters],
        strides=layout.spatial("strides"),
        pads=layout.pads(),
        dilations=layout.spatial("dilations", (1,) * 4),
        groups=channels,
    )


@row("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def transposed_convolution(c: Conversion) -> Result:
    """Operands: output shape, filter, data. What is cut off at the beginning is what the forward
    convolution pads there; where the end lies, the output's shape says."""
    layout = NodeLayout(c, "NHWC" if c.node.op_type == "Conv2DBackpropInput" else "NDHWC")
    strides = layout.spatial("strides")
    dilations = layout.spatial("dilations", (1,) * layout.rank)
    shape, dims = known_sizes(c, 0, "the output's shape"), c.type(2).dims
    if len(shape) != layout.rank or len(dims) != layout.rank:
        raise ModelError(f"the output's shape is {shape}", place=c.node.place)
    inner = slice(1, -1) if layout.last else slice(2, None)
    kernel = static_dims(c, 1, "the filter")[:-2]
    fields = transposed_pads(
        c, shape[inner], dims[inner], kernel, strides, dilations, layout.pads()
    )
    operands = [layout.first(c.required(2)), _out_in(c, c.required(1))]  # [in, out, *kernel]
    return layout.finish("ConvTranspose", operands, dilations=dilations, **fields)


@row("BiasAdd")
def bias_add(c: Conversion) -> Result:
    """One number per channel, which is the last axis or the second."""
    form = c.choice("data_format", ("NHWC", "NCHW", "NDHWC", "NCDHW"), "NHWC")
    bias = c.required(1)
    if form.startswith("NC") and c.rank(0) > 2:
        bias = c.add("Unsqueeze", [bias, c.ints(range(1, c.rank(0) - 1))])
    return c.result("Add", [c.required(0), bias])


@row("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D")
def pool(c: Conversion) -> Result:
    """Averages do not count what is padded."""
    layout = NodeLayout(c, "NDHWC" if c.node.op_type.endswith("3D") else "NHWC")
    kind = "MaxPool" if c.node.op_type.startswith("Max") else "AveragePool"
    return layout.finish(
        kind,
        [layout.first(c.required(0))],
        kernel_shape=layout.spatial("ksize"),
        strides=layout.spatial("strides"),
        pads=layout.pads(),
    )


@row("MaxPoolV2")
def pool_of_operands(c: Conversion) -> Result:
    """Window and strides are operands."""
    layout = NodeLayout(c, "NHWC")
    sizes = [layout.inner(constant_ints(c, i, w), w) for i, w in ((1, "ksize"), (2, "strides"))]
    return layout.finish(
        "MaxPool",
        [layout.first(c.required(0))],
        kernel_shape=sizes[0],
        strides=sizes[1],
        pads=layout.pads(),
    )


@row("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def batch_norm(c: Conversion) -> Result:
    """Training is the default when the file does not say."""
    layout = NodeLayout(c, "NHWC")
    if c.flag("is_training", True):
        c.attributes.refuse("is_training", "freeze the graph for inference")
    c.attributes.irrelevant("exponential_avg_factor", "it only matters in training")
    if any(c.output_used(i) for i in range(1, 6)):
        c.refuse("the statistics it gives are used")
    return layout.finish(
        "BatchNormalization",
        [layout.first(c.required(0)), *(c.required(i) for i in range(1, 5))],
        epsilon=c.scalar("epsilon", 1e-4),
    )


@row("LRN")
def lrn(c: Conversion) -> Result:
    """Across the last axis, the sum itself where ONNX takes the mean."""
    layout = NodeLayout(c, "NHWC")
    a = c.attributes
    radius = a.integer("depth_radius", 5)
    return layout.finish(
        "LRN",
        [layout.first(c.required(0))],
        size=2 * radius + 1,
        alpha=a.scalar("alpha", 1.0) * (2 * radius + 1),
        beta=a.scalar("beta", 0.5),
        bias=a.scalar("bias", 1.0),
    )


@row("MatMul")
def matmul(c: Conversion) -> Result:
    a = c.attributes
    c.irrelevant("grad_a", "grad_b", reason="it marks products of the backward pass")
    fields: dict[str, Any] = {"trans_a": a.flag("transpose_a"), "trans_b": a.flag("transpose_b")}
    return c.result("Gemm", [c.required(0), c.required(1)], **fields)


@row("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(c: Conversion) -> Result:
    c.irrelevant(
        "Ta",
        "Tb",
        "Tout",
        "grad_x",
        "grad_y",
        reason="it repeats the operands' types or marks the backward pass",
    )
    flips = [c.flag(name) for name in ("adj_x", "adj_y")]
    return formulas.matrix_product(c, c.required(0), c.required(1), *flips)


@row("Einsum")
def einsum(c: Conversion) -> Result:
    c.attributes.expect("N", len(c.inputs), reason="it counts the operands")
    equation = c.text("equation", "").replace(" ", "")
    return c.result("Einsum", list(c.inputs), equation=equation)
