"""`onnxruntime:FILE`: another file in a runtime, judged by a model of other names and layouts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401  (a fixture)

import verax
from verax.base.errors import UsageError
from verax.judge.align.pairing import pair
from verax.records.verdict import Kind
from verax.runners.command import CommandRunner

EXAMPLES = Path(__file__).parents[2] / "examples" / "digits"
X = np.random.default_rng(31).random((2, 1, 24, 20), np.float32)
IMAGE = np.ascontiguousarray(X[:1].transpose(0, 2, 3, 1))
"""Pixels last, one image, as the TensorFlow Lite file takes it."""


@pytest.fixture
def runtime() -> Any:
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same network under other names, its outputs in another order."""
    for node in model.graph.node:
        node.name = f"n_{node.name}"
        node.input[:] = [f"v_{v}" if v else "" for v in node.input]
        node.output[:] = [f"v_{v}" for v in node.output]
    for value in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        value.name = f"v_{value.name}"
    del model.graph.value_info[:]
    outputs = list(model.graph.output)[::-1]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return model


def test_a_runtime_on_an_exported_file_is_judged_by_its_source(
    runtime: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(renamed(onnx.load(EXAMPLES / "digits.onnx")), other)
    for model in ("digits.onnx", "digits.tflite"):  # the second has its pixels last
        source = verax.load(EXAMPLES / model)
        graph = source.graph
        x = X if source.inputs["image"].dims[1] == 1 else IMAGE
        inputs = {graph.inputs[0]: x}
        verdict = verax.check(source, f"onnxruntime:{other}", inputs)
        assert verdict.kind is Kind.rounding, verdict
        assert len(verdict.nodes) > len(graph.outputs) and "outputs only" not in verdict.method
        assert "values inside hold the same numbers" in verdict.subject["aligned by value"]


def test_openvino_on_an_exported_file_is_judged_by_its_program(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
) -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    program = EXAMPLES / "digits.pt2"
    record = tmp_path / "record.json"
    right = EXAMPLES / "digits.onnx"
    found = cli("check", program, f"openvino:{right}", "--json", record)
    assert found.code == 0, found.err
    said = json.loads(record.read_text())["subject"]
    assert (
        said["name"] == "openvino:digits.onnx" and "values inside hold" in said["aligned by value"]
    )
    model = onnx.load(right)
    (down,) = (node for node in model.graph.node if node.name == "down1")
    (pads,) = (a for a in down.attribute if a.name == "pads")
    pads.ints[:] = [1, 1, 0, 0]
    wrong = tmp_path / "wrong.onnx"
    onnx.save(renamed(model), wrong)
    verdict = verax.check(program, f"openvino:{wrong}", X, explain=False)
    assert verdict.kind is Kind.mistake
    assert "conv2d_1" in (verdict.blame[0].node, *verdict.blame[0].region)


def test_a_mistake_in_the_other_file_is_found_at_its_node(runtime: Any, tmp_path: Path) -> None:
    model = onnx.load(EXAMPLES / "digits.onnx")
    (down,) = (node for node in model.graph.node if node.name == "down1")
    (pads,) = (a for a in down.attribute if a.name == "pads")
    pads.ints[:] = [1, 1, 0, 0]
    other = tmp_path / "other.onnx"
    onnx.save(renamed(model), other)
    verdict = verax.check(EXAMPLES / "digits.onnx", f"onnxruntime:{other}", X, explain=False)
    assert verdict.kind is Kind.mistake
    (blame,) = verdict.blame[:1]
    assert "down1" in (blame.node, *blame.region)


def test_inputs_and_outputs_are_read_in_the_first_networks_layout() -> None:
    first = verax.load(EXAMPLES / "digits.tflite").graph
    second = verax.load(EXAMPLES / "digits.onnx").graph
    found = pair(first, second, {first.inputs[0]: IMAGE})
    fed = found.feed(second, {first.inputs[0]: IMAGE})
    np.testing.assert_array_equal(fed["image"], X[:1])
    drawing = np.random.default_rng(32).random((1, 1, 24, 20), np.float32)
    read = found.read({"drawing": drawing})
    (value,) = read
    assert value in first.outputs
    np.testing.assert_array_equal(read[value], drawing.transpose(0, 2, 3, 1))


def test_bisect_aligns_the_inputs_of_two_models() -> None:
    first = verax.load(EXAMPLES / "digits.tflite")
    second = verax.load(EXAMPLES / "digits.onnx")
    found = verax.bisect(first, second, {first.graph.inputs[0]: IMAGE})
    assert found.verdict.kind is Kind.rounding


def test_a_file_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no ONNX file"):
        verax.check(EXAMPLES / "digits.onnx", "onnxruntime:missing.onnx", X)
    with pytest.raises(UsageError, match="is 'onnxruntime:basic' meant"):
        verax.check(EXAMPLES / "digits.onnx", "onnxruntime:basik", X)


def test_on_the_command_line_and_again_by_its_record(
    cli: Cli,  # noqa: F811
    runtime: Any,
    tmp_path: Path,
) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(renamed(onnx.load(EXAMPLES / "digits.onnx")), other)
    record = tmp_path / "record.json"
    first = cli("check", EXAMPLES / "digits.onnx", f"onnxruntime:{other}", "--json", record)
    assert first.code == 0
    (tmp_path / "later").mkdir()
    moved = Path(shutil.move(record, tmp_path / "later"))
    shutil.move(other, tmp_path / "later")
    again = cli("check", "--replay", moved)
    assert again.code == 0 and "the same answer" in again.out


def test_two_programs_have_names(tmp_path: Path) -> None:
    names = []
    for name in ("good.py", "bad.py"):
        (tmp_path / name).write_text("")
        names.append(CommandRunner(f"{sys.executable} {tmp_path / name}").name)
    program = Path(sys.executable).name
    assert names == [f"cmd:{program} good.py", f"cmd:{program} bad.py"]
