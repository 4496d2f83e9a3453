"""Temporary files of a child lie in the folder that its parent removes, however the child ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

from verax.runners import onnx_runtime
from verax.runners.children import worker
from verax.runners.children.child_files import REPLY, REQUEST, save_arrays


def test_the_optimized_model_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    session = onnx_runtime.engine.session

    def watched(model: Any, threads: int, level: str, options: Any, disable: Any) -> Any:
        if "optimized_model_filepath" in options:
            made.append(Path(options["optimized_model_filepath"]))
        return session(model, threads, level, options, disable)

    monkeypatch.setattr(onnx_runtime.engine, "session", watched)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    request = {
        **{"task": "onnx_runtime", "model": str(tmp_path / "net.onnx"), "keep": [], "fill": None},
        **{"threads": 1, "level": "all", "options": {}, "disable": [], "show": True},
        "inputs": save_arrays(tmp_path / worker.INPUTS, {"x": np.ones((2, 3), np.float32)}),
    }
    (tmp_path / REQUEST).write_text(worker.json.dumps(request))
    assert worker.main(tmp_path) == 0
    assert "optimized model" in (tmp_path / REPLY).read_text()
    assert len(made) == 1 and tmp_path in made[0].parents
