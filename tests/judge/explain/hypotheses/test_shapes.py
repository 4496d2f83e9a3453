"""An answer of another shape is explained where one rival meaning has that shape and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from suspects import honest, types_of

from verax.ir.operator import Operator
from verax.judge.explain.node import explain, suspect_of
from verax.ops.sums.reduction import ReduceL1, ReduceLogSum, ReduceLogSumExp, Reduction
from verax.ops.windows.convolution import Conv
from verax.ops.windows.pooling import MaxPool
from verax.reference.evaluate import evaluate_node


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def answer(op: Operator, arrays: list[Any]) -> np.ndarray:
    """The operator in float32."""
    node, types = types_of(op, arrays)
    suspect = suspect_of(node, arrays, np.zeros(types[0].shape, np.float32), types)
    assert suspect is not None
    kinds = suspect.meaning.ev.inputs
    (y,) = evaluate_node(node, arrays, kinds, types, np.float32)
    return y


CASES: dict[str, tuple[Operator, Operator, list[Any]]] = {
    "no pads": (
        Conv(pads=((1, 1), (0, 2))),
        Conv(),
        [normal(2, 3, 9, 11), normal(4, 3, 3, 3)],
    ),
    "stride 1": (
        Conv(strides=(2, 3)),
        Conv(),
        [normal(2, 3, 9, 11), normal(4, 3, 3, 3)],
    ),
    "ceil_mode": (
        MaxPool(kernel_shape=(2, 3), strides=(2, 2), ceil_mode=True),
        MaxPool(kernel_shape=(2, 3), strides=(2, 2)),
        [normal(2, 3, 9, 12)],
    ),
}


def reduced(kind: type[Reduction], axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """A node over axis 1 of [2, 5, 7], and the answer of one over `axes`."""
    x = normal(2, 5, 7)
    arrays = [x, np.array([1], np.int64)]
    node, types = types_of(kind(keepdims=False), arrays)
    return node, arrays, answer(kind(keepdims=keepdims), [x, np.array(axes, np.int64)]), types


@pytest.mark.parametrize("kind", [ReduceL1, ReduceLogSum, ReduceLogSumExp])
def test_a_reduction_that_ignores_its_axes_is_named(kind: type[Reduction]) -> None:
    node, arrays, given, types = reduced(kind, (0, 1, 2), False)
    if kind is ReduceLogSum:
        arrays[0] = np.abs(arrays[0])
        given = answer(kind(keepdims=False), [arrays[0], np.array([0, 1, 2])])
    (first, *_) = explain(node, arrays, given, types)
    assert first.hypothesis == "axes ignored" and first.attributes == {"axes": "(0, 1, 2)"}
    spread = np.broadcast_to(given, (2, 7))
    (first, *_) = explain(node, arrays, spread, types)
    assert first.hypothesis == "axes ignored"


def test_a_reduction_over_other_axes_is_named_by_its_shape() -> None:
    node, arrays, given, types = reduced(ReduceL1, (1, 2), True)
    (first, *_) = explain(node, arrays, given, types)
    assert first.hypothesis == "over axes (1, 2)"
    assert explain(node, arrays, given * np.float32(1.01), types) == ()


@pytest.mark.parametrize("name", CASES)
def test_attributes_that_change_the_size_are_named(name: str) -> None:
    op, rival, arrays = CASES[name]
    node, types = types_of(op, arrays)
    (first, *_) = explain(node, arrays, answer(rival, arrays), types)
    assert first.hypothesis == name


def test_channels_last_is_named() -> None:
    suspect = honest(np.random.default_rng(1), "conv")
    given = np.moveaxis(suspect.actual, 1, -1)
    (first, *_) = explain(suspect.node, suspect.inputs, given, suspect.outputs)
    assert first.hypothesis == "axes in the order (0, 2, 3, 1)" and "NHWC" in first.words


def test_a_lost_axis_is_named() -> None:
    suspect = honest(np.random.default_rng(1), "global average")
    (only,) = explain(suspect.node, suspect.inputs, suspect.actual[..., 0, 0], suspect.outputs)
    assert only.hypothesis == "another shape"


def test_rows_cut_off_are_named() -> None:
    suspect = honest(np.random.default_rng(1), "conv")
    (only,) = explain(suspect.node, suspect.inputs, suspect.actual[:, :, 1:], suspect.outputs)
    assert only.hypothesis == "cut off at the begin"


def test_strange_numbers_of_another_shape_are_not_explained() -> None:
    suspect = honest(np.random.default_rng(1), "conv")
    given = normal(*suspect.actual.shape[:-1], suspect.actual.shape[-1] + 1)
    assert explain(suspect.node, suspect.inputs, given, suspect.outputs) == ()
