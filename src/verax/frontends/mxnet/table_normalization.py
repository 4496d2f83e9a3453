"""MXNet normalizations and its dense layer, on a CPU as of MXNet 1.9.1."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas, layers
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.shapes import inverse
from verax.frontends.mxnet.rows import count_inputs, row


@row("FullyConnected")
def fully_connected(c: Conversion) -> Result:
    """x [n, ...] flattened to [n, k], or with flatten=False x [..., k], times weight [m, k]."""
    a = c.attributes
    has_bias = not a.flag("no_bias", False)
    count_inputs(c, 3 if has_bias else 2)
    stated, weight = a.integer("num_hidden"), c.type(1)
    if weight.rank != 2 or stated != weight.dims[0]:
        raise ModelError(f"num_hidden is {stated}, the weights are {weight}", place=c.node.place)
    data, bias = c.required(0), ([c.required(2)] if has_bias else [])
    if a.flag("flatten", True):
        flat = data if c.rank() == 2 else c.add("Flatten", [data], axis=1)
        return c.result("Gemm", [flat, c.required(1), *bias], trans_b=True)
    transposed_weight = c.add("Transpose", [c.required(1)], perm=(1, 0))
    product = c.apply("MatMul", [data, transposed_weight])
    return c.apply("Add", [c.append(product), *bias]) if has_bias else product


@row("BatchNorm", "BatchNorm_v1", "_npx_batch_norm", "_contrib_SyncBatchNorm")
def batch_norm(c: Conversion) -> Result:
    """fix_gamma, which is the default, replaces the stored scale by ones."""
    a = c.attributes
    count_inputs(c, 5)
    a.irrelevant("momentum", "it only updates statistics in training")
    a.irrelevant("use_global_stats", "evaluation always uses the moving statistics")
    c.irrelevant("ndev", "key", reason="it gathers statistics in training")
    c.irrelevant("min_calib_range", "max_calib_range", reason="a remark for quantization")
    if any(c.output_used(i) for i in range(1, 3)):
        c.refuse("the statistics as outputs are not supported")
    a.irrelevant("output_mean_var", "the statistics are not read")
    axis = a.integer("axis", 1)
    gamma = c.required(1)
    if a.flag("fix_gamma", True):
        scale = c.type(1)
        gamma = c.constant(np.ones(scale.shape, scale.dtype.numpy))
    inputs = [gamma, *(c.required(i) for i in (2, 3, 4))]
    return layers.with_channels_second(
        c, "BatchNormalization", c.required(0), inputs, axis, epsilon=a.scalar("eps", 1e-3)
    )


@row("InstanceNorm")
def instance_norm(c: Conversion) -> Result:
    return c.operator("InstanceNormalization", epsilon=c.scalar("eps", 1e-3))


@row("LayerNorm")
def layer_norm(c: Conversion) -> Result:
    """Over one axis; another than the last is brought there and back."""
    a = c.attributes
    a.expect("output_mean_var", False, reason="the statistics as outputs are not supported")
    axis, rank = a.integer("axis", -1) % c.rank(), c.rank()
    op = c.operator("LayerNormalization", axis=-1, epsilon=a.scalar("eps", 1e-5))
    if axis == rank - 1:
        return op
    perm = [i for i in range(rank) if i != axis] + [axis]
    axis_last = c.add("Transpose", [c.required(0)], perm=tuple(perm))
    names = [c.fresh(f"{c.first_output}/normal")]
    (normal, *_) = c.builder.add_all(
        op, [axis_last, c.required(1), c.required(2)], names, c.node.name
    )
    return c.result("Transpose", [normal], perm=inverse(perm))


@row("LRN")
def lrn(c: Conversion) -> Result:
    a = c.attributes
    size = a.integer("nsize")
    if size % 2 == 0:
        a.refuse("nsize", "it must be odd")
    return c.operator(
        "LRN",
        size=size,
        alpha=a.scalar("alpha", 1e-4),
        beta=a.scalar("beta", 0.75),
        bias=a.scalar("knorm", 2.0),
    )


@row("L2Normalization")
def l2_normalization(c: Conversion) -> Result:
    """x / sqrt(sum of squares + eps) over all but the batch, over channels, or over positions."""
    rank = c.rank()
    over = {"instance": range(1, rank), "channel": range(1, 2), "spatial": range(2, rank)}
    axes = over[c.choice("mode", over, "instance")]
    return formulas.over_length(c, c.required(0), axes, c.scalar("eps", 1e-10))


@row("GroupNorm")
def group_norm(c: Conversion) -> Result:
    """Scale and shift are per group."""
    a = c.attributes
    a.expect("output_mean_var", False, reason="the statistics as outputs are not supported")
    groups = a.integer("num_groups", 1)
    per_group = c.type(1).dims == (groups,)
    return c.operator(
        "GroupNormalization",
        num_groups=groups,
        epsilon=a.scalar("eps", 1e-5),
        per_group=per_group,
    )
