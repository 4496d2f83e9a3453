"""What `verax passes NAME` shows is what the pass does: its example, and its Given and Result."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, cli  # noqa: F401
from verax.base.option_groups.settings import Settings
from verax.compiler.describe.pass_example import example_of
from verax.compiler.passes.base import Pass
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.pipeline.levels import FIRST_LEVEL, PIPELINE
from verax.compiler.plan.steps import DIVIDE, STEPS, DecisionKind
from verax.ir import checker
from verax.ir.text import parse_graph
from verax.judge.check import check
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner

ROOT = Path(__file__).parents[2]
KIND = re.compile(r"\b([A-Z]\w*)\(")
HELD = {"exact": {Kind.identical, Kind.rounding}, "reassociates": {Kind.identical, Kind.rounding},
        "approximates": {Kind.identical, Kind.rounding, Kind.precision}}  # fmt: skip
NAMES = [p.name for p in PIPELINE]


def shown(step: Pass, word: str) -> list[str]:
    """Kinds of operators that the docstring has behind `Given:` or `Result:`."""
    text = step.help.partition("\n\n")[2].partition("\n\n")[0]
    given, colon, result = text.partition("Result:")
    assert colon and "Given:" in given, f"{step.name}: the docstring has no Given and Result"
    return sorted(KIND.findall(given if word == "Given" else result))


def test_every_pass_has_an_example() -> None:
    lacking = [p.name for p in PIPELINE if p.example is None]
    assert not lacking, f"write a function `example` in the files of {', '.join(lacking)}"


def test_every_pass_states_its_numeric_effect() -> None:
    lacking = [p.name for p in PIPELINE if "Numeric effect: " not in p.help]
    assert not lacking


@pytest.mark.parametrize("step", PIPELINE, ids=NAMES)
def test_the_example_is_rewritten_as_the_docstring_says(step: Pass) -> None:
    assert step.example is not None
    graph = step.example()
    checker.check(graph)
    assert parse_graph(str(graph), graph.constants) == graph
    new, trace = step.apply(graph)
    assert trace.rewrites
    assert all(note.startswith(f"{step.name}: ") for note in trace.notes)
    left = remove_dead_code(new)[0]
    checker.check(left)
    assert sorted(n.op.kind for n in graph.nodes) == shown(step, "Given")
    assert sorted(n.op.kind for n in left.nodes) == shown(step, "Result")
    found = example_of(step)
    assert found is not None
    assert (found.before, found.after) == (str(graph), str(left))
    assert found.before != found.after


@pytest.mark.parametrize("step", PIPELINE, ids=NAMES)
def test_the_example_keeps_the_promise_of_its_class(step: Pass) -> None:
    assert step.example is not None
    settings = Settings(FIRST_LEVEL[step.kind], threads=1, passes=(step.name,))
    verdict = check(step.example(), VeraxRunner(settings), seed=4)
    assert verdict.kind in HELD[step.kind], verdict.reasons


@pytest.mark.parametrize("step", [s for s in STEPS if s.by_target], ids=lambda s: s.name)
def test_a_decision_of_a_target_is_shown_in_types(step: DecisionKind) -> None:
    found = example_of(step)
    assert found is not None and len(found.notes) >= 1
    narrow = "uint8" if "bytes" in step.name else "bfloat16"
    assert found.after.count(f": {narrow}[") > found.before.count(f": {narrow}[")


@pytest.mark.parametrize("step", [s for s in STEPS if not s.by_target], ids=lambda s: s.name)
def test_a_decision_is_shown_in_kernels(step: object) -> None:
    found = example_of(step)  # type: ignore[arg-type]
    assert found is not None
    assert "kernel conv1" in found.before and "kernel conv1" in found.after
    fewer = len(found.after.splitlines()) < len(found.before.splitlines())
    assert fewer or (step is DIVIDE and " times for a part" in found.after)
    assert found.notes


def test_one_is_shown_on_the_command_line(cli: Cli, tmp_path: Path) -> None:  # noqa: F811
    found = cli("passes", "fold_pads", "--json", tmp_path / "p.json")
    assert found.code == 0
    for words in ("fold_pads: exact, at O1", "after: fold_constants", "Given:", "Numeric effect:"):
        assert words in found.out
    before, _, after = found.out.partition("after:\n")
    assert "= Pad()(%x, %pads)" in before and "= Pad()(%x, %pads)" not in after
    assert "= Conv(strides=(2, 2), pads=((0, 1), (0, 1)))(%x, %w)" in after
    facts = json.loads((tmp_path / "p.json").read_text())
    assert (facts["schema"], facts["name"]) == ("verax.pass/1", "fold_pads")
    assert facts["example"]["notes"] == ["fold_pads: node 'p' (Pad)"]
    for name in (*NAMES, *(s.name for s in STEPS)):
        assert cli("passes", name).code == 0


def test_a_pass_of_ones_own_is_shown(cli: Cli) -> None:  # noqa: F811
    own = ROOT / "examples" / "broken_fold_scale_axis.py"
    found = cli("passes", "fold_scale_axis", "--inject", own)
    assert found.code == 0
    assert "fold_scale_axis: reassociates, at O2, O3" in found.out
    assert "fold_scale_axis" in cli("passes", "--inject", own).out


@pytest.mark.parametrize(
    ("name", "words"), [("fold_pad", "'fold_pads'"), ("xyzzy", "choose from integer_products")]
)
def test_an_unknown_name_is_refused_with_near_ones(cli: Cli, name: str, words: str) -> None:  # noqa: F811
    found = cli("passes", name)
    assert found.code == 2
    assert f"there is no pass '{name}'" in found.err
    assert words in found.err
