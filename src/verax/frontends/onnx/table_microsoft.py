"""What ONNX Runtime's optimizer writes in place of several nodes (com.microsoft): products,
activations and normalizations with what stood around them.

Each is read as the nodes that it stands for, in the order in which ONNX Runtime computes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.common.context import Applied, Conversion, Result
from verax.frontends.common.formulas import clipped
from verax.frontends.common.table import fields_of, scalar
from verax.frontends.onnx.rows import MICROSOFT, row
from verax.frontends.onnx.table_windows import CONVOLUTION
from verax.frontends.onnx.tensors import dtype_of
from verax.ir.types import DType

GIVEN = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSwish"), ()),
    "LeakyRelu": (("alpha", 0.01),),
    "Elu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
}
"""Activations that follow a product, their parameters in the order of a list, and defaults."""


def _activated(
    c: Conversion, result: Applied, kind: str | None, parameters: tuple[float, ...] | None
) -> Applied:
    """The activation of `result`.

    parameters: of the activation, as a list; None where they are attributes of their own
    (activation_alpha, ...)."""
    if not kind:
        return result
    value = c.append(result)
    if kind == "Clip" and parameters is not None:
        low, high = (*parameters, *(-np.inf, np.inf)[len(parameters) :])[:2]
        return clipped(c, value, low, high)
    if kind not in GIVEN:
        c.attributes.refuse("activation", f"supported: {', '.join(GIVEN)}")
    defaults = GIVEN[kind]
    if parameters is None:
        numbers = [c.scalar(f"activation_{name}", default) for name, default in defaults]
    else:
        if len(parameters) > len(defaults):
            c.attributes.refuse("activation_params", f"{kind} has {len(defaults)}")
        numbers = [*parameters, *(default for _, default in defaults[len(parameters) :])]
    return c.apply(kind, [value], **{name: n for (name, _), n in zip(defaults, numbers)})


@row("FusedConv", "NhwcFusedConv", domain=MICROSOFT)
def fused_conv(c: Conversion) -> Result:
    """X, weights, bias, and Z, which is added before the activation. Nhwc: images and Z have their
    channels last."""
    last = c.node.op_type.startswith("Nhwc")
    inputs = [channels_first(c, c.required(0), last), c.required(1), c.input(2)]
    y = c.apply("Conv", inputs, **fields_of(c, CONVOLUTION))
    if c.input(3) is not None:
        y = c.apply("Add", [c.append(y), channels_first(c, c.required(3), last)])
    a = c.attributes
    y = _activated(c, y, a.text("activation", ""), a.numbers("activation_params", ()))
    return channels_last(c, y, last)


def channels_first(c: Conversion, value: str, last: bool) -> str:
    """The image with channels first; itself unless `last`."""
    if not last:
        return value
    axes = list(range(c.rank(value)))
    return c.add("Transpose", [value], perm=(0, axes[-1], *axes[1:-1]))


def channels_last(c: Conversion, result: Applied, last: bool) -> Applied:
    """The image with channels last, if `last`: the inverse of `channels_first`."""
    if not last:
        return result
    value = c.append(result)
    return c.apply("Transpose", [value], perm=(0, *range(2, c.rank(value)), 1))


@row("FusedGemm", domain=MICROSOFT)
def fused_gemm(c: Conversion) -> Result:
    a = c.attributes
    y = c.apply(
        "Gemm",
        list(c.inputs),
        alpha=a.scalar("alpha", 1.0),
        beta=a.scalar("beta", 1.0),
        trans_a=a.flag("transA"),
        trans_b=a.flag("transB"),
    )
    return _activated(c, y, a.text("activation", ""), None)


@row("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_mat_mul(c: Conversion) -> Result:
    """alpha A B, of transposed matrices where the attributes say so."""
    factors = [
        _transposed(c, c.required(i), c.flag(f"trans{name}"), c.flag(f"transBatch{name}"))
        for i, name in enumerate("AB")
    ]
    alpha = c.scalar("alpha", 1.0)
    if alpha == 1.0:
        return c.result("MatMul", factors)
    product = c.add("MatMul", factors)
    return c.result("Mul", [product, c.like(alpha, product)])


def _transposed(c: Conversion, value: str, matrix: bool, batch: bool) -> str:
    """matrix: the last two axes change places; batch: the first axis moves behind those of the
    batch, before that. A vector stays what it is."""
    rank = c.rank(value)
    axes = list(range(rank))
    if batch and rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if matrix and rank > 1:
        axes[-2:] = axes[-1], axes[-2]
    return value if axes == sorted(axes) else c.add("Transpose", [value], perm=tuple(axes))


@row("BiasGelu", domain=MICROSOFT)
def bias_gelu(c: Conversion) -> Result:
    return c.result("Gelu", [c.add("Add", [c.required(0), c.required(1)])], approximate="none")


@row("FastGelu", domain=MICROSOFT)
def fast_gelu(c: Conversion) -> Result:
    x = c.required(0)
    x = x if c.input(1) is None else c.add("Add", [x, c.required(1)])
    return c.result("Gelu", [x], approximate="tanh")


@row("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(c: Conversion) -> Result:
    """Softmax of the sum over all axes from `axis` on, of which the last one is read."""
    a = c.attributes
    axis = c.from_front(a.integer("axis", 1), c.rank())
    a.irrelevant("is_inner_broadcast", "the shapes say how the bias broadcasts")
    if axis != c.rank() - 1:
        a.refuse("axis", "Softmax over several axes at once")
    return c.result("Softmax", [c.add("Add", c.operands)], axis=axis)


@row("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(c: Conversion) -> Result:
    """input + skip (+ bias), normalized with gamma and beta; the sum is output 3."""
    inputs = [c.required(2), c.input(3)]
    return _skipped(c, "LayerNormalization", inputs, c.input(4))


@row("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(c: Conversion) -> Result:
    """As SkipLayerNormalization, by the root of the mean square."""
    return _skipped(c, "RMSNormalization", [c.required(2)], c.input(3))


def _skipped(c: Conversion, kind: str, scales: list[str | None], bias: str | None) -> Result:
    if c.output_used(1) or c.output_used(2):
        c.refuse("the statistics, which only training uses, are not supported")
    total = c.add("Add", [c.required(0), c.required(1)])
    total = total if bias is None else c.add("Add", [total, bias])
    y = c.apply(kind, [total, *scales], axis=-1, epsilon=c.scalar("epsilon", 1e-12))
    return with_more(c, y, None, None, total)


def with_more(c: Conversion, result: Applied, *more: str | None) -> Result:
    """The first output and, where the node has them, further ones (None: of those never used)."""
    if not any(c.output_used(i) for i in range(1, len(c.node.outputs))):
        return result
    first = c.append(result)
    return c.named([first, *(m or first for m in more)])


@row("SimplifiedLayerNormalization")
def simplified_layer_normalization(c: Conversion) -> Result:
    """RMSNormalization, under the name that ONNX Runtime had for it before ONNX had it."""
    a = c.attributes
    if c.output_used(1):
        c.refuse("the statistics, which only training uses, are not supported")
    if dtype_of(a.integer("stash_type", 1), c.node.place) is not DType.float32:
        a.refuse("stash_type", "statistics in another type than float32")
    fields = {"axis": a.integer("axis", -1), "epsilon": a.scalar("epsilon", 1e-5)}
    return c.result("RMSNormalization", c.operands, **fields)


@row("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(c: Conversion) -> Result:
    """Words, positions and segments looked up, added and normalized. Outputs: that, how many words
    each row of the mask has, and the sum."""
    a = c.attributes
    a.irrelevant("mask_index_type", "naming the output asks for it")
    ids = c.required(0)
    total = c.add("Gather", [c.required(2), ids], axis=0)
    if c.input(8) is not None:
        positions = c.add("Gather", [c.required(3), c.required(8)], axis=0)
    else:
        count = c.add("Shape", [ids], start=1, end=2)
        positions = c.add("Slice", [c.required(3), c.ints([0]), count, c.ints([0])])
    total = c.add("Add", [total, positions])
    if c.input(1) is not None:
        total = c.add("Add", [total, c.add("Gather", [c.required(4), c.required(1)], axis=0)])
    scales = [c.required(5), c.required(6)]
    y = c.apply("LayerNormalization", [total, *scales], axis=-1, epsilon=c.scalar("epsilon", 1e-12))
    return with_more(c, y, _words(c, ids) if c.output_used(1) else None, total)


def _words(c: Conversion, ids: str) -> str:
    """How many of a row's numbers in the mask (input 7) are 1; 0 without a mask."""
    mask = c.input(7)
    if mask is None:
        batch = c.add("Shape", [ids], start=0, end=1)
        return c.add("Expand", [c.constant(0, np.int32), batch])
    ones = c.cast(c.add("Equal", [mask, c.like(1, mask)]), DType.int32)
    return c.add("ReduceSum", [ones, c.ints([1])], keepdims=False)


