"""Sizes as values: what programs compute with sizes that were open when they were exported."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.rows import Aten, row
from verax.frontends.torch.tables.elementwise import COMPARISONS
from verax.ir.types import DType


@row("sym_size.int")
def size(t: Aten) -> Result:
    x = t.tensor("self")
    axis = t.axis("dim", x)
    shape_slice = t.add("Shape", [x], start=axis, end=axis + 1)
    return t.result("Squeeze", [shape_slice, t.ints([0])])


@row("sym_numel.default")
def number_of_elements(t: Aten) -> Result:
    return t.result("Size", [t.tensor("self")])


@row("item.default", "_local_scalar_dense.default")
def item(t: Aten) -> Result:
    """The only element, as a size or a number."""
    x = t.tensor("self")
    if t.type(x).dtype.is_integer:
        x = t.cast(x, DType.int64)
    return t.result("Reshape", [x, t.ints([])])


def _operands(t: Aten) -> list[str]:
    """Sizes and integers, in the order of the arguments."""
    values = []
    for name, argument in list(t.a.values.items()):
        value = t.a.get(name)
        if not isinstance(argument, Ref) and type(value) is not int:
            t.a.refuse(name, "it is no integer")
        values.append(t.tensor(name) if isinstance(argument, Ref) else t.constant(value, np.int64))
    return values


ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "neg": "Neg"}


@row(*ARITHMETIC, domain="_operator")
def arithmetic(t: Aten) -> Result:
    return t.result(ARITHMETIC[t.kind], list(_operands(t)))


@row("floordiv", "mod", domain="_operator")
def division(t: Aten) -> Result:
    """Python's division, which rounds down, of whole numbers: x - x mod y is a multiple of y."""
    x, y = _operands(t)
    remainder = t.add("Mod", [x, y]) if t.kind == "mod" or not _never_negative(t, x, y) else None
    if t.kind == "mod":
        return t.result("Identity", [remainder])
    return t.result("Div", [x if remainder is None else t.add("Sub", [x, remainder]), y])


def _never_negative(t: Aten, *values: str) -> bool:
    """True if all values are constants or sizes that are at least 0."""
    for value in values:
        content = t.builder.known.get(value)
        if content is None or not all(
            isinstance(v, int | np.integer) and v >= 0 for v in content.flat
        ):
            return False
    return True


@row("truediv", domain="_operator")
def true_division(t: Aten) -> Result:
    x, y = (t.cast(v, DType.float64) for v in _operands(t))
    return t.result("Div", [x, y])


@row("ceil", "floor", "trunc", domain="math")
def whole_number(t: Aten) -> Result:
    """A number that sizes gave, as a size; casting rounds towards zero."""
    (x,) = (t.tensor(name) for name in list(t.a.values))
    if t.kind != "trunc":
        x = t.add(t.kind.title(), [x])
    return t.result("Cast", [x], to=DType.int64)


@row(*COMPARISONS, domain="_operator")
def comparison(t: Aten) -> Result:
    values: list[str | None] = list(_operands(t))
    if t.kind == "ne":
        return t.result("Not", [t.add("Equal", values)])
    return t.result(COMPARISONS[t.kind], values)


@row("sym_max", "sym_min", domain="torch")
def extreme(t: Aten) -> Result:
    return t.result("Max" if t.kind == "sym_max" else "Min", list(_operands(t)))


@row(
    *("_assert_tensor_metadata.default", "_assert_scalar.default", "sym_constrain_range.default"),
    *("sym_constrain_range_for_size.default", "_assert_async.msg"),
)
def assertion(t: Aten) -> Result:
    """The types that it asserts were inferred by the importer; it computes nothing."""
    for name in list(t.a.values):
        t.irrelevant(name, reason="an assertion computes nothing")
    return ()
