"""Operators that make tensors, against ONNX Runtime and NumPy, and over symbols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.dim_forms import substitute
from verax.ir.graph import Builder
from verax.ir.operator import Case, Evaluation, Inference
from verax.ir.types import DType, TensorType
from verax.ops.movement.generation import ConstantOfShape, OneHot, Range, Trilu

N = symbol("n")


@pytest.mark.parametrize(
    "case", cases_of("ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu"), ids=label
)
def test_onnxruntime_agrees(case: Case) -> None:
    if case.op.kind == "OneHot" and case.inputs[0].dtype == np.float32:  # type: ignore[union-attr]
        pytest.skip("ONNX Runtime has no kernel for these types")
    agree(case.op, case.inputs, in_onnxruntime(case))


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_a_range_of_integers_is_pythons(start: int, limit: int, delta: int) -> None:
    inputs = [np.array(v) for v in (start, limit, delta)]
    np.testing.assert_array_equal(meaning(Range(), *inputs)[0], list(range(start, limit, delta)))


@given(st.integers(0, 30), st.integers(-4, 4), st.integers(-5, 5).filter(bool))
def test_a_range_up_to_a_symbol_has_its_length_later(n: int, start: int, delta: int) -> None:
    scalar = TensorType(DType.int64, ())
    limits = (start, N, delta) if delta > 0 else (N, start, delta)
    known = tuple(np.array(v, object) for v in limits)
    (size,) = Range().infer(Inference((scalar,) * 3, known))[0].dims
    numbers = range(*(n if v is N else v for v in limits))  # type: ignore[arg-type]
    assert substitute(size, {"n": n}) == len(numbers)


def test_positions_counted_in_the_network_reach_the_types() -> None:
    b = Builder()
    size = b.constant(np.array([2, 3]))
    y = b.add(ConstantOfShape(value=4, dtype=DType.int64), [size])
    assert b.types[y].dims == (2, 3) and (b.known[y] == 4).all()


@pytest.mark.parametrize("delta", [0, 0.0, np.nan, np.inf])
def test_a_range_without_a_size_is_an_input_error(delta: float) -> None:
    dtype = np.int64 if isinstance(delta, int) else np.float64
    inputs = [np.array(v, dtype) for v in (0, 5, delta)]
    if np.isinf(delta):
        inputs[1] = np.array(np.nan)
    with pytest.raises(InputError):
        Range().reference(Evaluation((), ()), *inputs)


def test_an_enormous_shape_is_an_input_error_not_an_allocation() -> None:
    for shape in ([2**40, 2**40], [-1, 2]):
        with pytest.raises(InputError):
            ConstantOfShape().reference(Evaluation((), ()), np.array(shape))
    with pytest.raises(InputError):
        OneHot().reference(Evaluation((), ()), np.array([1]), np.array(2**60), np.array([0, 1]))


def test_one_hot_of_what_is_no_position_is_off() -> None:
    indices = np.array([1.5, np.nan, -1, 7], np.float32)
    (y,) = meaning(OneHot(), indices, np.array(3), np.array([2.0, 5.0], np.float32))
    np.testing.assert_array_equal(y, [[2, 2, 2], [2, 2, 2], [2, 2, 5], [2, 2, 2]])


@pytest.mark.parametrize("k", [-3, -1, 0, 2, 9])
def test_triangles_are_numpys(k: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(meaning(Trilu(), x, np.array(k))[0], np.triu(x, k))
    np.testing.assert_array_equal(meaning(Trilu(upper=False), x, np.array(k))[0], np.tril(x, k))


def test_what_does_not_fit_is_refused() -> None:
    matrix = TensorType(DType.float32, (4,))
    with pytest.raises(GraphError):
        Trilu().infer(Inference((matrix,)))
    with pytest.raises(GraphError, match="delta"):
        zero = np.array(0)
        Range().infer(Inference((TensorType(DType.int64, ()),) * 3, (zero, np.array(5), zero)))
