"""What judging begins with is drawn while a subject in another process computes, and changes
nothing."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from tests.faults.planted import Planted, small_network

from verax.base.deadline import Clock, OutOfTime, clocked, require_time
from verax.base.errors import InputError
from verax.ir.graph import Graph
from verax.judge import check, draw_inputs
from verax.judge.regions import ahead as module
from verax.judge.regions.ahead import DrawnAhead
from verax.judge.regions.sampler import Sampler
from verax.numerics import statistics as st
from verax.records.verdict import Verdict

GRAPH = small_network()
INPUTS, _ = draw_inputs(GRAPH, 3)


class Elsewhere(Planted):
    """A subject that says that another process computes it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.capabilities = dataclasses.replace(self.capabilities, own_process=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened: "sampler" for each that was made, "ahead" for each call to draw ahead."""
    made: list[str] = []
    begin, draw = Sampler.__init__, module.survey_ahead

    def noted(self: Sampler, *arguments: Any) -> None:
        made.append("sampler")
        begin(self, *arguments)

    def drawn(*arguments: Any) -> Any:
        made.append("ahead")
        return draw(*arguments)

    monkeypatch.setattr(Sampler, "__init__", noted)
    monkeypatch.setattr(module, "survey_ahead", drawn)
    monkeypatch.setattr(st, "ADJOINT_ELEMENTS", 2)  # samples, not one pass for each output
    return made


def judged(subject: Planted, watch: bool = False) -> Verdict:
    verdict = check(GRAPH, subject, INPUTS, watch=watch, twice=False)
    return dataclasses.replace(verdict, environment={}, errors=())


def test_the_verdict_is_that_of_a_subject_in_this_process(made: list[str]) -> None:
    here = judged(Planted())
    assert set(made) == {"sampler"}
    samplers = len(made)
    made.clear()
    elsewhere = judged(Elsewhere())
    assert elsewhere == here and "Monte Carlo" in elsewhere.nodes[0].test
    assert made.count("ahead") == 1
    assert made.count("sampler") == samplers  # nothing is made twice


def test_a_watched_subject_is_not_waited_for(made: list[str]) -> None:
    assert judged(Elsewhere(), watch=True).kind is judged(Planted(), watch=True).kind
    assert "ahead" not in made


def test_nobody_waits_for_samples_of_an_answer_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(*arguments: Any) -> Any:
        begun.set()
        try:
            while True:
                require_time()
        finally:
            ended.set()

    class Failing(Elsewhere):
        def run(
            self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
        ) -> dict[str, np.ndarray]:
            assert begun.wait(20)
            raise InputError("out of order")

    monkeypatch.setattr(module, "survey_ahead", endless)
    with pytest.raises(InputError, match="out of order"):
        check(GRAPH, Failing(), INPUTS, watch=False)
    assert ended.is_set()


def test_samples_that_come_too_late_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*arguments: Any) -> Any:
        raise OutOfTime("over")

    monkeypatch.setattr(module, "survey_ahead", late)
    with clocked(9.0) as clock, DrawnAhead(clock, 0) as ahead:
        assert ahead.take() == {}
        ahead.begin(GRAPH, INPUTS)
        assert ahead.take() == {} == ahead.take()


def test_a_clock_can_be_stopped() -> None:
    clock = Clock(None)
    assert not clock.is_up
    clock.stop()
    assert clock.is_up
