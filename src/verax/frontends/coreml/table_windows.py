"""CoreML layers with weights or windows: convolution, pooling, dense, normalisation.

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.rows import (
    Pads,
    amounts,
    bias,
    or_default,
    require_rank,
    resolved,
    row,
    sizes_of,
    two,
    weights,
)

SAME = {"BOTTOM_RIGHT_HEAVY": "SAME_UPPER", "TOP_LEFT_HEAVY": "SAME_LOWER"}
"""Where an odd amount of padding goes: to the end, or to the beginning."""


@row("convolution")
def convolution(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 4)
    if a.flag("isDeconvolution"):
        return _deconvolution(c)
    a.irrelevant("outputShape", "a convolution's output has no other shape")
    kernel, out = two(c, "kernelSize", (3, 3)), a.integer("outputChannels", 0)
    w = weights(c, "weights", (out, a.integer("kernelChannels", 0), *kernel))
    strides, dilations = two(c, "stride", (1, 1)), two(c, "dilationFactor", (1, 1))
    pads = _padding(c, "ConvolutionPaddingType")
    return c.result(
        "Conv",
        [c.required(0), c.constant(w), *bias(c, out)],
        kernel_shape=kernel,
        strides=strides,
        pads=resolved(pads, c.type(0), kernel, strides, dilations),
        dilations=dilations,
        groups=a.integer("nGroups", 0) or 1,
    )


def _deconvolution(c: Conversion) -> Result:
    """SAME gives strides times the input; outputShape wins over the padding.

    What is too much is cropped as SAME pads: half of it at each border, the odd one at the end, or
    at the beginning if top-left heavy.
    """
    a = c.attributes
    a.irrelevant("dilationFactor", "CoreML ignores it in a deconvolution")
    kernel, strides = two(c, "kernelSize", (3, 3)), two(c, "stride", (1, 1))
    out, groups = a.integer("outputChannels", 0), a.integer("nGroups", 0) or 1
    if out % groups:
        raise ModelError(f"{out} output channels in {groups} groups", place=c.node.place)
    w = weights(c, "weights", (a.integer("kernelChannels", 0), out // groups, *kernel), axis=1)
    inputs = [c.required(0), c.constant(w), *bias(c, out)]
    fields = {"kernel_shape": kernel, "strides": strides, "groups": groups}
    shape = a.integers("outputShape", ())
    if shape:
        for name in ("ConvolutionPaddingType", "valid.paddingAmounts", "same.asymmetryMode"):
            a.irrelevant(name, "CoreML ignores the padding where outputShape is set")
        return c.result("ConvTranspose", inputs, output_shape=shape, pads="SAME_UPPER", **fields)
    pads = _padding(c, "ConvolutionPaddingType")
    if not isinstance(pads, str):
        return c.result("ConvTranspose", inputs, pads=pads, **fields)
    cropped, more = [], []
    for k, s in zip(kernel, strides):
        small, large = max(0, k - s) // 2, max(0, k - s) - max(0, k - s) // 2
        cropped.append((small, large) if pads == "SAME_UPPER" else (large, small))
        more.append(max(0, s - k))
    return c.result(
        "ConvTranspose", inputs, pads=tuple(cropped), output_padding=tuple(more), **fields
    )


def _padding(c: Conversion, choice: str) -> Pads | str:
    """Pads in numbers, or the rule of SAME; without a choice there is no padding."""
    a = c.attributes
    kind = a.text(choice, "valid")
    if kind == "valid":
        return amounts(c, "valid.paddingAmounts")
    if kind != "same":
        a.refuse(choice, "it does not belong to this layer")
    return SAME[a.text("same.asymmetryMode", "BOTTOM_RIGHT_HEAVY")]


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
    pads: Pads | str
    if hangs_over:
        pads = _last_pixel(c, kernel, strides)
    else:
        pads = resolved(_padding(c, "PoolingPaddingType"), c.type(0), kernel, strides)
    form = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": hangs_over}
    if kind == "MAX":
        return c.operator("MaxPool", **form)
    if kind == "L2":
        return c.operator("LpPool", p=2, **form)
    return c.operator("AveragePool", count_include_pad=counted, **form)


def _last_pixel(c: Conversion, kernel: tuple[int, int], strides: tuple[int, int]) -> Pads:
    """Symmetric pads. Windows that begin beyond the input are dropped only if there are pads."""
    pads = two(c, "includeLastPixel.paddingAmounts", (0, 0))
    if not any(pads) and any(s > k for k, s in zip(kernel, strides)):
        for n, k, s in zip(sizes_of(c, 0, (2, 3), "the last window"), kernel, strides):
            if -(-(n - k) // s) * s >= n:
                c.refuse("the last window lies wholly beyond the input")
    return tuple((p, p) for p in pads)


@row("innerProduct")
def inner_product(c: Conversion) -> Result:
    """x times weights [out, in]; of rank 4 and more the last three axes are taken as one."""
    a = c.attributes
    a.expect("int8DynamicQuantize", False, why="inputs quantised while running")
    taken, out = a.integer("inputChannels", 0), a.integer("outputChannels", 0)
    w = weights(c, "weights", (out, taken))
    if c.rank() > 4:
        require_rank(c, 4)
    if c.rank() == 2:
        return c.result("Gemm", [c.required(0), c.constant(w), *bias(c, out)], trans_b=True)
    if c.rank() < 4:
        product = [c.required(0), c.constant(np.ascontiguousarray(w.T))]
        extra = bias(c, out)
        if not extra:
            return c.result("MatMul", product)
        return c.result("Add", [c.add("MatMul", product), *extra])
    flat = c.add("Flatten", [c.required(0)], axis=1)
    y = c.add("Gemm", [flat, c.constant(w), *bias(c, out)], trans_b=True)
    return c.result("Unsqueeze", [y, c.ints((2, 3))])


@row("batchnorm")
def batchnorm(c: Conversion) -> Result:
    a, rank = c.attributes, c.rank()
    if rank not in (3, 4):
        require_rank(c, 4)
    count = a.integer("channels", 0)
    epsilon = or_default(a.number("epsilon", 0.0), float(np.float32(1e-5)))
    computed, alone = a.flag("computeMeanVar"), a.flag("instanceNormalization")
    x = c.required(0) if rank == 4 else c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    inputs = [x, *(c.constant(weights(c, n, (count,))) for n in ("gamma", "beta"))]
    kind = "BatchNormalization"
    if computed:
        for name in ("mean", "variance"):
            a.irrelevant(name, "they are computed from the input")
        if not alone and rank == 4 and c.type(0).dims[0] != 1:
            c.refuse("statistics over the whole batch are supported only where it has one element")
        kind = "InstanceNormalization"
    else:
        inputs += [c.constant(weights(c, n, (count,))) for n in ("mean", "variance")]
    if rank == 4:
        return c.result(kind, inputs, epsilon=epsilon)
    return c.result("Squeeze", [c.add(kind, inputs, epsilon=epsilon), c.ints((0,))])


@row("mvn")
def mean_variance_normalize(c: Conversion) -> Result:
    """(x - mean) / sqrt(variance + epsilon) over the positions, or over the channels as well."""
    a, rank = c.attributes, c.rank()
    axes = c.ints(range(rank - (3 if a.flag("acrossChannels") else 2), rank))
    centred = [c.required(0), c.add("ReduceMean", [c.required(0), axes])]
    if not a.flag("normalizeVariance"):
        a.irrelevant("epsilon", "the variance is not used")
        return c.result("Sub", centred)
    epsilon = or_default(a.number("epsilon", 0.0), 1e-6)
    moved = c.add("Sub", centred)
    variance = c.add("ReduceMean", [c.add("Mul", [moved, moved]), axes])
    deviation = c.add("Sqrt", [c.add("Add", [variance, c.like(epsilon)])])
    return c.result("Div", [moved, deviation])


@row("l2normalize")
def l2_normalize(c: Conversion) -> Result:
    """x / sqrt(sum of squares + epsilon) over channels and positions."""
    epsilon = or_default(c.number("epsilon", 0.0), 1e-6)
    axes = c.ints(range(c.rank() - 3, c.rank()))
    squares = c.add("ReduceSumSquare", [c.required(0), axes])
    norm = c.add("Sqrt", [c.add("Add", [squares, c.like(epsilon)])])
    return c.result("Div", [c.required(0), norm])


@row("lrn")
def lrn(c: Conversion) -> Result:
    a = c.attributes
    require_rank(c, 4)
    return c.operator(
        "LRN",
        size=a.integer("localSize", 0),
        alpha=a.number("alpha", 0.0),
        beta=a.number("beta", 0.0),
        bias=or_default(a.number("k", 0.0), 1.0),
    )


@row("layerNormalization")
def layer_normalization(c: Conversion) -> Result:
    """Over the last axes, of sizes normalizedShape."""
    a = c.attributes
    shape = a.integers("normalizedShape", ())
    if not shape or tuple(c.type(0).dims[-len(shape) :]) != shape:
        raise ModelError(f"normalizedShape {shape} for an input {c.type(0)}", place=c.node.place)
    gamma, beta = (c.constant(weights(c, n, shape)) for n in ("gamma", "beta"))
    epsilon = or_default(a.number("eps", 0.0), float(np.float32(1e-5)))
    return c.result(
        "LayerNormalization", [c.required(0), gamma, beta], axis=-len(shape), epsilon=epsilon
    )


@row("batchedMatmul")
def batched_matmul(c: Conversion) -> Result:
    """Two inputs, or one and weights [in, out] that are stored column by column."""
    a = c.attributes
    a.expect("int8DynamicQuantize", False, why="inputs quantised while running")
    if len(c.inputs) == 1:
        for name in ("transposeA", "transposeB"):
            a.irrelevant(name, "CoreML ignores it for one input")
        out = a.integer("weightMatrixSecondDimension", 0)
        w = weights(c, "weights", (out, a.integer("weightMatrixFirstDimension", 0)))
        product = [c.required(0), c.constant(np.ascontiguousarray(w.T))]
        extra = bias(c, out)
        return c.result("Add", [c.add("MatMul", product), *extra]) if extra else c.result(
            "MatMul", product)  # fmt: skip
    sides = []
    for i, name in enumerate(("transposeA", "transposeB")):
        side, rank = c.required(i), c.rank(i)
        if a.flag(name):
            side = c.add("Transpose", [side], perm=(*range(rank - 2), rank - 1, rank - 2))
        sides.append(side)
    for name in ("weightMatrixFirstDimension", "weightMatrixSecondDimension"):
        a.irrelevant(name, "both matrices are inputs")
    return c.result("MatMul", sides)
