"""What a subject is gets decided by `resolve`, once, for the API, the CLI and records."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.api import subject_of
from verax.base.errors import UsageError
from verax.cli.judging import Request
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.protocol import Naming
from verax.ops.pointwise.activation import Relu
from verax.runners.functions import TensorFunction
from verax.runners.own import ReferenceRunner
from verax.runners.registry import ENTRIES
from verax.runners.spec import RunnerVariant
from verax.runners.subjects.resolve import (
    ArraysFile,
    Command,
    CompiledProgram,
    GivenArrays,
    GivenFunction,
    GivenRunner,
    LoadedNetwork,
    ModelFile,
    NamedRunner,
    ProgramFile,
    RunnerOnFile,
    resolve,
    resolve_text,
)

SOURCE = Path(verax.__file__).parent


def relu(name: str = "y") -> Graph:
    b = Builder("relu")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    return b.graph([b.add(Relu(), [x], [name], "relu")])


TEXTS = {
    "verax:O1": NamedRunner("verax:O1"),
    "onnxruntime:disabled": NamedRunner("onnxruntime:disabled"),
    "torch:a/net.pt2": RunnerOnFile("torch:a/net.pt2", "torch", "a/net.pt2"),
    "openvino:b.onnx": RunnerOnFile("openvino:b.onnx", "openvino", "b.onnx"),
    "cmd:tool --x {model}": Command("cmd:tool --x {model}", "tool --x {model}"),
    "seen.npz": ArraysFile("seen.npz"),
    "net.vx": ProgramFile("net.vx"),
    "net.onnx": ModelFile("net.onnx"),
    "saved/model": ModelFile("saved/model"),
}
CODE = {"torch:a/net.pt2", "cmd:tool --x {model}", "net.vx"}
"""Those that run what somebody else may have put into a file."""


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_one_kind_of_subject(text: str) -> None:
    found = resolve_text(text, here=False)
    assert found == TEXTS[text]
    assert found.runs_code is (text in CODE)
    assert found.at({}) == text
    assert resolve(found) is found


def test_files_of_a_text_move_with_a_record() -> None:
    places = {"net.pt2": "/there/net.pt2", "net.onnx": "/there/net.onnx"}
    assert resolve_text("torch:net.pt2").at(places) == "torch:/there/net.pt2"
    assert resolve_text("net.onnx", here=False).at(places) == "/there/net.onnx"
    request = Request("net.onnx", "torch:net.pt2", "verax:O1")
    moved = dataclasses.replace(request, model="/there/net.onnx", subject="torch:/there/net.pt2")
    assert request.with_paths(places) == moved
    assert request.programs == ("torch:net.pt2",)
    assert request.files == ("net.onnx", "net.pt2")


def test_what_is_not_there_is_refused_with_what_there_is(tmp_path: Path) -> None:
    for text, cause in (
        (f"{tmp_path}/seen.npz", "there is no such file"),
        (f"{tmp_path}/net.onnx", "there is no such file"),
        (f"onnxruntime:{tmp_path}/net.onnx", "there is no ONNX file"),
        ("onnxruntime:bassic", "is 'onnxruntime:basic' meant"),
        ("onnxruntme", "is 'onnxruntime' meant"),
        ("", "there is no runner"),
    ):
        with pytest.raises(UsageError, match=cause) as error:
            resolve(text)
        assert error.value.place or error.value.next_step


def test_an_object_is_one_kind_of_subject() -> None:
    graph, runner = relu(), ReferenceRunner()
    exe, arrays = verax.compile(graph, cache=False), {"y": np.ones((3, 5), np.float32)}
    assert resolve(runner) == GivenRunner(runner)
    assert resolve(arrays) == GivenArrays(arrays)
    assert resolve(graph) == LoadedNetwork(graph)
    assert resolve(exe) == CompiledProgram(exe)
    assert resolve(np.tanh) == GivenFunction(np.tanh, tensors=False)
    assert resolve(TensorFunction(np.tanh)).tensors  # type: ignore[union-attr]
    assert resolve(Path("verax:O2")) == NamedRunner("verax:O2")
    with pytest.raises(UsageError, match="a int cannot be judged"):
        resolve(3)


def test_a_new_runner_is_known_everywhere_by_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    variant = RunnerVariant("a test", lambda _: ReferenceRunner(), runs_code=True)
    monkeypatch.setitem(ENTRIES, "mine:fast", variant)
    assert resolve("mine:fast") == NamedRunner("mine:fast")
    assert Request("net.onnx", "mine:fast").programs == ("mine:fast",)
    assert verax.check(relu(), "mine:fast").kind.value == "identical"


def test_a_model_file_of_any_format_is_a_subject(tmp_path: Path) -> None:
    """What `verax.load` reads can be judged by its path alone; ONNX runs in ONNX Runtime."""
    file = tmp_path / "Net.ONNX"  # the suffix that runtimes do not know
    file.write_bytes(to_bytes(relu("other")))
    runner = subject_of(str(file), relu())
    assert runner.capabilities.naming is Naming.given  # aligned: outputs have other names
    assert verax.check(relu(), str(file)).kind.value == "identical"


def undecided(text: str) -> Iterator[int]:
    """Lines that look into the text of a subject themselves."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in ("subject", "other") and node.func.attr in (
                *("partition", "split", "startswith", "endswith", "removeprefix"),
            ):
                yield node.lineno


def test_nobody_else_takes_a_subjects_text_apart() -> None:
    files = [f for room in ("cli", "evaluation", "runners") for f in (SOURCE / room).rglob("*.py")]
    found = [f"{f}:{n}" for f in (*files, SOURCE / "api.py") for n in undecided(f.read_text())]
    assert not found
    assert [*undecided("subject.partition(':')")] == [1]
