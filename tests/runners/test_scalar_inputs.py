"""Inputs of rank 0 reach every engine as they are, not as one element of a list."""

from __future__ import annotations

import numpy as np
import pytest

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.arithmetic import Mul


def scaled() -> Graph:
    """x [3, 5] times s []; s too."""
    b = Builder("scaled")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    s = b.input("s", TensorType.parse("float32[]"))
    return b.graph([b.add(Mul(), [x, s], ["y"], "y"), b.add(Mul(), [s, s], ["z"], "z")])


@pytest.mark.parametrize("subject", ["onnxruntime", "openvino", "verax:O1", "onnxruntime:disabled"])
def test_a_number_without_axes_is_taken(subject: str) -> None:
    pytest.importorskip(subject.partition(":")[0])
    random = np.random.default_rng(7711)
    inputs = {
        "x": random.standard_normal((3, 5)).astype(np.float32),
        "s": np.array(random.standard_normal(), np.float32),
    }
    found = verax.check(scaled(), subject, inputs)
    assert found.kind.value in ("rounding", "identical"), found
