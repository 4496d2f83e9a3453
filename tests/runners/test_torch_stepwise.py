"""Eager PyTorch runs a program node by node: what it shows was computed from what it showed before,
so a node that is wrong by itself is accused, whatever a fusion could have done."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import verax
from verax.api import subject_of
from verax.judge import check
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")


class Norm(torch.nn.Module):  # type: ignore[misc, name-defined]
    """RMSNorm between two products, written out: what runtimes like to fuse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(20, 28), torch.nn.Linear(28, 5)

    def forward(self, x: Any) -> Any:
        h = self.first(x)
        return self.last(h / torch.sqrt((h * h).mean(-1, keepdim=True) + 1e-5)) * 2


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    torch.manual_seed(17)
    found = torch.export.export(Norm().eval(), (torch.randn(3, 7, 20),))
    path = tmp_path_factory.mktemp("programs") / "norm.pt2"
    torch.export.save(found, path)
    return found, path


def test_eager_programs_are_stepwise_and_compiled_ones_are_not(program: tuple[Any, Path]) -> None:
    found, path = program
    model, file = verax.load(found), verax.load(path)
    assert subject_of(found, model).capabilities.stepwise
    assert subject_of("torch", model).capabilities.stepwise
    assert subject_of("torch", file).capabilities.stepwise
    assert not subject_of("torch-compiled", model).capabilities.stepwise
    assert not subject_of("torch-compiled", file).capabilities.stepwise


def test_names_of_another_program_are_taken_for_hints(
    program: tuple[Any, Path], tmp_path: Path
) -> None:
    found, path = program
    copy = tmp_path / "copy.pt2"
    copy.write_bytes(path.read_bytes())
    assert not subject_of(f"torch:{copy}", verax.load(path)).capabilities.stepwise
    assert not subject_of(found, verax.load(path)).capabilities.stepwise


def test_honest_eager_programs_stay_innocent() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(18)
        x = torch.randn(3, 7, 20, dtype=dtype)
        again = torch.export.export(Norm().to(dtype).eval(), (x,))
        verdict = verax.check(verax.load(again), again)
        assert verdict.kind in (Kind.rounding, Kind.identical), (dtype, verdict.reasons)


def test_an_error_that_a_fusion_could_excuse_is_accused(
    program: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quotient is off by as little as rounding inside of the norm may reach."""
    found, _ = program
    model = verax.load(found)
    runner: Any = subject_of(found, model)
    run = runner.run

    def wrong(graph: Any, inputs: Any, keep: Any = None) -> Any:
        values = run(graph, inputs, keep)
        if "div" in values:
            values["div"] = values["div"] * (1 + 2.5e-7)
        return values

    monkeypatch.setattr(runner, "run", wrong)
    verdict = check(model.graph, runner, twice=False, explain=False)
    accused = {b.node for b in verdict.blame}
    assert "div" in accused, [(f.node, f.kind, f.reason) for f in verdict.nodes]
    runner.capabilities = dataclasses.replace(runner.capabilities, stepwise=False)
    verdict = check(model.graph, runner, twice=False, explain=False)
    assert "div" not in {b.node for b in verdict.blame}
