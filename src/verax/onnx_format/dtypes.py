"""ONNX's codes of element types, and the operator sets that are read and written."""

from __future__ import annotations

from functools import cache

from verax.ir.types import DType
from verax.onnx_format.codes import NAMES, TensorProto
from verax.onnx_format.package import onnx

OLDEST = 6
"""The oldest operator set that is read."""

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
    TensorProto.FLOAT8E4M3FN: DType.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: DType.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: DType.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: DType.float8_e5m2fnuz,
    TensorProto.INT4: DType.int4,
    TensorProto.UINT4: DType.uint4,
    **{
        getattr(TensorProto, name): dtype
        for name, dtype in (
            ("FLOAT4E2M1", DType.float4_e2m1fn),
            ("FLOAT8E8M0", DType.float8_e8m0fnu),
            ("INT2", DType.int2),
            ("UINT2", DType.uint2),
        )
        if hasattr(TensorProto, name)  # later than the oldest onnx that is supported
    },
}
CODES: dict[DType, int] = {dtype: code for code, dtype in DTYPES.items()}


def dtype_name(code: int) -> str:
    """ONNX's name of an element type."""
    return NAMES.get(code, str(code))


@cache
def newest_opset() -> int:
    """The newest operator set that is read: the one that the installed onnx describes."""
    return int(onnx.defs.onnx_opset_version())
