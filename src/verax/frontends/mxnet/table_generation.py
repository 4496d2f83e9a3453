"""MXNet operators whose values follow from shapes alone: zeros, counts, sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import formulas
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import TABLE, dtype_named, ints, known_dims, row


def _filled(c: Conversion, value: Any) -> Result:
    """A constant of the shape and type that the parameters say."""
    shape = ints(c, "shape", ())
    if min(shape, default=1) < 1:
        c.attributes.refuse("shape", "its sizes follow from whoever reads it")
    c.check_count(math.prod(shape))
    c.attributes.irrelevant("ctx", "the device that holds it")
    dtype = dtype_named(c, "dtype", "float32")
    return c.named_constant(np.full(shape, value, dtype.numpy))


row("_zeros", "_npi_zeros")(lambda c: _filled(c, 0))
row("_ones", "_npi_ones")(lambda c: _filled(c, 1))


@row("_full")
def full(c: Conversion) -> Result:
    return _filled(c, c.scalar("value"))


def _of_shape(c: Conversion, value: int) -> Result:
    """A number in the shape and type of the input."""
    if c.attributes.has("dtype") and dtype_named(c, "dtype") is not c.type(0).dtype:
        # MXNet 1.9 takes the input's type, whatever is asked; seen with dtype=int64.
        c.attributes.irrelevant("dtype", "MXNet makes it of the input's type")
    return formulas.filled_like(c, c.required(0), value)


row("zeros_like")(lambda c: _of_shape(c, 0))
row("ones_like")(lambda c: _of_shape(c, 1))


@row("_arange", "_npi_arange")
def arange(c: Conversion) -> Result:
    """start, start + step, ... below stop; each `repeat` times."""
    a = c.attributes
    a.expect("infer_range", False, reason="its length follows from whoever reads it")
    a.irrelevant("ctx", "the device that holds it")
    start, stop, step = (a.scalar(n, d) for n, d in (("start", 0.0), ("stop", None), ("step", 1.0)))
    if stop is None:
        start, stop = 0.0, start
    repeat, dtype = a.integer("repeat", 1), dtype_named(c, "dtype", "float32")
    if step == 0 or repeat < 1:
        a.refuse("step", "nothing is counted")
    count = max(0, math.ceil((stop - start) / step))
    c.check_count(count * repeat)
    values = start + np.arange(count, dtype=np.float64) * step
    return c.named_constant(np.repeat(values, repeat).astype(dtype.numpy))


@row("_contrib_arange_like")
def arange_like(c: Conversion) -> Result:
    """As many numbers as the input (or one of its axes) has places, each `repeat` times."""
    a = c.attributes
    a.irrelevant("ctx", "the device that holds it")
    start, step, repeat = a.scalar("start", 0.0), a.scalar("step", 1.0), a.integer("repeat", 1)
    dims = known_dims(c, 0, "how far to count")
    axis = a.integer("axis")
    shape = dims if axis is None else (dims[axis],)
    size = math.prod(shape)
    c.check_count(size)
    values = start + (np.arange(size) // max(repeat, 1)) * step
    return c.named_constant(values.reshape(shape).astype(c.type(0).dtype.numpy))


TABLE.operator("Shape", "shape_array")


@row("size_array")
def size_array(c: Conversion) -> Result:
    return c.result("Reshape", [c.add("Size", [c.required(0)]), c.ints((1,))])
