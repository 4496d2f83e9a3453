"""What branches and loops are written out into besides their bodies: a few nodes that every format
shares, and the rows that convert them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result, Row
from verax.frontends.common.foreign import ForeignNode

DOMAIN = "control"
"""Of the nodes that are made here; `ROWS` converts them, in every format."""


def identity(source: str, result: str) -> ForeignNode:
    return ForeignNode("Identity", (source,), (result,), domain=DOMAIN)


def constant(name: str, array: Any) -> ForeignNode:
    return ForeignNode("Constant", (), (name,), {"value": np.asarray(array)}, domain=DOMAIN)


def stack(values: Sequence[str], result: str, axis: int = 0) -> ForeignNode:
    """One tensor of equal ones, along a new axis."""
    return ForeignNode("Stack", tuple(values), (result,), {"axis": axis}, domain=DOMAIN)


def row(source: str, result: str, axis: int, index: int) -> ForeignNode:
    return ForeignNode("Row", (source,), (result,), {"axis": axis, "index": index}, domain=DOMAIN)


def row_at(source: str, index: str, result: str, axis: int, length: str = "") -> ForeignNode:
    """A row whose index is a value; counted from the end where the axis' length is given."""
    inputs = (source, index, length) if length else (source, index)
    return ForeignNode("RowAt", inputs, (result,), {"axis": axis}, domain=DOMAIN)


def length(source: str, result: str, axis: int) -> ForeignNode:
    """The size of an axis, int64 without axes."""
    return ForeignNode("Length", (source,), (result,), {"axis": axis}, domain=DOMAIN)


def unrolled(rows: str, result: str, axis: int, backwards: int) -> ForeignNode:
    """Rows stacked along the first axis, along another one, from the end if `backwards`."""
    attributes = {"axis": axis, "backwards": backwards}
    return ForeignNode("Unrolled", (rows,), (result,), attributes, domain=DOMAIN)


def equals(value: str, constant: int, result: str) -> ForeignNode:
    """A node whose result is true if `value`, of one element, equals `constant`."""
    return ForeignNode("Equals", (value,), (result,), {"number": constant}, domain=DOMAIN)


def _convert_identity(c: Conversion) -> Result:
    return c.operator("Identity")


def _convert_constant(c: Conversion) -> Result:
    return c.named_constant(c.attributes.get("value"))


def _convert_stack(c: Conversion) -> Result:
    axis = c.integer("axis")
    axes = c.ints([axis])
    rows = [c.add("Unsqueeze", [value, axes]) for value in c.operands]
    return c.result("Concat", rows, axis=axis)


def _convert_row(c: Conversion) -> Result:
    index = c.constant(c.integer("index"), np.int64)
    return c.apply("Gather", [c.required(0), index], axis=c.integer("axis"))


def _convert_join(c: Conversion) -> Result:
    return c.operator("Concat", axis=0)


def _convert_add(c: Conversion) -> Result:
    return c.operator("Add")


def _convert_row_at(c: Conversion) -> Result:
    index = c.required(1)
    if len(c.inputs) > 2:
        last = c.add("Sub", [c.required(2), c.constant(1, np.int64)])
        index = c.add("Sub", [last, index])
    return c.apply("Gather", [c.required(0), index], axis=c.integer("axis"))


def _convert_length(c: Conversion) -> Result:
    axis = c.constant(c.integer("axis"), np.int64)
    return c.apply("Gather", [c.add("Shape", [c.required(0)]), axis], axis=0)


def _convert_unrolled(c: Conversion) -> Result:
    rows, axis = c.required(0), c.integer("axis")
    if c.integer("backwards"):
        last, end = c.ints([-1]), c.ints([-(1 << 62)])
        rows = c.add("Slice", [rows, last, end, c.ints([0]), last])
    rank = c.type(0).rank
    if not -rank <= axis < rank:
        raise ModelError(f"rows of {c.type(0)} cannot be stacked along axis {axis}")
    order = list(range(1, rank))
    order.insert(axis % rank, 0)
    return c.apply("Transpose", [rows], perm=tuple(order))


def _convert_equals(c: Conversion) -> Result:
    value = c.required(0)
    constant = c.constant(c.integer("number"), c.type(0).dtype.numpy)
    return c.apply("Equal", [value, constant])


ROWS: dict[tuple[str, str], Row] = {
    (DOMAIN, "Identity"): _convert_identity,
    (DOMAIN, "Constant"): _convert_constant,
    (DOMAIN, "Stack"): _convert_stack,
    (DOMAIN, "Row"): _convert_row,
    (DOMAIN, "Join"): _convert_join,
    (DOMAIN, "Add"): _convert_add,
    (DOMAIN, "RowAt"): _convert_row_at,
    (DOMAIN, "Length"): _convert_length,
    (DOMAIN, "Unrolled"): _convert_unrolled,
    (DOMAIN, "Equals"): _convert_equals,
}
