"""ONNX's codes of element types, and the operator sets that are read and written."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from verax.ir.types import DType

OLDEST, NEWEST = 6, onnx.defs.onnx_opset_version()
"""Operator sets that are read; the newest is the one that the installed onnx describes."""

DTYPES: dict[int, DType] = {
    TensorProto.FLOAT: DType.float32,
    TensorProto.DOUBLE: DType.float64,
    TensorProto.FLOAT16: DType.float16,
    TensorProto.BFLOAT16: DType.bfloat16,
    TensorProto.INT8: DType.int8,
    TensorProto.INT16: DType.int16,
    TensorProto.INT32: DType.int32,
    TensorProto.INT64: DType.int64,
    TensorProto.UINT8: DType.uint8,
    TensorProto.UINT16: DType.uint16,
    TensorProto.UINT32: DType.uint32,
    TensorProto.UINT64: DType.uint64,
    TensorProto.BOOL: DType.bool_,
}
CODES: dict[DType, int] = {dtype: code for code, dtype in DTYPES.items()}


def dtype_name(code: int) -> str:
    """ONNX's name of an element type."""
    return TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
