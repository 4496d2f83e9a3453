"""Loops within loops and loops of very many runs: a few hundred bytes may ask for any amount of
work."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from tests.frontends.test_onnx_control import B, F, I, X, agree, body, model, node, value

import verax
from verax.base.errors import InputError
from verax.frontends.common import control as common_control
from verax.frontends.onnx import load_onnx
from verax.ops.control import control
from verax.records.verdict import Kind


def loops_in_loops(depth: int, runs: int) -> onnx.ModelProto:
    """v = (v + x) / 2 in loops of `runs` runs, `depth` of them in each other."""
    nodes = [node("Add", ["v0", "x"], ["s"]), node("Mul", ["s", "half"], ["w0"])]
    for i in range(depth):
        inputs = [value(f"i{i}", I, []), value(f"go{i}", B, []), value(f"v{i}")]
        nodes.append(node("Identity", [f"go{i}"], [f"on{i}"]))
        inner = body(nodes, inputs, [value(f"on{i}", B, []), value(f"w{i}")])
        outside = ("x", "y") if i == depth - 1 else (f"v{i + 1}", f"w{i + 1}")
        nodes = [node("Loop", ["m", "", outside[0]], [outside[1]], f"loop{i}", body=inner)]
    x = value("x", F, [3, 5])
    return model(nodes, [x], ["y"], m=np.array(runs), half=np.float32(0.5))


@pytest.mark.parametrize("limit", [0, 20, 1000])
def test_loops_in_loops_are_unrolled_up_to_a_limit(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left then stays loops, which give the same."""
    monkeypatch.setattr(common_control, "MAX_NESTED_COPIES", limit)
    found = agree(loops_in_loops(3, 3), {"x": X})
    kinds = [n.op.kind for n in found.graph.nodes]
    assert ("Loop" in kinds) == (limit < 1000) and (kinds.count("Mul") == 27) == (limit == 1000)


def test_many_runs_of_loops_in_loops_are_read_at_once() -> None:
    """900 runs of five loops in each other would be 10^15 nodes."""
    found = load_onnx(loops_in_loops(5, 900)).graph
    assert len(found.nodes) < 5000


def test_runs_of_loops_in_loops_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each runs but seven times, the inner ones 7 + 49 + 343 times in all."""
    monkeypatch.setattr(common_control, "MAX_RUNS", 2)
    found = load_onnx(loops_in_loops(3, 7))
    assert [n.op.kind for n in found.graph.nodes] == ["Loop"]
    verax.reference(found, {"x": X})
    monkeypatch.setattr(control, "MOST_RUNS", 398)
    with pytest.raises(InputError, match="not done after 398 runs"):
        verax.reference(found, {"x": X})


def test_rounding_in_a_loop_of_very_many_runs_is_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each draw would take as long as the loop: the check of 50,000 runs took minutes."""
    monkeypatch.setattr(common_control, "MAX_RUNS", 2)
    found = load_onnx(loops_in_loops(1, 40))
    wrong = {"y": verax.reference(found, {"x": X})["y"] + np.float32(0.5)}
    assert verax.check(found, wrong, {"x": X}).kind is Kind.mistake
    monkeypatch.setattr(control, "MAX_MEASURED", 100)  # of 40 times four nodes
    verdict = verax.check(found, wrong, {"x": X})
    assert verdict.kind is Kind.undecided
    assert any("evaluate 160 nodes" in r for r in verdict.reasons), verdict.reasons
