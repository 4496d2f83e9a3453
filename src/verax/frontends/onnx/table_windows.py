"""ONNX convolutions and pools, and what puts their windows back."""

from __future__ import annotations

import math

from verax.frontends.common import layers
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.deformable import Taps, deformable_convolution
from verax.frontends.common.table import Fields, flag, integer, integers
from verax.frontends.onnx.rows import TABLE, pads_per_axis, row, window_pads


def _transposed_pads(c: Conversion) -> object:
    """ONNX: an output_shape decides the pads, and explicit ones are ignored."""
    if c.attributes.has("output_shape"):
        c.attributes.irrelevant("pads", "ONNX ignores pads where output_shape is given")
        rule = c.text("auto_pad", "NOTSET")
        return rule if rule in ("SAME_UPPER", "SAME_LOWER") else ()
    return window_pads(c)


SPARSE: Fields = {
    "kernel_shape": integers(()),
    "strides": integers(()),
    "pads": window_pads,
    "dilations": integers(()),
}
CONVOLUTION: Fields = {**SPARSE, "groups": integer(1, "group")}
TABLE.operator("Conv", **CONVOLUTION)
TABLE.operator("ConvInteger", **CONVOLUTION)
TABLE.operator(
    "ConvTranspose",
    **{**CONVOLUTION, "pads": _transposed_pads},
    output_padding=integers(()),
    output_shape=integers(()),
)
POOL: Fields = {**SPARSE, "ceil_mode": flag()}
TABLE.operator("MaxPool", **POOL, storage_order=integer(0), with_indices=lambda c: c.output_used(1))
TABLE.operator("AveragePool", **POOL, count_include_pad=flag())
TABLE.operator("LpPool", **POOL, p=integer(2))
TABLE.operator("GlobalAveragePool")
TABLE.operator("GlobalMaxPool")
TABLE.operator("GlobalLpPool", p=integer(2))
TABLE.operator(
    "MaxUnpool",
    kernel_shape=integers(()),
    strides=integers(()),
    pads=lambda c: pads_per_axis(c, c.integers("pads", ())),
)


@row("DeformConv")
def deform_conv(c: Conversion) -> Result:
    """Inputs: image, weights, offsets, bias, mask."""
    a, x, weight = c.attributes, c.required(0), c.required(1)
    if c.rank(x) != 4 or c.rank(weight) != 4:
        c.refuse("an image of another number of axes than two")
    kernel = c.known_sizes(weight, (2, 3), "its windows")
    if a.integers("kernel_shape", kernel) != kernel:
        c.refuse(f"the kernel {a.integers('kernel_shape')} with weights of {kernel}")
    strides, dilations = a.integers("strides", (1, 1)), a.integers("dilations", (1, 1))
    pads = pads_per_axis(c, a.integers("pads", (0, 0, 0, 0)))
    if not len(strides) == len(dilations) == len(pads) == 2 or min(*strides, *dilations) < 1:
        c.refuse("strides, dilations and pads that are not those of two axes")
    taps = Taps(
        strides,
        pads,
        dilations,
        a.integer("group", 1),
        a.integer("offset_group", 1),
    )
    return deformable_convolution(c, x, weight, c.required(2), c.input(3), c.input(4), taps)


@row("Col2Im")
def col2im(c: Conversion) -> Result:
    """Sums of overlapping windows: a transposed convolution that puts every element at its place in
    the window, channel by channel. Input [batch, channels * window, windows]."""
    image, kernel = (
        [int(n) for n in c.constant_input(i, description)]
        for i, description in ((1, "the image's size"), (2, "the window's size"))
    )
    rank, (_, total, windows) = len(image), c.type(0).dims
    a = c.attributes
    strides, dilations = a.integers("strides", (1,) * rank), a.integers("dilations", (1,) * rank)
    pads = pads_per_axis(c, a.integers("pads", (0,) * 2 * rank))
    if not len(kernel) == len(strides) == len(dilations) == len(pads) == rank or rank < 1:
        c.refuse("its sizes, pads, strides and dilations are of different numbers of axes")
    if min(*image, *kernel, *strides, *dilations) < 1 or any(p < 0 for pair in pads for p in pair):
        c.refuse("sizes, strides and dilations below 1, or pads below 0")
    room = [n + sum(p) - d * (k - 1) - 1 for n, p, d, k in zip(image, pads, dilations, kernel)]
    counts = [r // s + 1 for r, s in zip(room, strides)]
    size = math.prod(kernel)
    if not isinstance(total, int) or total % size or windows != math.prod(counts) or min(room) < 0:
        c.refuse(f"{c.type(0)} is not what windows of {kernel} on an image of {image} give")
    c.check_count(total * size)
    batch = c.add("Shape", [c.required(0)], end=1)
    shape = c.add("Concat", [batch, c.ints([total, *counts])], axis=0)
    laid_out = c.add("Reshape", [c.required(0), shape])
    weight, fields = layers.sums_of_windows(
        c,
        c.type(0).dtype,
        total // size,
        kernel,
        image=image,
        counts=counts,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    return c.result("ConvTranspose", [laid_out, weight], **fields)
