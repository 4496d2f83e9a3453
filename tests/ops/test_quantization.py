"""Quantisation against ONNX Runtime and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_elementwise import onnx_attributes
from witness import agree, meaning, onnxruntime_says

from verax.base.errors import GraphError
from verax.ir.operator import REGISTRY, Inference
from verax.ir.types import NARROW, TensorType
from verax.ops.quantized.quantization import DequantizeLinear, QuantizeLinear


@pytest.mark.parametrize("name", ["QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"])
def test_onnx_runtime_agrees(name: str) -> None:
    compared = 0
    for case in REGISTRY[name].cases(np.random.default_rng(29)):
        op: Any = case.op
        if any(a is not None and TensorType.of(a).dtype.is_narrow for a in case.inputs) or (
            getattr(op, "output_dtype", None) in NARROW
        ):
            continue  # tests/ops/test_narrow_types.py
        attributes = onnx_attributes(op)
        if "precision" in attributes or attributes.get("output_dtype") == 10:
            continue  # not known at opset 23 there
        if attributes.pop("halves", "even") != "even":
            continue  # ONNX rounds them to even
        agree(op, case.inputs, onnxruntime_says(name, case.inputs, attributes, op.output_count))
        compared += 1
    assert compared >= 3


def test_ties_go_to_even_and_values_saturate() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, np.inf, np.nan], np.float32)
    scale, zero = np.array(1, np.float32), np.array(10, np.int8)
    expected = [10, 12, 12, 10, 8, 127, -128, 127, 10]
    assert meaning(QuantizeLinear(), x, scale, zero)[0].tolist() == expected


def test_halves_can_go_away_from_zero() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997], np.float32)
    scale, zero = np.array(1, np.float32), np.array(0, np.int8)
    found = meaning(QuantizeLinear(halves="away"), x, scale, zero)[0]
    assert found.tolist() == [1, 2, 3, -1, -3, 0]
    with pytest.raises(GraphError, match="halves"):
        QuantizeLinear(halves="up").infer(
            Inference((TensorType.of(x), TensorType.of(scale)), (), "")
        )


def test_the_quotient_is_rounded_to_the_type_of_the_scale() -> None:
    """2.5 + 2**-24 rounds to 3, but in float32 it is 2.5, a tie that goes to 2."""
    scale = np.float32(1 + 3 * 2.0**-23)
    x = np.float32(2.5) * scale
    quotient = np.float64(x) / np.float64(scale)
    assert np.rint(quotient) == 3 and np.float32(quotient) == 2.5
    assert meaning(QuantizeLinear(), np.array([x]), np.array(scale))[0][0] == 2


def test_each_index_of_the_axis_has_its_scale() -> None:
    x = np.array([[[10, 20], [30, 40], [50, 60]]], np.uint8)
    scale = np.array([1, 0.5, 0.25], np.float32)
    zero = np.array([0, 10, 20], np.uint8)
    got = meaning(DequantizeLinear(), x, scale, zero)[0]
    np.testing.assert_array_equal(got, [[[10, 20], [10, 15], [7.5, 10]]])


@pytest.mark.parametrize(
    ("types", "cause"),
    [
        (("float32[2, 3]", "float32[2]"), "has 2 numbers along axis 1"),
        (("float32[2, 3]", "float32[3]", "uint8[]"), "differ in shape"),
        (("float32[2, 3]", "float32[]", "float32[]"), "no quantized type"),
        (("int64[2, 3]", "float32[]"), "int64 is not allowed"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(types: tuple[str, ...], cause: str) -> None:
    with pytest.raises(GraphError, match=cause):
        QuantizeLinear().infer(Inference(tuple(map(TensorType.parse, types))))