def _grouped(c: Conversion, value: str, scales: list[str]) -> Applied:
    """GroupNormalization of an image, and the activation that the node asks for."""
    a = c.attributes
    last = a.flag("channels_last", True)
    fields: dict[str, Any] = {"num_groups": a.integer("groups", 0)}
    fields |= fields_of(c, {"epsilon": scalar(1e-5)})
    inputs = [channels_first(c, value, last), *(c.cast(s, c.type(value).dtype) for s in scales)]
    y = c.apply("GroupNormalization", inputs, **fields, per_group=False)
    activation = a.integer("activation", 0)
    if activation not in (0, 1):
        a.refuse("activation", "supported: 0 (none), 1 (SiLU)")
    y = c.apply("Swish", [c.append(y)], alpha=1.0) if activation else y
    return channels_last(c, y, last)


@row("GroupNorm", domain=MICROSOFT)
def group_norm(c: Conversion) -> Result:
    return _grouped(c, c.required(0), [c.required(1), c.required(2)])


@row("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(c: Conversion) -> Result:
    """x + skip (+ bias), normalized by groups; the sum is output 1."""
    x, skip = c.required(0), c.required(3)
    if c.rank(skip) == 2:
        axes = [1, 2] if c.flag("channels_last", True) else [2, 3]
        skip = c.add("Unsqueeze", [skip, c.ints(axes)])
    total = c.add("Add", [x, skip])
    if c.input(4) is not None:
        bias = c.required(4)
        if not c.flag("channels_last", True):
            bias = c.add("Unsqueeze", [bias, c.ints([1, 2])])
        total = c.add("Add", [total, bias])
    return with_more(c, _grouped(c, total, [c.required(1), c.required(2)]), total)
