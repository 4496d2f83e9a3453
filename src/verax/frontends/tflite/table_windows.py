"""TFLite convolutions, pools and matrix products on floating-point numbers.

Weights lie as [out, *kernel, in] (depthwise: [1, *kernel, channels x multiplier]). SAME puts the
odd element of padding at the end. Averages do not count padding.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import (
    channels_first,
    constant_ints,
    finish_channels_last,
    static_dims,
    transposed,
    transposed_pads,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.rows import activated, activation, finish_activated, padding, row

Pads = tuple[tuple[int, int], ...]


def rule(name: str) -> str | tuple[()]:
    """Pads of a window operator."""
    return "SAME_UPPER" if name == "SAME" else ()


def strides(c: Conversion, axes: str) -> tuple[int, ...]:
    """`stride_h`, `stride_w`, ... in the order of `axes`."""
    return tuple(c.integer(f"stride_{a}", 0) for a in axes)


def dilations(c: Conversion, axes: str) -> tuple[int, ...]:
    return tuple(c.integer(f"dilation_{a}_factor", 1) for a in axes)


def depth_multiplier(c: Conversion) -> int:
    """Output channels per input channel, as the shapes say; 0 in the file means "unsaid"."""
    channels, out = static_dims(c, 1, "the weights")[-1], c.type(0).dims[-1]
    if not isinstance(out, int) or out < 1 or channels % out:
        raise ModelError(f"{channels} filters do not fit {out} channels", place=c.node.place)
    c.attributes.expect("depth_multiplier", 0, channels // out, reason="the shapes contradict it")
    return channels // out


def convolution_fields(c: Conversion, axes: str) -> dict[str, object]:
    return {
        "strides": strides(c, axes),
        "pads": rule(padding(c)),
        "dilations": dilations(c, axes),
    }


def groups_of(c: Conversion) -> int:
    """Groups of a convolution: input channels over those that a filter sees."""
    channels, seen = c.type(0).dims[-1], c.type(1).dims[-1]
    if not (isinstance(channels, int) and isinstance(seen, int) and seen > 0):
        return 1
    if channels % seen:
        raise ModelError(f"filters of {seen} channels on {channels}", place=c.node.place)
    return channels // seen


def require_float_weights(c: Conversion, data: int = 0) -> None:
    """Integer weights under floating-point data quantize the data while running."""
    kinds = c.type(data).dtype, c.type(1).dtype
    if kinds[0] != kinds[1]:
        c.refuse(f"weights of {kinds[1]} on data of {kinds[0]} are not supported")


@row("CONV_2D")
def conv_2d(c: Conversion) -> Result:
    c.attributes.irrelevant("quantized_bias_type", "no operand is quantized")
    return _convolution(c, transposed(c, c.required(1), (0, 3, 1, 2)), "hw", groups_of(c))


@row("CONV_3D")
def conv_3d(c: Conversion) -> Result:
    """Weights lie as [depth, height, width, in, out]."""
    return _convolution(c, transposed(c, c.required(1), (4, 3, 0, 1, 2)), "dhw", 1)


@row("DEPTHWISE_CONV_2D")
def depthwise_conv_2d(c: Conversion) -> Result:
    depth_multiplier(c)
    groups = c.type(0).dims[-1]
    assert isinstance(groups, int)
    return _convolution(c, transposed(c, c.required(1), (3, 0, 1, 2)), "hw", groups)


def _convolution(c: Conversion, weights: str, axes: str, groups: int) -> Result:
    require_float_weights(c)
    act = activation(c)
    x = channels_first(c, c.required(0))
    y = c.add("Conv", [x, weights, c.input(2)], groups=groups, **convolution_fields(c, axes))
    return finish_channels_last(c, activated(c, y, act))


@row("TRANSPOSE_CONV")
def transpose_conv(c: Conversion) -> Result:
    """Operands: output shape, weights [out, *kernel, in], data, bias."""
    c.attributes.irrelevant("quantized_bias_type", "no operand is quantized")
    return _transposed(c, transposed(c, c.required(1), (3, 0, 1, 2)), "hw")


@row("Convolution2DTransposeBias", domain="custom")
def transpose_conv_bias(c: Conversion) -> Result:
    """MediaPipe's operator. Operands: data, weights [out, *kernel, in], bias. Its options are a
    structure of C: padding (1: SAME, 2: VALID) and the strides of columns and of rows. The output
    is SAME: strides times as large as the data; VALID: everything that the windows reach."""
    options = c.attributes.tensor("custom_options").astype(np.uint8)
    words = options[: options.size & ~3].view("<i4").tolist()
    is_supported = len(words) >= 3 and options.size % 4 == 0 and not any(words[3:])
    if not is_supported or words[0] not in (1, 2) or min(words[1:3]) < 1:
        c.attributes.refuse("custom_options", f"they are {words}")
    require_float_weights(c)
    kernel, steps = static_dims(c, 1, "the weights")[1:3], (words[2], words[1])
    sizes = c.known_sizes(0, (1, 2))
    if any(k < s for k, s in zip(kernel, steps)):
        c.attributes.refuse("custom_options", "strides larger than the windows leave pixels out")
    wide = [0 if words[0] == 1 else k - s for k, s in zip(kernel, steps)]
    shape = [n * s + more for n, s, more in zip(sizes, steps, wide)]
    pad_rule = rule("SAME" if words[0] == 1 else "VALID")
    fields = transposed_pads(c, shape, sizes, kernel, steps, (1, 1), pad_rule)
    weights = transposed(c, c.required(1), (3, 0, 1, 2))
    x = channels_first(c, c.required(0))
    y = c.add("ConvTranspose", [x, weights, c.required(2)], **fields)
    return finish_channels_last(c, y)


@row("CONV_3D_TRANSPOSE")
def conv_3d_transpose(c: Conversion) -> Result:
    """Operands: output shape, weights [*kernel, out, in], data, bias."""
    for axis in "dhw":
        c.attributes.expect(f"dilation_{axis}_factor", 1, reason="LiteRT has no dilation here")
    return _transposed(c, transposed(c, c.required(1), (4, 3, 0, 1, 2)), "dhw")


def _transposed(c: Conversion, weights: str, axes: str) -> Result:
    require_float_weights(c, 2)
    act, x = activation(c), channels_first(c, c.required(2))
    y = c.add("ConvTranspose", [x, weights, c.input(3)], **transposed_fields(c, axes))
    return finish_channels_last(c, activated(c, y, act))


def transposed_fields(c: Conversion, axes: str = "hw") -> dict[str, object]:
    """Strides, pads and output padding of a transposed convolution from its output's shape."""
    shape = _sizes(c, len(axes) + 2, "the output's shape")
    kernel, rank = static_dims(c, 1, "the weights"), len(axes)
    kernel = kernel[1:3] if axes == "hw" else kernel[:3]
    sizes, ones = c.type(2).dims[1:-1], (1,) * rank
    return transposed_pads(c, shape, sizes, kernel, strides(c, axes), ones, rule(padding(c)))


