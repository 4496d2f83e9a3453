"""ATen operators that count: bincount, histogram, repeats and segments by computed lengths, the
most frequent number, the median of what is a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.order import MOST_PAIRS
from verax.ir.types import DType


@row("bincount.default")
def bincount(t: Aten) -> Result:
    """How often each integer from 0 on is there, or the sum of its weights."""
    x, weights = t.cast(t.tensor("self"), DType.int64), t.maybe("weights")
    min_length = t.integer("minlength", 0)
    if weights is None:
        weights = t.add("Expand", [t.constant(1, np.int64), t.add("Shape", [x])])
    elif t.type(weights).dtype is not DType.float32:
        weights = t.cast(weights, DType.float64)
    # No element, too, has a largest one.
    line = t.add("Concat", [x, t.ints([min_length - 1])], axis=0)
    count = t.add("Add", [t.add("ReduceMax", [line], keepdims=False), t.constant(1, np.int64)])
    size = t.add("Unsqueeze", [count, t.ints([0])])
    zeros = t.add("Expand", [t.like(0, weights), size])
    return t.result("ScatterElements", [zeros, x, weights], axis=0, reduction="add")


@row("repeat_interleave.self_Tensor", "repeat_interleave.Tensor")
def repeated(t: Aten) -> Result:
    """Each slice as often as its own number says; without a tensor, the numbers of the slices."""
    repeats = t.cast(t.tensor("repeats"), DType.int64)
    t.irrelevant("output_size", reason="it repeats what repeats says")
    x, axis = t.maybe("self"), 0
    if x is not None and t.a.has("dim"):
        axis = t.axis("dim", x)
    if x is not None and (not t.rank(x) or not t.a.has("dim")):
        x, axis = t.add("Reshape", [x, t.ints([-1])]), 0
    size = t.known_size(repeats if x is None else x, axis if x is not None else 0)
    if x is not None and t.type(repeats).dims in ((), (1,)):
        repeats = t.add("Expand", [repeats, t.ints([size])])
    ends = t.add("CumSum", [repeats, t.constant(0, np.int64)])
    total = t.add("ReduceSum", [repeats], keepdims=False)
    positions = t.add("Range", [t.constant(0, np.int64), total, t.constant(1, np.int64)])
    gone = t.add("LessOrEqual", [ends, t.add("Unsqueeze", [positions, t.ints([1])])])
    slice_indices = t.add("ReduceSum", [t.cast(gone, DType.int64), t.ints([1])], keepdims=False)
    if x is None:
        return t.result("Identity", [slice_indices])
    return t.result("Gather", [x, slice_indices], axis=axis)


# Bins


def _inside(t: Aten, x: str, edges: str, bins: int) -> str:
    """For elements [n] and edges [bins + 1], which bin has which: bool [n, bins]. A bin has its
    lower end, the last one its upper end, too."""
    t.check_count(math.prod(d for d in t.type(x).dims if isinstance(d, int)) * bins, MOST_PAIRS)
    column, axis = t.add("Unsqueeze", [x, t.ints([1])]), t.ints([0])
    lower = t.add("Slice", [edges, t.ints([0]), t.ints([bins]), axis])
    inner = t.add("Slice", [edges, t.ints([1]), t.ints([bins]), axis])
    last = t.add("Slice", [edges, t.ints([bins]), t.ints([bins + 1]), axis])
    beyond = [t.add("GreaterOrEqual", [column, inner]), t.add("Greater", [column, last])]
    above = t.add("GreaterOrEqual", [column, lower])
    return t.add("And", [above, t.add("Not", [t.add("Concat", beyond, axis=1)])])


def _even_edges(t: Aten, x: str, bins: int, ends: Any) -> str:
    """Ends of equal bins from `ends`, or from the smallest to the largest element; half a step
    around all of them where they are equal."""
    dtype = t.type(x).dtype.numpy
    if ends is not None:
        first, last = (float(v) for v in ends)
        half = 0.5 if first == last else 0.0
        return t.constant(np.linspace(first - half, last + half, bins + 1), dtype)
    if t.type(x).dims == (0,):
        return t.constant(np.linspace(0, 1, bins + 1), dtype)
    low, high = (t.add(k, [x, t.ints([0])], keepdims=True) for k in ("ReduceMin", "ReduceMax"))
    same = t.add("Where", [t.add("Equal", [low, high]), t.like(0.5, x), t.like(0, x)])
    low, high = t.add("Sub", [low, same]), t.add("Add", [high, same])
    share = t.constant(np.arange(bins) / bins, dtype)
    steps = t.add("Mul", [t.add("Sub", [high, low]), share])
    return t.add("Concat", [t.add("Add", [low, steps]), high], axis=0)


@row("histogram.bin_ct", "histogram.bins_tensor")
def histogram(t: Aten) -> Result:
    """How many elements each bin has, or their weights, as numbers of the input's type; and the
    bins' ends."""
    x = t.add("Reshape", [t.tensor("self"), t.ints([-1])])
    if t.node.op_type.endswith("bin_ct"):
        bins = t.integer("bins", 100)
        edges = _even_edges(t, x, bins, t.numbers("range"))
    else:
        edges = t.tensor("bins")
        bins = t.known_size(edges, 0) - 1
    if bins < 1 or not t.type(x).dtype.is_float:
        t.refuse(f"{bins} bins of {t.type(x).dtype}")
    counted = t.cast(_inside(t, x, edges, bins), t.type(x).dtype)
    weight = t.maybe("weight")
    if weight is not None:
        counted = t.add("Mul", [counted, t.add("Reshape", [weight, t.ints([-1, 1])])])
    counts = t.add("ReduceSum", [counted, t.ints([0])], keepdims=False)
    if t.flag("density"):
        axis = t.ints([0])
        edges_of_bins = [
            t.add("Slice", [edges, t.ints([a]), t.ints([a + bins]), axis]) for a in (1, 0)
        ]
        total = t.add("ReduceSum", [counts], keepdims=False)
        counts = t.add("Div", [t.add("Div", [counts, total]), t.add("Sub", edges_of_bins)])
    return t.named([counts, edges])


