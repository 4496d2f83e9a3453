"""ONNX's operators on integers of 8 bits.

Each is what its text says: the operands dequantized, the float operator, the result quantized. A
runtime computes them in integers; what that may move is for the judge (`Operator.decides`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import fields_of, integer
from verax.frontends.onnx.rows import TABLE, row
from verax.frontends.onnx.table_windows import CONVOLUTION
from verax.frontends.onnx.tensors import dtype_of
from verax.ir.types import DType
from verax.ops.pointwise.cast import has_saturation


def as_floats(c: Conversion, first: int, axis: int = 1, value: str = "") -> str:
    """Inputs `first` .. `first` + 2 (integers, scale, zero point) as floats; `value`: replaces the
    first of them."""
    inputs = [value or c.required(first), c.required(first + 1), c.input(first + 2)]
    return c.add("DequantizeLinear", inputs, axis=axis)


def as_integers(c: Conversion, value: str, first: int) -> Result:
    """A float value with the scale and the zero point in inputs `first` and `first` + 1."""
    return c.result("QuantizeLinear", [value, c.required(first), c.input(first + 1)])


def as_bias(c: Conversion, value: str | None, data: int, weights: int) -> str | None:
    """An int32 bias in units of both factors' scales, as floats."""
    if value is None:
        return None
    scales = [c.known_value(i) for i in (data, weights)]
    if all(s is not None and s.dtype != object for s in scales):
        product = np.ravel(scales[0]) * np.ravel(scales[1])  # type: ignore[arg-type]
        unit = c.constant(product if product.size > 1 else product.reshape(()), np.float32)
    else:
        unit = c.add("Mul", [c.required(data), c.required(weights)])
    return c.add("DequantizeLinear", [value, unit], axis=-1)


@row("QLinearConv")
def qlinear_conv(c: Conversion) -> Result:
    """x, its scale and zero point; w, its scale and zero point; those of the result; bias."""
    inputs = [as_floats(c, 0), as_floats(c, 3, axis=0), as_bias(c, c.input(8), 1, 4)]
    return as_integers(c, c.add("Conv", inputs, **fields_of(c, CONVOLUTION)), 6)


@row("QLinearMatMul")
def qlinear_mat_mul(c: Conversion) -> Result:
    """a and b with scale and zero point (of b perhaps one per column); those of the result."""
    if c.rank(1) > 0 and c.type(1).dims != (1,):
        c.refuse("a scale per row of the first factor is not supported")
    return as_integers(c, c.add("MatMul", [as_floats(c, 0), as_floats(c, 3, axis=-1)]), 6)


def _centered(c: Conversion, value: int, zero: int, as_column: bool) -> str:
    """An integer factor minus its zero point, as int32."""
    wide = c.add("Cast", [c.required(value)], to=DType.int32)
    name = c.input(zero)
    if name is None:
        return wide
    offset = c.add("Cast", [name], to=DType.int32)
    if as_column and c.rank(name) == 1:
        offset = c.add("Unsqueeze", [offset, c.ints([-1])])
    return c.add("Sub", [wide, offset])


@row("MatMulInteger")
def mat_mul_integer(c: Conversion) -> Result:
    """Both factors minus their zero points (scalars; one per row of a, one per column of b)."""
    return c.result("MatMul", [_centered(c, 0, 2, True), _centered(c, 1, 3, False)])


def _optional_dtype(name: str) -> Any:
    """Reads an element type that may be left open (0)."""

    def read(c: Conversion) -> DType | None:
        code = c.integer(name, 0)
        return dtype_of(code, c.node.place) if code else None

    return read


def _saturates(c: Conversion) -> bool:
    """Whether numbers beyond the target's become its largest, which integers always do: the
    attribute is about floats of 8 bits."""
    zero = c.input(2)
    code = 0 if zero is not None else int(c.attributes.values.get("output_dtype", 0))
    if zero is not None:
        to = c.type(zero).dtype
    else:
        to = dtype_of(code, c.node.place) if code else DType.uint8
    if has_saturation(to):
        return bool(c.integer("saturate", 1))
    c.attributes.irrelevant("saturate", f"it is about floats of 8 bits, and {to} is none")
    return True


def _scaled(kind: str, *more: str) -> None:
    """A row of an operator between floats and integers; `more`: further element types."""

    def convert(c: Conversion) -> Result:
        return c.operator(kind, **fields_of(c, fields))

    fields: dict[str, Any] = {"axis": integer(1), "block_size": integer(0)}
    if kind == "QuantizeLinear":
        fields["saturate"] = _saturates
    fields |= {name: _optional_dtype(name) for name in ("output_dtype", *more)}
    row(kind)(convert)


_scaled("QuantizeLinear", "precision")
_scaled("DequantizeLinear")
TABLE.operator("DynamicQuantizeLinear")
