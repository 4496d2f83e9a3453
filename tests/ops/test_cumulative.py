"""Running sums and products against PyTorch, ONNX Runtime and Python's integers."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from witness import DOUBLE, agree, evaluation, meaning, onnxruntime_says

from verax.base.errors import GraphError, InputError
from verax.ir.operator import REGISTRY, Inference
from verax.ir.types import TensorType
from verax.ops.sums.cumulative import CumProd, CumSum

torch = pytest.importorskip("torch", reason="torch is not installed")

TORCH = {"CumSum": torch.cumsum, "CumProd": torch.cumprod}


@pytest.mark.parametrize("name", TORCH)
def test_the_meaning_is_that_of_pytorch_in_double(name: str) -> None:
    for case in REGISTRY[name].cases(np.random.default_rng(19)):
        x, axis = case.inputs
        op: Any = case.op
        assert x is not None and axis is not None
        if x.dtype != np.float32:
            continue
        along = int(axis)
        x = np.flip(x, along) if op.reverse else x
        found = TORCH[name](torch.from_numpy(x.astype(np.float64)), along).numpy()
        if op.exclusive:
            found = np.roll(found, 1, along)
            np.moveaxis(found, along, 0)[0] = 1 if name == "CumProd" else 0
        agree(op, case.inputs, [np.flip(found, along) if op.reverse else found], DOUBLE)


def test_onnx_runtime_agrees_within_the_error_model() -> None:
    for case in CumSum.cases(np.random.default_rng(23)):
        op: Any = case.op
        if case.label != "float16":
            attributes = {k: int(v) for k, v in op.attributes().items()}
            agree(op, case.inputs, onnxruntime_says("CumSum", case.inputs, attributes))


@pytest.mark.parametrize(("exclusive", "reverse"), itertools.product([False, True], [False, True]))
def test_integers_by_hand(exclusive: bool, reverse: bool) -> None:
    x, axis = np.array([3, 4, 5], np.int32), np.array(0)
    sums = {(0, 0): [3, 7, 12], (1, 0): [0, 3, 7], (0, 1): [12, 9, 5], (1, 1): [9, 5, 0]}
    products = {(0, 0): [3, 12, 60], (1, 0): [1, 3, 12], (0, 1): [60, 20, 5], (1, 1): [20, 5, 1]}
    key = (int(exclusive), int(reverse))
    fields = {"exclusive": exclusive, "reverse": reverse}
    assert meaning(CumSum(**fields), x, axis)[0].tolist() == sums[key]
    assert meaning(CumProd(**fields), x, axis)[0].tolist() == products[key]


def test_the_promised_bits_are_added_one_by_one() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (2, 100)).astype(np.float32)
    axis = np.array(1)
    got = CumSum().canonical(evaluation(CumSum(), (x, axis)), x, axis)
    total = np.zeros(2, np.float32)
    for i in range(100):
        total = total + x[:, i]
        np.testing.assert_array_equal(got[:, i], total)


def test_an_axis_outside_is_refused() -> None:
    types = (TensorType.parse("float32[2, n]"), TensorType.parse("int64[]"))
    with pytest.raises(GraphError, match="rank 2"):
        CumSum().infer(Inference(types, (None, np.array(2))))
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(InputError, match="axis is 5"):
        CumSum().reference(evaluation(CumSum(), (x, np.array(1))), x, np.array(5))