def _sizes(c: Conversion, rank: int, description: str) -> tuple[int, ...]:
    """Spatial sizes in the shape that operand 0 holds, which is known but perhaps for its batch."""
    shape = c.known_value(0)
    if shape is not None and shape.dtype == object and shape.shape == (rank,):
        inner = shape[1:-1].tolist()
        if all(isinstance(n, int) for n in inner):
            return tuple(inner)
    sizes = constant_ints(c, 0, description)
    return sizes[1:-1] if len(sizes) == rank else ()


@row("MAX_POOL_2D")
def max_pool(c: Conversion) -> Result:
    return _pool(c, "MaxPool")


@row("AVERAGE_POOL_2D")
def average_pool(c: Conversion) -> Result:
    return _pool(c, "AveragePool")


def pool_fields(c: Conversion) -> dict[str, object]:
    a = c.attributes
    return {
        "kernel_shape": (a.integer("filter_height", 0), a.integer("filter_width", 0)),
        "strides": strides(c, "hw"),
        "pads": rule(padding(c)),
    }


def _pool(c: Conversion, kind: str) -> Result:
    act = activation(c)
    y = c.add(kind, [channels_first(c, c.required(0))], **pool_fields(c))
    return finish_channels_last(c, activated(c, y, act))


@row("FULLY_CONNECTED")
def fully_connected(c: Conversion) -> Result:
    """Data [..., in] is taken as [-1, in]; weights [out, in]."""
    a = c.attributes
    require_float_weights(c)
    a.irrelevant("asymmetric_quantize_inputs", "the weights are not quantized")
    a.irrelevant("quantized_bias_type", "no operand is quantized")
    act = activation(c)
    x, shape = flat_rows(c)
    operands = [x, c.required(1), c.input(2)]
    if shape is None:
        return finish_activated(c, act, "Gemm", operands, trans_b=True)
    y = activated(c, c.add("Gemm", operands, trans_b=True), act)
    return c.result("Reshape", [y, c.ints(shape)])


