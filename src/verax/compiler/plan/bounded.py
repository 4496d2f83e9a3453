"""Expressions of quantized numbers in fewer steps, with the same bits, where ranges allow it.

What a quantized value can be is known: sums of products from the weights, bytes from their type,
scales from their constants. So a NaN that cannot be needs no guard, a clip that cuts nothing goes,
an integer that is widened again was never narrow, a number that was rounded to an integer need not
become one to be a number again, and a clip before a rounding is one of the integer, which packing
with saturation does on most machines for nothing.

Given/Result: convert(add(sub(bitcast(add(clip(x, -3, 252), MAGIC)), MAGIC_BITS), 3)) as uint8, for
x below 2^22 in size / convert(min(max(add(bitcast(add(x, MAGIC)), 3 - MAGIC_BITS), 0), 255)).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.numerics.expr import Apply, Const, Expr, Input, nodes
from verax.numerics.formats import INTEGERS
from verax.ops.quantized.per_element import MAGIC, MAGIC_BITS

Bounds = tuple[Any, Any]
"""The least and the greatest: Python's integers, or float32 numbers, both finite."""
EXACT = 2**22
"""Sizes below which adding MAGIC rounds to the nearest integer."""
_CERTAIN: dict[str, Callable[[Bounds, Bounds], tuple[bool, bool]]] = {
    "lt": lambda a, b: (a[1] < b[0], a[0] >= b[1]),
    "gt": lambda a, b: (a[0] > b[1], a[1] <= b[0]),
}
"""Of a comparison: whether it is certainly true, and certainly false."""
_CLIPS = {"gt": "max", "lt": "min"}
"""What select(comparison(x, c), x, c) is where nothing is NaN."""


def in_bounds(expr: Expr, bounds: Mapping[int, Bounds]) -> Expr:
    """`expr` in fewer steps, equal in every bit where Input(i) is within bounds[i].

    bounds: of float32 inputs, which must then not be NaN, and of integers; by default integers
    have the range of their type and nothing is known of other inputs.
    """
    shortener = _Shortener(bounds)
    return _rewritten(_rewritten(expr, shortener.step), shortener.clipped_later)


def _rewritten(expr: Expr, rule: Callable[[Apply], Expr]) -> Expr:
    done: dict[Expr, Expr] = {}
    for node in nodes(expr):
        done[node] = node
        if isinstance(node, Apply):
            done[node] = rule(Apply(node.function, [done[a] for a in node.args], node.dtype))
    return done[expr]


class _Shortener:
    """inputs: their bounds. computed: what each expression can be, None where that is not known."""

    def __init__(self, inputs: Mapping[int, Bounds]) -> None:
        self.inputs = inputs
        self.computed: dict[Expr, Bounds | None] = {}

    # --- what a value can be

    def bounds(self, e: Expr) -> Bounds | None:
        if e not in self.computed:
            for node in nodes(e):
                if node not in self.computed:
                    self.computed[node] = self._bounds(node)
        return self.computed[e]

    def _bounds(self, e: Expr) -> Bounds | None:
        type_range = _range(e.dtype)
        if isinstance(e, Const):
            return _constant(e)
        if isinstance(e, Input):
            return self.inputs.get(e.index, type_range)
        assert isinstance(e, Apply)
        if e.dtype == "float32":
            return self._of_float32(e)
        if type_range is None:
            return None
        bounds = self._of_integer(e)
        return bounds if bounds and _within(bounds, type_range) else type_range

    def _of_integer(self, e: Apply) -> Bounds | None:
        """Bounds of an integer expression computed without overflow."""
        operand_bounds = [self.computed[a] for a in e.args]
        if e.function == "convert":
            return operand_bounds[0] if e.args[0].dtype in INTEGERS else None
        y = _rounded(e.args[0])
        if y is not None and _is(e, "add") and isinstance(e.args[1], Const) and self._is_exact(y):
            low, high = (int(np.rint(end)) for end in self.computed[y] or (0, 0))
            by = int(e.args[1].value) + MAGIC_BITS
            return low + by, high + by
        return _combined(_meaning(e), operand_bounds)

    def _of_float32(self, e: Apply) -> Bounds | None:
        """Rounding keeps order, so the ends of a range are those of its rounded numbers."""
        operand_bounds = [self.computed[a] for a in e.args]
        if e.function == "convert":
            bounds = operand_bounds[0] if e.args[0].dtype in INTEGERS else None
        else:
            bounds = _combined(_meaning(e), operand_bounds)
        if bounds is None:
            return None
        with np.errstate(over="ignore"):
            low, high = (np.float32(p) for p in bounds)
        return (low, high) if np.isfinite(low) and np.isfinite(high) else None

    # --- steps that go

    def step(self, e: Apply) -> Expr:
        """`e`, whose arguments are shortened already."""
        if e.function in ("eq", *_CERTAIN):
            return self._comparison(e)
        if e.function == "select":
            condition, a, b = e.args
            return (a if condition.value else b) if isinstance(condition, Const) else e
        if e.dtype in INTEGERS and e.function in ("max", "min"):
            return self._selected_operand(e)
        if e.dtype in INTEGERS and e.function in ("add", "sub"):
            return _together(e)
        return self._converted(e) if e.function == "convert" else e

    def _comparison(self, e: Apply) -> Expr:
        a, b = e.args
        left, right = self.bounds(a), self.bounds(b)
        if left is None or right is None:
            return e
        if e.function == "eq":
            return Const(True, "bool") if a is b else e
        true, false = _CERTAIN[e.function](left, right)
        return Const(true, "bool") if true or false else e

    def _selected_operand(self, e: Apply) -> Expr:
        """The one of two integers that is certainly the result."""
        a, b = e.args
        (a0, a1), (b0, b1) = self.bounds(a) or (0, 0), self.bounds(b) or (0, 0)
        first, second = (a0 >= b1, b0 >= a1) if e.function == "max" else (a1 <= b0, b1 <= a0)
        return a if first else b if second else e

    def _converted(self, e: Apply) -> Expr:
        (x,) = e.args
        if x.dtype == e.dtype:
            return x
        if e.dtype == "float32" and x.dtype == "int32":
            return self._still_float(x) or e
        if e.dtype in INTEGERS and x.dtype in INTEGERS and _is(x, "convert"):
            (inner,) = x.args
            narrow, inner_bounds = _range(x.dtype), self.bounds(inner)
            if (
                inner.dtype in INTEGERS
                and inner_bounds
                and narrow
                and _within(inner_bounds, narrow)
            ):
                return self._converted(Apply("convert", [inner], e.dtype))
        return e

    def _still_float(self, x: Expr) -> Expr | None:
        """The float32 of an integer that was rounded from one."""
        if not _is(x, "add") or x.args[1] is not Const(-MAGIC_BITS, "int32"):
            return None
        y = _rounded(x.args[0])
        if y is None or not self._is_exact(y):
            return None
        return Apply("sub", [_magic(y), Const(MAGIC, "float32")], "float32")

    def _is_exact(self, y: Expr) -> bool:
        """True if adding MAGIC to float32 `y` rounds it to the nearest integer."""
        bounds = self.bounds(y)
        return bounds is not None and bounds[0] > -EXACT and bounds[1] < EXACT

    def clipped_later(self, e: Apply) -> Expr:
        """The clip of a number that is then rounded, as one of the integer that it becomes."""
        if not _is(e, "add") or e.dtype != "int32" or not isinstance(e.args[1], Const):
            return e
        y, by = _rounded(e.args[0]), e.args[1]
        if y is None:
            return e
        low, high = -EXACT, EXACT
        while (clip := _clip(y)) is not None:
            y, function, end = clip
            low, high = (max(low, end), high) if function == "max" else (low, min(high, end))
        if low > high or (low, high) == (-EXACT, EXACT) or not self._is_exact(y):
            return e
        clipped: Expr = Apply("add", [Apply("bitcast", [_magic(y)], "int32"), by], "int32")
        offset = MAGIC_BITS + int(by.value)
        if low > -EXACT:
            clipped = Apply("max", [clipped, Const(low + offset, "int32")], "int32")
        if high < EXACT:
            clipped = Apply("min", [clipped, Const(high + offset, "int32")], "int32")
        return clipped