# Segments

NEUTRAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
KINDS = {"sum": "ReduceSum", "mean": "ReduceSum", "prod": "ReduceProd"}


@row("segment_reduce.default")
def segment_reduce(t: Aten) -> Result:
    """What lies between two ends along an axis, taken together, with `initial` where it is given;
    lengths or offsets [..., segments] have the axes before it. A mean of nothing is NaN."""
    x, mode, axis = (
        t.tensor("data"),
        t.choice("reduce", NEUTRAL),
        t.axis("axis", t.tensor("data"), 0),
    )
    t.irrelevant("unsafe", reason="it says whether lengths are checked")
    if t.a.get("indices") is not None:
        t.a.refuse("indices")
    first = t.scalar("initial")
    lengths, offsets = t.maybe("lengths"), t.maybe("offsets")
    dims = t.known_sizes(x)
    bounds = lengths or offsets
    if bounds is None or t.rank(bounds) != axis + 1:
        t.refuse("lengths or offsets for other axes")
    count = t.known_size(bounds, axis) - (lengths is None)
    t.check_count(math.prod(dims) * count, MOST_PAIRS)
    if lengths is not None:
        ends = t.add("CumSum", [t.cast(lengths, DType.int64), t.constant(axis, np.int64)])
        starts = t.add("Sub", [ends, t.cast(lengths, DType.int64)])
    else:
        assert offsets is not None
        wide, line = t.cast(offsets, DType.int64), t.ints([axis])
        starts = t.add("Slice", [wide, t.ints([0]), t.ints([count]), line])
        ends = t.add("Slice", [wide, t.ints([1]), t.ints([count + 1]), line])
    behind = t.ints([-1])
    starts, ends = (t.add("Unsqueeze", [v, behind]) for v in (starts, ends))
    positions = t.ints(range(dims[axis]))  # [..., segments, elements]
    mine = t.add(
        "And", [t.add("LessOrEqual", [starts, positions]), t.add("Less", [positions, ends])]
    )
    more = len(dims) - axis - 1
    if more:
        mine = t.add("Unsqueeze", [mine, t.ints(range(axis + 2, axis + 2 + more))])
    single = t.add("Unsqueeze", [x, t.ints([axis])])
    masked = t.add("Where", [mine, single, t.like(NEUTRAL[mode], x)])
    kind = KINDS.get(mode, f"Reduce{mode.title()}")
    reduced = t.add(kind, [masked, t.ints([axis + 1])], keepdims=False)
    if first is not None:
        combine = {"sum": "Add", "mean": "Add", "prod": "Mul"}.get(mode, mode.title())
        reduced = t.add(combine, [reduced, t.like(first, x)])
    if mode != "mean":
        return t.result("Identity", [reduced])
    size = t.add("Sub", [ends, starts])
    size = t.add("Reshape", [size, t.ints([*dims[:axis], count, *(1,) * more])])
    one = t.constant(1, np.int64)
    mean = t.add("Div", [reduced, t.cast(t.add("Max", [size, one]), t.type(x).dtype)])
    nothing = t.like(math.nan if first is None else first, x)
    return t.result("Where", [t.add("Less", [size, one]), nothing, mean])


