"""Slice, Split, Concat and CenterCropPad against ONNX Runtime and NumPy, and over symbols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import DimLike, symbol
from verax.ir.dim_forms import substitute
from verax.ir.operator import Case, Evaluation, Inference, Operator
from verax.ir.types import DType, TensorType
from verax.ops.movement.movement import BEYOND
from verax.ops.movement.slicing import Concat, Slice, Split, slice_bounds

H = symbol("h")
BOUNDS = st.one_of(st.integers(-12, 12), st.sampled_from([BEYOND, -BEYOND, 2**63 - 1, -(2**63)]))
STEPS = st.integers(-4, 4).filter(bool)


@pytest.mark.parametrize("case", cases_of("Slice", "Split", "Concat", "CenterCropPad"), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    agree(case.op, case.inputs, in_onnxruntime(case))


def sliced_dim(size: DimLike, start: object, end: object, step: int = 1) -> DimLike:
    lists = [np.array([v], object) for v in (start, end, 0, step)]
    types = (TensorType(DType.float32, (size, 3)), *[TensorType(DType.int64, (1,))] * 4)
    return Slice().infer(Inference(types, (None, *lists), "test"))[0].dims[0]


@given(size=st.integers(0, 9), start=BOUNDS, end=BOUNDS, step=STEPS)
def test_slice_takes_what_numpy_takes(size: int, start: int, end: int, step: int) -> None:
    x = np.arange(size * 3).reshape(size, 3)
    if step < 0 and start < -size:
        start = -size  # ONNX clamps the start to the first element, Python to before it
    bounds = [np.array([v]) for v in (start, end, 0, step)]
    (ours,) = meaning(Slice(), x, *bounds)
    np.testing.assert_array_equal(ours, x[start:end:step])
    assert sliced_dim(size, start, end, step) == len(ours)


def test_a_start_before_the_first_element_is_clamped_to_it_when_going_backwards() -> None:
    assert slice_bounds(5, -9, -99, -1) == (0, 1)


@given(size=st.integers(0, 15), start=BOUNDS, end=BOUNDS, step=STEPS)
@settings(max_examples=300)
def test_a_slice_of_a_symbol_is_the_numeric_one_later(
    size: int, start: int, end: int, step: int
) -> None:
    symbolic = sliced_dim(H, start, end, step)
    if "h" in str(symbolic) or isinstance(symbolic, int):
        assert substitute(symbolic, {"h": size}) == slice_bounds(size, start, end, step)[1]


def test_slices_over_symbols_are_short_where_they_can_be() -> None:
    assert sliced_dim(H, 0, 2**63 - 1) == H
    assert sliced_dim(H, -1, -(2**63), -1) == H
    assert sliced_dim(H + 4, 2, H + 3) == H + 1
    assert sliced_dim(2 * H, H, 2**31 - 1) == H
    assert str(sliced_dim(H, 0, 2**63 - 1, 2)) == "ceildiv(h, 2)"


def test_split_without_sizes_leaves_the_rest_to_the_last_part() -> None:
    x = np.arange(14.0, dtype=np.float32).reshape(7, 2)
    parts = meaning(Split(num_outputs=3), x)
    assert [len(p) for p in parts] == [3, 3, 1]
    np.testing.assert_array_equal(np.concatenate(parts), x)
    types = Split(num_outputs=3).infer(Inference((TensorType(DType.float32, (H, 2)),)))
    assert [substitute(t.dims[0], {"h": 7}) for t in types] == [3, 3, 1]


@given(sizes=st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_concat_joins_what_split_has_cut(sizes: list[int]) -> None:
    x = np.arange(2 * sum(sizes) * 3).reshape(2, sum(sizes), 3)
    parts = meaning(Split(num_outputs=len(sizes), axis=1), x, np.array(sizes))
    assert [p.shape[1] for p in parts] == sizes
    np.testing.assert_array_equal(meaning(Concat(axis=-2), *parts)[0], x)


@pytest.mark.parametrize(
    "op, types, known, says",
    [
        (Split(num_outputs=4), [(5,)], [], "equal parts"),
        (Split(num_outputs=2), [(5,), (2,)], [[1, 3]], "add up"),
        (Split(num_outputs=3), [(5,), (2,)], [[1, 4]], "3 outputs"),
        (Concat(axis=1), [(2, 3), (4, 3)], [], "axis 0"),
        (Concat(axis=2), [(2, 3), (2, 3)], [], "rank"),
        (Slice(), [(5,), (1,), (1,), (1,), (1,)], [[0], [3], [0], [0]], "step is 0"),
        (Slice(), [(5,), (1,), (1,), (1,)], [[0], [3], [1]], "rank"),
        (Slice(), [(5, 6), (2,), (1,)], [[0, 1], [3]], "ends"),
    ],
)
def test_what_does_not_fit_is_refused(op: Operator, types: list, known: list, says: str) -> None:
    given_types = tuple(
        TensorType(DType.int64 if i and known else DType.float32, t) for i, t in enumerate(types)
    )
    with pytest.raises(GraphError, match=says):
        op.infer(Inference(given_types, (None, *map(np.array, known)), "test"))


def test_a_slice_step_of_zero_at_run_time_is_an_input_error() -> None:
    ev = Evaluation((), ())
    with pytest.raises(InputError):
        Slice().reference(ev, np.ones(3), np.array([0]), np.array([2]), None, np.array([0]))
