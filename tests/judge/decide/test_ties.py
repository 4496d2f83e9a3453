"""Selections that rounding or NaN leaves open are no mistakes; clear ones are."""

import numpy as np
import pytest

from verax.ir.graph import Node
from verax.ir.operator import Inference, Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import check_node, meaning
from verax.numerics.fixed_point import quantized_factor
from verax.ops.images.detection import NonMaxSuppression
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.quantized.requantization import Requantize
from verax.ops.sums.arg import TopK
from verax.ops.windows.pooling import MaxPool
from verax.records.verdict import Finding, Kind

GOOD = (Kind.identical, Kind.rounding)


def judged(op: Operator, arrays: list[np.ndarray], given: list[np.ndarray]) -> list[Finding]:
    types = tuple(TensorType.of(a) for a in arrays)
    outputs = tuple(op.infer(Inference(types)))
    names = tuple(f"x{i}" for i in range(len(arrays)))
    return check_node(
        Node(op, names, tuple(f"y{i}" for i in range(len(outputs)))), arrays, given, outputs
    )


def selection(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[np.ndarray]:
    return [boxes, scores, np.array([9]), np.array([threshold], np.float32)]


def chosen(arrays: list[np.ndarray]) -> np.ndarray:
    types = tuple(TensorType.of(a) for a in arrays)
    op = NonMaxSuppression()
    node = Node(op, ("b", "s", "m", "t"), ("y",))
    return meaning(node, arrays, types, tuple(op.infer(Inference(types)))).outputs[0]


def scene(overlap: float) -> tuple[np.ndarray, np.ndarray]:
    """Three boxes; the second overlaps the first by `overlap` (intersection over union)."""
    width = 2 * overlap / (1 + overlap)
    boxes = [[0, 0, 1, 1], [0, 1 - width, 1, 2 - width], [5, 5, 6, 7]]
    return np.array([boxes], np.float32), np.array([[[0.9, 0.8, 0.7]]], np.float32)


@pytest.mark.parametrize("threshold", [0.2, 0.3, 0.45, 0.7])
def test_an_overlap_at_the_threshold_may_fall_either_way(threshold: float) -> None:
    arrays = selection(*scene(threshold), threshold)
    both, kept = np.array([[0, 0, 0], [0, 0, 1], [0, 0, 2]]), np.array([[0, 0, 0], [0, 0, 2]])
    for given in (both, kept):
        assert judged(NonMaxSuppression(), arrays, [given])[0].kind in GOOD


@pytest.mark.parametrize("overlap", [0.2, 0.44, 0.46, 0.7])
def test_a_clear_overlap_may_not(overlap: float) -> None:
    arrays = selection(*scene(overlap), 0.45)
    right = chosen(arrays)
    wrong = np.array(
        [[0, 0, 0], [0, 0, 2]] if len(right) == 3 else [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
    )
    assert judged(NonMaxSuppression(), arrays, [right])[0].kind is Kind.identical
    assert judged(NonMaxSuppression(), arrays, [wrong])[0].kind is Kind.mistake


def test_equal_scores_have_no_order() -> None:
    boxes, scores = scene(0.1)
    scores[0, 0] = [0.5, 0.5, 0.9]
    arrays = selection(boxes, scores, 0.45)
    swapped = np.array([[0, 0, 2], [0, 0, 1], [0, 0, 0]])
    assert judged(NonMaxSuppression(), arrays, [swapped])[0].kind is Kind.rounding
    wrong = np.array([[0, 0, 1], [0, 0, 0], [0, 0, 2]])
    assert judged(NonMaxSuppression(), arrays, [wrong])[0].kind is not Kind.rounding


def test_an_index_behind_nan_proves_nothing() -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 6, 7)).astype(np.float32)
    x[1, 2, 3, 4] = np.nan
    op = MaxPool(kernel_shape=(2, 3), strides=(2, 2), with_indices=True)
    types = (TensorType.of(x),)
    outputs = tuple(op.infer(Inference(types)))
    y, indices = meaning(Node(op, ("x",), ("y", "i")), [x], types, outputs).outputs
    y, other = y.astype(np.float32), indices.copy()
    hole = np.isnan(y)
    assert hole.any()
    y[hole], other[hole] = 0.25, 0
    values, places = judged(op, [x], [y, other])
    assert (values.kind, places.kind) == (Kind.undecided, Kind.undecided)
    other[0, 0, 0, 0] += 1
    assert judged(op, [x], [y, other])[1].kind is Kind.mistake


