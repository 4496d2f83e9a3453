"""Checks of small networks, whole and in a process of their own, within 8 GB of address space.

`benchmarks/memory.py` does the same with large networks; here are those that take seconds, one of
them the end of EfficientNet-B0, whose check took 34 GB once.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).parents[3]
LIMIT, TIMEOUT = 8 << 30, 300
MOST = 1 << 30
"""Bytes that our process may really hold for any of these."""


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """`benchmarks/memory.py` as a module."""
    spec = importlib.util.spec_from_file_location("memory_bench", ROOT / "benchmarks/memory.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["memory_bench"] = module
    spec.loader.exec_module(module)
    return module


def end_of_efficientnet(path: Path) -> Path:
    """A 1 x 1 convolution to 1280 channels, and a pool whose kernel is as wide: 1280 x 1280."""
    rng = np.random.default_rng(81)
    weights = {
        "w": rng.standard_normal((1280, 320, 1, 1)) / 18,
        "b": rng.standard_normal(1280) / 9,
        "f": rng.standard_normal((10, 1280)) / 36,
    }
    nodes = [
        helper.make_node("Conv", ["image", "w", "b"], ["wide"]),
        helper.make_node("Sigmoid", ["wide"], ["gate"]),
        helper.make_node("Mul", ["wide", "gate"], ["swish"]),
        helper.make_node(
            "AveragePool",
            ["swish"],
            ["pooled"],
            kernel_shape=[1280, 1280],
            strides=[1280, 1280],
            ceil_mode=1,
            count_include_pad=1,
        ),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "f"], ["logits"], transB=1),
    ]
    types = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", [2, 320, 7, 6]), ("logits", [2, 10]))
    ]
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "end", types[:1], types[1:], constants)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


END = "end of EfficientNet-B0"


@pytest.mark.parametrize(
    ("network", "runner"),
    [
        *((END, runner) for runner in ("verax:O1", "onnxruntime", "openvino")),
        ("digits", "verax:O1"),
        *(pytest.param("digits", r, marks=pytest.mark.slow) for r in ("onnxruntime", "openvino")),
    ],
)
def test_a_check_stays_within_memory(
    benchmark: Any, network: str, runner: str, tmp_path: Path
) -> None:
    if runner not in benchmark.installed():
        pytest.skip(f"{runner} is not installed")
    path = ROOT / "examples" / "digits" / "digits.onnx"
    if network != "digits":
        path = end_of_efficientnet(tmp_path / "end.onnx")
    row = benchmark.check(path, runner, LIMIT, TIMEOUT)
    if row.code == 2 and "the runtime's own" in row.said:
        pytest.skip(f"{runner} refuses this network: {row.said}")
    assert row.code == 0, row
    assert row.verdict in ("identical", "rounding")
    assert 0 < row.held < MOST


@pytest.mark.slow
def test_checks_of_all_shared_networks_stay_within_memory(benchmark: Any, tmp_path: Path) -> None:
    shared = ROOT.parent / "shared" / "models"
    if not shared.is_dir():
        pytest.skip("../shared is missing")
    rows = [
        benchmark.check(path, runner, LIMIT, 1800)
        for path in benchmark.networks(tmp_path, [shared], [])
        for runner in benchmark.installed()
    ]
    assert rows
    assert all(row.survived for row in rows), benchmark.table(rows)
