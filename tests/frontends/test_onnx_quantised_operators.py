"""Operators on bytes, ONNX's own and ONNX Runtime's, mean: dequantised, computed, quantised."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import verax
from verax.base.errors import UnsupportedError, VeraxError
from verax.frontends.onnx import load_onnx
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.onnx_runtime import OnnxRuntimeRunner


def grid(scale: Any, zero: Any, kind: str = "uint8") -> list[np.ndarray]:
    return [np.array(scale, np.float32), np.array(zero, kind)]


def model(kind: str, operands: list[Any], **attributes: Any) -> onnx.ModelProto:
    """One node; the first array is the input `x`, the others are constants, None is omitted."""
    names = [None if a is None else f"c{i}" if i else "x" for i, a in enumerate(operands)]
    domain = "" if kind in ("QLinearConv", "QLinearMatMul", "MatMulInteger") else "com.microsoft"
    wide = kind == "MatMulInteger"
    result = onnx.TensorProto.INT32 if wide else helper.np_dtype_to_tensor_dtype(DATA.dtype)
    graph = helper.make_graph(
        [helper.make_node(kind, [n or "" for n in names], ["y"], "n", domain=domain, **attributes)],
        "one",
        [helper.make_tensor_value_info(
            "x", helper.np_dtype_to_tensor_dtype(operands[0].dtype), operands[0].shape)],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(a, n) for a, n in zip(operands[1:], names[1:]) if n],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets)
    made.ir_version = 8
    return made


def back(q: np.ndarray, scale: Any, zero: Any, axis: int = 0) -> np.ndarray:
    lanes = [-1 if a == axis % q.ndim else 1 for a in range(q.ndim)]
    scale, zero = (
        np.reshape(np.asarray(p, np.float64), lanes if np.size(p) > 1 else ())
        for p in (scale, zero)
    )
    return (q.astype(np.float64) - zero) * scale


def rounded(y: np.ndarray, scale: Any, zero: Any) -> np.ndarray:
    return np.clip(np.rint(y / np.float64(scale)) + int(zero), 0, 255)


def drawn() -> tuple[np.ndarray, ...]:
    r = np.random.default_rng(31)
    return (
        r.integers(0, 256, (2, 3, 6, 7)).astype(np.uint8),
        r.integers(0, 256, (4, 6)).astype(np.uint8),
        r.integers(0, 256, (3, 1, 7)).astype(np.uint8),
        r.integers(-127, 128, (5, 3, 2, 3)).astype(np.int8),
        r.integers(-127, 128, (6, 5)).astype(np.int8),
        r.uniform(0.004, 0.01, 5).astype(np.float32),
        r.integers(-3000, 3000, 5).astype(np.int32),
    )


DATA, ROWS, OTHER, KERNEL, MATRIX, SCALES, BIAS = drawn()
A, B, Y = grid(0.021, 117), grid(0.013, 140), grid(0.31, 120)
F, G = back(DATA, *A), back(OTHER, *B)


def convolved() -> np.ndarray:
    x, w = np.pad(F, ((0, 0), (0, 0), (1, 0), (2, 1))), back(KERNEL, SCALES, 0)
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))[:, :, ::2]
    unit = float(A[0]) * SCALES.astype(np.float64)
    return np.einsum("nchwij,ocij->nohw", windows, w) + (BIAS * unit).reshape(-1, 1, 1)


def soft() -> np.ndarray:
    e = np.exp(F - F.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


PRODUCT = back(ROWS, *A) @ back(MATRIX, SCALES, 0, -1)
POOLED = np.lib.stride_tricks.sliding_window_view(F, (2, 3), (2, 3))[:, :, ::2].mean((-2, -1))
CASES: dict[str, tuple[list[Any], dict[str, Any], np.ndarray]] = {
    "QLinearConv": (
        [DATA, *A, KERNEL, SCALES, np.zeros(5, np.int8), *Y, BIAS],
        {"pads": [1, 2, 0, 1], "strides": [2, 1]},
        rounded(convolved(), *Y),
    ),
    "QLinearMatMul": (
        [ROWS, *A, MATRIX, SCALES, np.zeros(5, np.int8), *Y],
        {},
        rounded(PRODUCT, *Y),
    ),
    "MatMulInteger": (
        [ROWS, MATRIX, A[1], np.array(3, np.int8)],
        {},
        (ROWS.astype(int) - 117) @ (MATRIX.astype(int) - 3),
    ),
    "QGemm": (
        [ROWS, *A, np.ascontiguousarray(MATRIX.T), SCALES, np.zeros(5, np.int8), BIAS, *Y],
        {"transB": 1},
        rounded(PRODUCT + BIAS * (float(A[0]) * SCALES.astype(np.float64)), *Y),
    ),
    "QLinearAdd": ([DATA, *A, OTHER, *B, *Y], {}, rounded(F + G, *Y)),
    "QLinearMul": ([DATA, *A, OTHER, *B, *Y], {}, rounded(F * G, *Y)),
    "QLinearSigmoid": ([DATA, *A, *grid(0.004, 1)], {}, rounded(1 / (1 + np.exp(-F)), 0.004, 1)),
    "QLinearLeakyRelu": (
        [DATA, *A, *Y],
        {"alpha": 0.3},
        rounded(np.where(F < 0, np.float32(0.3) * F, F), *Y),
    ),
    "QLinearSoftmax": (
        [DATA, *A, *grid(1 / 256, 0)],
        {"axis": -1, "opset": 17},
        rounded(soft(), 1 / 256, 0),
    ),
    "QLinearGlobalAveragePool": (
        [DATA, *A, *B],
        {"channels_last": 0},
        rounded(F.mean((2, 3), keepdims=True), *B),
    ),
    "QLinearAveragePool": (
        [DATA, *A, *B],
        {"kernel_shape": [2, 3], "strides": [2, 1]},
        rounded(POOLED, *B),
    ),
}


def loaded(kind: str) -> verax.frontends.model.Model:
    operands, attributes, _ = CASES[kind]
    return load_onnx(model(kind, operands, **attributes))


@pytest.mark.parametrize("kind", CASES)
def test_it_means_floats_between_two_grids(kind: str) -> None:
    operands, _, expected = CASES[kind]
    (y,) = evaluate(loaded(kind).graph, {"x": operands[0]}).values()
    assert y.shape == expected.shape and len(np.unique(y)) > 3
    # A mean of six bytes lies half-way between two integers here and there, rounded before that.
    assert (y != expected).sum() <= 3 * (kind == "QLinearAveragePool") and np.abs(
        y - expected.astype(np.float64)
    ).max() <= 1


@pytest.mark.parametrize("kind", CASES)
def test_onnx_runtime_agrees(kind: str) -> None:
    pytest.importorskip("onnxruntime")
    operands, attributes, _ = CASES[kind]
    file = model(kind, operands, **attributes).SerializeToString()
    subject = OnnxRuntimeRunner(file, threads=1, isolated=False)
    verdict = verax.check(loaded(kind), subject, inputs={"x": operands[0]}, twice=False)
    assert verdict.kind in (Kind.identical, Kind.rounding, Kind.precision), verdict.reasons


def rearranged(kind: str, order: list[str], more: dict[str, Any], **fields: Any) -> Any:
    """A node of x (with its grid, c1 and c2) and constants, in another order."""
    made = model(kind, [DATA, *A], **fields)
    node = made.graph.node[0]
    made.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in more.items())
    del node.input[:]
    node.input.extend(order)
    return made


def concatenation() -> Any:
    more = {"part": DATA[:, :2], "s": B[0], "z": B[1]}
    order = ["s", "z", "x", "c1", "c2", "part", "s", "z"]
    return rearranged("QLinearConcat", order, more, axis=1)


ODD = np.arange(7) % 2 == 1


def choice() -> Any:
    """x where its column is odd, else OTHER."""
    more = {"odd": ODD, "other": OTHER, "s": B[0], "z": B[1], "ys": Y[0], "yz": Y[1]}
    order = ["odd", "x", "c1", "c2", "other", "s", "z", "ys", "yz"]
    return rearranged("QLinearWhere", order, more)


def test_a_concatenation_takes_each_part_from_its_own_grid() -> None:
    (y,) = evaluate(load_onnx(concatenation()).graph, {"x": DATA}).values()
    np.testing.assert_array_equal(y[:, :3], rounded(F, *B))
    np.testing.assert_array_equal(y[:, 3:], DATA[:, :2])


def test_a_choice_takes_each_side_from_its_own_grid() -> None:
    (y,) = evaluate(load_onnx(choice()).graph, {"x": DATA}).values()
    np.testing.assert_array_equal(y, rounded(np.where(ODD, F, G), *Y))


@pytest.mark.parametrize(
    ("kind", "attribute"), [("QLinearGlobalAveragePool", "axis"), ("QGemm", "secret")]
)
def test_what_is_not_supported_is_refused(kind: str, attribute: str) -> None:
    operands, attributes, _ = CASES[kind]
    with pytest.raises(VeraxError) as error:
        load_onnx(model(kind, operands, **{**attributes, attribute: 1}))
    assert attribute in str(error.value) and isinstance(error.value, UnsupportedError)
