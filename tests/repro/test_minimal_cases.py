"""Minimal cases: small, safe to write, and they show the mistake with the subject's own runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.faults.planted import MISTAKES, Planted, on_output, small_network

from verax.base.errors import UsageError
from verax.export.onnx.writer import to_bytes, to_onnx
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.bisect import BisectionResult, bisect
from verax.judge.inputs import draw_inputs
from verax.ops.pointwise.activation import LeakyRelu, Relu
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.windows.convolution import Conv
from verax.records.bisection import Bisection
from verax.records.verdict import Kind, Verdict
from verax.repro.case import minimal_case
from verax.repro.shrink import SmallCase, Values, shrink
from verax.repro.write import prepare, write_cases
from verax.runners.arrays import ArraysRunner
from verax.runners.command import CommandRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner

GRAPH = small_network()


def found_in(subject: Planted | OnnxRuntimeRunner | ArraysRunner) -> BisectionResult:
    return bisect(GRAPH, subject, watch=False)


def with_attribute(guilty: str, name: str, values: Sequence[int]) -> bytes:
    model = to_onnx(GRAPH)
    (node,) = [n for n in model.graph.node if n.name == guilty]
    (attribute,) = [a for a in node.attribute if a.name == name]
    attribute.CopyFrom(onnx.helper.make_attribute(name, list(values)))
    return model.SerializeToString()


def shown_by(folder: Path) -> str:
    """What show.py prints, run as a user would."""
    done = subprocess.run(
        [sys.executable, "show.py"], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_case_of_onnx_runtime_shows_the_difference_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model = with_attribute("grouped", "pads", [1, 1, 1, 3])
    subject = OnnxRuntimeRunner(model, threads=1, isolated=False)
    record = write_cases(GRAPH, subject, found_in(subject), tmp_path)
    (case,) = record.cases
    assert case.alone
    assert case.nodes == ("grouped",)
    folder = Path(case.folder)
    assert {p.name for p in folder.iterdir()} == set(case.files)
    proto = onnx.load(folder / "model.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert [n.op_type for n in proto.graph.node] == ["Conv"]
    assert [t.name for t in proto.graph.initializer] == ["w3"]
    with (
        np.load(folder / "given.npz") as given,
        np.load(folder / "expected.npz") as expected,
    ):
        largest = np.abs(given["grouped"] - expected["grouped.float64"]).max()
        assert expected["grouped"].dtype == np.float32
        assert given["grouped"].shape[0] == 1
    printed = re.search(r"difference (\S+)", shown_by(folder))
    assert printed is not None
    assert printed[1] == f"{largest:.3g}"
    verdict = Verdict.from_json((folder / "verdict.json").read_text())
    assert verdict.kind is Kind.mistake
    assert verdict.subject["name"] == "onnxruntime"
    assert "import onnxruntime" in (folder / "show.py").read_text()
    assert "python show.py" in (folder / "README.md").read_text()
    assert Bisection.from_json(record.to_json()) == record


def test_a_recorded_answer_gives_a_case_that_says_so(tmp_path: Path) -> None:
    planted = Planted(["up"], MISTAKES["output shifted"][1])
    inputs, _ = draw_inputs(GRAPH, 0)
    values = planted.run(GRAPH, inputs, [v for n in GRAPH.nodes for v in n.outputs])
    subject = ArraysRunner({**{f"in:{k}": v for k, v in inputs.items()}, **values})
    (case,) = write_cases(GRAPH, subject, found_in(subject), tmp_path).cases
    assert not case.alone
    assert "recorded" in case.words
    assert "difference" in shown_by(Path(case.folder))
    assert "recorded" in (Path(case.folder) / "show.py").read_text()


def test_the_subject_is_tried_alone_and_images_and_channels_are_left_out() -> None:
    subject = Planted(["stem"], MISTAKES["one weight off by 1e-3"][1])
    found = found_in(subject)
    case = minimal_case(GRAPH, subject, found.faulty[0], found.inputs)
    assert case.alone
    assert case.inputs["x"].shape[0] == 1
    assert max(case.inputs["x"].shape[2:]) <= 7
    assert case.graph.types["stem"].shape[1] < 8
    assert "kept of it: 1 of 2 images" in case.words
    np.testing.assert_array_equal(subject.run(case.graph, case.inputs)["stem"], case.actual["stem"])


class NeedsMore(Planted):
    """Right on any part that lacks the node before the guilty one."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        self.guilty = ("leaky",) if {"depth", "leaky"} <= {n.name for n in graph.nodes} else ()
        self.change = on_output(lambda y: y * np.float32(0.98))
        return super().run(graph, inputs, keep)


