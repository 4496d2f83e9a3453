"""TensorFlow operators of training for quantization: numbers on a grid, yet floating-point."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tensorflow.rows import row

RANGED = ("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel")


@row("FakeQuantWithMinMaxArgs", *RANGED)
def fake_quant(c: Conversion) -> Result:
    """The nearest of 2 ** num_bits numbers between min and max, which move so that 0 is one of
    them; per channel along the last axis. All arithmetic is float32's, as TensorFlow's is.
    Source: core/kernels/fake_quant_ops_functor.h of tensorflow/tensorflow.
    """
    a = c.attributes
    bits, narrow = a.integer("num_bits", 8), a.flag("narrow_range")
    if not 2 <= bits <= 16:
        a.refuse("num_bits")
    if c.node.op_type in RANGED:
        low, high = (
            np.asarray(c.constant_input(i, f"the {side} of the range"), np.float32)
            for i, side in ((1, "minimum"), (2, "maximum"))
        )
    else:
        low, high = (
            np.asarray(a.scalar(n, d), np.float32) for n, d in (("min", -6.0), ("max", 6.0))
        )
    if low.ndim != int(c.node.op_type.endswith("PerChannel")) or low.shape != high.shape:
        raise ModelError(f"the range is {low.shape} and {high.shape}", place=c.node.place)
    if not (low <= 0).all() or not (high >= 0).all() or not (low < high).all():
        c.refuse("a range that does not hold 0, or is empty")
    first, last, scale = _grid(low, high, bits, narrow)
    inside = c.add("Min", [c.add("Max", [c.required(0), c.constant(first)]), c.constant(last)])
    steps = c.add("Mul", [c.add("Sub", [inside, c.constant(first)]),
                          c.constant(np.float32(1) / scale)])  # fmt: skip
    rounded = c.add("Floor", [c.add("Add", [steps, c.constant(0.5, np.float32)])])
    return c.result("Add", [c.add("Mul", [rounded, c.constant(scale)]), c.constant(first)])


def _grid(
    low: np.ndarray, high: np.ndarray, bits: int, narrow: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first and last number of the grid, and the distance of neighbors."""
    f = np.float32
    min_code, max_code = f(narrow), f(2**bits - 1)
    scale = (high - low) / (max_code - min_code)
    zero = min_code - low / scale
    zero = np.clip(np.floor(zero + f(0.5)), min_code, max_code).astype(f)  # halves away from zero
    return (min_code - zero) * scale, (max_code - zero) * scale, scale
