"""Operators that read and write by index, against ONNX Runtime, PyTorch and NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from movement_cases import cases_of, in_onnxruntime, label
from witness import agree, errors, meaning

from verax.base.errors import GraphError, InputError
from verax.ir.dim import symbol
from verax.ir.operator import Case, Evaluation, Inference, Operator
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import (
    Compress,
    Gather,
    GatherElements,
    GatherND,
    NonZero,
    ReverseSequence,
    Unique,
)
from verax.ops.movement.scatter import ScatterElements, ScatterND

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = (
    *("Gather", "GatherElements", "GatherND", "Compress", "NonZero", "ReverseSequence"),
    *("Unique", "ScatterElements", "ScatterND"),
)


@pytest.mark.parametrize("case", cases_of(*NAMES), ids=label)
def test_onnxruntime_agrees(case: Case) -> None:
    if getattr(case.op, "time_axis", 0) > 1:
        pytest.skip("ONNX Runtime takes only time axes 0 and 1")
    agree(case.op, case.inputs, in_onnxruntime(case))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_are_gathered_as_in_pytorch(axis: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    indices = rng.integers(0, x.shape[axis], (2, 3, 4))
    theirs = torch.gather(torch.tensor(x), axis, torch.tensor(indices))
    np.testing.assert_array_equal(meaning(GatherElements(axis=axis), x, indices)[0], theirs)


@pytest.mark.parametrize("ours, theirs", [("add", "sum"), ("mul", "prod"), ("max", "amax")])
def test_reductions_of_a_scatter_are_pytorchs(
    ours: str, theirs: str, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    indices, updates = rng.integers(0, 3, (2, 6, 4)), rng.standard_normal((2, 6, 4))
    updates = updates.astype(np.float32)
    tensors = (torch.tensor(indices), torch.tensor(updates).double())
    want = torch.tensor(x).double().scatter_reduce(1, *tensors, theirs).numpy()
    agree(ScatterElements(axis=1, reduction=ours), (x, indices, updates), [want])


def test_a_scatter_leaves_untouched_elements_exact(rng: np.random.Generator) -> None:
    x, updates = rng.standard_normal((5, 2)).astype(np.float32), np.ones((3, 2), np.float32)
    op = ScatterND(reduction="add")
    (error,) = errors(op, x, np.array([[1], [1], [-1]]), updates)
    assert error is not None
    assert not error.sigma[[0, 2, 3]].any() and (error.sigma[[1, 4]] > 0).all()


def test_indices_may_repeat_in_a_reduction_and_nan_stays() -> None:
    x = np.zeros(3, np.float32)
    indices, updates = np.array([2, 2, 0]), np.array([1.5, 2, np.nan], np.float32)
    for reduction, last in (("add", 3.5), ("max", 2.0), ("min", 0.0)):
        (y,) = meaning(ScatterElements(reduction=reduction), x, indices, updates)
        np.testing.assert_array_equal(y, [np.nan, 0, last])


BAD_INDEX = [
    (Gather(axis=1), (np.ones((2, 3)), np.array([3]))),
    (Gather(), (np.ones((0, 3)), np.array([0]))),
    (GatherElements(), (np.ones((2, 3)), np.array([[0, -3, 1]]))),
    (GatherND(), (np.ones((2, 3)), np.array([[0, 3]]))),
    (GatherND(batch_dims=1), (np.ones((2, 3)), np.array([[2], [-4]]))),
    (ScatterElements(), (np.ones((2, 3)), np.array([[2, 0, 0]]), np.ones((1, 3)))),
    (ScatterND(), (np.ones((2, 3)), np.array([[-3]]), np.ones((1, 3)))),
    (Compress(axis=1), (np.ones((2, 3)), np.array([False] * 3 + [True]))),
    (ReverseSequence(), (np.ones((4, 2)), np.array([5, 1]))),
]


@pytest.mark.parametrize("op, inputs", BAD_INDEX, ids=str)
def test_an_index_outside_of_its_axis_is_an_input_error(op: Operator, inputs: tuple) -> None:
    with pytest.raises(InputError):
        op.reference(Evaluation((), ()), *inputs)


def test_types_over_symbols() -> None:
    n, k = symbol("n"), symbol("k")
    data, indices = TensorType(DType.float32, (n, 5, k)), TensorType(DType.int64, (k, 2))
    assert Gather(axis=1).infer(Inference((data, indices)))[0].dims == (n, k, 2, k)
    assert GatherND().infer(Inference((data, indices)))[0].dims == (k, k)
    positions = NonZero().infer(Inference((data,), (), "where"))[0]
    assert positions.dims[0] == 3 and "where" in str(positions.dims[1])
    values, first, inverse, counts = Unique(axis=0).infer(Inference((data,)))
    assert values.dims[0] == first.dims[0] == counts.dims[0] != n and inverse.dims == (n,)


@pytest.mark.parametrize(
    "op, dims",
    [
        (Gather(axis=3), [(2, 3), (4,)]),
        (GatherElements(), [(2, 3), (4,)]),
        (GatherElements(axis=1), [(2, 3), (4, 5)]),
        (GatherND(), [(2, 3), (4, 3)]),
        (GatherND(batch_dims=1), [(2, 3), (4, 1)]),
        (ScatterElements(), [(2, 3), (1, 3), (1, 2)]),
        (ScatterND(), [(2, 3), (4, 1), (4, 2)]),
        (ScatterElements(reduction="sum"), [(2, 3), (1, 3), (1, 3)]),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(op: Operator, dims: list) -> None:
    kinds = [DType.float32, DType.int64, DType.float32]
    with pytest.raises(GraphError):
        op.infer(Inference(tuple(TensorType(k, d) for k, d in zip(kinds, dims))))


def test_indices_of_another_type_are_refused() -> None:
    types = (TensorType(DType.float32, (2, 3)), TensorType(DType.float32, (1,)))
    with pytest.raises(GraphError, match="int64"):
        Gather().infer(Inference(types))
