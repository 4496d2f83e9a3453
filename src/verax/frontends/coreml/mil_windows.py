"""ML program operations with weights or windows: convolution, pooling, dense, normalisation.

Meanings and defaults: coremltools, converters/mil/mil/ops/defs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import MAX_MADE, Conversion, Result
from verax.frontends.coreml.mil_rows import (
    arg,
    dtype_of,
    flag,
    integer,
    known,
    mil,
    needed,
    number,
    numbers,
    pairs,
    refuse,
    text,
)
from verax.frontends.coreml.rows import Pads, resolved

RULES = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}


def _pads(c: Conversion, rank: int) -> Pads | str:
    """Pads in numbers, or a rule; `pad` belongs to the type custom."""
    kind = text(c, "pad_type", "valid")
    if kind == "custom":
        return pairs(_sized(c, "pad", 2 * rank, 0))
    if any(numbers(c, "pad", ())):
        refuse(c, "pad", f"pad_type is {kind}")
    if kind == "valid":
        return ((0, 0),) * rank
    if kind not in RULES:
        refuse(c, "pad_type", "there is no such rule")
    return RULES[kind]


def _sized(c: Conversion, name: str, count: int, default: int) -> tuple[int, ...]:
    found: tuple[int, ...] = numbers(c, name, (default,) * count)
    if len(found) != count:
        raise ModelError(f"{name} = {found} needs {count} numbers", place=c.node.place)
    return found


def _inputs(c: Conversion, *names: str) -> list[str | None]:
    """Graph values of arguments, without omitted ones at the end."""
    found = [arg(c, n) for n in names]
    while found and found[-1] is None:
        found.pop()
    return found


@mil("conv")
def conv(c: Conversion) -> Result:
    inputs = _inputs(c, "x", "weight", "bias")
    x, weights = (c.type(str(v)) for v in inputs[:2])
    rank = x.rank - 2
    strides, dilations = _sized(c, "strides", rank, 1), _sized(c, "dilations", rank, 1)
    return c.result(
        "Conv",
        inputs,
        strides=strides,
        pads=resolved(_pads(c, rank), x, weights.shape[2:], strides, dilations),
        dilations=dilations,
        groups=integer(c, "groups", 1),
    )


@mil("conv_transpose")
def conv_transpose(c: Conversion) -> Result:
    """Its output_shape, with batch and channels, adds to the end; SAME crops half at the start."""
    inputs = _inputs(c, "x", "weight", "bias")
    weights = c.builder.types[str(inputs[1])]
    rank = weights.rank - 2
    strides, dilations = _sized(c, "strides", rank, 1), _sized(c, "dilations", rank, 1)
    fields: dict[str, Any] = {"strides": strides, "dilations": dilations}
    fields["groups"] = integer(c, "groups", 1)
    reach = [(int(k) - 1) * d + 1 for k, d in zip(weights.shape[2:], dilations)]
    wanted, pads = numbers(c, "output_shape"), _pads(c, rank)
    if isinstance(pads, str):
        shape: Sequence[int] | None = None if wanted is None else wanted[2:]
        if shape is not None:
            return c.result("ConvTranspose", inputs, output_shape=shape, pads=pads, **fields)
        cropped = []
        for e, s in zip(reach, strides):
            total = max(0, e - s)
            small, large = total // 2, total - total // 2
            cropped.append((small, large) if pads == "SAME_UPPER" else (large, small))
        more = tuple(max(0, s - e) for e, s in zip(reach, strides))
        return c.result("ConvTranspose", inputs, pads=tuple(cropped), output_padding=more, **fields)
    if wanted is None:
        return c.result("ConvTranspose", inputs, pads=pads, **fields)
    x = c.builder.types[str(inputs[0])]
    sizes = [d for d in x.dims[2:] if isinstance(d, int)]
    if len(wanted) != x.rank or len(sizes) != rank:
        refuse(c, "output_shape", f"the input is {x}")
    plain = [s * (n - 1) + e - sum(p) for n, s, e, p in zip(sizes, strides, reach, pads)]
    extra = tuple(w - n for w, n in zip(wanted[2:], plain))
    if min(extra) < 0:
        refuse(c, "output_shape", f"without it the output has the sizes {plain}")
    return c.result("ConvTranspose", inputs, pads=pads, output_padding=extra, **fields)


def _pool(name: str, kind: str, **more: Any) -> None:
    def convert(c: Conversion) -> Result:
        x = needed(c, "x")
        rank = c.rank(x) - 2
        kernel, strides = _sized(c, "kernel_sizes", rank, 0), _sized(c, "strides", rank, 1)
        fields: dict[str, Any] = {
            "kernel_shape": kernel,
            "strides": strides,
            "pads": resolved(_pads(c, rank), c.type(x), kernel, strides),
            "ceil_mode": flag(c, "ceil_mode"),
            **more,
        }
        if kind == "AveragePool":
            fields["count_include_pad"] = not flag(c, "exclude_padding_from_average")
        return c.result(kind, [x], **fields)

    mil(name)(convert)


_pool("max_pool", "MaxPool")
_pool("avg_pool", "AveragePool")
_pool("l2_pool", "LpPool", p=2)


@mil("linear")
def linear(c: Conversion) -> Result:
    """x [..., k] times weight [m, k], plus bias [m]."""
    x, bias = needed(c, "x"), arg(c, "bias")
    weight = known(c, "weight")
    if weight is None or np.ndim(weight) != 2:
        raise ModelError("the weight is no constant matrix", place=c.node.place)
    if c.rank(x) == 2:
        rest = [] if bias is None else [bias]
        return c.result("Gemm", [x, c.constant(weight), *rest], trans_b=True)
    product = [x, c.constant(np.ascontiguousarray(weight.T))]
    if bias is None:
        return c.result("MatMul", product)
    return c.result("Add", [c.add("MatMul", product), bias])


@mil("matmul")
def matmul(c: Conversion) -> Result:
    sides = []
    for name in ("x", "y"):
        side = needed(c, name)
        if flag(c, f"transpose_{name}"):
            rank = c.rank(side)
            side = c.add("Transpose", [side], perm=(*range(rank - 2), rank - 1, rank - 2))
        sides.append(side)
    return c.result("MatMul", sides)


def _per_channel(c: Conversion, name: str, x: str, default: float) -> str:
    """A constant per channel; `default` everywhere when the operation gives none."""
    found = arg(c, name)
    if found is not None:
        return found
    channels = c.type(x).dims[1]
    if not isinstance(channels, int) or channels > MAX_MADE:
        c.refuse(f"the channels are {channels}, not a number that can be")
    return c.like(np.full(channels, default), x)


@mil("batch_norm")
def batch_norm(c: Conversion) -> Result:
    x = needed(c, "x")
    scale, shift = (_per_channel(c, n, x, d) for n, d in (("gamma", 1.0), ("beta", 0.0)))
    inputs = [x, scale, shift, needed(c, "mean"), needed(c, "variance")]
    return c.result("BatchNormalization", inputs, epsilon=number(c, "epsilon", 1e-5))


@mil("instance_norm")
def instance_norm(c: Conversion) -> Result:
    x = needed(c, "x")
    scale, shift = (_per_channel(c, n, x, d) for n, d in (("gamma", 1.0), ("beta", 0.0)))
    return c.result("InstanceNormalization", [x, scale, shift], epsilon=number(c, "epsilon", 1e-5))


@mil("layer_norm")
def layer_norm(c: Conversion) -> Result:
    """(x - mean) / sqrt(variance + epsilon) over some axes, times gamma plus beta on these."""
    x, epsilon = needed(c, "x"), number(c, "epsilon", 1e-5)
    rank = c.rank(x)
    axes = sorted(a % rank for a in numbers(c, "axes", tuple(range(rank))))
    scale, shift = arg(c, "gamma"), arg(c, "beta")
    if axes != list(range(rank - len(axes), rank)):
        return _normalized(c, x, axes, epsilon, scale, shift)
    if scale is None:
        dims = [d for d in c.type(x).dims[-len(axes) :] if isinstance(d, int)]
        if len(dims) < len(axes) or math.prod(dims) > MAX_MADE:
            c.refuse(f"the scale would have the sizes {dims}")
        scale = c.constant(np.ones(dims, dtype_of(c, x)))
    inputs = [x, scale] if shift is None else [x, scale, shift]
    return c.result("LayerNormalization", inputs, axis=-len(axes), epsilon=epsilon)


def _normalized(
    c: Conversion, x: str, axes: list[int], epsilon: float, scale: str | None, shift: str | None
) -> Result:
    """Over axes that are not the last ones."""
    chosen = c.ints(axes)
    moved = c.add("Sub", [x, c.add("ReduceMean", [x, chosen])])
    variance = c.add("ReduceMean", [c.add("Mul", [moved, moved]), chosen])
    deviation = c.add("Sqrt", [c.add("Add", [variance, c.like(epsilon, x)])])
    found = c.add("Div", [moved, deviation])
    others = c.ints([i for i in range(c.rank(x)) if i not in axes])
    for kind, values in (("Mul", scale), ("Add", shift)):
        if values is not None:
            if c.rank(values) != len(axes):
                raise ModelError(f"{c.type(values)} on axes {axes}", place=c.node.place)
            found = c.add(kind, [found, c.add("Unsqueeze", [values, others])])
    return c.result("Identity", [found])


@mil("scaled_dot_product_attention")
def attention(c: Conversion) -> Result:
    """softmax(Q K^T / sqrt(E) + mask) V; a mask of flags hides where it is false."""
    query, key, value = (needed(c, n) for n in ("query", "key", "value"))
    rank, size = c.rank(query), c.type(query).dims[-1]
    if not isinstance(size, int):
        c.refuse(f"queries {c.type(query)} of unknown size")
    turned = c.add("Transpose", [key], perm=(*range(rank - 2), rank - 1, rank - 2))
    root = c.add("Sqrt", [c.like(size, query)])
    scores = c.add("Div", [c.add("MatMul", [query, turned]), root])
    mask = arg(c, "attn_mask")
    if mask is not None and c.type(mask).dtype == "bool":
        scores = c.add("Where", [mask, scores, c.like(-np.inf, query)])
    elif mask is not None:
        scores = c.add("Add", [scores, mask])
    return c.result("MatMul", [c.add("Softmax", [scores], axis=-1), value])


def _quantization(c: Conversion, x: str) -> tuple[list[str | None], int]:
    """Scale and zero point, numbers or vectors along the axis."""
    scale, zero = needed(c, "scale"), arg(c, "zero_point")
    axis = integer(c, "axis", 0)
    if not c.rank(scale):
        c.attributes.irrelevant("axis", "there is one scale")
    return [x, scale, *([] if zero is None else [zero])], axis


@mil("quantize")
def quantize(c: Conversion) -> Result:
    """round(x / scale) + zero_point, held in the range of the element type."""
    inputs, axis = _quantization(c, needed(c, "input"))
    kind = text(c, "output_dtype", "")
    if kind not in ("int8", "uint8"):
        refuse(c, "output_dtype", "it is not supported")
    if len(inputs) == 2:
        inputs.append(c.constant(np.zeros(_shape(c, str(inputs[1])), kind)))
    return c.result("QuantizeLinear", inputs, axis=axis)


def _shape(c: Conversion, value: str) -> tuple[int, ...]:
    found = c.builder.known.get(value)
    if found is None:
        c.refuse("scales that are computed while the network runs")
    return tuple(found.shape)


@mil("dequantize")
def dequantize(c: Conversion) -> Result:
    """scale * (x - zero_point)."""
    inputs, axis = _quantization(c, needed(c, "input"))
    return c.result("DequantizeLinear", inputs, axis=axis)


@mil("l2_norm")
def l2_norm(c: Conversion) -> Result:
    """x / sqrt(sum of squares + epsilon) over the last three axes."""
    x = needed(c, "x")
    rank = c.rank(x)
    squares = c.add("ReduceSumSquare", [x, c.ints(range(rank - 3, rank))])
    norm = c.add("Sqrt", [c.add("Add", [squares, c.like(number(c, "epsilon", 1e-6), x)])])
    return c.result("Div", [x, norm])


@mil("local_response_norm")
def local_response_norm(c: Conversion) -> Result:
    return c.result(
        "LRN",
        [needed(c, "x")],
        size=integer(c, "size"),
        alpha=number(c, "alpha", 1e-4),
        beta=number(c, "beta", 0.75),
        bias=number(c, "k", 1.0),
    )