# Order


def _only_values(t: Aten, size: int) -> None:
    if t.output_used(1) and size > 1:
        t.refuse("which of equal elements is meant is torch's choice; its indices are used")


def _line(t: Aten) -> tuple[str, int, int]:
    """The tensor, an axis of it and its size; a line of all elements where no axis is named."""
    x = t.tensor("self")
    if t.rank(x) and t.a.has("dim"):
        axis = t.axis("dim", x, -1)
        return x, axis, t.known_size(x, axis)
    if t.rank(x) and t.kind == "mode":
        return x, t.rank(x) - 1, t.known_size(x, -1)
    t.irrelevant("dim", reason="there is one line of elements")
    flat = t.add("Reshape", [x, t.ints([-1])])
    return flat, 0, t.known_size(flat, 0)


def _values(t: Aten, value: str, axis: int, is_total: bool) -> Result:
    """(values, with or without their axis of one element; indices, all 0, which nothing uses)."""
    if is_total:
        value = t.add("Reshape", [value, t.ints([])])
        t.irrelevant("keepdim", reason="the result has one element")
    elif not t.flag("keepdim"):
        value = t.add("Squeeze", [value, t.ints([axis])])
    indices = t.add("Expand", [t.constant(0, np.int64), t.add("Shape", [value])])
    return t.named([value, indices][: len(t.node.outputs)])


@row("mode.default")
def mode(t: Aten) -> Result:
    """The most frequent number along an axis, the smallest of those."""
    x, axis, size = _line(t)
    _only_values(t, size)
    t.check_count(math.prod(t.known_sizes(x)) * size, MOST_PAIRS)
    behind = t.add("Transpose", [x], perm=_last(t.rank(x), axis))
    sides = [t.add("Unsqueeze", [behind, t.ints([a])]) for a in (-1, -2)]
    same = t.cast(t.add("Equal", sides), DType.int64)
    often = t.add("ReduceSum", [same, t.ints([-1])], keepdims=False)
    max_count = t.add("ReduceMax", [often, t.ints([-1])], keepdims=True)
    dtype = t.type(x).dtype
    top = np.inf if dtype.is_float else np.iinfo(dtype.numpy).max
    candidates = t.add("Where", [t.add("Equal", [often, max_count]), behind, t.like(top, x)])
    smallest = t.add("ReduceMin", [candidates, t.ints([-1])], keepdims=True)
    back = t.add("Transpose", [smallest], perm=tuple(np.argsort(_last(t.rank(x), axis)).tolist()))
    return _values(t, back, axis, not t.rank(t.tensor("self")))


def _last(rank: int, axis: int) -> tuple[int, ...]:
    return (*(a for a in range(rank) if a != axis), axis)


@row("nanmedian.default", "nanmedian.dim")
def nanmedian(t: Aten) -> Result:
    """The lower of the two middle ones of what is not NaN; NaN where nothing is."""
    x, axis, size = _line(t)
    _only_values(t, size)
    is_total = t.node.op_type == "nanmedian.default" or not t.rank(t.tensor("self"))
    if not t.type(x).dtype.is_float:
        missing = None
        count = t.constant(np.full((1,) * t.rank(x), size), np.int64)
    else:
        missing = t.add("IsNaN", [x])
        there = t.cast(t.add("Not", [missing]), DType.int64)
        count = t.add("ReduceSum", [there, t.ints([axis])], keepdims=True)
        x = t.add("Where", [missing, t.like(math.inf, x), x])
    ordered = t.add_all("TopK", [x, t.ints([size])], axis=axis, largest=False)[0]
    two, one, none = (t.constant(v, np.int64) for v in (2, 1, 0))
    middle = t.add("Div", [t.add("Max", [t.add("Sub", [count, one]), none]), two])
    lines = t.constant(np.arange(size).reshape(-1, *(1,) * (t.rank(x) - 1 - axis)), np.int64)
    medians = t.add("Where", [t.add("Equal", [lines, middle]), ordered, t.like(_lowest(t, x), x)])
    value = t.add("ReduceMax", [medians, t.ints([axis])], keepdims=True)
    if missing is not None:
        nothing = t.add("Equal", [count, none])
        value = t.add("Where", [nothing, t.like(math.nan, value), value])
    return _values(t, value, axis, is_total)


def _lowest(t: Aten, x: str) -> Any:
    dtype = t.type(x).dtype
    return -math.inf if dtype.is_float else np.iinfo(dtype.numpy).min