def flat_rows(c: Conversion) -> tuple[str, tuple[int, ...] | None]:
    """The data as rows, and the shape that the result must get (None: [rows, out])."""
    c.attributes.expect("weights_format", "DEFAULT", reason="shuffled weights are not supported")
    keep = c.flag("keep_num_dims")
    data, (out, width) = c.type(0), static_dims(c, 1, "the weights")
    x = c.required(0)
    if data.rank == 2 and data.dims[-1] == width:
        return x, None
    rows = c.add("Reshape", [x, c.ints((-1, width))])
    if not keep:
        return rows, None
    if data.dims[-1] != width:
        raise ModelError(f"rows of {data.dims[-1]} do not fit {width}", place=c.node.place)
    if sum(not isinstance(d, int) for d in data.dims[:-1]) > 1:
        c.refuse("more than one size is open where the result keeps its dimensions")
    sizes = tuple(d if isinstance(d, int) else -1 for d in data.dims[:-1])
    return rows, (*sizes, out)


@row("BATCH_MATMUL")
def batch_matmul(c: Conversion) -> Result:
    require_float_weights(c)
    c.attributes.irrelevant("asymmetric_quantize_inputs", "no operand is quantized")
    return c.apply("MatMul", [matrix_operand(c, 0, "adj_x"), matrix_operand(c, 1, "adj_y")])


def matrix_operand(c: Conversion, index: int, flag: str) -> str:
    """An operand of a matrix product, its last two axes swapped if the option `flag` is set."""
    value, rank = c.required(index), c.rank(index)
    if not c.flag(flag):
        return value
    return transposed(c, value, (*range(rank - 2), rank - 1, rank - 2))


@row("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(c: Conversion) -> Result:
    """x / (bias + alpha sum(x^2))^beta over 2 radius + 1 channels; LRN divides alpha by size."""
    a = c.attributes
    size = 2 * a.integer("radius", 0) + 1
    fields = {k: a.scalar(k, 0.0) for k in ("bias", "alpha", "beta")}
    fields["alpha"] *= size
    y = c.add("LRN", [channels_first(c, c.required(0))], size=size, **fields)
    return finish_channels_last(c, y)


@row("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", moves=True)
def depth_and_space(c: Conversion) -> Result:
    """Channels of a block are ordered by its rows, its columns, then depth."""
    kind = "DepthToSpace" if c.node.op_type == "DEPTH_TO_SPACE" else "SpaceToDepth"
    size = c.integer("block_size", 0)
    y = c.add(kind, [channels_first(c, c.required(0))], blocksize=size)
    return finish_channels_last(c, y)