def _range(dtype: str) -> tuple[int, int] | None:
    if dtype not in INTEGERS:
        return None
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _within(inner: Bounds, outer: Bounds) -> bool:
    return bool(outer[0] <= inner[0] and inner[1] <= outer[1])


def _constant(e: Const) -> Bounds | None:
    if e.dtype in INTEGERS:
        return int(e.value), int(e.value)
    if e.dtype == "float32" and np.isfinite(e.value):
        return np.float32(e.value), np.float32(e.value)
    return None


def _is(e: Expr, function: str) -> bool:
    return isinstance(e, Apply) and e.function == function


def _meaning(e: Apply) -> str:
    """Name of its function; "max" or "min" for a select that computes one."""
    if e.function == "select":
        condition, *operands = e.args
        if isinstance(condition, Apply) and list(condition.args) == operands:
            return _CLIPS.get(condition.function, "select")
    return e.function


def _combined(function: str, operand_bounds: Sequence[Bounds | None]) -> Bounds | None:
    """Bounds of `function` by those of its last two operands; None where they are unknown."""
    ends = [p for p in operand_bounds[-2:] if p is not None]
    if len(ends) != 2:
        return None
    (a, b), (c, d) = ends
    with np.errstate(over="ignore"):
        if function == "mul":
            products = [a * c, a * d, b * c, b * d]
            return min(products), max(products)
        return {
            "add": (a + c, b + d),
            "sub": (a - d, b - c),
            "max": (max(a, c), max(b, d)),
            "min": (min(a, c), min(b, d)),
            "select": (min(a, c), max(b, d)),
        }.get(function)


def _together(e: Apply) -> Expr:
    """Constants added to an integer one after another as one; the type wraps either way."""
    x, c = e.args
    if not isinstance(c, Const):
        return e
    by = int(c.value) if e.function == "add" else -int(c.value)
    if _is(x, "add") and isinstance(x.args[1], Const):
        by, x = by + int(x.args[1].value), x.args[0]
    low, high = _range(e.dtype) or (0, 0)
    by = (by - low) % (high - low + 1) + low
    return Apply("add", [x, Const(by, e.dtype)], e.dtype) if by else x


def _magic(y: Expr) -> Expr:
    return Apply("add", [y, Const(MAGIC, "float32")], "float32")


def _rounded(x: Expr) -> Expr | None:
    """y, where x is the bits of y + MAGIC."""
    if not _is(x, "bitcast") or x.dtype != "int32":
        return None
    (total,) = x.args
    if not _is(total, "add") or total.args[1] is not Const(MAGIC, "float32"):
        return None
    return total.args[0]


def _clip(y: Expr) -> tuple[Expr, str, int] | None:
    """x, "max" or "min", and an integer between which and x float32 `y` chooses; else None."""
    if not isinstance(y, Apply) or y.function != "select":
        return None
    function, (_, x, end) = _meaning(y), y.args
    is_integer = isinstance(end, Const) and float(end.value).is_integer() and abs(end.value) < EXACT
    if function == "select" or not is_integer:
        return None
    assert isinstance(end, Const)
    return x, function, int(end.value)
