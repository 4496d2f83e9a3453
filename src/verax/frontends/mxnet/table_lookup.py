"""MXNet operators that look elements up by number, or sort them. Numbers are kept as floats."""

from __future__ import annotations

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import dtype_named, keep_dtype, known_dims, row
from verax.ir.types import DType


def _as_int64(c: Conversion, index: int) -> str:
    """An input of numbers as int64, cut off towards zero."""
    value = c.required(index)
    return value if c.type(index).dtype is DType.int64 else c.add("Cast", [value], to="int64")


def _bounded(c: Conversion, indices: str, size: str, mode: str) -> str:
    """Places brought into [0, size): to the nearest end, or around it."""
    if mode == "wrap":
        return c.add("Mod", [indices, size])
    one, zero = c.constant(1, np.int64), c.constant(0, np.int64)
    return c.add("Clip", [indices, zero, c.add("Sub", [size, one])])


def _size(c: Conversion, axis: int) -> str:
    """The size of an axis of the first input, as a scalar."""
    shape = c.add("Shape", [c.required(0)])
    return c.add("Gather", [shape, c.constant(axis, np.int64)], axis=0)


def _mode(c: Conversion) -> str:
    mode: str = c.choice("mode", ("clip", "wrap"), "clip")
    return mode


@row("take")
def take(c: Conversion) -> Result:
    axis = c.integer("axis", 0) % c.rank()
    indices = _bounded(c, _as_int64(c, 1), _size(c, axis), _mode(c))
    return c.result("Gather", [c.required(0), indices], axis=axis)


@row("pick")
def pick(c: Conversion) -> Result:
    """One element of the axis for each position of the other axes."""
    a, rank = c.attributes, c.rank()
    axis = a.integer("axis", -1)
    if axis is None:
        a.refuse("axis", "MXNet needs one")
    axis %= rank
    indices = _bounded(c, _as_int64(c, 1), _size(c, axis), _mode(c))
    if c.rank(1) == rank - 1:
        indices = c.add("Unsqueeze", [indices, c.ints((axis,))])
    elif c.rank(1) != rank or c.type(1).dims[axis] != 1:
        raise ModelError(f"{c.type(1)} picks of {c.type(0)}", place=c.node.place)
    if a.flag("keepdims", False):
        return c.result("GatherElements", [c.required(0), indices], axis=axis)
    elements = c.add("GatherElements", [c.required(0), indices], axis=axis)
    return c.result("Squeeze", [elements, c.ints((axis,))])


@row("gather_nd", "_npx_gather_nd")
def gather_nd(c: Conversion) -> Result:
    """The first axis of the second input numbers the axes; a place below 0 counts from the end."""
    rank = c.rank(1)
    indices = c.required(1)
    if c.type(1).dtype.is_float:
        indices = c.add("Floor", [indices])
    if c.type(1).dtype is not DType.int64:
        indices = c.add("Cast", [indices], to="int64")
    tuples = c.add("Transpose", [indices], perm=(*range(1, rank), 0))
    return c.result("GatherND", [c.required(0), tuples])


@row("one_hot")
def one_hot(c: Conversion) -> Result:
    """A number outside of [0, depth) gives a row without on_value."""
    a, rank = c.attributes, c.rank()
    depth, dtype = a.integer("depth"), dtype_named(c, "dtype", "float32")
    on = c.constant(a.scalar("on_value", 1.0), dtype.numpy)
    off = c.constant(a.scalar("off_value", 0.0), dtype.numpy)
    if not 0 < depth <= 1 << 24:
        a.refuse("depth", "it is no number of classes")
    classes = c.add("Unsqueeze", [_as_int64(c, 0), c.ints((rank,))])
    is_it = c.add("Equal", [classes, c.ints(tuple(range(depth)))])
    return c.result("Where", [is_it, on, off])


@row("Embedding")
def embedding(c: Conversion) -> Result:
    """Rows of the weights by their numbers; a number beyond them means the first or last row."""
    a = c.attributes
    size = (a.integer("input_dim"), a.integer("output_dim"))
    if c.type(1).dims != size:
        raise ModelError(f"the weights are {c.type(1)}, not {size}", place=c.node.place)
    a.irrelevant("sparse_grad", "it shapes the gradient only")
    keep_dtype(c, index=1)
    indices = _bounded(c, _as_int64(c, 0), c.constant(size[0], np.int64), "clip")
    return c.result("Gather", [c.required(1), indices], axis=0)


# Order.


def _axis_or_flat(c: Conversion, default: int | None) -> tuple[str, int, bool]:
    """The input, the axis to order along, and whether it was flattened for want of one."""
    axis = c.attributes.get("axis", default)
    if axis is None:
        return c.add("Reshape", [c.required(0), c.ints((-1,))]), 0, True
    if type(axis) is not int or not -c.rank() <= axis < c.rank():
        c.attributes.refuse("axis", f"the input is {c.type(0)}")
    return c.required(0), axis % c.rank(), False


