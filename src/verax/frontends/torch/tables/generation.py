"""ATen operators that make tensors: ranges, constants, masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.rows import NO_MEANING, Aten, row
from verax.frontends.torch.tables.elementwise import in_type, operand
from verax.ir.types import DType

STORAGE = ("device", "layout", "pin_memory", "memory_format", "requires_grad")


def _dtype(t: Aten, default: DType) -> DType:
    t.irrelevant(*STORAGE, reason=NO_MEANING)
    named = t.text("dtype")
    return default if named is None else DType(named)


@row("arange.default", "arange.start", "arange.start_step")
def arange(t: Aten) -> Result:
    arguments = {"start": t.a.get("start", 0), "end": t.a.get("end"), "step": t.a.get("step", 1)}
    is_integer = all(isinstance(v, Ref) or type(v) is int for v in arguments.values())
    dtype = _dtype(t, DType.int64 if is_integer else DType.float32)
    if not any(isinstance(v, Ref) for v in arguments.values()):
        start, end, step = arguments.values()
        t.check_count(math.ceil((end - start) / step))
        return t.named_constant(np.arange(start, end, step).astype(dtype.numpy))
    bounds: list[str | None] = []
    for value in arguments.values():
        bound = t.required(value.index) if isinstance(value, Ref) else t.constant(value)
        bounds.append(t.cast(bound, DType.int64 if is_integer else DType.float64))
    return t.result("Identity", [t.cast(t.add("Range", bounds), dtype)])


def _filled(t: Aten, sizes: Any, value: Any, dtype: DType) -> Result:
    """A tensor of one value, which may be a number or a `Ref` to one."""
    if isinstance(value, Ref):
        scalar = t.cast(t.required(value.index), dtype)
    elif all(type(v) is int for v in sizes):
        t.check_count(math.prod(sizes))
        return t.named_constant(np.full(sizes, value, dtype.numpy))
    else:
        scalar = t.constant(value, dtype.numpy)
    return t.result("Expand", [scalar, t.vector(sizes)])


def _value(t: Aten, name: str) -> Any:
    """A number, or a `Ref` to a size."""
    argument = t.a.get(name)
    return argument if isinstance(argument, Ref) else t.scalar(name)


@row("scalar_tensor.default", domain="prims")
@row("zeros.default", "ones.default", "full.default", "scalar_tensor.default")
def fill(t: Aten) -> Result:
    value: Any = {"zeros": 0, "ones": 1}.get(t.kind)
    if t.kind in ("full", "scalar_tensor"):
        value = _value(t, "fill_value" if t.kind == "full" else "s")
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
    value = _value(t, "fill_value") if t.kind == "new_full" else int(t.kind == "new_ones")
    return _filled(t, t.a.get("size", ()), value, dtype)


@row("zeros_like.default", "ones_like.default", "full_like.default")
def fill_like(t: Aten) -> Result:
    x = t.tensor("self")
    dtype = _dtype(t, t.type(x).dtype)
    value = t.scalar("fill_value") if t.kind == "full_like" else int(t.kind == "ones_like")
    return t.result("Expand", [t.constant(value, dtype.numpy), t.add("Shape", [x])])


@row(
    *("empty.memory_format", "empty_permuted.default"),
    *("new_empty.default", "empty_like.default"),
)
def uninitialized(t: Aten) -> Result:
    """Memory before anything was written: NaN, or the lowest integer, so that a network whose
    result depends on it is noticed."""
    t.irrelevant("physical_layout", reason=NO_MEANING)
    x = None if t.kind in ("empty", "empty_permuted") else t.tensor("self")
    dtype = _dtype(t, DType.float32 if x is None else t.type(x).dtype)
    value: Any = np.nan
    if not dtype.is_float:
        value = False if dtype is DType.bool_ else np.iinfo(dtype.numpy).min
    if t.kind == "empty_like" and x is not None:
        return t.result("Expand", [t.constant(value, dtype.numpy), t.add("Shape", [x])])
    return _filled(t, t.a.get("size", ()), value, dtype)


@row("eye.default", "eye.m")
def eye(t: Aten) -> Result:
    rows = t.integer("n")
    columns = t.integer("m", rows)
    t.check_count(rows * columns)
    return t.named_constant(np.eye(rows, columns, dtype=_dtype(t, DType.float32).numpy))


@row("fill.Scalar", "fill.Tensor", "zero.default")
def fill_values(t: Aten) -> Result:
    x = t.tensor("self")
    fill = 0 if t.kind == "zero" else operand(t, "value")
    return t.apply("Expand", [in_type(t, fill, t.type(x).dtype), t.add("Shape", [x])])


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
    """start + i (end - start) / (steps - 1), computed in the element type: it rounds."""
    start, end, steps = t.scalar("start"), t.scalar("end"), t.integer("steps")
    dtype = _dtype(t, DType.float32)
    t.check_count(steps)
    if not dtype.is_float or steps < 2:
        return t.named_constant(np.linspace(start, end, steps).astype(dtype.numpy))
    positions = t.constant(np.arange(steps), dtype.numpy)
    span, last = (t.constant(v, dtype.numpy) for v in (end - start, steps - 1))
    steps_from_start = t.add("Div", [t.add("Mul", [positions, span]), last])
    return t.result("Add", [steps_from_start, t.constant(start, dtype.numpy)])
