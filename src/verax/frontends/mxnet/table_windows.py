"""MXNet convolutions and pools.

Meanings are those of MXNet 1.9.1 on a CPU; defaults are the ones that its operators declare.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import finish_channels_last
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import (
    channels_back,
    channels_second,
    count_inputs,
    ints,
    is_channels_last,
    known_dims,
    per_axis,
    row,
)
from verax.ir.operator import Operator


@row("Convolution", "Convolution_v1")
def convolution(c: Conversion) -> Result:
    a, kernel = c.attributes, ints(c, "kernel", ())
    rank = len(kernel)
    count_inputs(c, 2 if a.flag("no_bias", False) else 3)
    _require_filters(c, c.type(1).dims[0])
    pads = per_axis(c, "pad", rank, 0)
    op = c.operator(
        "Conv",
        kernel_shape=kernel,
        strides=per_axis(c, "stride", rank, 1),
        pads=tuple((p, p) for p in pads),
        dilations=per_axis(c, "dilate", rank, 1),
        groups=a.integer("num_group", 1),
    )
    return channels_back(c, channels_second(c), op) if is_channels_last(c, rank) else op


@row("Deconvolution")
def deconvolution(c: Conversion) -> Result:
    if is_channels_last(c, len(ints(c, "kernel", ()))):
        inner = channels_second(c)
        return channels_back(c, inner, _deconvolution(inner))
    return _deconvolution(c)


def _deconvolution(c: Conversion) -> Operator:
    """A target_shape other than 0 decides the padding; an odd one is cropped at the beginning."""
    a, kernel = c.attributes, ints(c, "kernel", ())
    rank, groups = len(kernel), a.integer("num_group", 1)
    count_inputs(c, 2 if a.flag("no_bias", True) else 3)
    weights = c.type(1).dims
    _require_filters(c, weights[1] * groups)
    strides, dilations = per_axis(c, "stride", rank, 1), per_axis(c, "dilate", rank, 1)
    fields = {"kernel_shape": kernel, "strides": strides, "dilations": dilations, "groups": groups}
    target = per_axis(c, "target_shape", rank, 0)
    if any(target):
        c.irrelevant("pad", "adj", reason="MXNet ignores it where target_shape is given")
        sizes = known_dims(c, 0, "whether target_shape can be reached", 2)
        for n, k, s, d, t in zip(sizes, kernel, strides, dilations, target):
            if not 0 < t <= s * (n - 1) + (k - 1) * d + 1:
                a.refuse("target_shape", "it is not reached, or an axis is left out")
        return c.operator("ConvTranspose", output_shape=target, **fields)
    adjust = per_axis(c, "adj", rank, 0)
    if any(v >= s for v, s in zip(adjust, strides)):
        a.refuse("adj", "it must be smaller than the stride")
    pads = per_axis(c, "pad", rank, 0)
    return c.operator(
        "ConvTranspose", pads=tuple((p, p) for p in pads), output_padding=adjust, **fields
    )


def _require_filters(c: Conversion, actual: object) -> None:
    stated = c.integer("num_filter")
    if stated != actual:
        raise ModelError(f"num_filter is {stated}, the weights are {c.type(1)}", place=c.node.place)


@row("Pooling")
def pooling(c: Conversion) -> Result:
    if not is_channels_last(c, c.rank() - 2):
        return _pooling(c)
    inner = replace(channels_second(c), node=replace(c.node, outputs=()))
    pooled = _pooling(inner)
    if isinstance(pooled, Operator):
        return channels_back(c, inner, pooled)
    assert isinstance(pooled, tuple)
    return finish_channels_last(c, pooled[0])


def _pooling(c: Conversion) -> Result:
    a = c.attributes
    kind = c.choice("pool_type", ("max", "avg", "sum", "lp"), "max")
    counted = _option(c, "count_include_pad", kind == "avg", True, f"a pool of kind {kind}")
    if kind == "lp":
        kind = _power_kind(c)
    else:
        a.irrelevant("p_value", f"a pool of kind {kind} has no power")
    if a.flag("global_pool", False):
        return _global_pool(c, kind)
    kernel = ints(c, "kernel", ())
    if len(kernel) != c.rank() - 2:
        raise ModelError(f"kernel = {kernel} for an input {c.type(0)}", place=c.node.place)
    strides = per_axis(c, "stride", len(kernel), 1)
    pads, hangs_over = _pool_pads(c, kernel, strides, kind)
    form = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": hangs_over}
    if kind == "max":
        return c.operator("MaxPool", **form)
    if kind == "lp":
        return c.operator("LpPool", p=2, **form)
    if kind == "avg":
        return c.operator("AveragePool", count_include_pad=counted, **form)
    # A sum is the mean over the whole window, times its size; padding and overhang are zeros.
    if hangs_over:
        pads = _overhang(c, kernel, strides, pads)
        form |= {"pads": pads, "ceil_mode": False}
    mean = c.add("AveragePool", [c.required(0)], count_include_pad=True, **form)
    return c.result("Mul", [mean, c.like(np.prod(kernel))])


@row("Pooling_v1")
def first_pooling(c: Conversion) -> Result:
    """Of images. Unlike in Pooling, a padding zero may be a maximum, and a mean is always over a
    whole window, also where it hangs over the padding."""
    a, kind = c.attributes, c.choice("pool_type", ("max", "avg", "sum"), "max")
    if c.rank() != 4:
        c.refuse(f"it pools images, and the input is {c.type(0)}")
    if a.flag("global_pool", False):
        return _global_pool(c, kind)
    if len(kernel := ints(c, "kernel", ())) != 2:
        raise ModelError(f"kernel = {kernel} for an input {c.type(0)}", place=c.node.place)
    strides = per_axis(c, "stride", 2, 1)
    pads, hangs_over = _pool_pads(c, kernel, strides, kind)
    form = {"kernel_shape": kernel, "strides": strides}
    if kind == "max":
        widths = [0, 0, *(p for p, _ in pads)]
        padded = c.add("Pad", [c.required(0), c.ints(widths * 2), c.like(0)], mode="constant")
        return c.result("MaxPool", [padded], pads=((0, 0),) * 2, ceil_mode=hangs_over, **form)
    pads = _overhang(c, kernel, strides, pads) if hangs_over else pads
    form |= {"pads": pads, "count_include_pad": True}
    if kind == "avg":
        return c.result("AveragePool", [c.required(0)], **form)
    return c.result("Mul", [c.add("AveragePool", [c.required(0)], **form), c.like(np.prod(kernel))])


def _power_kind(c: Conversion) -> str:
    """A power of 1 adds the elements as they are, not their sizes; odd powers do alike."""
    p = c.integer("p_value")
    if p not in (1, 2):
        c.attributes.refuse("p_value", "only 1 and 2 are supported")
    return "sum" if p == 1 else "lp"


def _option(c: Conversion, name: str, matters: bool, default: bool, reader: str) -> bool:
    if matters:
        return default if c.attributes.get(name) is None else c.flag(name)
    c.attributes.irrelevant(name, f"{reader} does not read it")
    return default


def _global_pool(c: Conversion, kind: str) -> Result:
    c.irrelevant(
        "kernel",
        "stride",
        "pad",
        "pooling_convention",
        reason="a global pool has one window, the whole input",
    )
    if kind == "sum":
        axes = c.ints(tuple(range(2, c.rank())))
        return c.result("ReduceSum", [c.required(0), axes], keepdims=True)
    if kind == "lp":
        return c.operator("GlobalLpPool", p=2)
    return c.operator("GlobalMaxPool" if kind == "max" else "GlobalAveragePool")


def _pool_pads(
    c: Conversion, kernel: tuple[int, ...], strides: tuple[int, ...], kind: str
) -> tuple[tuple[tuple[int, int], ...], bool]:
    """Pads, and whether windows may hang over them.

    Convention "full" counts ceil((n + 2 pad - k) / s) + 1 windows, also where the last would lie
    wholly in the padding, which no other framework does; "same" counts ceil(n / s) from 0 on.
    """
    a = c.attributes
    rule = a.text("pooling_convention", "valid")
    if rule == "same":
        if kind != "max" or len(kernel) != 1:
            a.refuse("pooling_convention", "MXNet has it for 1-D max pools only")
        if any(ints(c, "pad", ())):
            a.refuse("pad", "the convention 'same' takes none")
        (n,) = known_dims(c, 0, "the padding of the convention 'same'", 2)
        out = -(-n // strides[0])
        return ((0, max(0, (out - 1) * strides[0] + kernel[0] - n)),), False
    pads = per_axis(c, "pad", len(kernel), 0)
    symmetric = tuple((p, p) for p in pads)
    if rule == "valid":
        return symmetric, False
    if rule != "full":
        a.refuse("pooling_convention", "unknown convention")
    if any(p > 0 or s > k for p, s, k in zip(pads, strides, kernel)):
        sizes = known_dims(c, 0, "whether a window lies wholly in the padding", 2)
        for n, k, s, p in zip(sizes, kernel, strides, pads):
            if -(-(n + 2 * p - k) // s) * s - p >= n:
                c.refuse("the last window of the convention 'full' lies wholly in the padding")
    return symmetric, True


def _overhang(
    c: Conversion,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
) -> tuple[tuple[int, int], ...]:
    """The pads with what the last window hangs over added at the end."""
    sizes = known_dims(c, 0, "the overhang of the convention 'full'", 2)
    pads_out = []
    for n, k, s, (p, _) in zip(sizes, kernel, strides, pads):
        out = -(-(n + 2 * p - k) // s) + 1
        pads_out.append((p, max(p, (out - 1) * s + k - n - p)))
    return tuple(pads_out)


@row("UpSampling")
def up_sampling(c: Conversion) -> Result:
    """Nearest repeats pixels; bilinear is a transposed convolution with the node's own weights."""
    a = c.attributes
    scale, kind = a.integer("scale"), a.text("sample_type", "nearest")
    if c.rank() != 4:
        c.refuse("only images (4 axes) are supported")
    if kind == "nearest":
        a.irrelevant("num_filter", "nearest upsampling has no filters")
        return _nearest(c, scale)
    if kind != "bilinear":
        a.refuse("sample_type", "unknown kind")
    a.irrelevant("multi_input_mode", "the inputs are data and weights")
    count_inputs(c, 2)
    groups, kernel = a.integer("num_filter"), 2 * scale - scale % 2
    if c.type(1).dims != (groups, 1, kernel, kernel):
        raise ModelError(f"the weights are {c.type(1)}", place=c.node.place)
    pad = -(-(scale - 1) // 2)
    return c.operator(
        "ConvTranspose", strides=(scale, scale), pads=((pad, pad),) * 2, groups=groups
    )


def _nearest(c: Conversion, scale: int) -> Result:
    """Every input enlarged to `scale` times the first one's size, then joined or added."""
    form = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }

    def scales(factor: int) -> str:
        return c.constant((1, 1, factor, factor), np.float32)

    if len(c.inputs) == 1:
        c.attributes.irrelevant("multi_input_mode", "there is one input")
        return c.result("Resize", [c.required(0), None, scales(scale)], **form)
    height, width = known_dims(c, 0, "the size of the result", 2)
    enlarged = []
    for i in range(len(c.inputs)):
        size = known_dims(c, i, "how often a pixel is repeated", 2)
        factor = height * scale // max(size[0], 1)
        if (size[0] * factor, size[1] * factor) != (height * scale, width * scale):
            raise ModelError(
                f"{c.type(i)} does not reach {scale} x {c.type(0)}", place=c.node.place
            )
        enlarged.append(c.add("Resize", [c.required(i), None, scales(factor)], **form))
    mode = c.choice("multi_input_mode", ("concat", "sum"), "concat")
    return c.result("Concat", enlarged, axis=1) if mode == "concat" else c.result("Sum", enlarged)


