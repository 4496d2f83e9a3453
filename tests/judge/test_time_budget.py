"""Judging stops when its time is over, and answers with what it knows."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.faults.planted import Planted, on_output, small_network

from verax.base import deadline
from verax.base.deadline import OutOfTime, clock, clocked, require_time
from verax.judge import check
from verax.judge.regions import power, region
from verax.records.verdict import Kind


def wrong() -> Planted:
    return Planted(["bn"], on_output(lambda y: y * np.float32(1.01)))


def test_a_clock_counts_from_its_start() -> None:
    with clocked(0.0) as own:
        assert not own.is_up
        require_time()
        own.start()
        time.sleep(0.002)
        assert own.is_up and clock() is own
        with pytest.raises(OutOfTime, match="--timeout"):
            require_time()
    assert not clock().is_up


@pytest.mark.parametrize("watch", [True, False])
def test_without_any_time_it_is_undecided_and_says_why(watch: bool) -> None:
    begin = time.monotonic()
    found = check(small_network(), wrong(), seed=4, watch=watch, timeout=1e-9)
    assert time.monotonic() - begin < 20
    assert found.kind is Kind.undecided and found.exit_code == 3
    assert len(found.unchecked) == len(small_network().nodes)
    assert all("the 1e-09 s that judging may take were over" in r for r in found.unchecked.values())
    assert any("were over" in r for r in found.reasons)


def test_what_is_known_by_then_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake is found; there is no time left for its cause."""
    late = []
    monkeypatch.setattr(deadline.Clock, "is_up", property(lambda self: bool(late)))
    monkeypatch.setattr(
        sys.modules["verax.judge.check"],
        "enlarge_regions",
        lambda graph, found, *args, **options: late.append("now") or found,
    )
    found = check(small_network(), wrong(), seed=4, timeout=3)
    assert found.kind is Kind.mistake and [b.node for b in found.blame] == ["bn"]
    assert not found.blame[0].explanations
    assert any("causes" in n and "the 3 s" in n for n in found.notes)


def test_no_accusation_before_other_explanations_were_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def late(*args: object) -> None:
        raise OutOfTime("the 5 s that judging may take were over (--timeout)")

    assert check(small_network(), wrong(), seed=4, watch=False).kind is Kind.mistake
    for name in ("order_decision", "best_match"):
        with monkeypatch.context() as patch:
            patch.setattr(region, name, late)
            found = check(small_network(), wrong(), seed=4, watch=False)
            assert found.kind is Kind.undecided, found.reasons
            assert any("the 5 s" in r for r in found.reasons)


def test_power_that_was_not_measured_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*args: object) -> None:
        raise OutOfTime("the 5 s that judging may take were over (--timeout)")

    assert check(small_network(), Planted(), seed=4, watch=False).kind is Kind.rounding
    monkeypatch.setattr(power, "reaches", late)
    found = check(small_network(), Planted(), seed=4, watch=False)
    assert found.kind is Kind.undecided, found.reasons
    assert any("whether the check is blind" in r for r in found.reasons)


def test_the_command_line_hands_its_limit_on(tmp_path: Path, monkeypatch) -> None:
    from verax.base.option_groups.options import CheckOptions
    from verax.cli import judging

    seen, asked = {}, CheckOptions(timeout=7.0, allow=("bf16",))
    monkeypatch.setattr(judging, "check", lambda *args, **options: seen.update(options))
    monkeypatch.setattr(judging, "_subject", lambda *args: None)

    class Loaded:
        graph, inputs, pixels = None, {}, {}

    monkeypatch.setattr(
        judging, "read_inputs", lambda *args: type("I", (), {"arrays": {}, "steps": {}})()
    )
    with pytest.raises(AttributeError):  # there is no verdict
        judging._check(judging.Request("net", judging=asked), Loaded, {}, print)
    assert seen["options"] == asked
