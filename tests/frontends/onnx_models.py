"""Small ONNX models for the frontend's tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verax.ir.types import DType
from verax.onnx_format.dtypes import CODES

F32 = TensorProto.FLOAT


def value(name: str, dims: Sequence[Any] | None, code: int = F32) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, dims)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[Any] | None],
    outputs: Mapping[str, Sequence[Any] | None],
    constants: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    imports: Sequence[onnx.OperatorSetIdProto] = (),
) -> onnx.ModelProto:
    """A float32 model."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [value(n, d) for n, d in inputs.items()],
        [value(n, d) for n, d in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset), *imports],
        functions=list(functions),
        ir_version=10,
    )


def one_node(
    kind: str, arrays: Sequence[np.ndarray | None], opset: int, outputs: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A model of one node; arrays are its inputs, integer ones as constants."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
    given = {n: a for n, a in zip(names, arrays) if a is not None}
    constants = {n: a for n, a in given.items() if a.dtype.kind in "iu"}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(kind, names, results, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [value(n, a.shape, CODES[DType.of(a)]) for n, a in given.items() if n not in constants],
        [onnx.ValueInfoProto(name=r) for r in results],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def small_network() -> onnx.ModelProto:
    """Convolution, BatchNorm, shape arithmetic and a product: something of everything."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 3, 3, 2), dtype=np.float32),
        "b": rng.standard_normal(4, dtype=np.float32),
        **{n: rng.random(4, dtype=np.float32) + 0.5 for n in ("scale", "shift", "mean", "var")},
        "first": np.array([0]),
        "rest": np.array([-1]),
        "m": rng.standard_normal((4 * 4 * 4, 5), dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], strides=[2, 1], auto_pad="SAME_UPPER"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["r", "t"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    return model(nodes, {"x": ["batch", 3, 7, 4]}, {"y": ["batch", 5]}, constants)


def shared_folder() -> Path | None:
    """`shared` beside the repository, None where it is missing."""
    folder = Path(__file__).resolve().parents[2].parent / "shared"
    return folder if folder.is_dir() else None
