"""The store of object code of one run: it saves calls of LLVM and hides nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import shared_code
from tests.shared_code import SharedCode
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary import assembly
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

TEXTS = [
    f'define float @"f"(float %x) {{\n  %y = fadd float %x, {n}.0\n  ret float %y\n}}\n'
    for n in (1, 2)
]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What LLVM itself was given, in order."""
    found: list[str] = []
    real = shared_code.code_of

    def counted(text: str, target: Target) -> bytes:
        found.append(text)
        return real(text, target)

    monkeypatch.setattr(shared_code, "code_of", counted)
    return found


def network(scale: float) -> Graph:
    b = Builder("n")
    x = b.input("x", TensorType.parse("float32[2, 5]"))
    factor = b.constant(np.float32([scale]))
    return b.graph([b.add(REGISTRY["Mul"](), [b.add(REGISTRY["Exp"](), [x]), factor])])


def test_llvm_is_asked_once_for_a_text_and_a_target(asked: list[str], tmp_path: Path) -> None:
    first, other = SharedCode(tmp_path), SharedCode(tmp_path)  # as in two processes
    made = {store.code_of(TEXTS[0], Target.host()) for store in (first, other, first)}
    assert len(made) == 1 and asked == TEXTS[:1]
    assert first.code_of(TEXTS[1], Target.host()) not in made
    assert first.code_of(TEXTS[0], Target.aarch64()) not in made
    assert len(asked) == 3


def test_a_test_can_ask_llvm_itself(asked: list[str], tmp_path: Path) -> None:
    store = SharedCode(tmp_path)
    store.code_of(TEXTS[0], Target.host())
    store.is_used = False
    store.code_of(TEXTS[0], Target.host())
    assert len(asked) == 2


def test_networks_are_made_from_the_store(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembly, "code_of", SharedCode(tmp_path).code_of)
    x = np.float32(np.arange(10).reshape(2, 5))
    counts = []
    for graph in (network(1.5), network(1.5)):
        assembly.COMPILED_KERNELS.forget()
        (y,) = compile(graph, Settings(opt_level=1, threads=1)).run({"x": x}).values()
        np.testing.assert_allclose(y, 1.5 * np.exp(x), rtol=1e-6)
        counts.append(len(asked))
    assert 0 < counts[0] == counts[1]


def test_a_test_that_replaces_parts_is_given_none_made_before(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not assembly.code_of.__self__.is_used  # type: ignore[attr-defined]


def test_others_share(request: pytest.FixtureRequest) -> None:
    assert assembly.code_of.__self__.is_used  # type: ignore[attr-defined]