def test_a_part_that_is_right_by_itself_grows_until_it_is_not() -> None:
    subject = NeedsMore()
    found = bisect(GRAPH, subject)
    (guilty,) = found.faulty
    assert [n.name for n in guilty.graph.nodes] == ["leaky"]
    case = minimal_case(GRAPH, subject, guilty, found.inputs)
    assert case.alone
    assert {"depth", "leaky"} <= {n.name for n in case.graph.nodes}
    assert len(case.graph.nodes) <= 3


class OnlyWhole(Planted):
    """Right on everything but the whole network."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        self.guilty = ("leaky",) if len(graph.nodes) == len(GRAPH.nodes) else ()
        self.change = on_output(lambda y: y * np.float32(0.98))
        return super().run(graph, inputs, keep)


def test_a_mistake_that_never_shows_alone_is_recorded_and_said(tmp_path: Path) -> None:
    found = bisect(GRAPH, OnlyWhole())
    (case,) = write_cases(GRAPH, OnlyWhole(), found, tmp_path).cases
    assert not case.alone
    assert "needs more of the network" in (Path(case.folder) / "README.md").read_text()
    assert "difference" in shown_by(Path(case.folder))


def conv_case(groups: int) -> SmallCase:
    rng = np.random.default_rng(3)
    b = Builder("case")
    x = b.input("x", TensorType.parse("float32[3, 8, 11, 13]"))
    w = b.constant(rng.standard_normal((4, 8 // groups, 3, 2)).astype(np.float32), "w")
    graph = b.graph([b.add(Conv(groups=groups), [x, w], ["y"], "conv")])
    inputs = {"x": rng.standard_normal((3, 8, 11, 13)).astype(np.float32)}
    return SmallCase(graph, inputs, Planted().run(graph, inputs))


@pytest.mark.parametrize("groups", [1, 2])
def test_everything_goes_that_the_mistake_does_not_need(groups: int) -> None:
    def always_wrong(graph: Graph, inputs: Values) -> Values:
        return Planted().run(graph, inputs)

    small = shrink(conv_case(groups), always_wrong, weights=True)
    assert small.inputs["x"].shape == small.graph.types["x"].shape == (1, 1, 7, 7)
    assert small.graph.nodes[0].op.attributes()["groups"] == 1
    assert small.retained["image"] == (1, 3)


def test_what_the_mistake_needs_stays() -> None:
    """Wrong only where image 2 and output channel 3 are computed with at least 3 input channels."""

    def judge(graph: Graph, inputs: Values) -> Values | None:
        given = Planted().run(graph, inputs)
        enough = inputs["x"].shape[1] >= 3
        kept = graph.constants["w"][:, :, 0, 0].sum() != 0
        return given if enough and kept else None

    small = shrink(conv_case(1), judge, weights=True)
    assert 3 <= small.inputs["x"].shape[1] < 8
    assert small.graph.types["y"].shape[:2] == (1, 1)


def test_weights_of_another_file_are_not_cut() -> None:
    def always_wrong(graph: Graph, inputs: Values) -> Values:
        return Planted().run(graph, inputs)

    small = shrink(conv_case(1), always_wrong, weights=False)
    assert small.graph.constants["w"].shape == (4, 8, 3, 2)
    assert small.inputs["x"].shape == (1, 8, 7, 7)


def test_broadcast_operands_are_cut_where_they_are_wide_only() -> None:
    rng = np.random.default_rng(4)
    b = Builder("case")
    x = b.input("x", TensorType.parse("float32[2, 6, 9, 10]"))
    y = b.input("y", TensorType.parse("float32[2, 6, 1, 10]"))
    graph = b.graph([b.add(Relu(), [b.add(Mul(), [x, y], ["xy"], "mul")], ["z"], "relu")])
    inputs = {
        "x": rng.standard_normal((2, 6, 9, 10)).astype(np.float32),
        "y": rng.standard_normal((2, 6, 1, 10)).astype(np.float32),
    }
    one = Graph(graph.inputs, ("xy",), graph.nodes[:1], {}, graph.types)
    start = SmallCase(one, inputs, Planted().run(one, inputs))
    small = shrink(start, lambda g, i: Planted().run(g, i), weights=True)
    assert {v: a.shape for v, a in small.inputs.items()} == {"x": (1, 1, 7, 7), "y": (1, 1, 1, 7)}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(UsageError, match="not empty"):
        prepare(tmp_path)
    assert prepare(tmp_path, force=True) == tmp_path
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_file_in_the_place_of_the_folder_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")
    with pytest.raises(UsageError, match="cannot be used"):
        prepare(tmp_path / "taken")


@pytest.mark.parametrize("name", ["a/b:0", "../../up", "file", "x y\n", "*"])
def test_any_name_of_a_node_or_value_can_be_written(name: str, tmp_path: Path) -> None:
    b = Builder("named")
    x = b.input(f"{name}in", TensorType.parse("float32[2, 3]"))
    graph = b.graph([b.add(Relu(), [x], [name], name)])
    subject = Planted([name], lambda n, a, y: y + 1)
    folder = tmp_path / "cases"
    record = write_cases(graph, subject, bisect(graph, subject), prepare(folder))
    (case,) = record.cases
    assert Path(case.folder).parent == folder
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_dir()) == sorted(
        ["cases", Path(case.folder).name]
    )
    with np.load(Path(case.folder) / "given.npz") as given:
        assert given.files == [name]


def test_a_mistake_in_every_layer_gives_a_few_cases_and_says_so(tmp_path: Path) -> None:
    b = Builder("deep")
    h = b.input("x", TensorType.parse("float32[2, 3]"))
    names = [f"leaky{i}" for i in range(11)]
    for name in names:
        h = b.add(LeakyRelu(alpha=0.3), [h], [], name)
    graph = b.graph([h])
    subject = Planted(names, lambda n, a, y: y * np.float32(1.01))
    record = write_cases(graph, subject, bisect(graph, subject), tmp_path)
    assert len(record.verdict.blame) == 11
    assert [c.nodes for c in record.cases] == [(n,) for n in names[:8]]
    assert any("first 8 of 11" in n for n in record.verdict.notes)


PROGRAM = """
import sys, numpy as np
inputs, model = np.load(sys.argv[1]), open(sys.argv[3], "rb").read()
assert b"LeakyRelu" in model
np.savez(sys.argv[2], y=np.where(inputs["x"] < 0, inputs["x"] * np.float32(0.2), inputs["x"]))
"""


def test_a_program_that_is_handed_the_model_is_run_alone_and_by_the_script(tmp_path: Path) -> None:
    (tmp_path / "subject.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path / 'subject.py'} {{input}} {{output}} {{model}}"
    b = Builder("short")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    graph = b.graph([b.add(LeakyRelu(alpha=0.1), [x], ["y"], "leaky")])
    subject = CommandRunner(command, writer=to_bytes)
    record = write_cases(graph, subject, bisect(graph, subject), prepare(tmp_path / "cases"))
    (case,) = record.cases
    assert (case.nodes, case.alone) == (("leaky",), True)
    assert record.verdict.blame[0].explanations
    assert (Path(case.folder) / "model.onnx").exists()
    assert "difference" in shown_by(Path(case.folder))