def test_a_half_way_number_may_be_rounded_either_way() -> None:
    """LiteRT's optimized kernels round halves otherwise than its reference kernels."""
    factor, shift = quantized_factor(0.0625)
    x = np.array([[8, 24, 40, -8, -24], [7, 9, 16, 100, -300]], np.int32)
    arrays = [x, np.array(factor, np.int32), np.array(shift, np.int32)]
    op = Requantize(zero_point=3)
    other = np.array([[3, 4, 5, 3, 2], [3, 4, 4, 9, -16]], np.int8)
    (right,) = meaning(
        Node(op, ("x", "m", "s"), ("y",)),
        arrays,
        [TensorType.of(a) for a in arrays],
        (TensorType.of(other),),
    ).outputs
    assert np.abs(right.astype(int) - other).max() == 1, "the halves are rounded otherwise"
    assert judged(op, arrays, [other])[0].kind is Kind.rounding
    wrong = right.copy()
    wrong[1, 0] += 1  # 3.4375 is no half
    assert judged(op, arrays, [wrong])[0].kind is Kind.mistake


@pytest.mark.parametrize(("halves", "kind"), [("away", Kind.rounding), ("even", Kind.mistake)])
def test_halves_of_a_quantised_float_are_free_where_no_text_says_where_they_go(
    halves: str, kind: Kind
) -> None:
    """LiteRT's optimized kernels send them to even, its reference kernels away from zero; ONNX's
    text says even."""
    x = np.array([[0.25, 0.75, -1.25, 0.3], [2.25, 1.75, 0.5, -3.2]], np.float32)
    arrays = [x, np.array(0.5, np.float32), np.array(7, np.int8)]
    even = np.rint(x / 0.5).astype(np.int8) + np.int8(7)
    away = np.trunc(x / 0.5 + np.copysign(0.5, x)).astype(np.int8) + np.int8(7)
    op = QuantizeLinear(halves=halves)
    assert judged(op, arrays, [even if halves == "away" else away])[0].kind is kind
    wrong = (away if halves == "away" else even).copy()
    wrong[0, 3] += 1  # 0.6 is no half
    assert judged(op, arrays, [wrong])[0].kind is Kind.mistake


@pytest.mark.parametrize(
    ("places", "kind"),
    [
        ([[0, 2, 4], [1, 2, 3]], Kind.identical),
        ([[4, 0, 2], [1, 4, 2]], Kind.undecided),
        ([[4, 0, 4], [1, 4, 2]], Kind.mistake),
        ([[4, 0, 3], [1, 4, 2]], Kind.mistake),
        ([[4, 0, -3], [1, 4, 2]], Kind.mistake),
    ],
)
def test_equal_elements_are_ordered_by_onnx_alone(places: list[list[int]], kind: Kind) -> None:
    """PyTorch and others leave open which of equal elements TopK takes first."""
    x = np.array([[3, 1, 3, 2, 3], [0, 5, 4, 4, 4]], np.float32)
    values = np.array([[3, 3, 3], [5, 4, 4]], np.float32)
    node = Node(TopK(axis=1), ("x", "k"), ("values", "places"))
    outputs = (TensorType.of(values), TensorType.of(np.array(places)))
    _, found = check_node(node, [x, np.array([3])], [values, np.array(places)], outputs)
    assert found.kind is kind


def test_symmetric_groups_may_round_halves_to_even_or_away() -> None:
    """ONNX Runtime's kernels of MatMulNBits differ among themselves."""
    x = np.array([[127, 2.5, -0.5, 9, -3.25], [0, 0, 0, 0, 0], [254, 5, 1, 2, 3]], np.float32)
    op = DynamicQuantizeGroups(axis=1, symmetric=True)
    scale = np.array([[1], [1], [2]], np.float32)
    q = np.array([[127, 3, -1, 9, -3], [0] * 5, [127, 3, 1, 1, 2]], np.int16)
    even = np.rint(x / scale).astype(np.int16)
    assert (even != q).sum() == 4
    for given in (q, even):
        assert judged(op, [x], [given, scale])[0].kind in GOOD
    for place in ((0, 3), (0, 4), (1, 1), (2, 0)):
        wrong = even.copy()
        wrong[place] -= 1
        assert judged(op, [x], [wrong, scale])[0].kind is Kind.mistake
