"""TFLite products of quantized weights and floating-point data: the files of dynamic-range
quantization.

LiteRT quantizes the data while it runs, each image or row by itself, sums exact integers, and
scales the sums back in float32. Rows state its float32 steps in its order.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.channels_last import (
    channels_first,
    finish_channels_last,
    static_dims,
    transposed,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import quantization
from verax.frontends.tflite.rows import activated, activation, row
from verax.frontends.tflite.table_windows import (
    convolution_fields,
    depth_multiplier,
    flat_rows,
    groups_of,
    matrix_operand,
    transposed_fields,
)


def _scales(c: Conversion, axis: int) -> np.ndarray:
    """Scales of the weights (operand 1), one or one per output channel; zero points must be 0."""
    parameters = quantization(c, "input1")
    if c.type(1).dtype != "int8":
        c.refuse(f"weights of {c.type(1).dtype} on floating-point data are not supported")
    if parameters.zero.any():
        c.attributes.refuse("input1.zero_point", "LiteRT ignores it where data are floating-point")
    if parameters.scale.size > 1 and parameters.axis != axis:
        c.attributes.refuse("input1.quantized_dimension", "scales must be per output channel")
    return parameters.scale


def _quantized(c: Conversion, x: str, axis: int, symmetric: bool) -> tuple[str, str]:
    """Data as integers without zero points, and their scales."""
    q, scale = c.add_all("DynamicQuantizeGroups", [x], axis=axis, symmetric=symmetric)
    return q, scale


def _float(c: Conversion, sums: str) -> str:
    return c.add("Cast", [sums], to="float32")


@row("CONV_2D", hybrid=True)
def conv_2d(c: Conversion) -> Result:
    """One scale: data are quantized symmetrically. Differing scales: asymmetrically."""
    c.attributes.irrelevant("quantized_bias_type", "no bias is quantized")
    scale, groups = _scales(c, 0), groups_of(c)
    is_single = bool((scale == scale[0]).all())
    if groups > 1 and scale.size == 1:
        c.refuse("LiteRT reads one scale per channel for groups, and there is but one")
    weights = transposed(c, c.required(1), (0, 3, 1, 2))
    if is_single and groups == 1:
        sums, by_image = _sums(c, weights, 1, symmetric=True)
        factor = c.add("Mul", [by_image, c.constant(scale[0])])
        return _finished(c, c.add("Mul", [_float(c, sums), factor]))
    sums, by_image = _sums(c, weights, groups, symmetric=False)
    y = c.add("Mul", [_float(c, sums), c.constant(scale.reshape(-1, 1, 1))])
    return _finished(c, c.add("Mul", [y, by_image]))


@row("DEPTHWISE_CONV_2D", hybrid=True)
def depthwise_conv_2d(c: Conversion) -> Result:
    depth_multiplier(c)
    groups, scale = c.type(0).dims[-1], _scales(c, 3)
    assert isinstance(groups, int)
    if scale.size != c.type(1).dims[-1]:
        c.refuse("LiteRT demands one scale per channel")
    weights = transposed(c, c.required(1), (3, 0, 1, 2))
    sums, by_image = _sums(c, weights, groups, symmetric=False)
    factor = c.add("Mul", [c.constant(scale.reshape(-1, 1, 1)), by_image])
    return _finished(c, c.add("Mul", [_float(c, sums), factor]))


@row("TRANSPOSE_CONV", hybrid=True)
def transpose_conv(c: Conversion) -> Result:
    """Operands: output shape, weights [out, *kernel, in], data, bias. LiteRT adds up scaled
    products, not integers, so that its sums round."""
    c.attributes.irrelevant("quantized_bias_type", "no bias is quantized")
    scale = _scales(c, 0)
    x, by_image = _quantized(c, channels_first(c, c.required(2)), 1, symmetric=False)
    weights = _float(c, transposed(c, c.required(1), (3, 0, 1, 2)))
    y = c.add("ConvTranspose", [_float(c, x), weights], **transposed_fields(c))
    y = c.add("Mul", [y, c.constant(scale.reshape(-1, 1, 1))])
    return _finished(c, c.add("Mul", [y, by_image]), 3)


def _sums(c: Conversion, weights: str, groups: int, symmetric: bool) -> tuple[str, str]:
    """Exact sums of the convolution [n, o, h, w], and scales of the images [n, 1, 1, 1]."""
    x, scale = _quantized(c, channels_first(c, c.required(0)), 1, symmetric)
    fields = convolution_fields(c, "hw")
    return c.add("ConvInteger", [x, weights], groups=groups, **fields), scale


def _finished(c: Conversion, y: str, index: int = 2) -> Result:
    """Bias (operand `index`), activation, and channels moved back."""
    act, bias = activation(c), c.input(index)
    if bias is not None:
        channels = static_dims(c, index, "the bias")
        y = c.add("Add", [y, c.add("Reshape", [bias, c.ints((*channels, 1, 1))])])
    return finish_channels_last(c, activated(c, y, act))


@row("FULLY_CONNECTED", hybrid=True)
def fully_connected(c: Conversion) -> Result:
    """Each row of the data has its own scale."""
    symmetric = not c.flag("asymmetric_quantize_inputs")
    c.attributes.irrelevant("quantized_bias_type", "no bias is quantized")
    act, scale = activation(c), _scales(c, 0)
    x, shape = flat_rows(c)
    x, by_row = _quantized(c, x, 1, symmetric)
    weights = _transposed_wide(c, c.required(1), (1, 0))
    y = _scaled_product(c, x, weights, by_row, scale)
    bias = c.input(2)
    y = activated(c, y if bias is None else c.add("Add", [y, bias]), act)
    return c.result("Identity", [y]) if shape is None else c.result("Reshape", [y, c.ints(shape)])


@row("BATCH_MATMUL", hybrid=True)
def batch_matmul(c: Conversion) -> Result:
    """Each row of the data has its own scale; the weights are the second operand."""
    symmetric = not c.flag("asymmetric_quantize_inputs")
    transposes = c.flag("adj_y")
    scale = _scales(c, c.rank(1) - (2 if transposes else 1))
    x, by_row = _quantized(c, matrix_operand(c, 0, "adj_x"), c.rank(0) - 1, symmetric)
    axes = list(range(c.rank(1)))
    if transposes:
        axes[-2:] = axes[:-3:-1]
    y = _scaled_product(c, x, _transposed_wide(c, c.required(1), axes), by_row, scale)
    return c.result("Identity", [y])


@row("EMBEDDING_LOOKUP", quantized=True)
def embedding_lookup(c: Conversion) -> Result:
    """Rows of a quantized table in float32, times the one scale or that of the row."""
    if any(k.startswith("output0.") for k in c.attributes.values):
        c.refuse("rows that stay quantized are not supported")
    scale, indices = _scales(c, 0), c.required(0)
    rows = _float(c, c.add("Gather", [c.required(1), indices], axis=0))
    if scale.size == 1:
        return c.result("Mul", [rows, c.constant(scale[0])])
    lifted = c.constant(scale.reshape(-1, *[1] * (c.rank(1) - 1)))
    return c.result("Mul", [rows, c.add("Gather", [lifted, indices], axis=0)])


def _transposed_wide(c: Conversion, value: str, axes: list[int] | tuple[int, ...]) -> str:
    """Weights with their axes in this order, as int32."""
    array = c.builder.constants.get(value)
    if array is not None:
        return c.constant(np.ascontiguousarray(array.transpose(axes)).astype(np.int32))
    return c.add("Cast", [c.add("Transpose", [value], perm=tuple(axes))], to="int32")


def _scaled_product(c: Conversion, x: str, weights: str, by_row: str, scale: np.ndarray) -> str:
    """Sums of products times both scales, the scales being multiplied first."""
    sums = c.add("MatMul", [c.add("Cast", [x], to="int32"), weights])
    factor = c.add("Mul", [by_row, c.constant(scale if scale.size > 1 else scale[0])])
    return c.add("Mul", [_float(c, sums), factor])
