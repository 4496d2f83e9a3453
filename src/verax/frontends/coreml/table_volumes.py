"""CoreML layers on volumes [batch, channels, depth, height, width].

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto; the layout of a deconvolution's
weights as coremltools writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import GraphValue, operation
from verax.frontends.coreml.rows import bias, require_rank, row, weights

AXES = ("Depth", "Height", "Width")
SIDES = (("Front", "Back"), ("Top", "Bottom"), ("Left", "Right"))


def _three(c: Conversion, prefix: str) -> tuple[int, ...]:
    """Sizes per axis; each must be stated."""
    sizes = tuple(c.integer(f"{prefix}{axis}", 0) for axis in AXES)
    if min(sizes) < 1:
        raise ModelError(f"the sizes {prefix} are {sizes}", place=c.node.place)
    return sizes


def _padding(c: Conversion) -> dict[str, Any]:
    """The arguments pad_type and pad: amounts per border, or SAME, whose odd one is at the end."""
    a, kind = c.attributes, c.text("paddingType", "CUSTOM")
    names = [f"customPadding{side}" for pair in SIDES for side in pair]
    if kind == "CUSTOM":
        return {"pad_type": "custom", "pad": tuple(a.integer(name, 0) for name in names)}
    for name in names:
        a.irrelevant(name, f"the padding is {kind}")
    return {"pad_type": kind.lower()}


@row("convolution3d")
def convolution3d(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 5)
    out, in_channels, groups = (
        a.integer(n, 0) for n in ("outputChannels", "inputChannels", "nGroups")
    )
    kernel, strides, dilations = (_three(c, n) for n in ("kernel", "stride", "dilation"))
    if groups < 1 or out % groups or in_channels % groups:
        raise ModelError(f"{in_channels} to {out} channels in {groups} groups", place=c.node.place)
    fields = {"strides": strides, "groups": groups, **_padding(c)}
    if not a.flag("isDeconvolution"):
        a.irrelevant("outputShape", "a convolution's output has no other shape")
        w = weights(c, "weights", (out, in_channels // groups, *kernel))
        kind, fields["dilations"] = "conv", dilations
    else:
        if max(dilations) > 1:
            c.refuse("a deconvolution with dilation: the format does not say what it means")
        w = weights(c, "weights", (out // groups, in_channels, *kernel)).swapaxes(0, 1)
        kind, output_shape = "conv_transpose", a.integers("outputShape", ())
        if output_shape and fields["pad_type"] == "same":
            a.refuse("outputShape", "of a deconvolution padded SAME")
        if output_shape and output_shape != (plain := _plain(c, kernel, fields)):
            a.refuse("outputShape", f"the padding gives {plain}")
    x, w = GraphValue(c.required(0)), np.ascontiguousarray(w)
    return operation(c, kind, x=x, weight=w, bias=bias(c, out), **fields)


def _plain(c: Conversion, kernel: Sequence[int], fields: dict[str, Any]) -> tuple[int, ...]:
    """Sizes of a deconvolution without further output padding."""
    pad, sizes = fields.get("pad", (0,) * 6), [d for d in c.type(0).dims[2:] if isinstance(d, int)]
    return tuple(
        (n - 1) * s + k - b - e
        for n, s, k, b, e in zip(sizes, fields["strides"], kernel, pad[::2], pad[1::2])
    )


@row("pooling3d")
def pooling3d(c: Conversion) -> Result:
    require_rank(c, 5)
    kind, fields = c.text("type", "MAX"), _padding(c)
    fields |= {"kernel_sizes": _three(c, "kernel"), "strides": _three(c, "stride")}
    if kind == "MAX":
        c.attributes.irrelevant("countExcludePadding", "a maximum counts nothing")
    else:
        fields["exclude_padding_from_average"] = c.flag("countExcludePadding")
    name = "max_pool" if kind == "MAX" else "avg_pool"
    return operation(c, name, x=GraphValue(c.required(0)), **fields)


@row("globalPooling3d")
def global_pooling3d(c: Conversion) -> Result:
    require_rank(c, 5)
    is_max = c.text("type", "MAX") == "MAX"
    return c.operator("GlobalMaxPool" if is_max else "GlobalAveragePool")
