"""Every quantised operator of TensorFlow Lite, written as ONNX: ONNX Runtime gives its integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.quantised_cases import quantised_cases

import verax
from verax.export.onnx import to_onnx
from verax.frontends.tflite import load_tflite
from verax.ir.types import DType, TensorType

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

onnxruntime.set_default_logger_severity(4)
CASES: dict[str, Any] = dict(quantised_cases())


def drawn(type_: TensorType, rng: np.random.Generator) -> np.ndarray:
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape).astype(type_.dtype.numpy)
    if type_.dtype is DType.bool_:
        return rng.integers(0, 2, type_.shape).astype(bool)
    info = np.iinfo(type_.dtype.numpy)
    return rng.integers(info.min, info.max, type_.shape, type_.dtype.numpy, endpoint=True)


@pytest.mark.parametrize("label", CASES)
def test_a_written_operator_gives_the_integers(label: str) -> None:
    model = load_tflite(CASES[label])
    rng = np.random.default_rng(len(label))
    inputs = {name: drawn(type_, rng) for name, type_ in model.inputs.items()}
    session = onnxruntime.InferenceSession(
        to_onnx(model.graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found = dict(zip(model.outputs, session.run(None, inputs), strict=True))
    for name, want in verax.reference(model, inputs).items():
        if model.outputs[name].dtype.is_float:
            continue
        np.testing.assert_array_equal(found[name], want)
