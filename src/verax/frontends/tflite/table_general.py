"""TFLite operators that few image networks need: counting, searching, scattering, running sums."""

from __future__ import annotations

import numpy as np

from verax.frontends.common import formulas, shapes
from verax.frontends.common.channels_last import (
    channels_first,
    constant_array,
    constant_ints,
    finish_channels_last,
    longs,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.rows import FLOATS, activated, activation, row
from verax.frontends.tflite.table_windows import pool_fields
from verax.ir.types import DType

# Numbers


FLOATS.operator("Sum", "ADD_N")


FLOATS.operator("Mod", "FLOOR_MOD")
FLOATS.operator("Range", "RANGE")


@row("FLOOR_DIV")
def floor_div(c: Conversion) -> Result:
    """Of floats the quotient in float64, rounded down: as FloorDiv but at infinities."""
    if not c.type(0).dtype.is_float:
        return c.operator("FloorDiv")
    a, b = (c.cast(c.required(i), DType.float64) for i in (0, 1))
    return c.apply("Cast", [c.add("Floor", [c.add("Div", [a, b])])], to=c.type(0).dtype)


FLOATS.formula(formulas.filled_like, "ZEROS_LIKE", value=0)
FLOATS.formula(shapes.positions, "WHERE")


@row("REDUCE_ANY", "REDUCE_ALL")
def logical_reduction(c: Conversion) -> Result:
    kind = "ReduceMax" if c.node.op_type == "REDUCE_ANY" else "ReduceMin"
    axes, keep = c.ints(constant_ints(c, 1, "the axes")), c.flag("keep_dims")
    return formulas.any_or_all(
        c, c.required(0), kind, axes, keepdims=keep, noop_with_empty_axes=True
    )


@row("L2_POOL_2D")
def l2_pool(c: Conversion) -> Result:
    """The root of the mean square of what is inside the image."""
    act, x = activation(c), channels_first(c, c.required(0))
    mean = c.add("AveragePool", [c.append(formulas.square(c, x))], **pool_fields(c))
    return finish_channels_last(c, activated(c, c.add("Sqrt", [mean]), act))


# Making


@row("RANK")
def rank(c: Conversion) -> Result:
    return c.named_constant(np.array(c.rank(), np.int32))


@row("ONE_HOT", moves=True)
def one_hot(c: Conversion) -> Result:
    """Operands: indices, depth, on, off. Negative indices are off as well."""
    at, depth = c.required(0), c.required(1)
    if c.type(0).dtype not in ("int32", "int64"):
        c.refuse(f"indices of {c.type(0).dtype} are not supported")
    is_below = c.add("Less", [at, c.like(0)])
    beyond = c.add("Cast", [depth], to=c.type(0).dtype)
    at = c.add("Where", [is_below, beyond, at])
    values = [c.add("Reshape", [c.required(i), c.ints((1,))]) for i in (3, 2)]
    values = [c.add("Concat", values, axis=0)]
    return c.result("OneHot", [at, depth, *values], axis=c.integer("axis", 0))


def _as_it_is(c: Conversion) -> Result:
    """Bytes as they are, whatever scales the file notes on either side."""
    for key in c.attributes.values:
        c.irrelevant(key, reason="the operator copies bytes and converts nothing")
    return c.result("Identity", [c.required(0)])


@row("DENSIFY", moves=True)
def densify(c: Conversion) -> Result:
    """The reader has made sparse constants dense."""
    array = constant_array(c, c.required(0))
    if array is None:
        c.refuse("what it makes dense is no constant")
    return c.named_constant(array)


row("READ_VARIABLE", "ASSIGN_VARIABLE")(_as_it_is)
row("READ_VARIABLE", "ASSIGN_VARIABLE", quantized=True)(_as_it_is)


# Searching


@row("TOPK_V2", moves=True)
def top_k(c: Conversion) -> Result:
    """Along the last axis; the lower index first among equals."""
    names = [c.node.outputs[0], c.fresh(f"{c.first_output}/indices")]
    k = c.add("Reshape", [longs(c, 1), c.ints((1,))])
    values, indices = c.builder.add_all(c.operator("TopK", axis=-1), [c.required(0), k], names)
    to_int = c.operator("Cast", to="int32")
    return values, c.builder.add(to_int, [indices], [c.node.outputs[1]])


# Moving


@row("REVERSE_SEQUENCE", moves=True)
def reverse_sequence(c: Conversion) -> Result:
    axes = {f"{k}_axis": c.integer(f"{v}_dim", 0) for k, v in _SEQUENCE.items()}
    return c.result("ReverseSequence", [c.required(0), longs(c, 1)], **axes)


_SEQUENCE = {"time": "seq", "batch": "batch"}


@row("EMBEDDING_LOOKUP")
def embedding_lookup(c: Conversion) -> Result:
    """Operands: rows, table."""
    return c.result("Gather", [c.required(1), c.required(0)], axis=0)
