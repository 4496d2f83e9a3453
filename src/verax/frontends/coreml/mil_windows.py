"""ML program operations with weights or windows: convolution, pooling, dense, normalization.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas, layers
from verax.frontends.common.context import MAX_MADE, Result
from verax.frontends.common.shapes import Pads, resolved, same_transposed
from verax.frontends.common.table import Fields, integer, scalar
from verax.frontends.coreml.mil_rows import OPERATIONS, Mil, mil

RULES = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}


def _pads(c: Mil, rank: int) -> Pads | str:
    """Pads in numbers, or a rule; `pad` belongs to the type custom."""
    kind = c.text("pad_type", "valid")
    if kind == "custom":
        flat = c.counted("pad", 2 * rank, 0)
        return tuple(zip(flat[::2], flat[1::2]))
    if any(c.integers("pad", ())):
        c.attributes.refuse("pad", f"pad_type is {kind}")
    if kind == "valid":
        return ((0, 0),) * rank
    if kind not in RULES:
        c.attributes.refuse("pad_type", "unknown rule")
    return RULES[kind]


@mil("conv")
def conv(c: Mil) -> Result:
    inputs = c.named_inputs(("x", "weight", "bias?"))
    x, weights = (c.type(str(v)) for v in inputs[:2])
    rank = x.rank - 2
    strides, dilations = c.counted("strides", rank, 1), c.counted("dilations", rank, 1)
    return c.result(
        "Conv",
        inputs,
        strides=strides,
        pads=resolved(_pads(c, rank), x, weights.shape[2:], strides, dilations),
        dilations=dilations,
        groups=c.integer("groups", 1),
    )


@mil("conv_transpose")
def conv_transpose(c: Mil) -> Result:
    """Its output_shape, with batch and channels, adds to the end; SAME crops half at the start."""
    inputs = c.named_inputs(("x", "weight", "bias?"))
    weights = c.builder.types[str(inputs[1])]
    rank = weights.rank - 2
    strides, dilations = c.counted("strides", rank, 1), c.counted("dilations", rank, 1)
    fields: dict[str, Any] = {"strides": strides, "dilations": dilations}
    fields["groups"] = c.integer("groups", 1)
    reach = [(int(k) - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations)]
    output_shape, pads = c.integers("output_shape"), _pads(c, rank)
    if isinstance(pads, str):
        shape: Sequence[int] | None = None if output_shape is None else output_shape[2:]
        if shape is not None:
            return c.result("ConvTranspose", inputs, output_shape=shape, pads=pads, **fields)
        cropped, more = same_transposed(reach, strides, pads)
        return c.result("ConvTranspose", inputs, pads=cropped, output_padding=more, **fields)
    if output_shape is None:
        return c.result("ConvTranspose", inputs, pads=pads, **fields)
    x = c.builder.types[str(inputs[0])]
    sizes = [d for d in x.dims[2:] if isinstance(d, int)]
    if len(output_shape) != x.rank or len(sizes) != rank:
        c.attributes.refuse("output_shape", f"the input is {x}")
    plain = [s * (n - 1) + e - sum(p) for n, s, e, p in zip(sizes, strides, reach, pads)]
    extra = tuple(w - n for w, n in zip(output_shape[2:], plain))
    if min(extra) < 0:
        c.attributes.refuse("output_shape", f"without it the output has the sizes {plain}")
    return c.result("ConvTranspose", inputs, pads=pads, output_padding=extra, **fields)


def _pool(name: str, kind: str, **more: Any) -> None:
    def convert(c: Mil) -> Result:
        x = c.tensor("x")
        rank = c.rank(x) - 2
        kernel, strides = c.counted("kernel_sizes", rank, 0), c.counted("strides", rank, 1)
        fields: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": strides,
            "pads": resolved(_pads(c, rank), c.type(x), kernel, strides),
            "ceil_mode": c.flag("ceil_mode"),
            **more,
        }
        if kind == "AveragePool":
            fields["count_include_pad"] = not c.flag("exclude_padding_from_average")
        return c.result(kind, [x], **fields)

    mil(name)(convert)


_pool("max_pool", "MaxPool")
_pool("avg_pool", "AveragePool")
_pool("l2_pool", "LpPool", p=2)


@mil("linear")
def linear(c: Mil) -> Result:
    """x [..., k] times weight [m, k], plus bias [m]."""
    if np.ndim(c.fixed("weight")) != 2:
        raise ModelError("the weight is no constant matrix", place=c.node.place)
    return formulas.dense(c, c.tensor("x"), c.tensor("weight"), c.maybe("bias"))


@mil("matmul")
def matmul(c: Mil) -> Result:
    flips = [c.flag(f"transpose_{name}") for name in ("x", "y")]
    return formulas.matrix_product(c, c.tensor("x"), c.tensor("y"), *flips)


def _per_channel(c: Mil, name: str, x: str, default: float) -> str:
    """A constant per channel; `default` everywhere when the operation gives none."""
    value = c.maybe(name)
    if value is not None:
        return value
    channels = c.known_size(x, 1, "the scale")
    c.check_count(channels)
    return c.like(np.full(channels, default), x)


@mil("batch_norm")
def batch_norm(c: Mil) -> Result:
    x = c.tensor("x")
    scale, shift = (_per_channel(c, n, x, d) for n, d in (("gamma", 1.0), ("beta", 0.0)))
    inputs = [x, scale, shift, c.tensor("mean"), c.tensor("variance")]
    return c.result("BatchNormalization", inputs, epsilon=c.scalar("epsilon", 1e-5))


@mil("instance_norm")
def instance_norm(c: Mil) -> Result:
    x = c.tensor("x")
    scale, shift = (_per_channel(c, n, x, d) for n, d in (("gamma", 1.0), ("beta", 0.0)))
    return c.result("InstanceNormalization", [x, scale, shift], epsilon=c.scalar("epsilon", 1e-5))


@mil("layer_norm")
def layer_norm(c: Mil) -> Result:
    """(x - mean) / sqrt(variance + epsilon) over some axes, times gamma plus beta on these."""
    x, epsilon = c.tensor("x"), c.scalar("epsilon", 1e-5)
    rank = c.rank(x)
    axes = sorted(a % rank for a in c.integers("axes", tuple(range(rank))))
    scale, shift = c.maybe("gamma"), c.maybe("beta")
    if axes != list(range(rank - len(axes), rank)):
        return _normalized(c, x, axes, epsilon, scale, shift)
    if scale is None:
        dims = [d for d in c.type(x).dims[-len(axes) :] if isinstance(d, int)]
        if len(dims) < len(axes) or math.prod(dims) > MAX_MADE:
            c.refuse(f"the scale would have the sizes {dims}")
        scale = c.like(np.ones(dims), x)
    inputs = [x, scale] if shift is None else [x, scale, shift]
    return c.result("LayerNormalization", inputs, axis=-len(axes), epsilon=epsilon)


def _normalized(
    c: Mil, x: str, axes: list[int], epsilon: float, scale: str | None, shift: str | None
) -> Result:
    """Over axes that are not the last ones."""
    normalized = c.append(formulas.standardised(c, x, axes, epsilon))
    other_axes = c.ints([i for i in range(c.rank(x)) if i not in axes])
    for kind, values in (("Mul", scale), ("Add", shift)):
        if values is not None:
            if c.rank(values) != len(axes):
                raise ModelError(f"{c.type(values)} on axes {axes}", place=c.node.place)
            normalized = c.add(kind, [normalized, c.add("Unsqueeze", [values, other_axes])])
    return c.result("Identity", [normalized])


@mil("scaled_dot_product_attention")
def attention(c: Mil) -> Result:
    """softmax(Q K^T / sqrt(E) + mask) V; a mask of flags hides where it is false."""
    query, key, value = (c.tensor(n) for n in ("query", "key", "value"))
    rank, size = c.rank(query), c.type(query).dims[-1]
    if not isinstance(size, int):
        c.refuse(f"queries {c.type(query)} of unknown size")
    transposed_keys = c.add("Transpose", [key], perm=(*range(rank - 2), rank - 1, rank - 2))
    root = c.add("Sqrt", [c.like(size, query)])
    scores = c.add("Div", [c.add("MatMul", [query, transposed_keys]), root])
    mask = c.maybe("attn_mask")
    if mask is not None:
        scores = layers.masked_scores(c, scores, mask)
    return c.result("MatMul", [c.add("Softmax", [scores], axis=-1), value])


def _quantization(c: Mil, x: str) -> tuple[list[str | None], int]:
    """Scale and zero point, numbers or vectors along the axis."""
    scale, zero = c.tensor("scale"), c.maybe("zero_point")
    axis = c.integer("axis", 0)
    if not c.rank(scale):
        c.attributes.irrelevant("axis", "there is one scale")
    return [x, scale, *([] if zero is None else [zero])], axis


@mil("quantize")
def quantize(c: Mil) -> Result:
    """round(x / scale) + zero_point, held in the range of the element type."""
    inputs, axis = _quantization(c, c.tensor("input"))
    kind = c.choice("output_dtype", ("int8", "uint8"), "")
    if len(inputs) == 2:
        inputs.append(c.constant(np.zeros(_shape(c, str(inputs[1])), kind)))
    return c.result("QuantizeLinear", inputs, axis=axis)


def _shape(c: Mil, value: str) -> tuple[int, ...]:
    content = c.builder.known.get(value)
    if content is None:
        c.refuse("scales that are computed while the network runs")
    return tuple(content.shape)


@mil("dequantize")
def dequantize(c: Mil) -> Result:
    """scale * (x - zero_point)."""
    inputs, axis = _quantization(c, c.tensor("input"))
    return c.result("DequantizeLinear", inputs, axis=axis)


@mil("l2_norm")
def l2_norm(c: Mil) -> Result:
    """x / sqrt(sum of squares + epsilon) over the last three axes."""
    x = c.tensor("x")
    axes = range(c.rank(x) - 3, c.rank(x))
    return formulas.over_length(c, x, axes, c.scalar("epsilon", 1e-6))


LRN: Fields = {"alpha": scalar(1e-4), "beta": scalar(0.75), "bias": scalar(1.0, "k")}
OPERATIONS.operator("LRN", "local_response_norm", size=integer(), **LRN)
