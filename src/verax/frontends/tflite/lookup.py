"""Functions of one quantized number as tables (`LookupTable`), and what honest float32 arithmetic
makes of their entries: the function rounded once, and both integers where rounding decides between
two. Used by the rows of quantized operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.frontends.common.context import Applied, Conversion
from verax.frontends.tflite.quantization import of_tensor
from verax.ops.quantized.lookup import Function, integers_within


def rounded_once(c: Conversion, function: Function, index: int = 0) -> list[np.ndarray]:
    """The least and the greatest result of kernels that take `function` (float64) in float32 and
    round it to the nearest integer."""
    info = np.iinfo(c.type(index).dtype.numpy)
    (x_scale, x_zero), (scale, zero) = of_tensor(c, f"input{index}"), of_tensor(c, "output0")
    x = np.float64(x_scale) * (np.arange(info.min, info.max + 1) - x_zero)
    ends = int(info.min), int(info.max)
    return integers_within(function, x, 1 / float(scale), int(zero), ends)


def looked_up(
    c: Conversion, results: np.ndarray, baseline: Sequence[np.ndarray], index: int = 0
) -> Applied:
    """Input `index` looked up in `results`, clipped to the type. baseline: results [same] of other
    kernels; each entry may be anything between the least and the greatest of them all."""
    dtype = c.type(index).dtype.numpy
    info = np.iinfo(dtype)
    entries = np.clip([results, *baseline], info.min, info.max).astype(dtype)
    _, zero = of_tensor(c, "output0")
    tables = [c.constant(table) for table in (entries[0], entries.min(0), entries.max(0))]
    return c.apply("LookupTable", [c.required(index), *tables], zero_point=int(zero))
