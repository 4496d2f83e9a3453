"""torch.compile stops between its backends and between what Inductor applies."""

from __future__ import annotations

from typing import Any

import pytest

import verax
from verax.api import subject_of
from verax.judge.bisect import bisect
from verax.judge.inputs import draw_inputs
from verax.runners.pytorch.torch_compiling import (
    BACKENDS,
    Compiling,
    from_request,
    steps,
    to_request,
)

torch = pytest.importorskip("torch", reason="torch is not installed")


def test_steps_are_backends_and_then_counted_applications() -> None:
    found = steps(["pre_grad_passes: a", "lowerings: relu", "lowerings: mean"])
    names = [name for name, _ in found]
    assert names[0] == "eager, not compiled"
    assert names[1:4] == [f"torch.compile, backend {b}" for b in BACKENDS[:-1]]
    assert names[4:] == [
        "inductor without what it can leave out",
        "inductor pre_grad_passes 1: a",
        "inductor lowerings 1: relu",
        "inductor lowerings 2: mean",
    ]
    assert [how.max_applications for _, how in found[4:] if how is not None] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "how", [None, Compiling(), Compiling("aot_eager"), Compiling(max_applications=7)]
)
def test_how_to_compile_is_told_to_a_child(how: Compiling | None) -> None:
    assert from_request({"compiled": to_request(how)}) == how


def test_only_so_many_applications_are_allowed() -> None:
    bisector = pytest.importorskip("torch._inductor.compiler_bisector").CompilerBisector
    applied: list[str] = []
    with Compiling(max_applications=2).counted(applied):
        asked = [bisector.disable_subsystem("inductor", "lowerings", lambda n=n: n) for n in "abc"]
        assert bisector.disable_subsystem("aot_eager", "cse") is False
    assert asked == [False, False, True]
    assert applied == ["lowerings: a", "lowerings: b", "lowerings: c"]
    assert bisector.disable_subsystem("inductor", "lowerings") is False


class Small(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.tanh(torch.relu(x) + 1) * 0.5


def relu_becomes_abs(graph: Any) -> None:
    """A broken pass of a user's."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.abs.default


@pytest.mark.slow
def test_a_broken_pass_of_inductor_is_named() -> None:
    pytest.importorskip("torch._inductor.compiler_bisector")
    program = torch.export.export(Small().eval(), (torch.randn(3, 5),))
    model = verax.load(program)
    subject = subject_of("torch-compiled", model)
    config = torch._inductor.config
    with config.patch(post_grad_custom_pre_pass=relu_becomes_abs):
        record = bisect(model.graph, subject, draw_inputs(model.graph, 6)[0]).record
    assert record.exit_code == 1
    assert record.optimizations is not None
    assert record.optimizations.guilty.startswith("inductor post_grad_passes")
    assert record.optimizations.guilty.endswith(": post_grad_custom_pre_pass")
    torch._dynamo.reset()
    honest = bisect(model.graph, subject, draw_inputs(model.graph, 6)[0]).record
    assert honest.exit_code == 0
    assert honest.optimizations is None  # compiling at every step to find nothing takes minutes
