"""Keras convolutions and pools. Kernels lie as [*kernel, in, out] whatever the data's layout."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import (
    LayerLayout,
    activated,
    array_of,
    data_input,
    only_input,
    row,
    sizes,
    spatial_rank,
    weights,
)

RULES = {"same": "SAME_UPPER", "valid": ()}


def padding(c: Conversion) -> Any:
    """Pads of a window: the odd element of "same" is at the end."""
    name = c.choice("padding", RULES, "valid")
    return RULES[name]


def window(c: Conversion, rank: int, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Strides, pads and dilations of a convolution; "causal" pads the beginning of one axis."""
    strides = sizes(c, "strides", rank, (1,) * rank)
    dilations = sizes(c, "dilation_rate", rank, (1,) * rank)
    if rank == 1 and c.attributes.values.get("padding") == "causal":
        c.attributes.get("padding")
        return {
            "strides": strides,
            "pads": ((dilations[0] * (kernel[0] - 1), 0),),
            "dilations": dilations,
        }
    return {"strides": strides, "pads": padding(c), "dilations": dilations}


def check_kernel(c: Conversion, kernel: np.ndarray, rank: int) -> tuple[int, ...]:
    """Spatial sizes of a kernel, which the configuration repeats."""
    stated = sizes(c, "kernel_size", rank)
    if kernel.ndim != rank + 2 or kernel.shape[:rank] != stated:
        raise ModelError(f"kernel_size is {stated}, the weights are {kernel.shape}",
                         place=c.node.place)  # fmt: skip
    return tuple(int(n) for n in stated)


def check_filters(c: Conversion, channels: int) -> None:
    c.attributes.expect("filters", channels, reason="the weights have another number of filters")


def to_oi(kernel: np.ndarray) -> np.ndarray:
    """[*kernel, in, out] -> [out, in, *kernel]."""
    rank = kernel.ndim - 2
    return np.ascontiguousarray(kernel.transpose(rank + 1, rank, *range(rank)))


@row("Conv1D", "Conv2D", "Conv3D")
def convolution(c: Conversion) -> Result:
    rank, biased = spatial_rank(c), c.flag("use_bias", True)
    kernel, *bias = weights(c, 1 + biased)
    array, layout = array_of(c, kernel), LayerLayout(c)
    shape = check_kernel(c, array, rank)
    check_filters(c, array.shape[-1])
    x = layout.first(data_input(c, 1 + biased))
    y = c.add(
        "Conv",
        [x, c.constant(to_oi(array)), *bias],
        groups=c.integer("groups", 1),
        **window(c, rank, shape),
    )
    return c.same(layout.back(activated_channels(c, y, layout)))


def activated_channels(c: Conversion, value: str, layout: LayerLayout) -> str:
    """The activation of channels-first values; one along the last axis is done where that is."""
    name = c.attributes.values.get("activation")
    if name in ("softmax", "log_softmax") and layout.last:
        rank = c.rank(value)
        there, again = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        channels_last = activated(c, c.add("Transpose", [value], perm=there))
        return c.add("Transpose", [channels_last], perm=again)
    return activated(c, value)


def depthwise(c: Conversion, kernel: np.ndarray) -> str:
    """Weights of a depthwise convolution, from [*kernel, channels, multiplier]."""
    rank = kernel.ndim - 2
    channels, multiplier = kernel.shape[-2:]
    c.attributes.expect("depth_multiplier", multiplier, reason="the weights have another")
    channels_first = kernel.transpose(rank, rank + 1, *range(rank))
    return c.constant(channels_first.reshape(channels * multiplier, 1, *kernel.shape[:rank]))


