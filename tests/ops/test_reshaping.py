"""Reshaping operators against ONNX Runtime, PyTorch and NumPy, and over symbols."""

from __future__ import annotations

import numpy as np
import pytest
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, meaning, types_of

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.graph import Builder
from verax.ir.operator import Case, Evaluation, Inference, Operator
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import Gather
from verax.ops.movement.reshaping import (
    DepthToSpace,
    Expand,
    Flatten,
    Reshape,
    SpaceToDepth,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from verax.ops.movement.shape import Shape, Size
from verax.ops.movement.slicing import Concat

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = (
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Tile"),
    *("DepthToSpace", "Shape", "Size"),
)
N, C, H = symbol("n"), symbol("c"), symbol("h")


def inferred(op: Operator, dims: tuple, *known: list) -> tuple:
    values = [np.array(k, object) for k in known]
    types = (TensorType(DType.float32, dims), *(TensorType(DType.int64, v.shape) for v in values))
    return tuple(op.infer(Inference(types, (None, *values), "test"))[0].dims)


@pytest.mark.parametrize("case", cases_of(*NAMES), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    agree(case.op, case.inputs, in_onnxruntime(case))


def test_depth_to_space_in_crd_order_is_pixel_shuffle(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 12, 3, 5)).astype(np.float32)
    ours = meaning(DepthToSpace(blocksize=2, mode="CRD"), x)[0]
    np.testing.assert_array_equal(ours, torch.nn.functional.pixel_shuffle(torch.tensor(x), 2))
    back = meaning(SpaceToDepth(blocksize=2, mode="CRD"), ours.astype(np.float32))[0]
    theirs = torch.nn.functional.pixel_unshuffle(torch.tensor(ours), 2)
    np.testing.assert_array_equal(back, theirs)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_undoes_depth_to_space(mode: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 18, 2, 5)).astype(np.float32)
    spread = meaning(DepthToSpace(blocksize=3, mode=mode), x)[0]
    assert spread.shape == (2, 2, 6, 15)
    back = meaning(SpaceToDepth(blocksize=3, mode=mode), spread.astype(np.float32))[0]
    np.testing.assert_array_equal(back, x)


def test_reshape_over_symbols_cancels_what_is_copied() -> None:
    assert inferred(Reshape(), (N, C, H, 7), [0, -1]) == (N, C * H * 7)
    assert inferred(Reshape(), (N, 4, H), [0, 2, -1]) == (N, 2, 2 * H)
    assert inferred(Reshape(), (N, C * 6), [N, 3, -1]) == (N, 3, 2 * C)
    assert inferred(Reshape(), (N, 5), [-1]) == (5 * N,)


def test_other_reshaping_over_symbols() -> None:
    assert inferred(Flatten(axis=2), (N, C, H, 7)) == (N * C, 7 * H)
    assert inferred(Transpose(perm=(2, 0, 1)), (N, C, H)) == (H, N, C)
    assert inferred(Unsqueeze(), (N, C), [-1, 0]) == (1, N, C, 1)
    assert inferred(Squeeze(), (N, 1, C), [1]) == (N, C)
    assert inferred(Expand(), (1, C), [N, 5, 1]) == (N, 5, C)
    assert inferred(Tile(), (N, 3), [2, H]) == (2 * N, 3 * H)
    assert inferred(DepthToSpace(blocksize=2), (N, 8, H, 5)) == (N, 2, 2 * H, 10)


def test_a_shape_computed_in_the_network_reaches_the_types() -> None:
    b = Builder()
    x = b.input("x", TensorType(DType.float32, (N, 3, H, 5)))
    shape = b.add(Shape(), [x])
    first = b.add(Gather(), [shape, b.constant(np.array([0]))])
    target = b.add(Concat(axis=0), [first, b.constant(np.array([-1, 5]))])
    y = b.add(Reshape(), [x, target])
    assert b.types[y].dims == (N, 3 * H, 5)
    total = b.add(Size(), [x])
    assert b.known[total].item() == 15 * N * H


@pytest.mark.parametrize(
    "op, shape, given, says",
    [
        (Reshape(), (2, 3), [4, -1], "multiple"),
        (Reshape(), (2, 3), [-1, -1], "more than one"),
        (Reshape(), (2, 3), [5], "elements"),
        (Reshape(), (2, 3), [1, 1, 0], "no such axis"),
        (Squeeze(), (2, 1), [0], "not of size 1"),
        (Unsqueeze(), (2,), [0, 0], "twice"),
        (Expand(), (2, 3), [4], "broadcast"),
        (Tile(), (2, 3), [1, -1], "negative"),
        (Tile(), (2, 3), [1], "rank"),
    ],
)
def test_what_does_not_fit_is_refused(op: Operator, shape: tuple, given: list, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        inferred(op, shape, given)
    x, types = np.ones(shape), types_of([np.ones(shape, np.float32)])
    if not isinstance(op, Unsqueeze):
        with pytest.raises(InputError):
            op.reference(Evaluation(types, types), x, np.array(given))


def test_transposing_by_what_is_no_permutation_is_refused() -> None:
    for perm in ((0, 0, 1), (0, 1), (0, 1, 3)):
        with pytest.raises(GraphError):
            inferred(Transpose(perm=perm), (2, 3, 4))
