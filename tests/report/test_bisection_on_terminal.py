"""A bisection on the terminal names node, cause, optimization and minimal case in words."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
from rich.console import Console
from tests.faults.planted import MISTAKES, Planted, small_network

from verax.judge.bisect import bisect
from verax.records.bisection import Bisection, Optimizations, RecordedCase, Tried
from verax.records.verdict import Kind
from verax.report.bisection import render_bisection

GRAPH = small_network()


def text(record: Bisection) -> str:
    stream = io.StringIO()
    Console(file=stream, width=200).print(render_bisection(record))
    return stream.getvalue()


def found(what: str) -> Bisection:
    node, change = MISTAKES[what]
    subject = Planted([node], change)
    subject.capabilities = dataclasses.replace(subject.capabilities, watches=False)
    return bisect(GRAPH, subject).record


def test_a_guilty_node_its_cause_and_the_effort_are_said() -> None:
    shown = text(found("epsilon 1e-5 for 1e-3"))
    assert "MISTAKE" in shown
    assert "bn" in shown
    assert "epsilon 1e-05" in shown
    assert "runs of the subject" in shown


def test_the_optimization_and_the_case_are_said() -> None:
    steps = Optimizations(
        "the mistake appears with 'extended'",
        "extended",
        4,
        (Tried("disabled", Kind.rounding, True), Tried("extended", Kind.mistake, False)),
    )
    case = RecordedCase("cases/01_bn", ("bn",), ("show.py",), False, "recorded inside")
    record = dataclasses.replace(
        found("epsilon 1e-5 for 1e-3"),
        optimizations=steps,
        cases=(case,),
        refused={"bn to relu": "it would not"},
        undecided={"sum": "blind"},
    )
    shown = text(record)
    assert "the mistake appears with 'extended'" in shown
    assert "2 of 4 steps" in shown
    assert "cases/01_bn (not shown by itself)" in shown
    assert "bn to relu: it would not" in shown
    assert "not decided: sum: blind" in shown


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    record = found("pads swapped")
    blame = dataclasses.replace(record.verdict.blame[0], node="[red]x[/red]", value="a[0]")
    verdict = dataclasses.replace(record.verdict, blame=(blame,))
    shown = text(dataclasses.replace(record, verdict=verdict))
    assert "[red]x[/red]" in shown
    assert "a[0]" in shown


def test_an_honest_subject_is_not_accused() -> None:
    shown = text(bisect(GRAPH, Planted(), {"x": np.ones((3, 3, 18, 22), np.float32)}).record)
    assert "guilty" not in shown
