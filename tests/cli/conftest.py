"""Runs the command line inside this process, and says where the example network is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from verax.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"


@dataclass(frozen=True)
class Result:
    """Exit code and what was printed."""

    code: int
    out: str
    err: str


Cli = Callable[..., Result]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Call `verax` with arguments; texts come back without line breaks made by narrow terminals."""

    def call(*arguments: object) -> Result:
        monkeypatch.setenv("COLUMNS", "240")
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(sys, "argv", ["verax", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 0 if not leaving.code else 1
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def digits() -> Path:
    """The example network's file."""
    return EXAMPLE / "digits.onnx"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that compiles in no time: image [n, 1, 9, 7] to scores [n, 4]."""
    weights = np.random.default_rng(8).standard_normal((4, 1, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node(
            "Conv", ["image", "w"], ["map"], "conv", pads=[1, 1, 1, 1], strides=[2, 2]
        ),
        helper.make_node("GlobalAveragePool", ["map"], ["mean"], "mean"),
        helper.make_node("Flatten", ["mean"], ["flat"], "flat"),
        helper.make_node("Softmax", ["flat"], ["scores"], "softmax"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 9, 7])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(
        nodes, "tiny", [image], [scores], [numpy_helper.from_array(weights, "w")]
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path_factory.mktemp("networks") / "tiny.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return path


@pytest.fixture
def photo() -> Path:
    """A picture of a three."""
    return EXAMPLE / "3.png"