@row("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_convolution(c: Conversion) -> Result:
    """`groups` and `filters` are left over from the class that it inherits from."""
    rank, biased = spatial_rank(c), c.flag("use_bias", True)
    c.irrelevant("groups", "filters", reason="a depthwise layer has a group per channel")
    kernel, *bias = weights(c, 1 + biased)
    array, layout = array_of(c, kernel), LayerLayout(c)
    shape = check_kernel(c, array, rank)
    y = c.add(
        "Conv",
        [layout.first(data_input(c, 1 + biased)), depthwise(c, array), *bias],
        groups=array.shape[-2],
        **window(c, rank, shape),
    )
    return c.same(layout.back(activated_channels(c, y, layout)))


@row("SeparableConv1D", "SeparableConv2D")
def separable_convolution(c: Conversion) -> Result:
    """A depthwise convolution, then one of 1 x 1 with the bias."""
    rank, biased = spatial_rank(c), c.flag("use_bias", True)
    c.attributes.expect("groups", 1)
    kernel, pointwise, *bias = weights(c, 2 + biased)
    array, points, layout = array_of(c, kernel), array_of(c, pointwise), LayerLayout(c)
    shape = check_kernel(c, array, rank)
    check_filters(c, points.shape[-1])
    x = layout.first(data_input(c, 2 + biased))
    y = c.add("Conv", [x, depthwise(c, array)], groups=array.shape[-2], **window(c, rank, shape))
    y = c.add("Conv", [y, c.constant(to_oi(points)), *bias])
    return c.same(layout.back(activated_channels(c, y, layout)))


@row("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def transposed_convolution(c: Conversion) -> Result:
    """Kernels lie as [*kernel, out, in]."""
    rank, biased = spatial_rank(c), c.flag("use_bias", True)
    c.attributes.expect("groups", 1)
    kernel, *bias = weights(c, 1 + biased)
    array, layout = array_of(c, kernel), LayerLayout(c)
    shape = check_kernel(c, array, rank)
    check_filters(c, array.shape[-2])
    x = layout.first(data_input(c, 1 + biased))
    fields = _transposed_window(c, rank, shape)
    y = c.add("ConvTranspose", [x, c.constant(to_oi(array)), *bias], **fields)
    return c.same(layout.back(activated_channels(c, y, layout)))


def _transposed_window(c: Conversion, rank: int, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Output sizes are strides x input ("same"), or as far as the kernel reaches ("valid"), unless
    output_padding states them; pads are then those of TensorFlow's forward convolution."""
    a, same = c.attributes, padding(c) != ()
    strides = sizes(c, "strides", rank, (1,) * rank)
    dilations = sizes(c, "dilation_rate", rank, (1,) * rank)
    stated = sizes(c, "output_padding", rank) if a.has("output_padding") else None
    if max(strides) > 1 < max(dilations):
        a.refuse("dilation_rate", "together with strides")
    pads, extra = [], []
    for i, (k, s, d) in enumerate(zip(kernel, strides, dilations)):
        reach = (k - 1) * d + 1
        if stated is None:
            last = s if same else max(reach, s)
        else:
            last = reach + stated[i] - (2 * (reach // 2) if same else 0)
            if same and not 1 <= last <= s:
                a.refuse("output_padding", "TensorFlow refuses the output's size")
        begin = max(reach - last, 0) // 2 if same else 0
        pads.append((begin, max(reach - last - begin, 0)))
        extra.append(max(last + begin - reach, 0))
    return {
        "strides": strides,
        "dilations": dilations,
        "pads": tuple(pads),
        "output_padding": tuple(extra),
    }


@row("MaxPooling1D", "MaxPooling2D", "MaxPooling3D")
def max_pool(c: Conversion) -> Result:
    return _pool(c, "MaxPool")


@row("AveragePooling1D", "AveragePooling2D", "AveragePooling3D")
def average_pool(c: Conversion) -> Result:
    """Padding is not counted."""
    return _pool(c, "AveragePool")


def _pool(c: Conversion, kind: str) -> Result:
    rank, layout = spatial_rank(c), LayerLayout(c)
    shape = sizes(c, "pool_size", rank)
    strides = sizes(c, "strides", rank, shape)
    x = layout.first(only_input(c))
    y = c.add(kind, [x], kernel_shape=shape, strides=strides, pads=padding(c))
    return c.same(layout.back(y))


@row(*(f"Global{k}Pooling{i}D" for k in ("Max", "Average") for i in (1, 2, 3)))
def global_pool(c: Conversion) -> Result:
    rank, layout = spatial_rank(c), LayerLayout(c)
    kind = "ReduceMax" if "Max" in c.node.op_type else "ReduceMean"
    axes = range(1, rank + 1) if layout.last else range(2, rank + 2)
    keep = c.flag("keepdims")
    return c.result(kind, [only_input(c), c.ints(tuple(axes))], keepdims=keep)
