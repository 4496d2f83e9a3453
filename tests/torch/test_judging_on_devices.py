"""The backend "verax_judge" judges graphs on a device: judging needs no compiling.

Dynamo cannot look through the stand-in for a GPU, which is a class of Python; so the graph is what
it makes on the processor, called with tensors on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests import stub_device
from tests.stub_device import DEVICE
from tests.torch.test_judging import decoder, drawn, wrapped, wrong_epsilon

from verax.base.errors import UnsupportedError
from verax.records.verdict import Kind

torch = pytest.importorskip("torch", reason="torch is not installed")
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.torch.options import CompileOptions  # noqa: E402
from verax.torch.programs import GraphProgram  # noqa: E402


@pytest.fixture(scope="module")
def graph() -> tuple[Any, list[Any]]:
    """The graph of the decoder and its arguments, on the device."""
    stub_device.register()
    seen: list[tuple[Any, list[Any]]] = []

    def keep(graph: Any, arguments: list[Any]) -> Any:
        seen.append((graph, arguments))
        return graph

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(decoder(), backend=keep)(drawn(2, 3, 12, 14))
    ((graph, arguments),) = seen
    moved = [a.detach().to(DEVICE) for a in arguments]
    for i, argument in enumerate(arguments):
        if isinstance(argument, torch.nn.Parameter):
            moved[i] = torch.nn.Parameter(moved[i], requires_grad=False)
    return graph, moved


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    vt.reset()
    yield
    vt.reset()


def judged(graph: tuple[Any, list[Any]], inner: Any) -> Any:
    module, arguments = graph
    run = vt.verax_judge(module, arguments, options={"inner": inner})
    with torch.no_grad():
        results = run(*arguments)
    assert all(result.device.type == "stub" for result in results)
    return vt.report()


def test_an_honest_graph_on_a_device_is_judged(graph: Any) -> None:
    (verdict,) = judged(graph, "eager").verdicts
    assert verdict.verdict.kind in (Kind.identical, Kind.rounding)
    assert verdict.verdict.environment["device"] == DEVICE
    assert verdict.verdict.environment["card"] == "a stand-in"


def test_a_planted_fault_on_a_device_is_named(graph: Any) -> None:
    (found,) = judged(graph, wrapped(wrong_epsilon)).mistakes
    (blame,) = found.verdict.blame
    assert blame.node.startswith("batch_norm") and "epsilon" in blame.explanations[0].words


def test_a_weight_that_changes_on_the_device_is_seen(graph: Any) -> None:
    module, arguments = graph
    run = vt.verax_judge(module, arguments, options={"inner": "eager"})
    weight = next(a for a in arguments if isinstance(a, torch.nn.Parameter))
    before = weight.detach().clone()
    try:
        with torch.no_grad():
            run(*arguments)
            weight.data.copy_(before * 1.25)
            run(*arguments)
    finally:
        weight.data.copy_(before)
    kinds = [judged.verdict.kind for judged in vt.report().verdicts]
    assert len(kinds) == 2 and Kind.mistake not in kinds


def test_autocast_of_the_devices_kind_is_noticed(graph: Any) -> None:
    module, arguments = graph
    for enabled in (True, False):
        vt.reset()
        # It has no casts of its own, so that the graph runs outside.
        with torch.autocast("stub", dtype=torch.bfloat16, enabled=enabled):
            run = vt.verax_judge(module, arguments, options={"inner": "eager"})
        with torch.no_grad():
            run(*arguments)
        report = vt.report()
        assert bool(report.verdicts) is not enabled
        assert ("autocast is on (stub)" in str(report)) is enabled


def test_compiling_is_refused_on_a_device(graph: Any) -> None:
    with pytest.raises(UnsupportedError, match="lies on stub:0; Verax compiles for the processor"):
        module, arguments = graph
        GraphProgram(module, arguments, (), CompileOptions())
