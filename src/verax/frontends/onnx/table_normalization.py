"""ONNX normalizations."""

from __future__ import annotations

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import integer, integers, scalar
from verax.frontends.onnx.rows import TABLE, require_test_mode, row
from verax.frontends.onnx.tensors import dtype_of
from verax.frontends.onnx.training import ADVICE

TABLE.operator("InstanceNormalization", epsilon=scalar(1e-5))
TABLE.operator("LRN", size=integer(0), alpha=scalar(1e-4), beta=scalar(0.75), bias=scalar(1.0))
TABLE.operator("LpNormalization", axis=integer(-1), p=integer(2))
TABLE.operator("MeanVarianceNormalization", axes=integers((0, 2, 3)))


@row("BatchNormalization")
def batch_normalization(c: Conversion) -> Result:
    """training_mode is an attribute since opset 14; before, further outputs meant training."""
    a = c.attributes
    training = a.flag("training_mode")
    if c.version < 7:
        require_test_mode(c)
    a.expect("spatial", 1, reason="statistics per element are not supported")
    if not training:
        a.irrelevant("momentum", "it only updates statistics in training")
        if any(c.output_used(i) for i in range(1, 5)):
            c.refuse("the outputs of training are not supported", ADVICE)
    return c.operator(
        "BatchNormalization",
        epsilon=a.scalar("epsilon", 1e-5),
        training_mode=training,
        **({"momentum": a.scalar("momentum", 0.9)} if training else {}),
    )


@row("LayerNormalization")
def layer_normalization(c: Conversion) -> Result:
    a = c.attributes
    return c.operator(
        "LayerNormalization",
        axis=a.integer("axis", -1),
        epsilon=a.scalar("epsilon", 1e-5),
        stash_type=dtype_of(a.integer("stash_type", 1), c.node.place),
        with_statistics=c.output_used(1) or c.output_used(2),
    )


@row("RMSNormalization")
def rms_normalization(c: Conversion) -> Result:
    a = c.attributes
    a.expect("stash_type", 1, reason="statistics in another type than float32")
    return c.operator(
        "RMSNormalization", axis=a.integer("axis", -1), epsilon=a.scalar("epsilon", 1e-5)
    )


@row("GroupNormalization")
def group_normalization(c: Conversion) -> Result:
    """Scale and bias are per channel since opset 21, per group before."""
    a = c.attributes
    a.expect("stash_type", 1, reason="statistics in another type than float32")
    return c.operator(
        "GroupNormalization",
        num_groups=a.integer("num_groups", 0),
        epsilon=a.scalar("epsilon", 1e-5),
        per_group=c.version < 21,
    )
