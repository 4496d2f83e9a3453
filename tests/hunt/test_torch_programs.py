"""Programs of PyTorch as cases: drawn alike everywhere, judged, made small, written as a folder."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from verax.base.errors import UsageError  # noqa: E402
from verax.hunt.alarm import MISTAKE, PRECISION, REFUSAL  # noqa: E402
from verax.hunt.judging import HuntTask  # noqa: E402
from verax.hunt.programs.campaign import judge_program, written  # noqa: E402
from verax.hunt.programs.judging import (  # noqa: E402
    LEFT_OUT,
    NotJudged,
    alarm_of,
    drawn,
    examined,
    imported,
    require_readable,
)
from verax.hunt.programs.program import DYNAMIC, SECOND, HuntedProgram  # noqa: E402
from verax.hunt.programs.templates import GROUPS  # noqa: E402
from verax.hunt.session import hunt  # noqa: E402
from verax.hunt.store import Store  # noqa: E402

X = np.random.default_rng(83).standard_normal((2, 3, 5)).astype(np.float32)
SOFTMAX = HuntedProgram(
    {"x0": X, "w1": X[0]},
    {"x0": "transposed"},
    (
        "v0 = x0 * 2.0",
        "v1 = v0.softmax(1)",
        "v2 = torch.cumsum(v1, 2)",
        "v3 = v2 - w1",
        "v4 = w1.clone()",
        "v4.mT.add_(0.5)",
    ),
    ("v3", "v4"),
)
"""One statement of which the backend below is wrong about."""


@torch._dynamo.register_backend
def over_the_last_axis(graph: Any, arguments: Any) -> Any:
    """Every softmax over the last axis."""
    for node in graph.graph.nodes:
        if node.op == "call_method" and node.target == "softmax":
            node.args = (node.args[0], -1)
    graph.recompile()
    return graph.forward


@torch._dynamo.register_backend
def without_casts(graph: Any, arguments: Any) -> Any:
    """What is cast to float16 stays float32, as Inductor has it."""
    for node in graph.graph.nodes:
        if node.op == "call_method" and torch.float16 in node.args:
            node.args = (node.args[0], torch.float32)
    graph.recompile()
    return graph.forward


@torch._dynamo.register_backend
def that_fails(graph: Any, arguments: Any) -> Any:
    raise RuntimeError("no kernel of this layout")


def test_a_case_is_the_same_whenever_it_is_drawn() -> None:
    groups = set()
    for index in range(12):
        group, first = drawn(29, index, ())
        _, second = drawn(29, index, ())
        assert first.source == second.source and first.mode == second.mode
        assert all(np.array_equal(first.inputs[n], second.inputs[n]) for n in first.inputs)
        groups.add(group)
    assert len(groups) > 3 and groups <= set(GROUPS)
    assert drawn(29, 0, ("writes",))[0] == "writes"


def test_most_programs_that_are_drawn_are_read_as_pytorch_means_them() -> None:
    read = 0
    for index in range(24):
        _, program = drawn(31, index, ())
        try:
            require_readable(imported(program))
        except NotJudged as error:
            assert "differs" not in str(error), program.source
        else:
            read += 1
    assert read >= 20


def test_what_a_program_writes_to_its_inputs_is_an_output() -> None:
    program = HuntedProgram({"x0": X}, {}, ("v0 = x0 * 2", "x0.add_(1)"), ("v0",), ("x0",))
    case = imported(program)
    assert len(case.graph.outputs) == 2
    require_readable(case)
    assert np.array_equal(program.inputs["x0"], X)


@pytest.mark.parametrize("mode", [DYNAMIC, SECOND])
def test_a_mistake_is_made_small_and_written(mode: str, tmp_path: Path) -> None:
    case = imported(dataclasses.replace(SOFTMAX, mode=mode))
    assert alarm_of(case, "aot_eager", 3, 60.0)[0] is None
    alarm, _ = alarm_of(case, "over_the_last_axis", 3, 60.0)
    assert alarm is not None and alarm.classification == MISTAKE
    finding = examined(case, "over_the_last_axis", alarm, 3, 60.0)
    lines = finding.case.program.lines
    assert len(lines) == 1 and ".softmax(1)" in lines[0]
    assert finding.alarm.operator == "softmax" and list(finding.case.program.inputs) == ["x0"]
    assert [o.supports for o in finding.opinions] == [True, True]
    level, argument, folder = written(finding, "over_the_last_axis", tmp_path, 60.0, "3:1")
    assert level == "low" and "outside of Verax" in argument  # the backend is in this process only
    script = Path(folder) / "show.py"
    text = script.read_text().replace("over_the_last_axis", "eager")
    script.write_text(text)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert "should be" in done.stdout and "verax" not in text
    assert ".softmax(1)" in (Path(folder) / "finding.md").read_text()


def test_casts_that_are_left_out_are_one_finding() -> None:
    lines = ("v0 = x0.to(torch.float16).to(torch.float32)", "v1 = v0.amax(1)")
    case = imported(HuntedProgram({"x0": X}, {}, lines, ("v0", "v1")))
    alarm, _ = alarm_of(case, "without_casts", 3, 60.0)
    assert alarm is not None and (alarm.classification, alarm.cause) == (PRECISION, LEFT_OUT)
    assert alarm_of(case, "eager", 3, 60.0)[0] is None


def test_what_a_backend_refuses_is_a_finding(tmp_path: Path) -> None:
    task = HuntTask("torch.compile:that_fails", "", str(tmp_path), 29, 60.0)
    store = Store(tmp_path / "hunt.sqlite", {})
    outcome = judge_program(task, 1, store, lambda _: None)
    assert outcome.outcome == "finding" and "no kernel of this layout" in outcome.detail
    (found,) = store.findings()
    assert found.classification == REFUSAL and (Path(found.folder) / "show.py").is_file()


def test_a_correct_backend_is_left_in_peace(tmp_path: Path) -> None:
    result = hunt("torch.compile:aot_eager", cases=8, seed=37, store=tmp_path, run_seconds=60.0)
    assert result.findings == () and result.counts.get("right", 0) >= 5


def test_what_no_program_can_be_hunted_with_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no backend 'nothing'"):
        hunt("torch.compile:nothing", cases=1, store=tmp_path)
    with pytest.raises(UsageError, match="no family 'operator'"):
        hunt("torch.compile", cases=1, store=tmp_path, families=("operator",))
    with pytest.raises(UsageError, match="without --operators"):
        hunt("torch.compile", cases=1, store=tmp_path, operators=("Relu",))
