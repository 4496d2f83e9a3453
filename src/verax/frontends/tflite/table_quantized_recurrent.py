"""TFLite's SVDF on integers, as LiteRT's integer kernel computes it.

Data and weights of features are bytes, weights of time and the state 16-bit integers, sums 32-bit;
two roundings: of a feature into the state, and of a unit's sum into the output.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import centered, factors, of_tensor
from verax.frontends.tflite.rows import row
from verax.frontends.tflite.table_recurrent import _named, _states

SIDES = {1: "int8", 2: "int16", 4: "int16"}
"""Element types of the operands beside the data, by position."""


@row("SVDF", quantized=True)
def svdf(c: Conversion) -> Result:
    """Operands as on floats. Weights and state have no zero point. LiteRT demands a RELU and clips
    to the range of bytes, which is one where the output's zero point is the lowest byte."""
    (state,), rank = _states(c, 0, 4), c.integer("rank", 0)
    (x_scale, x_zero), (y_scale, y_zero) = of_tensor(c, "input0"), of_tensor(c, "output0")
    scales = {}
    for i, dtype in SIDES.items():
        scales[i], zero = of_tensor(c, f"input{i}")
        if c.type(i).dtype != dtype or zero:
            c.refuse(f"operand {i} of {c.type(i).dtype} with the zero point {zero}")
    if c.type(0).dtype != "int8":
        c.refuse(f"data of {c.type(0).dtype}")
    c.choice("fused_activation_function", ("RELU",), "NONE")
    if y_zero != -128:
        c.attributes.refuse(
            "output0.zero_point", "LiteRT's integer kernel clips to bytes, which is no RELU there"
        )
    for key in [k for k in c.attributes.values if k.startswith("input3.")]:
        c.attributes.irrelevant(key, "the bias is added to sums as it is")
    filters, memory = c.known_sizes(2, dependent="the state")
    (batch,) = c.known_sizes(0, (0,))
    if rank < 1 or filters % rank:
        raise ModelError(f"{filters} filters of rank {rank}", place=c.node.place)
    weights = c.constant_input(1, "the weights of features").astype(np.int32)
    sums = c.add("MatMul", [centered(c, 0, x_zero), c.constant(np.ascontiguousarray(weights.T))])
    into_state = np.float64(x_scale * scales[1] / scales[4])
    feature = c.add(
        "Requantize", [sums, *factors(c, into_state)], output_dtype="int16", rounding="twice"
    )
    features = c.add("Reshape", [state, c.ints((batch, filters, memory))])
    newest = c.add("Unsqueeze", [feature, c.ints((2,))])
    if memory > 1:
        features = c.add("Slice", [features, *(c.ints((n,)) for n in (1, memory, 2))])
        features = c.add("Concat", [features, newest], axis=2)
    else:
        features = newest
    times = c.constant_input(2, "the weights of time").astype(np.int32)
    weighted = c.add("Mul", [c.cast(features, "int32"), c.constant(times)])
    windows = c.add("Reshape", [weighted, c.ints((batch, filters // rank, rank * memory))])
    total = c.add("ReduceSum", [windows, c.ints((2,))], keepdims=False)
    if c.input(3) is not None:
        total = c.add("Add", [total, c.required(3)])
    into_output = np.float64(scales[4] * scales[2] / y_scale)
    names = iter(c.node.outputs)
    fields = {"output_dtype": "int8", "zero_point": y_zero, "rounding": "twice"}
    output = _named(c, "Requantize", [total, *factors(c, into_output)], names, **fields)
    return output, _named(c, "Reshape", [features, c.ints((batch, filters * memory))], names)
