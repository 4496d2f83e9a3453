"""ATen operators that write into a copy: scatter_reduce, index_reduce, put, diagonal_scatter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common import shapes
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.unfolding import memory_indices
from verax.ir.types import DType

REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


def _type_limit(dtype: DType, highest: bool) -> Any:
    """The smallest number of a type, or the largest one."""
    if dtype.is_float:
        return np.inf if highest else -np.inf
    if dtype is DType.bool_:
        return highest
    limits = np.iinfo(dtype.numpy)
    return limits.max if highest else limits.min


def _reduced(t: Aten, x: str, indices: str, updates: str, axis: int) -> Result:
    """Updates taken together with what is at their places, or with each other alone."""
    name, dtype = t.choice("reduce", REDUCTIONS), t.type(x).dtype
    reduction = REDUCTIONS[name]
    fields = {"axis": axis, "reduction": reduction}
    apart = not t.flag("include_self", True)
    if name == "mean" and not dtype.is_float:
        t.refuse(f"a mean of {dtype}")

    def everywhere(value: Any) -> str:
        return t.add("Expand", [t.constant(value, dtype.numpy), t.add("Shape", [indices])])

    def forgotten(base: str, value: Any) -> str:
        return t.add("ScatterElements", [base, indices, everywhere(value)], axis=axis)

    neutral = {"amax": _type_limit(dtype, False), "amin": _type_limit(dtype, True), "prod": 1}.get(
        name, 0
    )
    base = forgotten(x, neutral) if apart else x
    if name != "mean":
        return t.result("ScatterElements", [base, indices, updates], **fields)
    total = t.add("ScatterElements", [base, indices, updates], **fields)
    ones = t.add("Expand", [t.constant(1, dtype.numpy), t.add("Shape", [x])])
    counts = forgotten(ones, 0) if apart else ones
    counts = t.add("ScatterElements", [counts, indices, everywhere(1)], **fields)
    return t.result("Div", [total, counts])


@row("scatter_reduce.two")
def scatter_reduce(t: Aten) -> Result:
    """Only as much of `src` counts as `index` covers."""
    x, indices, updates = t.tensor("self"), t.cast(t.tensor("index"), DType.int64), t.tensor("src")
    axis = t.axis("dim", x)
    if not t.rank(x):
        t.refuse("its input has no axes")
    if t.type(updates).dims != t.type(indices).dims:
        starts, ends = t.ints([0] * t.rank(x)), t.add("Shape", [indices])
        updates = t.add("Slice", [updates, starts, ends])
    return _reduced(t, x, indices, updates, axis)


@row("index_reduce.default")
def index_reduce(t: Aten) -> Result:
    """The same for whole slices along an axis."""
    x, source = t.tensor("self"), t.tensor("source")
    axis = t.axis("dim", x)
    shape = [1] * t.rank(x)
    shape[axis] = -1
    line = t.add("Reshape", [t.cast(t.tensor("index"), DType.int64), t.ints(shape)])
    indices = t.add("Expand", [line, t.add("Shape", [source])])
    return _reduced(t, x, indices, source, axis)


def _written_flat(t: Aten, x: str, indices: str, updates: str, reduction: str = "none") -> Result:
    """`x` with updates at positions of its row-major elements."""
    flat = t.add("Reshape", [x, t.ints([-1])])
    tuples = t.add("Reshape", [indices, t.ints([-1, 1])])
    values = t.add("Reshape", [t.cast(updates, t.type(x).dtype), t.ints([-1])])
    scattered = t.add("ScatterND", [flat, tuples, values], reduction=reduction)
    return t.result("Reshape", [scattered, t.add("Shape", [x])])


@row("put.default")
def put(t: Aten) -> Result:
    x, indices = t.tensor("self"), t.cast(t.tensor("index"), DType.int64)
    reduction = "add" if t.flag("accumulate") else "none"
    return _written_flat(t, x, indices, t.tensor("source"), reduction)


@row("diagonal_scatter.default")
def diagonal_scatter(t: Aten) -> Result:
    x = t.tensor("self")
    sizes = t.known_sizes(x, dependent="where its diagonal lies")
    t.check_count(math.prod(sizes))
    first, second = t.axis("dim1", x, 0), t.axis("dim2", x, 1)
    all_indices = np.arange(math.prod(sizes)).reshape(sizes)
    indices = np.diagonal(all_indices, t.integer("offset", 0), first, second)
    return _written_flat(t, x, t.constant(indices, np.int64), t.tensor("src"))


@row("as_strided_scatter.default")
def as_strided_scatter(t: Aten) -> Result:
    """Written by places in memory, which the input must fill in the usual order."""
    x = t.tensor("self")
    sizes, strides = t.integers("size"), t.integers("stride")
    own, offset = t.integers("recorded_strides"), t.integer("recorded_offset")
    offset = t.integer("storage_offset", offset) - offset
    dims = t.known_sizes(x, dependent="where its elements lie")
    usual = [math.prod(dims[a + 1 :]) for a in range(len(dims))]
    if any(n != 1 and s != u for n, s, u in zip(dims, own, usual)):
        t.refuse(f"an input of strides {own}")
    indices = memory_indices(t, sizes, strides, offset, math.prod(dims))
    return _written_flat(t, x, t.constant(indices, np.int64), t.tensor("src"))


@row("resize.default", "resize_as.default")
def resized(t: Aten) -> Result:
    """The first elements in another shape; more than there are would be whatever was in memory."""
    t.irrelevant("memory_format", reason="it says how a tensor is stored")
    x = t.tensor("self")
    if t.kind == "resize":
        shape = t.integers("size")
    else:
        shape = t.known_sizes(t.tensor("the_template"), dependent="the new shape")
    count = math.prod(t.known_sizes(x, dependent="how many elements there are"))
    if math.prod(shape) > count:
        t.refuse(f"{math.prod(shape)} elements of {count}: the others are whatever is in memory")
    flat = t.add("Reshape", [x, t.ints([-1])])
    if math.prod(shape) < count:
        flat = t.add("Slice", [flat, t.ints([0]), t.ints([math.prod(shape)])])
    return t.result("Reshape", [flat, t.ints(shape)])


@row("nonzero_static.default")
def nonzero_static(t: Aten) -> Result:
    """The first positions of what is not zero, filled up to a given number of them."""
    x, size, fill = t.tensor("self"), t.integer("size"), t.integer("fill_value", -1)
    if not t.rank(x):
        return t.result("Identity", [t.constant(np.zeros((size, 0)), np.int64)])
    behind = t.constant(np.full((size, t.rank(x)), fill), np.int64)
    positions = t.add("Concat", [t.append(shapes.positions(t, x)), behind], axis=0)
    first = t.add("Slice", [positions, t.ints([0]), t.ints([size])])
    return t.result("Reshape", [first, t.ints([size, t.rank(x)])])
