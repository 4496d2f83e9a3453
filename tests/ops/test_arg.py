"""ArgMax, ArgMin and TopK: ties, NaN, and other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from witness import agree, meaning, onnxruntime_says

from verax.base.errors import GraphError, InputError
from verax.ir.operator import REGISTRY, Case, Evaluation, Inference
from verax.ir.types import TensorType
from verax.ops.sums.arg import ArgMax, ArgMin, TopK

torch = pytest.importorskip("torch", reason="torch is not installed")

NAMES = ("ArgMax", "ArgMin", "TopK")


def cases(name: str) -> list[Case]:
    return list(REGISTRY[name].cases(np.random.default_rng(17)))


@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_gives_the_same(name: str) -> None:
    compared = 0
    for case in cases(name):
        op: Any = case.op
        attributes = {k: int(v) for k, v in op.attributes().items()}
        if name == "TopK" and not op.sorted:
            continue
        try:
            found = onnxruntime_says(name, case.inputs, attributes, op.output_count)
        except Exception as error:
            assert "NOT_IMPLEMENTED" in str(error), str(error)
            continue
        agree(op, case.inputs, found)
        compared += 1
    assert compared >= 3


@pytest.mark.parametrize("largest", [True, False])
def test_values_of_topk_are_those_of_pytorch(largest: bool) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, (4, 9, 5)).astype(np.float32)
    x[0, 3, 2] = np.nan
    op = TopK(axis=1, largest=largest)
    values, index = meaning(op, x, np.array([9]))
    want = torch.topk(torch.from_numpy(x), 9, dim=1, largest=largest)
    np.testing.assert_array_equal(values, want.values.numpy())
    np.testing.assert_array_equal(index, want.indices.numpy())


def test_of_equals_the_lower_index_comes_first() -> None:
    x = np.array([2, 5, 5, 1, 1, 5], np.int32)
    assert meaning(TopK(), x, np.array([4]))[1].tolist() == [1, 2, 5, 0]
    assert meaning(TopK(largest=False), x, np.array([4]))[1].tolist() == [3, 4, 0, 1]
    assert meaning(ArgMax(), x)[0].tolist() == [1]
    assert meaning(ArgMax(select_last_index=True), x)[0].tolist() == [5]
    assert meaning(ArgMin(select_last_index=True, keepdims=False), x)[0] == 4


def test_unsigned_and_extreme_integers_are_ordered() -> None:
    x = np.array([0, 255, 128, 127], np.uint8)
    assert meaning(TopK(), x, np.array([4]))[0].tolist() == [255, 128, 127, 0]
    y = np.array([-(2**63), 2**63 - 1, 0], np.int64)
    assert meaning(TopK(), y, np.array([3]))[1].tolist() == [1, 2, 0]


def test_k_is_checked() -> None:
    x = TensorType.parse("float32[n, 3]")
    k = TensorType.parse("int64[1]")
    with pytest.raises(GraphError, match="k is 4"):
        TopK().infer(Inference((x, k), (None, np.array([4]))))
    with pytest.raises(GraphError, match="k is -1"):
        TopK(axis=0).infer(Inference((x, k), (None, np.array([-1]))))
    values, index = TopK().infer(Inference((x, k), place="node"))
    assert values.rank == index.rank == 2 and not values.is_static
    ev = Evaluation((x, k), (values, index))
    with pytest.raises(InputError, match="k is 4"):
        TopK().reference(ev, np.zeros((2, 3)), np.array([4]))


def test_an_axis_without_elements_is_refused() -> None:
    with pytest.raises(GraphError, match="no elements"):
        ArgMax(axis=1).infer(Inference((TensorType.parse("float32[2, 0]"),)))
