"""Pad against ONNX Runtime, NumPy and PyTorch, and over symbols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Evaluation, Inference
from verax.ir.types import DType, TensorType
from verax.ops.movement.padding import MODES, Pad

torch = pytest.importorskip("torch", reason="torch is not installed")

REFUSED_BY_ONNXRUNTIME = ("reflect, crop", "twice around")


@pytest.mark.parametrize("case", cases_of("Pad"), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    if case.op == Pad(mode="reflect") and case.label in REFUSED_BY_ONNXRUNTIME:
        pytest.skip("ONNX Runtime refuses these pads")
    agree(case.op, case.inputs, in_onnxruntime(case))


@given(
    mode=st.sampled_from(MODES),
    size=st.integers(1, 5),
    begin=st.integers(0, 9),
    end=st.integers(0, 9),
)
def test_padding_is_numpys(mode: str, size: int, begin: int, end: int) -> None:
    x = np.arange(2.0 * size, dtype=np.float32).reshape(2, size)
    (ours,) = meaning(Pad(mode=mode), x, np.array([begin, end]), None, np.array([1]))
    np.testing.assert_array_equal(ours, np.pad(x, [(0, 0), (begin, end)], mode=mode))


@pytest.mark.parametrize("ours, theirs", [("edge", "replicate"), ("reflect", "reflect")])
def test_padding_is_pytorchs(ours: str, theirs: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4, 5))
    want = torch.nn.functional.pad(torch.tensor(x), (4, 1, 0, 2), mode=theirs)
    (got,) = meaning(Pad(mode=ours), x, np.array([0, 4, 2, 1]), None, np.array([2, 3]))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mode", MODES)
def test_negative_pads_crop_before_anything_is_shown(mode: str) -> None:
    x = np.arange(1.0, 7.0, dtype=np.float32)
    (got,) = meaning(Pad(mode=mode), x, np.array([-2, 2]))
    want = np.pad(x[2:], (0, 2), mode=mode)
    np.testing.assert_array_equal(got, want)
    (cropped,) = meaning(Pad(mode=mode), x, np.array([-1, -3]))
    np.testing.assert_array_equal(cropped, x[1:-3])


def test_nan_is_moved_like_any_value() -> None:
    x = np.array([np.nan, 1], np.float32)
    np.testing.assert_array_equal(
        meaning(Pad(mode="edge"), x, np.array([1, 1]))[0], [np.nan, np.nan, 1, 1]
    )


def inferred(dims: tuple, pads: list, axes: list | None = None, mode: str = "constant") -> tuple:
    integers = TensorType(DType.int64, (len(pads),))
    types = (TensorType(DType.float32, dims), integers, None, integers)
    known = (None, np.array(pads, object), None, None if axes is None else np.array(axes))
    count = 4 if axes is not None else 2
    return tuple(Pad(mode=mode).infer(Inference(types[:count], known[:count]))[0].dims)


def test_types_over_symbols() -> None:
    n, h = symbol("n"), symbol("h")
    assert inferred((n, h), [1, 2, 0, -1]) == (n + 1, h + 1)
    assert inferred((n, h, 4), [h, 2], [1]) == (n, 2 * h + 2, 4)


@pytest.mark.parametrize(
    "dims, pads, axes, mode",
    [
        ((2, 3), [1, 2, 3], None, "constant"),
        ((2, 3), [1, 2], [5], "constant"),
        ((2, 3), [-1, -2, 0, -2], None, "constant"),
        ((2, 3), [-3, 0, 5, 0], None, "constant"),
        ((2, 3), [0] * 4, None, "symmetric"),
        ((1, 3), [1, 0, -1, 0], None, "edge"),
        ((2, 3), [0, 4, 0, -3], None, "reflect"),
    ],
)
def test_what_does_not_fit_is_refused(dims: tuple, pads: list, axes: list, mode: str) -> None:
    with pytest.raises(GraphError):
        inferred(dims, pads, axes, mode)


def test_nothing_can_be_shown_of_an_empty_axis() -> None:
    for mode, pads in (("edge", [1, 0]), ("edge", [-4, 9]), ("constant", [-2, -1])):
        x = np.ones(0 if min(pads) >= 0 else 2)
        with pytest.raises(InputError):
            Pad(mode=mode).reference(Evaluation((), ()), x, np.array(pads))
