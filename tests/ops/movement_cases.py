"""The movement families' own cases, and the same operators as ONNX nodes."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import onnx
from witness import onnxruntime_says, types_of

from verax.ir.operator import REGISTRY, Case, Inference
from verax.ir.types import DType, TensorType


def cases_of(*names: str) -> list[Any]:
    """(label, case) of every operator named, as parameters."""
    found = []
    for name in names:
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        found += list(REGISTRY[name].cases(rng))
    return found


def label(case: Case) -> str:
    return f"{case.op} {case.label}"


def output_types(case: Case) -> tuple[TensorType, ...]:
    known = tuple(a if i in case.constant else None for i, a in enumerate(case.inputs))
    return tuple(case.op.infer(Inference(types_of(case.inputs), known, case.op.kind)))


def onnx_attributes(case: Case) -> dict[str, Any]:
    """The operator's attributes as ONNX writes them."""
    op: Any = case.op
    if op.kind == "ConstantOfShape":
        return {"value": onnx.numpy_helper.from_array(np.array([op.value], op.dtype.numpy))}
    found = {f.name: getattr(op, f.name) for f in dataclasses.fields(op)}
    if op.kind == "Split" and len(case.inputs) > 1:
        del found["num_outputs"]
    if op.kind == "SpaceToDepth":
        del found["mode"]  # new in opset 28
    for name, value in found.items():
        if isinstance(value, DType):
            found[name] = onnx.helper.np_dtype_to_tensor_dtype(value.numpy)
        elif isinstance(value, bool):
            found[name] = int(value)
    return {k: v for k, v in found.items() if v is not None}


def in_onnxruntime(case: Case, opset: int = 22) -> list[np.ndarray]:
    outputs = case.op.output_count
    return onnxruntime_says(case.op.kind, case.inputs, onnx_attributes(case), outputs, opset)
