"""What a Runner can do is declared in its `Capabilities`, and nobody asks for it in another way."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import UsageError
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities, Naming, Runner
from verax.ops.pointwise.activation import Relu
from verax.runners.command import CommandRunner
from verax.runners.onnx_runtime import OnnxRuntimeRunner

SOURCE = Path(verax.__file__).parent
RUNNERS = {"runner", "subject", "_runner", "_subject", "other", "inner_runner"}
"""What variables that hold a Runner are called."""
ASKING = {"getattr", "hasattr", "vars", "dir"}
DECIDING = {"runners/subjects/resolve.py", "runners/children/limited.py"}
"""What decides what a user's object is; `limited` marks a runner by an attribute."""


def undeclared(text: str) -> Iterator[int]:
    """Lines in which an attribute of a Runner is asked for by name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            asked = node.args[0]
            name = asked.attr if isinstance(asked, ast.Attribute) else getattr(asked, "id", "")
            if node.func.id in ASKING and name in RUNNERS:
                yield node.lineno


def test_no_attribute_of_a_runner_is_asked_for_by_name() -> None:
    rooms = ("judge", "runners", "repro", "campaign", "evaluation", "torch", "cli", "report")
    files = [f for room in rooms for f in (SOURCE / room).rglob("*.py")] + [*SOURCE.glob("*.py")]
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file in files
        if str(file.relative_to(SOURCE)) not in DECIDING
        for line in undeclared(file.read_text())
    ]
    assert not found, f"give Capabilities a field for it: {found}"


def test_asking_is_seen() -> None:
    assert [*undeclared("x = 1\ny = getattr(subject, 'poison', '')")] == [2]
    assert [*undeclared("hasattr(self.runner, 'part')")] == [1]
    assert not [*undeclared("getattr(node, 'alpha', 1.0)")]


class Undeclared:
    """A Runner of the time before `Capabilities`."""

    name, watches, stored_inputs = "old", False, None

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return {v: np.maximum(inputs["x"], 0) for v in graph.outputs}


class Declared(Undeclared):
    """The same, which says that it can do nothing besides."""

    capabilities = Capabilities()


def relu() -> Graph:
    b = Builder("relu")
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    return b.graph([b.add(Relu(), [x], ["y"], "relu")])


def test_a_runner_without_capabilities_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="Undeclared has run") as error:
        verax.check(relu(), Undeclared())
    assert "capabilities" in str(error.value.next_step)
    assert verax.check(relu(), Declared()).kind.value == "identical"
    assert isinstance(Declared(), Runner)


def test_values_of_another_network_are_not_what_this_one_reads() -> None:
    own = Capabilities(watches=True, stepwise=True)
    assert own.of_network(Naming.network) == own
    for naming in (Naming.hint, Naming.given):
        assert own.of_network(naming) == Capabilities(watches=True, naming=naming)


def test_what_depends_on_options_is_said_by_the_runner() -> None:
    assert CommandRunner("tool {input} {output} {model}").capabilities.truncates
    assert not CommandRunner("tool {input} {output}").capabilities.truncates
    assert OnnxRuntimeRunner(b"a model").capabilities.own_weights
    assert not OnnxRuntimeRunner().capabilities.own_weights