@row("_contrib_AdaptiveAvgPooling2D")
def adaptive_average_pool(c: Conversion) -> Result:
    """Output i averages over floor(i n / m) up to ceil((i + 1) n / m), for n inputs and m outputs:
    equal windows where m divides n, else one product with a matrix of weights per axis."""
    output_size = ints(c, "output_size", (1,)) or (1,)
    output_size = output_size * 2 if len(output_size) == 1 else output_size
    if len(output_size) != 2 or min(output_size) < 1 or c.rank() != 4:
        c.attributes.refuse("output_size", f"the input is {c.type(0)}")
    if output_size == (1, 1):
        return c.operator("GlobalAveragePool")
    sizes = known_dims(c, 0, "the size of the parts", 2)
    if not any(n % m for n, m in zip(sizes, output_size)):
        kernel = tuple(n // m for n, m in zip(sizes, output_size))
        return c.operator("AveragePool", kernel_shape=kernel, strides=kernel)
    c.check_count(sum(n * m for n, m in zip(sizes, output_size)))
    rows, columns = (_averaging(n, m) for n, m in zip(sizes, output_size))
    wide = c.add("MatMul", [c.required(0), c.like(columns)])
    return c.result("MatMul", [c.like(rows.T), wide])


def _averaging(n: int, m: int) -> np.ndarray:
    """Matrix [n, m] whose column i averages over part i."""
    matrix = np.zeros((n, m))
    for i in range(m):
        first, last = i * n // m, -(-(i + 1) * n // m)
        matrix[first:last, i] = 1 / (last - first)
    return matrix
