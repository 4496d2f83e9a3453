"""Cases: honest implementations raise no alarm, planted mistakes are pinned; figures add up."""

import numpy as np
import pytest

from verax.campaign.outcomes import RUNNERS, BaselineCase, CaseOutcome, FaultCase, run_case
from verax.campaign.placements import FAULTS, find_placement
from verax.campaign.subjects import FaultyNumbers
from verax.campaign.summary import Proportion, baseline_rows, fault_rows, reasons

QUICK = [n for n in RUNNERS if not n.startswith("verax")]


@pytest.mark.parametrize("name", QUICK)
def test_honest_implementations_raise_no_alarm(name: str) -> None:
    if name != "reference":
        pytest.importorskip(name, reason=f"{name} is not installed")
    outcomes = [run_case(BaselineCase(seed, name)) for seed in range(4)]
    assert [o.alarms for o in outcomes if o.alarms] == []
    assert any(not o.skipped for o in outcomes)


def test_our_compiler_raises_no_alarm() -> None:
    outcome = run_case(BaselineCase(8, "verax:O1"))
    assert (outcome.skipped, outcome.alarms) == ("", [])


def test_what_a_subject_refuses_is_counted_with_its_reason(monkeypatch) -> None:
    def refuse():
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setitem(RUNNERS, "broken", refuse)
    outcome = run_case(BaselineCase(0, "broken"))
    assert outcome.skipped == "RuntimeError: no such thing"
    assert reasons([outcome]) == {"RuntimeError: no such thing": 1}
    assert baseline_rows([outcome]) == [("broken", "0", "1", "0", "0")]


def test_a_planted_mistake_is_detected_and_pinned() -> None:
    outcome = run_case(FaultCase("bias missing", 0, deep=False))
    assert outcome.detected and outcome.located
    assert outcome.blamed == [outcome.node]


def test_placements_are_reproducible_visible_and_random() -> None:
    plant = FAULTS["kernel flipped"]
    first, again, other = (
        find_placement(plant, 1, deep=True),
        find_placement(plant, 1, deep=True),
        find_placement(plant, 2, deep=True),
    )
    assert first is not None and again is not None and other is not None
    assert (first.network.graph, first.node) == (again.network.graph, again.node)
    assert first.network.graph != other.network.graph
    assert first.effect > 1


@pytest.mark.parametrize("name", ["pads: begin and end swapped", "epsilon 1e-5", "slope 0.2"])
def test_what_changes_nothing_is_not_placed(name: str) -> None:
    """Equal pads swapped, an epsilon set to what it is: no mistake."""
    for number in range(3):
        found = find_placement(FAULTS[name], number, deep=False)
        assert found is not None
        graph, inputs = found.network.graph, found.network.inputs
        (value,) = next(n.outputs for n in graph.nodes if n.name == found.node)
        wrong = FaultyNumbers({found.node: found.change}).run(graph, inputs, [value])
        honest = FaultyNumbers().run(graph, inputs, [value])
        assert not np.array_equal(wrong[value], honest[value])


def test_figures_count_what_was_judged() -> None:
    outcomes = [
        CaseOutcome(
            "a",
            "1",
            detected=True,
            located=True,
            reaches=True,
            without="mistake",
            explanations=["false", "true"],
            true=["true"],
        ),
        CaseOutcome("a", "2", detected=True, located=False, located_without=True),
        CaseOutcome("a", "3", skipped="no visible placement"),
    ]
    assert fault_rows(outcomes) == [("a", "2", "2", "1", "1", "1", "1/1", "1/1", "0", "0")]
    assert f"{Proportion(1, 3).percent:.1f}" == "33.3"