def _top(c: Conversion, data: str, axis: int, k: int, is_ascending: bool) -> tuple[str, str]:
    """Values and int64 places of the first k elements in order; all when k is below 1."""
    if k < 1:
        shape = c.add("Shape", [data])
        count = c.add("Gather", [shape, c.ints((axis,))], axis=0)
    else:
        count = c.ints((k,))
    values, indices = c.add_all("TopK", [data, count], axis=axis, largest=not is_ascending)
    return values, indices


@row("topk")
def topk(c: Conversion) -> Result:
    a = c.attributes
    data, axis, _ = _axis_or_flat(c, -1)
    kind, dtype = (
        c.choice("ret_typ", ("value", "indices", "both"), "indices"),
        dtype_named(c, "dtype", "float32"),
    )
    values, indices = _top(c, data, axis, a.integer("k", 1), a.flag("is_ascend", False))
    numbers = c.add("Cast", [indices], to=dtype)
    return {"value": (values,), "indices": (numbers,), "both": (values, numbers)}[kind]


@row("sort")
def sort(c: Conversion) -> Result:
    data, axis, _ = _axis_or_flat(c, -1)
    return _top(c, data, axis, 0, c.flag("is_ascend", True))[0]


@row("argsort")
def argsort(c: Conversion) -> Result:
    data, axis, _ = _axis_or_flat(c, -1)
    dtype = dtype_named(c, "dtype", "float32")
    indices = _top(c, data, axis, 0, c.flag("is_ascend", True))[1]
    return c.result("Cast", [indices], to=dtype)


OLD_AXIS = 905
"""Symbols older than version 0.9.5 write an axis of -1 where they mean none."""


def _position(name: str, kind: str) -> None:
    """The place of the extreme element, as a float like everything in MXNet."""

    def convert(c: Conversion) -> Result:
        a, rank = c.attributes, c.rank()
        keep = a.flag("keepdims", False)
        if c.version < OLD_AXIS and a.values.get("axis") == -1:
            a.irrelevant("axis", "before MXNet 0.9.5 an axis of -1 meant none")
            data, axis, is_flat = c.add("Reshape", [c.required(0), c.ints((-1,))]), 0, True
        else:
            data, axis, is_flat = _axis_or_flat(c, None)
        index = c.add(kind, [data], axis=axis, keepdims=keep or is_flat)
        if is_flat and keep:
            index = c.add("Reshape", [index, c.ints((1,) * rank)])
        return c.result("Cast", [index], to=c.type(0).dtype)

    row(name)(convert)


_position("argmax", "ArgMax")
_position("argmin", "ArgMin")


@row("argmax_channel")
def argmax_channel(c: Conversion) -> Result:
    index = c.add("ArgMax", [c.required(0)], axis=1, keepdims=False)
    return c.result("Cast", [index], to=c.type(0).dtype)


@row("SequenceMask")
def sequence_mask(c: Conversion) -> Result:
    """With lengths, positions along `axis` (0 or 1) from each length on become `value`."""
    a = c.attributes
    axis = a.integer("axis", 0)
    if not a.flag("use_sequence_length", False):
        a.irrelevant("value", "without lengths nothing is masked")
        return c.result("Identity", [c.required(0)])
    if axis not in (0, 1):
        a.refuse("axis", "it is 0 or 1")
    rank = c.rank()
    size = known_dims(c, 0, "the positions")[axis]
    c.check_count(size)
    positions = np.arange(size).reshape([-1 if i == axis else 1 for i in range(rank)])
    axes = c.ints([i for i in range(rank) if i != 1 - axis])
    lengths = c.add("Unsqueeze", [_as_int64(c, 1), axes])
    is_kept = c.add("Less", [c.constant(positions, np.int64), lengths])
    return c.result("Where", [is_kept, c.required(0), c.like(a.scalar("value", 0.0))])


@row("SequenceReverse")
def sequence_reverse(c: Conversion) -> Result:
    a = c.attributes
    a.expect("axis", 0, reason="MXNet has no other")
    if not a.flag("use_sequence_length", False):
        starts, ends = c.ints((-1,)), c.ints((-(2**31),))
        return c.result("Slice", [c.required(0), starts, ends, c.ints((0,)), c.ints((-1,))])
    return c.result("ReverseSequence", [c.required(0), _as_int64(c, 1)], batch_axis=1, time_axis=0)


@row("SequenceLast")
def sequence_last(c: Conversion) -> Result:
    """The last position of each sequence [time, batch, ...] (or [batch, time, ...] by `axis`)."""
    a = c.attributes
    axis = a.integer("axis", 0)
    if axis not in (0, 1):
        a.refuse("axis", "it is 0 or 1")
    if not a.flag("use_sequence_length", False):
        return c.result("Gather", [c.required(0), c.constant(-1, np.int64)], axis=axis)
    one = c.constant(1, np.int64)
    last = c.add("Sub", [_as_int64(c, 1), one])
    batch = known_dims(c, 1, "the number of sequences")[0]
    c.check_count(batch)
    numbers = c.constant(np.arange(batch), np.int64)
    pair = [last, numbers] if axis == 0 else [numbers, last]
    index_columns = [c.add("Unsqueeze", [v, c.ints((1,))]) for v in pair]
    return c.result("GatherND", [c.required(0), c.add("Concat", index_columns, axis=1)])
