"""The Softmax family against PyTorch and ONNX Runtime; its canonical order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, errors, evaluation, meaning, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.operator import REGISTRY, Case, Inference
from verax.ir.types import TensorType
from verax.numerics import reductions
from verax.numerics.arith_numpy import NumpyArith
from verax.ops.sums.softmax import Hardmax, LogSoftmax, Softmax

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = ("Softmax", "LogSoftmax", "Hardmax")
TORCH = {"Softmax": torch.softmax, "LogSoftmax": torch.log_softmax}


def cases(name: str) -> list[Case]:
    return list(REGISTRY[name].cases(np.random.default_rng(13)))


def flattened(op: Any, x: np.ndarray) -> np.ndarray:
    axis = op.axis % x.ndim
    return x.reshape(int(np.prod(x.shape[:axis])), -1)


@pytest.mark.parametrize("name", TORCH)
def test_the_meaning_is_that_of_pytorch_in_double(name: str) -> None:
    for case in cases(name):
        (x,) = case.inputs
        op: Any = case.op
        assert x is not None
        if x.dtype != np.float32:
            continue
        shaped = flattened(op, x) if op.flatten else x
        axis = 1 if op.flatten else op.axis
        safe = getattr(op, "masked_to_zero", False)
        witness = torch.ops.aten._safe_softmax if safe else TORCH[name]
        found = witness(torch.from_numpy(shaped.astype(np.float64)), axis).numpy()
        agree(op, case.inputs, [found.reshape(x.shape)], DOUBLE)


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_agrees_within_the_error_model(name: str) -> None:
    compared = 0
    for case in cases(name):
        (x,) = case.inputs
        op: Any = case.op
        if op.flatten or x is None or x.dtype != np.float32 or not np.isfinite(x).all():
            continue
        agree(op, case.inputs, onnxruntime_says(name, case.inputs, {"axis": op.axis}))
        compared += 1
    assert compared >= 4


def test_flattening_at_the_ends() -> None:
    x = np.random.default_rng(0).uniform(-2, 2, (2, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(meaning(Softmax(axis=3, flatten=True), x)[0], np.ones(x.shape))
    whole = meaning(Softmax(axis=0, flatten=True), x)[0]
    np.testing.assert_array_equal(whole.ravel(), meaning(Softmax(), x.ravel())[0])


@pytest.mark.parametrize("axis", [1, -1])
def test_the_promised_bits_follow_the_canonical_order(axis: int) -> None:
    m = NumpyArith()
    x = np.random.default_rng(2).uniform(-6, 6, (3, 37, 21)).astype(np.float32)
    e = m.exp(x - x.max(axis, keepdims=True))
    total = reductions.reduce(e, (axis,), "sum", keepdims=True)
    ev = evaluation(Softmax(axis=axis), (x,))
    np.testing.assert_array_equal(Softmax(axis=axis).canonical(ev, x), e / total)
    logs = (x - x.max(axis, keepdims=True)) - m.log(total)
    np.testing.assert_array_equal(LogSoftmax(axis=axis).canonical(ev, x), logs)


def test_large_values_do_not_overflow() -> None:
    x = np.array([[3e38, 3e38, -3e38], [-1e30, -1e30, -1e30]], np.float32)
    op = Softmax()
    expected = np.array([[0.5, 0.5, 0], [1 / 3] * 3], np.float32)
    np.testing.assert_array_equal(op.canonical(evaluation(op, (x,)), x), expected)


def test_a_masked_line_is_nan_or_zero_and_a_nan_stays_one() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[-inf] * 3, [-inf, 2, -inf], [-inf, nan, -inf], [inf] * 3], np.float32)
    for run in (lambda op: meaning(op, x)[0], lambda op: op.canonical(evaluation(op, (x,)), x)):
        plain, safe = (run(Softmax(masked_to_zero=zero)) for zero in (False, True))
        np.testing.assert_array_equal(plain, [[nan] * 3, [0, 1, 0], [nan] * 3, [nan] * 3])
        np.testing.assert_array_equal(safe, [[0] * 3, [0, 1, 0], [nan] * 3, [nan] * 3])
        wanted = torch.ops.aten._safe_softmax(torch.from_numpy(x), 1).numpy()
        np.testing.assert_array_equal(safe, wanted)


@pytest.mark.parametrize("op", [Softmax(), LogSoftmax()])
def test_what_is_hidden_leaves_the_error_model_of_its_line_finite(op: Any) -> None:
    x = np.array([[-np.inf, 1.5, 0.25, -np.inf]], np.float32)
    (rounding,) = errors(op, x)
    assert np.isfinite(rounding.sigma[:, 1:3]).all() and (rounding.sigma[:, 1:3] > 0).all()


def test_hardmax_marks_the_first_of_equals() -> None:
    x = np.array([[1, 3, 3], [2, 2, 0]], np.float32)
    np.testing.assert_array_equal(meaning(Hardmax(), x)[0], [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(meaning(Hardmax(axis=0), x)[0], [[0, 1, 1], [1, 0, 0]])


def test_an_axis_outside_is_refused() -> None:
    for op in (Softmax(axis=2), Softmax(axis=3, flatten=True), Hardmax(axis=-3)):
        with pytest.raises(GraphError, match="rank 2"):
            op.infer(Inference((TensorType.parse("float32[n, 3]"),)))
