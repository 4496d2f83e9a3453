"""CoreML layers with windows: convolution and pooling.

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import GraphValue, operation
from verax.frontends.coreml.rows import amounts, bias, require_rank, row, two, weights

SAME = {"BOTTOM_RIGHT_HEAVY": "same", "TOP_LEFT_HEAVY": "same_lower"}
"""Where an odd amount of padding goes: to the end, or to the beginning."""


@row("convolution")
def convolution(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 4)
    kernel, strides = two(c, "kernelSize", (3, 3)), two(c, "stride", (1, 1))
    out, groups = a.integer("outputChannels", 0), a.integer("nGroups", 0) or 1
    in_channels = a.integer("kernelChannels", 0)
    if a.flag("isDeconvolution"):
        return _deconvolution(c, kernel, strides, (in_channels, out, groups))
    a.irrelevant("outputShape", "a convolution's output has no other shape")
    return operation(
        c,
        "conv",
        x=GraphValue(c.required(0)),
        weight=weights(c, "weights", (out, in_channels, *kernel)),
        bias=bias(c, out),
        strides=strides,
        dilations=two(c, "dilationFactor", (1, 1)),
        groups=groups,
        **_padding(c, "ConvolutionPaddingType"),
    )


def _deconvolution(
    c: Conversion, kernel: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, int, int]
) -> Result:
    """SAME gives strides times the input; outputShape wins over the padding.

    What is too much is cropped as SAME pads: half of it at each border, the odd one at the end, or
    at the beginning if top-left heavy.
    """
    a, (in_channels, out, groups) = c.attributes, sizes
    a.irrelevant("dilationFactor", "CoreML ignores it in a deconvolution")
    if out % groups:
        raise ModelError(f"{out} output channels in {groups} groups", place=c.node.place)
    shape = a.integers("outputShape", ())
    padding = {"pad_type": "same"} if shape else _padding(c, "ConvolutionPaddingType")
    c.irrelevant(
        "ConvolutionPaddingType",
        "valid.paddingAmounts",
        "same.asymmetryMode",
        reason="CoreML ignores the padding where outputShape is set",
    )
    return operation(
        c,
        "conv_transpose",
        x=GraphValue(c.required(0)),
        weight=weights(c, "weights", (in_channels, out // groups, *kernel), axis=1),
        bias=bias(c, out),
        strides=strides,
        groups=groups,
        output_shape=(1, out, *shape) if shape else None,
        **padding,
    )


def _padding(c: Conversion, choice: str) -> dict[str, Any]:
    """The arguments pad_type and pad; without a choice there is no padding."""
    kind = c.text(choice, "valid")
    if kind == "valid":
        return {"pad_type": "custom", "pad": np.ravel(amounts(c, "valid.paddingAmounts"))}
    if kind != "same":
        c.attributes.refuse(choice, "it does not belong to this layer")
    return {"pad_type": SAME[c.text("same.asymmetryMode", "BOTTOM_RIGHT_HEAVY")]}


@row("pooling")
def pooling(c: Conversion) -> Result:
    """A window that includeLastPixel lets hang over counts as Caffe does: up to the padding."""
    a = c.attributes
    require_rank(c, 4)
    kind = a.text("type", "MAX")
    if kind != "AVERAGE":
        a.irrelevant("avgPoolExcludePadding", f"a pool of type {kind} does not average")
    counted = kind != "AVERAGE" or not a.flag("avgPoolExcludePadding")
    if a.flag("globalPooling"):
        for name in c.node.attributes:
            if name not in ("type", "globalPooling"):
                a.irrelevant(name, "a global pool has one window, the whole input")
        names = {"MAX": "GlobalMaxPool", "AVERAGE": "GlobalAveragePool", "L2": "GlobalLpPool"}
        return c.operator(names[kind])
    kernel, strides = two(c, "kernelSize", (3, 3)), two(c, "stride", (1, 1))
    hangs_over = a.has("PoolingPaddingType") and a.text("PoolingPaddingType") == "includeLastPixel"
    if hangs_over:
        padding: dict[str, Any] = {"pad_type": "custom", "pad": _last_pixel(c, kernel, strides)}
    else:
        padding = _padding(c, "PoolingPaddingType")
    more = {} if counted else {"exclude_padding_from_average": True}
    return operation(
        c,
        {"MAX": "max_pool", "AVERAGE": "avg_pool", "L2": "l2_pool"}[kind],
        x=GraphValue(c.required(0)),
        kernel_sizes=kernel,
        strides=strides,
        ceil_mode=hangs_over,
        **padding,
        **more,
    )


def _last_pixel(
    c: Conversion, kernel: tuple[int, int], strides: tuple[int, int]
) -> tuple[int, ...]:
    """Symmetric pads. Windows that begin beyond the input are dropped only if there are pads."""
    pads = two(c, "includeLastPixel.paddingAmounts", (0, 0))
    if not any(pads) and any(s > k for k, s in zip(kernel, strides)):
        for n, k, s in zip(c.known_sizes(0, (2, 3), "the last window"), kernel, strides):
            if -(-(n - k) // s) * s >= n:
                c.refuse("the last window lies wholly beyond the input")
    return tuple(p for pad in pads for p in (pad, pad))
