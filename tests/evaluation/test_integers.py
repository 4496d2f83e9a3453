"""Networks that round to integers: margins in bytes do not wrap, and no honest step is accused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax


@pytest.fixture
def quantised(tmp_path: Path) -> Path:
    """x [n, 6] to int8 scores [n, 4] that reach both ends of a byte."""
    weights = np.random.default_rng(70).standard_normal((6, 4)).astype(np.float32)
    constants = {"w": weights, "s": np.float32(0.02), "z": np.int8(3)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "product"),
        helper.make_node("QuantizeLinear", ["y", "s", "z"], ["scores"], "quantise"),
    ]
    graph = helper.make_graph(
        nodes,
        "quantised",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])],
        [helper.make_tensor_value_info("scores", TensorProto.INT8, ["n", 4])],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "quantised.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def test_a_flip_of_a_quantised_network_is_left_to_the_judge(quantised: Path) -> None:
    x = np.random.default_rng(71).standard_normal((10, 6)).astype(np.float32)
    exe = verax.compile(quantised)

    def turned(x: np.ndarray) -> np.ndarray:
        scores = exe.run({"x": x})["scores"].copy()
        scores[2] = ~scores[2]
        return scores

    found = verax.evaluate(quantised, x, np.arange(10) % 4, against=turned, batch=10)
    assert found.comparison is not None and found.exit_code == 3
    (flip,) = found.comparison.flips
    assert flip.near is None and "network of integers" in flip.why
    y = exe.run({"x": x[2:3]})["scores"][0].astype(int)
    assert flip.margin == y[flip.meaning] - y[flip.subject] > 127  # more than a signed byte holds
    assert found.comparison.largest == np.abs(y - ~y).max()
