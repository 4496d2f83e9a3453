"""CoreML layers on volumes [batch, channels, depth, height, width].

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto; the layout of a deconvolution's
weights as coremltools writes it.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.rows import Pads, bias, require_rank, resolved, row, weights

AXES = ("Depth", "Height", "Width")
SIDES = (("Front", "Back"), ("Top", "Bottom"), ("Left", "Right"))


def _three(c: Conversion, prefix: str) -> tuple[int, ...]:
    """Sizes per axis; each must be stated."""
    found = tuple(c.integer(f"{prefix}{axis}", 0) for axis in AXES)
    if min(found) < 1:
        raise ModelError(f"the sizes {prefix} are {found}", place=c.node.place)
    return found


def _padding(c: Conversion) -> Pads | str:
    """Amounts per border, or SAME, whose odd one goes to the end."""
    a, kind = c.attributes, c.text("paddingType", "CUSTOM")
    names = [[f"customPadding{side}" for side in pair] for pair in SIDES]
    if kind == "CUSTOM":
        return tuple((a.integer(b, 0), a.integer(e, 0)) for b, e in names)
    for name in (n for pair in names for n in pair):
        a.irrelevant(name, f"the padding is {kind}")
    return ((0, 0),) * 3 if kind == "VALID" else "SAME_UPPER"


@row("convolution3d")
def convolution3d(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 5)
    out, taken, groups = (a.integer(n, 0) for n in ("outputChannels", "inputChannels", "nGroups"))
    kernel, strides, dilations = (_three(c, n) for n in ("kernel", "stride", "dilation"))
    if groups < 1 or out % groups or taken % groups:
        raise ModelError(f"{taken} to {out} channels in {groups} groups", place=c.node.place)
    pads = _padding(c)
    if not a.flag("isDeconvolution"):
        a.irrelevant("outputShape", "a convolution's output has no other shape")
        w = weights(c, "weights", (out, taken // groups, *kernel))
        pads = resolved(pads, c.type(0), kernel, strides, dilations)
        fields = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
        inputs = [c.required(0), c.constant(w), *bias(c, out)]
        return c.result("Conv", inputs, pads=pads, groups=groups, **fields)
    if max(dilations) > 1:
        c.refuse("a deconvolution with dilation: the format does not say what it means")
    w = weights(c, "weights", (out // groups, taken, *kernel))
    w = np.ascontiguousarray(w.swapaxes(0, 1))
    inputs = [c.required(0), c.constant(w), *bias(c, out)]
    fields = {"kernel_shape": kernel, "strides": strides, "groups": groups}
    if isinstance(pads, str):
        a.expect("outputShape", (), why="of a deconvolution padded SAME")
        totals = [max(0, k - s) for k, s in zip(kernel, strides)]
        cropped = tuple((t // 2, t - t // 2) for t in totals)
        more = tuple(max(0, s - k) for k, s in zip(kernel, strides))
        return c.result("ConvTranspose", inputs, pads=cropped, output_padding=more, **fields)
    wanted = a.integers("outputShape", ())
    sizes = [d for d in c.type(0).dims[2:] if isinstance(d, int)]
    plain = tuple((n - 1) * s + k - b - e for n, s, k, (b, e) in zip(sizes, strides, kernel, pads))
    if wanted and wanted != plain:
        a.refuse("outputShape", f"the padding gives {plain}")
    return c.result("ConvTranspose", inputs, pads=pads, **fields)


@row("pooling3d")
def pooling3d(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 5)
    kind, pads = a.text("type", "MAX"), _padding(c)
    kernel, strides = _three(c, "kernel"), _three(c, "stride")
    fields = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": resolved(pads, c.type(0), kernel, strides),
    }
    if kind == "MAX":
        a.irrelevant("countExcludePadding", "a maximum counts nothing")
        return c.operator("MaxPool", **fields)
    counted = not a.flag("countExcludePadding")
    return c.operator("AveragePool", count_include_pad=counted, **fields)


@row("globalPooling3d")
def global_pooling3d(c: Conversion) -> Result:
    require_rank(c, 5)
    is_max = c.text("type", "MAX") == "MAX"
    return c.operator("GlobalMaxPool" if is_max else "GlobalAveragePool")
