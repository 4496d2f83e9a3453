"""ATen operators that make tensors: ranges, constants, masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.torch.reader import Ref
from verax.frontends.torch.rows import Aten, Result, row
from verax.frontends.torch.table_elementwise import in_type, operand
from verax.ir.types import DType

STORAGE = ("device", "layout", "pin_memory", "memory_format", "requires_grad")


def _dtype(t: Aten, default: DType) -> DType:
    t.irrelevant(*STORAGE)
    named = t.text("dtype")
    return default if named is None else DType(named)


@row("arange.default", "arange.start", "arange.start_step")
def arange(t: Aten) -> Result:
    parts = {"start": t.a.get("start", 0), "end": t.a.get("end"), "step": t.a.get("step", 1)}
    whole = all(isinstance(v, Ref) or type(v) is int for v in parts.values())
    dtype = _dtype(t, DType.int64 if whole else DType.float32)
    if not any(isinstance(v, Ref) for v in parts.values()):
        return t.c.named_constant(np.arange(*parts.values()).astype(dtype.numpy))
    bounds: list[str | None] = [
        t.c.required(v.index) if isinstance(v, Ref) else t.constant(v, np.int64)
        for v in parts.values()
    ]
    made = t.add("Range", bounds)
    return t.result(
        "Identity" if dtype is DType.int64 else "Cast",
        [made],
        **({} if dtype is DType.int64 else {"to": dtype}),
    )


def _filled(t: Aten, sizes: Any, value: Any, dtype: DType) -> Result:
    if all(type(v) is int for v in sizes):
        return t.c.named_constant(np.full(sizes, value, dtype.numpy))
    scalar = t.constant(value, dtype.numpy)
    return t.result("Expand", [scalar, t.vector(sizes)])


@row("zeros.default", "ones.default", "full.default", "scalar_tensor.default")
def fill(t: Aten) -> Result:
    value: Any = {"zeros": 0, "ones": 1}.get(t.kind)
    if t.kind == "full":
        value = t.number("fill_value")
    if t.kind == "scalar_tensor":
        value = t.number("s")
    default = DType.float32
    if t.kind == "full" and not isinstance(value, float):
        default = DType.bool_ if isinstance(value, bool) else DType.int64
    sizes = () if t.kind == "scalar_tensor" else t.a.get("size", ())
    return _filled(t, sizes, value, _dtype(t, default))


@row(
    *("new_zeros.default", "new_ones.default", "new_full.default"),
)
def fill_new(t: Aten) -> Result:
    dtype = _dtype(t, t.type(t.tensor("self")).dtype)
    value = t.number("fill_value") if t.kind == "new_full" else int(t.kind == "new_ones")
    return _filled(t, t.a.get("size", ()), value, dtype)


@row("zeros_like.default", "ones_like.default", "full_like.default")
def fill_like(t: Aten) -> Result:
    x = t.tensor("self")
    dtype = _dtype(t, t.type(x).dtype)
    value = t.number("fill_value") if t.kind == "full_like" else int(t.kind == "ones_like")
    return t.result("Expand", [t.constant(value, dtype.numpy), t.add("Shape", [x])])


@row("fill.Scalar", "fill.Tensor")
def fill_values(t: Aten) -> Result:
    x = t.tensor("self")
    value = in_type(t, operand(t, "value"), t.type(x).dtype)
    return t.result("Expand", [value, t.add("Shape", [x])])


@row("tril.default", "triu.default")
def triangle(t: Aten) -> Result:
    k = t.constant(t.integer("diagonal", 0), np.int64)
    return t.result("Trilu", [t.tensor("self"), k], upper=t.kind == "triu")


@row("one_hot.default")
def one_hot(t: Aten) -> Result:
    depth = t.integer("num_classes", -1)
    if depth < 0:
        t.a.refuse("num_classes", "the number of classes is computed from the data")
    values = t.constant([0, 1], np.int64)
    return t.result("OneHot", [t.tensor("self"), t.ints([depth]), values])


@row("linspace.default")
def linspace(t: Aten) -> Result:
    """torch computes from both ends towards the middle, in the element type."""
    start, end, steps = t.number("start"), t.number("end"), t.integer("steps")
    dtype = _dtype(t, DType.float32)
    return t.c.named_constant(np.linspace(start, end, steps).astype(dtype.numpy))
