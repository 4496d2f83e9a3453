"""CoreML layers of matrix products and normalizations.

Formulas: apple/coremltools, mlmodel/format/NeuralNetwork.proto.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas
from verax.frontends.common.context import Conversion, Result
from verax.frontends.coreml.mil_rows import GraphValue, operation
from verax.frontends.coreml.rows import bias, or_default, require_rank, row, weights


@row("innerProduct")
def inner_product(c: Conversion) -> Result:
    """x times weights [out, in]; of rank 4 and more the last three axes are taken as one."""
    a = c.attributes
    a.expect("int8DynamicQuantize", False, reason="inputs quantized while running")
    in_channels, out = a.integer("inputChannels", 0), a.integer("outputChannels", 0)
    w = c.constant(weights(c, "weights", (out, in_channels)))
    if c.rank() < 4:
        return formulas.dense(c, c.required(0), w, _bias(c, out))
    require_rank(c, 4)
    flat = c.add("Flatten", [c.required(0)], axis=1)
    y = c.append(formulas.dense(c, flat, w, _bias(c, out)))
    return c.apply("Unsqueeze", [y, c.ints((2, 3))])


def _bias(c: Conversion, out: int) -> str | None:
    array = bias(c, out)
    return None if array is None else c.constant(array)


@row("batchedMatmul")
def batched_matmul(c: Conversion) -> Result:
    """Two inputs, or one and weights [in, out] that are stored column by column."""
    a = c.attributes
    a.expect("int8DynamicQuantize", False, reason="inputs quantized while running")
    names, sizes = ("transposeA", "transposeB"), ("First", "Second")
    if len(c.inputs) == 2:
        for name in sizes:
            a.irrelevant(f"weightMatrix{name}Dimension", "both matrices are inputs")
        flips = [a.flag(name) for name in names]
        return formulas.matrix_product(c, c.required(0), c.required(1), *flips)
    for name in names:
        a.irrelevant(name, "CoreML ignores it for one input")
    in_size, out = (a.integer(f"weightMatrix{name}Dimension", 0) for name in sizes)
    w = weights(c, "weights", (out, in_size))
    product = c.apply("MatMul", [c.required(0), c.constant(np.ascontiguousarray(w.T))])
    more = _bias(c, out)
    return product if more is None else c.apply("Add", [c.append(product), more])


@row("batchnorm")
def batchnorm(c: Conversion) -> Result:
    a, rank = c.attributes, c.rank()
    if rank not in (3, 4):
        require_rank(c, 4)
    count = a.integer("channels", 0)
    epsilon = or_default(a.scalar("epsilon", 0.0), float(np.float32(1e-5)))
    computed, alone = a.flag("computeMeanVar"), a.flag("instanceNormalization")
    x = c.required(0) if rank == 4 else c.add("Unsqueeze", [c.required(0), c.ints((0,))])
    inputs = [x, *(c.constant(weights(c, n, (count,))) for n in ("gamma", "beta"))]
    kind = "BatchNormalization"
    if computed:
        c.irrelevant("mean", "variance", reason="they are computed from the input")
        if not alone and rank == 4 and c.type(0).dims[0] != 1:
            c.refuse("statistics over the whole batch are supported only where it has one element")
        kind = "InstanceNormalization"
    else:
        inputs += [c.constant(weights(c, n, (count,))) for n in ("mean", "variance")]
    normal = c.apply(kind, inputs, epsilon=epsilon)
    return normal if rank == 4 else c.apply("Squeeze", [c.append(normal), c.ints((0,))])


@row("mvn")
def mean_variance_normalize(c: Conversion) -> Result:
    """(x - mean) / sqrt(variance + epsilon) over the positions, or over the channels as well."""
    x, rank = c.required(0), c.rank()
    axes = range(rank - (3 if c.flag("acrossChannels") else 2), rank)
    if not c.flag("normalizeVariance"):
        c.attributes.irrelevant("epsilon", "the variance is not used")
        return c.apply("Sub", [x, c.add("ReduceMean", [x, c.ints(axes)])])
    return formulas.standardised(c, x, axes, or_default(c.scalar("epsilon", 0.0), 1e-6))


@row("l2normalize")
def l2_normalize(c: Conversion) -> Result:
    epsilon = or_default(c.scalar("epsilon", 0.0), 1e-6)
    return operation(c, "l2_norm", x=GraphValue(c.required(0)), epsilon=epsilon)


@row("lrn")
def lrn(c: Conversion) -> Result:
    require_rank(c, 4)
    numbers = {name: c.scalar(name, 0.0) for name in ("alpha", "beta")}
    k = or_default(c.scalar("k", 0.0), 1.0)
    return c.operator("LRN", size=c.integer("localSize", 0), bias=k, **numbers)


@row("layerNormalization")
def layer_normalization(c: Conversion) -> Result:
    """Over the last axes, of sizes normalizedShape."""
    shape = c.integers("normalizedShape", ())
    if not shape or tuple(c.type(0).dims[-len(shape) :]) != shape:
        raise ModelError(f"normalizedShape {shape} for an input {c.type(0)}", place=c.node.place)
    return operation(
        c,
        "layer_norm",
        x=GraphValue(c.required(0)),
        axes=tuple(range(-len(shape), 0)),
        gamma=weights(c, "gamma", shape),
        beta=weights(c, "beta", shape),
        epsilon=or_default(c.scalar("eps", 0.0), 1e-5),
    )
