"""Resize against ONNX Runtime, PyTorch and rational arithmetic, and over symbols."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from movement_cases import cases_of, in_onnxruntime, label
from witness import DOUBLE, agree, errors, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Evaluation, Inference
from verax.ir.types import DType, TensorType
from verax.ops.images.resize import Resize
from verax.ops.images.resize_tables import (
    NEAREST_MODES,
    TRANSFORMS,
    Interpolation,
    axis_table,
    float32_positions,
)

torch = pytest.importorskip("torch", reason="torch is not installed")

CASES = cases_of("Resize")
FUNCTION = torch.nn.functional.interpolate


def differs_in_onnxruntime(case: Case) -> str:
    """Why ONNX Runtime is no witness for a case, or nothing."""
    op: Any = case.op
    if op.coordinate_transformation_mode == "align_corners" and case.label.startswith("scales"):
        return "it measures align_corners with the rounded size, ONNX's own cases do not"
    if op.keep_aspect_ratio_policy == "not_smaller" and op.axes[0] < 0:
        return "it does not resize negative axes under a policy"
    if op.exclude_outside and op.mode == "linear" and not op.antialias:
        return "it takes exclude_outside for cubic only"
    return ""


@pytest.mark.parametrize("case", CASES, ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    if reason := differs_in_onnxruntime(case):
        pytest.skip(reason)
    agree(case.op, case.inputs, in_onnxruntime(case))


PYTORCH = [
    ("nearest", {}, Resize(coordinate_transformation_mode="asymmetric", nearest_mode="floor")),
    ("nearest-exact", {}, Resize(nearest_mode="round_prefer_ceil")),
    ("linear", {"align_corners": False}, Resize(mode="linear")),
    (
        "linear",
        {"align_corners": True},
        Resize(mode="linear", coordinate_transformation_mode="align_corners"),
    ),
    ("cubic", {"align_corners": False}, Resize(mode="cubic")),
    (
        "cubic",
        {"align_corners": True},
        Resize(mode="cubic", coordinate_transformation_mode="align_corners"),
    ),
    (
        "linear",
        {"align_corners": False, "antialias": True},
        Resize(mode="linear", antialias=True, exclude_outside=True),
    ),
    (
        "cubic",
        {"align_corners": False, "antialias": True},
        Resize(mode="cubic", antialias=True, exclude_outside=True, cubic_coeff_a=-0.5),
    ),
]


@pytest.mark.parametrize("size", [(8, 15), (3, 2), (4, 13), (9, 4), (1, 1)])
@pytest.mark.parametrize("mode, extra, op", PYTORCH, ids=str)
def test_images_are_resized_as_in_pytorch(
    mode: str, extra: dict, op: Resize, size: tuple, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    names = {"linear": "bilinear", "cubic": "bicubic"}
    want = FUNCTION(torch.tensor(x).double(), size, mode=names.get(mode, mode), **extra)
    agree(op, (x, None, None, np.array([2, 3, *size])), [want.numpy()], DOUBLE)


@pytest.mark.parametrize(
    "mode, torch_mode, dims", [("linear", "linear", 1), ("linear", "trilinear", 3)]
)
def test_lines_and_volumes_are_resized_as_in_pytorch(
    mode: str, torch_mode: str, dims: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 1, 3, 4, 5)[: 2 + dims]).astype(np.float32)
    sizes = np.array([2, 1, 7, 2, 9][: 2 + dims])
    want = FUNCTION(torch.tensor(x).double(), tuple(sizes[2:].tolist()), mode=torch_mode)
    agree(Resize(mode=mode), (x, None, None, sizes), [want.numpy()], DOUBLE)


@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
@pytest.mark.parametrize("nearest_mode", NEAREST_MODES)
def test_onnxruntime_takes_the_same_element_or_one_across_a_float32_tie(
    transform: str, nearest_mode: str
) -> None:
    op = Resize(coordinate_transformation_mode=transform, nearest_mode=nearest_mode)
    for in_size, out_size in ((5, 35), (7, 3), (6, 21), (10, 4), (3, 50), (9, 30)):
        x = np.arange(2.0 * in_size, dtype=np.float32).reshape(2, in_size) + 1
        case = Case(op, (x, None, None, np.array([2, out_size])), (3,))
        agree(op, case.inputs, in_onnxruntime(case))


def test_a_tie_that_float32_moves_is_known_to_the_error_model() -> None:
    how = Interpolation(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    scale = Fraction(float(np.float32(0.6)))  # a little more than 0.6: 3 / scale is below 5
    exact = axis_table(how, 10, 6, scale).positions[:, 0]
    rounded = float32_positions(how, 10, 6, scale)
    assert exact.tolist() == [0, 1, 3, 4, 6, 8] and rounded.tolist() == [0, 1, 3, 5, 6, 8]
    op = Resize(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    x = np.arange(10.0, dtype=np.float32)
    (error,) = errors(op, x, None, np.array([0.6], np.float32))
    assert error is not None and (error.bound >= 1).tolist() == [False] * 3 + [True] + [False] * 2


def test_a_tie_that_every_runtime_computes_exactly_stays_exact() -> None:
    """Else a wrong nearest_mode would pass as rounding."""
    x = np.arange(6.0, dtype=np.float32)
    for nearest_mode in NEAREST_MODES:
        op = Resize(coordinate_transformation_mode="asymmetric", nearest_mode=nearest_mode)
        assert errors(op, x, None, np.array([2.0], np.float32)) == (None,)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("transform", TRANSFORMS[:-1])
def test_float64_lies_within_its_rounding_of_rational_arithmetic(
    mode: str, transform: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((3, 4)).astype(np.float32)
    op = Resize(mode=mode, coordinate_transformation_mode=transform)
    sizes = np.array([5, 3])
    rational = np.array([Fraction(float(v)) for v in x.ravel()], object).reshape(x.shape)
    ev = Evaluation((TensorType.of(x),), (TensorType.of(x),), np.dtype(object))
    exact = op.reference(ev, rational, None, None, sizes)
    assert all(isinstance(v, Fraction) for v in exact.flat)
    agree(op, (x, None, None, sizes), [exact.astype(np.float64)], DOUBLE)


@given(
    st.sampled_from(["linear", "cubic"]),
    st.sampled_from(TRANSFORMS[:-1]),
    st.integers(1, 9),
    st.integers(1, 20),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_weights_add_up_to_one(
    mode: str, transform: str, in_size: int, out_size: int, antialias: bool
) -> None:
    how = Interpolation(mode, transform, antialias=antialias)
    table = axis_table(how, in_size, out_size, Fraction(out_size, in_size), dtype="object")
    assert table.weights is not None
    assert all(sum(row) == 1 for row in table.weights)
    assert ((table.positions >= 0) & (table.positions < in_size)).all()


def test_an_axis_that_keeps_its_size_is_not_touched() -> None:
    x = np.array([[1.0, np.inf, np.nan, 2.0]], np.float32).T
    (y,) = meaning(Resize(mode="linear"), x, None, np.array([1, 2], np.float32))
    np.testing.assert_array_equal(y, np.repeat(x, 2, axis=1))


def inferred(dims: tuple, scales: list | None, sizes: list | None, **attributes: Any) -> tuple:
    values = [
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes, object),
    ]
    kinds = (DType.float32, DType.int64)
    given_types = [None if v is None else TensorType(k, v.shape) for k, v in zip(kinds, values)]
    x = TensorType(DType.float32, dims)
    ctx = Inference((x, None, *given_types), (None, None, *values), "r")
    return tuple(Resize(**attributes).infer(ctx)[0].dims)


def test_types_over_symbols() -> None:
    n, h = symbol("n"), symbol("h")
    assert inferred((n, 3, h, 5), [1, 1, 2, 0.5], None) == (n, 3, 2 * h, 2)
    assert str(inferred((h,), [0.5], None)[0]) == "h//2"
    assert str(inferred((h,), [1 / 3], None)[0]).startswith("_r.")
    assert inferred((n, h), None, [n, 2 * h + 1]) == (n, 2 * h + 1)
    assert inferred(
        (n, 4, 6), None, [8, 9], axes=(1, 2), keep_aspect_ratio_policy="not_larger"
    ) == (*(n, 6, 9),)


def test_sizes_from_scales_are_those_that_float32_gives() -> None:
    assert inferred((10,), [0.7], None) == (7,)  # float32(0.7) < 0.7
    assert inferred((3, 8), [1.0, 0.6], None) == (3, 4)


@pytest.mark.parametrize(
    "arguments",
    [
        ((2, 3), [1, 1], [2, 3]),
        ((2, 3), None, None),
        ((2, 3), [1], None),
        ((2, 3), [1, 0], None),
        ((2, 3), [1, np.nan], None),
        ((2, 3), None, [2, -3]),
        ((0, 3), None, [2, 3]),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple) -> None:
    with pytest.raises(GraphError):
        inferred(*arguments)


@pytest.mark.parametrize(
    "attributes",
    [{"mode": "area"}, {"nearest_mode": "up"}, {"coordinate_transformation_mode": "x"}],
)
def test_unknown_attribute_values_are_refused(attributes: dict) -> None:
    with pytest.raises(GraphError):
        inferred((2,), [1], None, **attributes)


def test_bad_values_at_run_time_are_input_errors() -> None:
    for scales, sizes in (([1, -1], None), ([np.nan, 1], None), ([1], None), (None, [1, -2])):
        given_values = (np.array(v) if v is not None else None for v in (scales, sizes))
        with pytest.raises(InputError):
            Resize().plan((2, 3), None, *given_values)
    crop = Resize(coordinate_transformation_mode="tf_crop_and_resize")
    with pytest.raises(InputError):
        crop.plan((2, 3), np.array([0, np.nan, 1, 1]), None, np.array([2, 3]))
