"""Reductions against PyTorch, ONNX Runtime and rational sums; their axes and canonical order."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, evaluation, exactly, meaning, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.operator import REGISTRY, Case, Inference, Operator
from verax.ir.types import TensorType
from verax.ops.sums.reduction import (
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
)

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = [n for n, c in REGISTRY.items() if issubclass(c, Reduction)]
NEUTRAL = {
    "ReduceSum": 0,
    "ReduceProd": 1,
    "ReduceMax": -np.inf,
    "ReduceMin": np.inf,
    "ReduceL1": 0,
    "ReduceL2": 0,
    "ReduceSumSquare": 0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
    "ReduceMean": np.nan,
}


def product(x: torch.Tensor, axis: tuple[int, ...]) -> torch.Tensor:
    for a in axis:
        x = x.prod(a, keepdim=True)
    return x


TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "ReduceSum": lambda x, axis: x.sum(axis, keepdim=True),
    "ReduceMean": lambda x, axis: x.mean(axis, keepdim=True),
    "ReduceMax": lambda x, axis: x.amax(axis, keepdim=True),
    "ReduceMin": lambda x, axis: x.amin(axis, keepdim=True),
    "ReduceProd": product,
    "ReduceL1": lambda x, axis: torch.linalg.vector_norm(x, 1, axis, keepdim=True),
    "ReduceL2": lambda x, axis: torch.linalg.vector_norm(x, 2, axis, keepdim=True),
    "ReduceSumSquare": lambda x, axis: (x * x).sum(axis, keepdim=True),
    "ReduceLogSum": lambda x, axis: x.sum(axis, keepdim=True).log(),
    "ReduceLogSumExp": lambda x, axis: torch.logsumexp(x, axis, keepdim=True),
}


def cases(name: str) -> list[Case]:
    return list(REGISTRY[name].cases(np.random.default_rng(11)))


@pytest.mark.parametrize("name", NAMES)
def test_the_meaning_is_that_of_pytorch_in_double(name: str) -> None:
    compared = 0
    for case in cases(name):
        x, *axes = case.inputs
        op: Any = case.op
        assert x is not None
        axis = op.reduced_axes(x.ndim, axes[0] if axes else None)
        if x.dtype != np.float32 or not axis:  # PyTorch takes no axes for all axes
            continue
        found = TORCH[name](torch.from_numpy(x.astype(np.float64)), axis).numpy()
        agree(op, case.inputs, [found if op.keepdims else np.squeeze(found, axis)], DOUBLE)
        compared += 1
    assert compared >= 4


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_agrees_within_the_error_model(name: str) -> None:
    compared = 0
    for case in cases(name):
        x = case.inputs[0]
        op: Any = case.op
        assert x is not None
        if x.dtype == np.float16 or (x.dtype == np.int32 and name in ("ReduceMean",)):
            continue  # accumulated or divided otherwise there
        if x.dtype == np.int32 and name[:9] in ("ReduceLog", "ReduceL2"):
            continue
        if op.noop_with_empty_axes and name in ("ReduceLogSumExp",):
            continue
        attributes = {k: int(v) for k, v in op.attributes().items()}
        try:
            found = onnxruntime_says(name, case.inputs, attributes)
        except Exception as error:
            assert "NOT_IMPLEMENTED" in str(error), str(error)
            continue
        agree(op, case.inputs, found)
        compared += 1
    assert compared >= 5


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_set_gives_the_neutral_element(name: str) -> None:
    x, axes = np.zeros((2, 0, 3), np.float32), np.array([1])
    op = REGISTRY[name](keepdims=False)
    expected = np.full((2, 3), NEUTRAL[name])
    np.testing.assert_array_equal(meaning(op, x, axes)[0], expected)
    np.testing.assert_array_equal(op.canonical(evaluation(op, (x, axes)), x, axes), expected)


def test_an_empty_set_of_integers_gives_the_extreme_integer() -> None:
    x, axes = np.zeros((2, 0), np.int16), np.array([1])
    assert meaning(ReduceMax(keepdims=False), x, axes)[0].tolist() == [-32768] * 2
    assert meaning(ReduceMin(keepdims=False), x, axes)[0].tolist() == [32767] * 2


def test_without_axes_all_are_reduced_or_none() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    none = np.array([], np.int64)
    for inputs in ((x,), (x, none)):
        assert meaning(ReduceSum(keepdims=False), *inputs)[0] == 15
        kept = meaning(ReduceSum(noop_with_empty_axes=True), *inputs)[0]
        np.testing.assert_array_equal(kept, x)
    square = REGISTRY["ReduceSumSquare"](noop_with_empty_axes=True)
    np.testing.assert_array_equal(meaning(square, x, none)[0], x.astype(np.float64) ** 2)


def test_sums_and_products_are_exact_in_rational_arithmetic() -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (2, 7)).astype(np.float32)
    axes = np.array([1])
    rows = [[Fraction(float(v)) for v in row] for row in x]
    assert list(exactly(ReduceSum(keepdims=False), x, axes)) == [sum(r) for r in rows]
    assert list(exactly(ReduceMean(keepdims=False), x, axes)) == [sum(r) / 7 for r in rows]
    for got, row in zip(exactly(ReduceProd(keepdims=False), x, axes), rows):
        want = Fraction(1)
        for v in row:
            want *= v
        assert got == want


def test_integers_wrap_and_their_mean_truncates() -> None:
    x = np.array([[100, 100, 100], [-5, -2, 0]], np.int8)
    axes = np.array([1])
    assert meaning(ReduceSum(keepdims=False), x, axes)[0].tolist() == [44, -7]
    assert meaning(ReduceMean(keepdims=False), x, axes)[0].tolist() == [14, -2]


def test_the_promised_sum_is_that_of_sixteen_lanes() -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (2, 5, 9)).astype(np.float32)
    axes = np.array([0, 2])
    op = ReduceSum(keepdims=False)
    got = op.canonical(evaluation(op, (x, axes)), x, axes)
    for c in range(5):
        lanes = [np.float32(0)] * 16
        for k, v in enumerate(x[:, c].ravel()):
            lanes[k % 16] = lanes[k % 16] + v
        for distance in (8, 4, 2, 1):
            lanes = [lanes[j] + lanes[j + distance] for j in range(distance)]
        assert got[c] == lanes[0]


@pytest.mark.parametrize("op", [ReduceMax(), ReduceMin()])
def test_nan_wins(op: Operator) -> None:
    x = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0]], np.float32)
    axes = np.array([1])
    for y in (meaning(op, x, axes)[0], op.canonical(evaluation(op, (x, axes)), x, axes)):
        assert np.isnan(y).ravel().tolist() == [True, False]


def infer(op: Operator, data: str, axes: Any, count: str = "int64[2]") -> TensorType:
    known = None if axes is None else np.array(axes, np.int64)
    types = (TensorType.parse(data), TensorType.parse(count) if known is None else None)
    if known is not None:
        types = (types[0], TensorType.of(known))
    return op.infer(Inference(types, (None, known), place="n"))[0]


def test_types_with_symbols_and_with_unknown_axes() -> None:
    assert str(infer(ReduceSum(), "float32[n, 3, h]", [-1, 0])) == "float32[1, 3, 1]"
    assert str(infer(ReduceSum(keepdims=False), "float32[n, 3, h]", [1])) == "float32[n, h]"
    assert infer(ReduceSum(keepdims=False), "float32[n, 3, h]", None).rank == 1
    assert infer(ReduceSum(), "float32[n, 3, h]", None).rank == 3


@pytest.mark.parametrize(
    ("axes", "count", "cause"),
    [
        ([3], "", "rank 3"),
        ([0, -3], "", "twice"),
        (None, "int64[k]", "rank is not known"),
    ],
)
def test_wrong_axes_are_refused(axes: Any, count: str, cause: str) -> None:
    with pytest.raises(GraphError, match=cause):
        infer(ReduceSum(keepdims=False), "float32[2, 3, 4]", axes, count or "int64[2]")
