"""ONNX's operators on integers of 8 bits, standard ones and those of ONNX Runtime (com.microsoft).

Each is what its text says: the operands dequantised, the float operator, the result quantised. A
runtime computes them in integers; what that may move is for the judge (`Operator.decides`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import fields_of, integer
from verax.frontends.onnx.rows import TABLE, row, window_pads
from verax.frontends.onnx.table_windows import CONVOLUTION
from verax.frontends.onnx.tensors import dtype_of
from verax.ir.types import DType

MICROSOFT = "com.microsoft"


def _float(c: Conversion, first: int, axis: int = 1) -> str:
    """Inputs `first` .. `first` + 2 (integers, scale, zero point) as floats."""
    inputs = [c.required(first), c.required(first + 1), c.input(first + 2)]
    return c.add("DequantizeLinear", inputs, axis=axis)


def _quantised(c: Conversion, value: str, first: int) -> Result:
    """A float value with the scale and the zero point in inputs `first` and `first` + 1."""
    return c.result("QuantizeLinear", [value, c.required(first), c.input(first + 1)])


def _bias(c: Conversion, value: str | None, data: int, weights: int) -> str | None:
    """An int32 bias in units of both factors' scales, as floats."""
    if value is None:
        return None
    scales = [c.known(i) for i in (data, weights)]
    if all(s is not None and s.dtype != object for s in scales):
        product = np.ravel(scales[0]) * np.ravel(scales[1])  # type: ignore[arg-type]
        unit = c.constant(product if product.size > 1 else product.reshape(()), np.float32)
    else:
        unit = c.add("Mul", [c.required(data), c.required(weights)])
    return c.add("DequantizeLinear", [value, unit], axis=-1)


@row("QLinearConv")
def qlinear_conv(c: Conversion) -> Result:
    """x, its scale and zero point; w, its scale and zero point; those of the result; bias."""
    inputs = [_float(c, 0), _float(c, 3, axis=0), _bias(c, c.input(8), 1, 4)]
    return _quantised(c, c.add("Conv", inputs, **fields_of(c, CONVOLUTION)), 6)


@row("QLinearMatMul")
def qlinear_mat_mul(c: Conversion) -> Result:
    """a and b with scale and zero point (of b perhaps one per column); those of the result."""
    if c.rank(1) > 0 and c.type(1).dims != (1,):
        c.refuse("a scale per row of the first factor is not supported")
    return _quantised(c, c.add("MatMul", [_float(c, 0), _float(c, 3, axis=-1)]), 6)


def _centred(c: Conversion, value: int, zero: int, as_column: bool) -> str:
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
    return c.result("MatMul", [_centred(c, 0, 2, True), _centred(c, 1, 3, False)])


@row("QGemm", domain=MICROSOFT)
def qgemm(c: Conversion) -> Result:
    """a and b, each with scale and zero point; bias; scale and zero point of the result."""
    a = c.attributes
    turned = a.flag("transB")
    inputs = [_float(c, 0), _float(c, 3, axis=0 if turned else 1), _bias(c, c.input(6), 1, 4)]
    fields = {"alpha": a.number("alpha", 1.0), "trans_a": a.flag("transA"), "trans_b": turned}
    if c.input(7) is None:
        return c.result("Gemm", inputs, **fields)
    return _quantised(c, c.add("Gemm", inputs, **fields), 7)


@row("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def qlinear_arithmetic(c: Conversion) -> Result:
    operands = [_float(c, 0), _float(c, 3)]
    return _quantised(c, c.add(c.node.op_type.removeprefix("QLinear"), operands), 6)


@row("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(c: Conversion) -> Result:
    return _quantised(c, c.add("Sigmoid", [_float(c, 0)]), 3)


@row("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(c: Conversion) -> Result:
    alpha = c.number("alpha", 0.01)
    return _quantised(c, c.add("LeakyRelu", [_float(c, 0)], alpha=alpha), 3)


@row("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(c: Conversion) -> Result:
    """opset: of the Softmax that it stands for; before 13 that was over all axes from `axis` on."""
    axis, version = c.integer("axis", -1), c.integer("opset", 13)
    if version < 13 and axis not in (-1, c.rank() - 1):
        c.refuse(f"axis {axis} of opset {version} flattens the input, which is not supported")
    return _quantised(c, c.add("Softmax", [_float(c, 0)], axis=axis), 3)


@row("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(c: Conversion) -> Result:
    """Scale and zero point of the result, then each part with its own."""
    parts = [_float(c, i) for i in range(2, len(c.inputs), 3)]
    return _quantised(c, c.add("Concat", parts, axis=c.integer("axis")), 0)


def _require_channels_first(c: Conversion) -> None:
    if c.flag("channels_last"):
        c.refuse("channels_last is not supported")


@row("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(c: Conversion) -> Result:
    _require_channels_first(c)
    return _quantised(c, c.add("GlobalAveragePool", [_float(c, 0)]), 3)


@row("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(c: Conversion) -> Result:
    _require_channels_first(c)
    a = c.attributes
    fields: dict[str, Any] = {
        "kernel_shape": a.integers("kernel_shape"),
        "strides": a.integers("strides", ()),
        "pads": window_pads(c),
        "ceil_mode": a.flag("ceil_mode"),
        "count_include_pad": a.flag("count_include_pad"),
    }
    return _quantised(c, c.add("AveragePool", [_float(c, 0)], **fields), 3)


@row("QLinearWhere", domain=MICROSOFT)
def qlinear_where(c: Conversion) -> Result:
    chosen: Sequence[str] = [c.required(0), _float(c, 1), _float(c, 4)]
    return _quantised(c, c.add("Where", chosen), 7)


def _optional_dtype(name: str) -> Any:
    """Reads an element type that may be left open (0)."""

    def read(c: Conversion) -> DType | None:
        code = c.integer(name, 0)
        return dtype_of(code, c.node.place) if code else None

    return read


def _scaled(kind: str, *more: str) -> None:
    """A row of an operator between floats and integers; `more`: further element types."""

    def convert(c: Conversion) -> Result:
        if kind == "QuantizeLinear":
            c.attributes.irrelevant("saturate", "it concerns 8-bit floats only")
        return c.operator(kind, **fields_of(c, fields))

    fields = {"axis": integer(1), "block_size": integer(0)}
    fields |= {name: _optional_dtype(name) for name in ("output_dtype", *more)}
    row(kind)(convert)


_scaled("QuantizeLinear", "precision")
_scaled("DequantizeLinear")
TABLE.operator("DynamicQuantizeLinear")
