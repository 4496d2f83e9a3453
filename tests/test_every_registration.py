"""Nothing that is registered can get lost: every registry is held against what is declared.

What an operator lacks it says itself (`no_derivative`, `no_hypotheses`), so a new one needs no line
here. The last test deletes every entry of every registry in turn, and wants it noticed. Lowerings,
emitters, passes and decisions: tests/compiler/test_every_lowering.py; rows of formats: the tests
of each format; operators: tests/ops/test_every_operator.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

import verax.ops
from verax.cli import app
from verax.formats import FORMATS
from verax.ir.operator import REGISTRY
from verax.judge.explain.hypotheses.library import BY_KIND
from verax.judge.regions.vjp import RULES
from verax.ops.pointwise.elementwise import Elementwise
from verax.runners import registry
from verax.runners.children.child_runner import ChildRunner

assert verax.ops
EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"

OWN_RULES = (
    "Relu Add Mul Div Sqrt Rsqrt Reciprocal Max Min Clip Identity Cast Where Dropout Bfloat16Factor"
)
"""Elementwise operators whose rule is sharper than differences, which would take its place."""
SUBJECTS = """
verax:O0 verax:O1 verax:O2 verax:O3 onnxruntime onnxruntime:disabled onnxruntime:basic
onnxruntime:extended onnxruntime:all openvino openvino:f32 openvino:bf16 openvino:f16
openvino:default tvm tvm:O0 tvm:O1
tvm:O2 torch torch-compiled litert litert-builtin litert-reference tensorflow reference
reference:promised
"""
CHILDREN = "onnx_runtime openvino tvm litert tensorflow_file torch_file"
"""Modules of `runners` whose `answer` runs in a child process."""
COMMANDS = (
    "inspect convert compile run check bisect gate bench tune hunt evaluate ops passes formats "
    "runners skill cache doctor report generate history"
)


def derivatives() -> None:
    """Every operator has a rule, differences of its elementwise reference, or says why neither."""
    assert set(OWN_RULES.split()) <= set(RULES) <= set(REGISTRY)
    for name, op in REGISTRY.items():
        without = op.jumps or op.is_flat or bool(op.no_derivative)
        by_differences = issubclass(op, Elementwise) and name not in RULES and not without
        assert (name in RULES) + by_differences + without == 1, name


def families() -> None:
    """Every operator has hypotheses, or says why not."""
    assert set(BY_KIND) <= set(REGISTRY)
    for name, op in REGISTRY.items():
        assert (name in BY_KIND) != bool(op.no_hypotheses), name


def subjects() -> None:
    assert set(registry.ENTRIES) >= set(SUBJECTS.split())
    packages = {registry.SPEC_OF[name].package for name in registry.ENTRIES} - {""}
    assert packages == set(registry.DISTRIBUTIONS)


def children() -> None:
    """Every runner of a foreign runtime is done by a module that the child can import, and each
    module with an `answer` declares a runner."""

    def below(kind: type[ChildRunner]) -> set[str]:
        own = (
            {kind.answer.__module__}
            if isinstance(vars(kind).get("answer"), staticmethod)
            else set()
        )
        return own.union(*(below(k) for k in kind.__subclasses__()))

    modules = below(ChildRunner) - {ChildRunner.__module__}
    assert {m.rpartition(".")[2] for m in modules} >= set(CHILDREN.split())
    assert all(callable(importlib.import_module(m).answer) for m in modules)


def formats() -> None:
    """Every example file, and every other suffix that the documentation names, has a reader."""
    read = {s for f in FORMATS_BY_NAME.values() for s in f.suffixes}
    assert {p.suffix for p in EXAMPLES.glob("digits.*")} <= read
    assert {".vx", ".json", ".mlpackage", ".pt2"} <= read


def commands() -> None:
    assert set(COMMANDS.split()) <= set(app.COMMANDS), app.COMMANDS


def falls_back(name: str) -> bool:
    """True if differences would do in place of an elementwise operator's rule."""
    return issubclass(REGISTRY[name], Elementwise) and name not in OWN_RULES.split()


FORMATS_BY_NAME = {f.name: f for f in FORMATS}
REGISTRIES: dict[str, tuple[MutableMapping[Any, Any], Callable[[], None]]] = {
    "derivative rules": (RULES, derivatives),
    "families of hypotheses": (BY_KIND, families),
    "runners": (registry.ENTRIES, subjects),
    "formats": (FORMATS_BY_NAME, formats),
    "commands": (app.COMMANDS, commands),
}


def test_every_child_has_its_module() -> None:
    children()


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_is_whole(name: str) -> None:
    REGISTRIES[name][1]()


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        (name, entry)
        for name, (entries, _) in REGISTRIES.items()
        for entry in entries
        if not (name == "derivative rules" and falls_back(entry))
    ],
)
def test_deleting_an_entry_is_noticed(
    name: str, entry: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries, whole = REGISTRIES[name]
    monkeypatch.delitem(entries, entry)
    with pytest.raises(AssertionError):
        whole()
