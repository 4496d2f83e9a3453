"""Running one operator, and running the same thing elsewhere.

Agreement in float64 and with float32 runtimes is asked for within the operator's own error bound;
no tolerance is written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
import pytest

import verax.ops
from verax.ir.operator import Evaluation, Inference, Operator, as_tuple
from verax.ir.types import TensorType
from verax.numerics.error_model import Rounding, U

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

assert verax.ops
Arrays = Sequence[np.ndarray | None]
OPSET = 23
DOUBLE = 2.0**-53 / U
"""How much smaller errors are in float64 than the float32 errors of the error models."""


def types_of(inputs: Arrays) -> tuple[TensorType | None, ...]:
    return tuple(None if x is None else TensorType.of(x) for x in inputs)


def evaluation(op: Operator, inputs: Arrays, work: type = np.float64) -> Evaluation:
    types = types_of(inputs)
    constants = tuple(x if x is not None and x.dtype.kind in "iu" else None for x in inputs)
    return Evaluation(types, tuple(op.infer(Inference(types, constants))), np.dtype(work))


def doubles(inputs: Arrays) -> list[Any]:
    return [x if x is None or x.dtype.kind in "iub" else x.astype(np.float64) for x in inputs]


def meaning(op: Operator, *inputs: np.ndarray | None) -> tuple[np.ndarray, ...]:
    """Outputs in float64."""
    with np.errstate(all="ignore"):
        return as_tuple(op.reference(evaluation(op, inputs), *doubles(inputs)))


def errors(op: Operator, *inputs: np.ndarray | None) -> Sequence[Rounding | None]:
    """The operator's error model on these inputs."""
    with np.errstate(all="ignore"):
        return op.error(evaluation(op, inputs), doubles(inputs), meaning(op, *inputs))


def exactly(op: Operator, *inputs: np.ndarray | None) -> np.ndarray:
    """The first output in rational arithmetic."""
    rational = [
        None if x is None else np.array([Fraction(float(v)) for v in x.ravel()]).reshape(x.shape)
        for x in inputs
    ]
    return np.asarray(as_tuple(op.reference(evaluation(op, inputs, object), *rational))[0])


def agree(op: Operator, inputs: Arrays, others: Sequence[Any], unit: float = 1.0) -> None:
    """Assert that `others` are the outputs of `op` but for rounding.

    unit: 1, or DOUBLE when `others` were computed in float64 from the same numbers.
    """
    ours = meaning(op, *inputs)
    if inputs[0] is not None and inputs[0].dtype == np.float64:
        inputs = [x if x is None or x.dtype.kind != "f" else x.astype(np.float32) for x in inputs]
    for want, error, other in zip(ours, errors(op, *inputs), others):
        other = np.asarray(other)
        assert other.shape == want.shape, f"{op}: {other.shape}, ours {want.shape}"
        if error is None:
            np.testing.assert_array_equal(other, want, err_msg=str(op))
            continue
        with np.errstate(all="ignore"):
            distance = np.abs(other.astype(np.float64) - want.astype(np.float64))
            far = ~(distance <= error.bound * unit) & np.isfinite(want)
        assert not far.any(), f"{op}: {other[far][:3]}, ours {want[far][:3]}"
        np.testing.assert_array_equal(np.isnan(other), np.isnan(want), err_msg=str(op))


def onnxruntime_says(
    op_type: str,
    inputs: Arrays,
    attributes: Mapping[str, Any],
    outputs: int = 1,
    opset: int = OPSET,
) -> list[np.ndarray]:
    """Outputs of one ONNX node in ONNX Runtime."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op_type, names, results, **attributes)],
        "one",
        [
            onnx.helper.make_tensor_value_info(
                n, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
            )
            for n, x in zip(names, inputs)
            if x is not None
        ],
        [onnx.ValueInfoProto(name=r) for r in results],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 10
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {n: x for n, x in zip(names, inputs) if x is not None})


def onnx_windows(op: Any) -> dict[str, Any]:
    """ONNX's attributes for the window attributes of `op`."""
    found: dict[str, Any] = {}
    for name in ("kernel_shape", "strides", "dilations", "output_padding", "output_shape"):
        if getattr(op, name, ()):
            found[name] = list(getattr(op, name))
    for name in ("ceil_mode", "count_include_pad", "storage_order", "p"):
        if hasattr(op, name):
            found[name] = int(getattr(op, name))
    if getattr(op, "groups", 1) != 1:
        found["group"] = op.groups
    if isinstance(op.pads, str):
        found["auto_pad"] = op.pads
    elif op.pads:
        found["pads"] = [b for b, _ in op.pads] + [e for _, e in op.pads]
    return found
