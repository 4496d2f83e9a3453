"""ONNX's own operator descriptions: does a node fit an operator set?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from verax.ir.types import DType, TensorType
from verax.onnx_format.dtypes import CODES, dtype_name
from verax.onnx_format.package import onnx

_TYPE_NAMES = {
    DType.float32: "float",
    DType.float64: "double",
    DType.float8_e4m3fn: "float8e4m3fn",
    DType.float8_e4m3fnuz: "float8e4m3fnuz",
    DType.float8_e5m2: "float8e5m2",
    DType.float8_e5m2fnuz: "float8e5m2fnuz",
    DType.float8_e8m0fnu: "float8e8m0",
    DType.float4_e2m1fn: "float4e2m1",
}
"""Element types that ONNX's descriptions call by another name."""


@cache
def schema(op_type: str, version: int) -> Any:
    """The description of a default-domain operator in an operator set, None when it lacks it."""
    try:
        description = onnx.defs.get_schema(op_type, version, "")
    except onnx.defs.SchemaError:
        return None
    return None if description.deprecated else description


def fits(node: onnx.NodeProto, types: Mapping[str, TensorType], version: int) -> str:
    """What of a node an operator set does not know, "" when it knows everything."""
    description = schema(node.op_type, version)
    if description is None:
        return f"it has no {node.op_type}"
    unknown = [a.name for a in node.attribute if a.name not in description.attributes]
    if unknown:
        return f"{node.op_type} has no attribute {unknown[0]}"
    if len(node.input) > description.max_input or len(node.output) > description.max_output:
        return f"{node.op_type} has no {len(node.input)} inputs or {len(node.output)} outputs"
    for names, formals in ((node.input, description.inputs), (node.output, description.outputs)):
        for i, name in enumerate(names):
            if name and not _allows(formals[min(i, len(formals) - 1)], types[name].dtype):
                return f"{node.op_type} has no {dtype_name(CODES[types[name].dtype])} {name}"
    return ""


def _allows(formal: Any, dtype: DType) -> bool:
    return f"tensor({_TYPE_NAMES.get(dtype, str(dtype))})" in formal.types
