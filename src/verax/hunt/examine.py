"""A new finding: bisected, made small, a second opinion answers, and written as a folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verax.base.errors import VeraxError
from verax.base.files import atomic_write
from verax.base.npz import write_npz
from verax.base.options import CheckOptions
from verax.export.onnx.writer import to_bytes
from verax.hunt.alarm import MISTAKE, REFUSAL, Alarm, of_failure
from verax.hunt.opinions import (
    HIGH,
    LOW,
    MEDIUM,
    Opinion,
    confidence,
    is_foreign,
    is_wrong,
    opinions,
)
from verax.hunt.sizes import smallest
from verax.ir.graph import Graph
from verax.judge.bisect import BisectionResult, bisect
from verax.judge.protocol import Runner
from verax.records.bisection import Bisection
from verax.records.environment import environment
from verax.reference.evaluate import evaluate
from verax.report.issue_text import code, issue_text, prose
from verax.repro.case import MinimalCase, minimal_case
from verax.repro.scripts import show_script
from verax.repro.write import write_case

Values = Mapping[str, np.ndarray]
TEXT = "finding.md"
"""What a finding's folder says to an issue tracker."""
LIMIT = 60.0
"""Seconds that the verdict of an examination may take."""


@dataclass(frozen=True)
class Examination:
    """confidence: "high", "medium" or "low"; argument: why; folder: what was written, "" where
    nothing could be; optimization: what brought it."""

    confidence: str
    argument: str
    folder: str
    optimization: str = ""


def examine(
    alarm: Alarm,
    graph: Graph,
    inputs: Values,
    subject: Runner,
    text: str,
    folder: Path,
    *,
    against: str = "",
    name: str = "",
) -> Examination:
    """Everything that is done about a new finding. text: the subject's, as the user wrote it; name:
    of the case, for the reader. Never raises: what fails is summary in the argument."""
    target = folder / "findings" / f"{alarm.classification.replace(' ', '_')}_{alarm.key}"
    try:
        if alarm.classification == MISTAKE:
            return _mistake(alarm, graph, inputs, subject, text, target, against, name)
        return _failure(alarm, graph, inputs, subject, text, target, against, name)
    except VeraxError as error:
        return Examination(LOW, f"the examination failed: {error.cause}", "")


def _mistake(
    alarm: Alarm,
    graph: Graph,
    inputs: Values,
    subject: Runner,
    text: str,
    target: Path,
    against: str,
    name: str,
) -> Examination:
    """A wrong answer: bisected to a node and an optimization, and made small by the judge."""
    result = bisect(graph, subject, inputs, options=CheckOptions(timeout=LIMIT))
    case = _small_case(graph, subject, result)
    optimization = next((f.blame.guilty_pass for f in result.faulty if f.blame.guilty_pass), "")
    if case is None:
        small, values, alone = *smallest(graph, inputs, _wrong(subject)), True
        alone = _wrong(subject)(small, values)
    else:
        small, values, alone = case.graph, case.inputs, case.alone
    answers = opinions(small, values, text, against, subject.run(small, values))
    level, argument = confidence(answers, alone=alone)
    target.mkdir(parents=True, exist_ok=True)
    record = result.record
    if case is not None:
        record = dataclasses.replace(record, cases=(write_case(case, subject, target),))
    else:
        _write_small(target, small, values, subject, alarm)
    _write_certificate(target, record, level, argument, answers, name)
    return Examination(level, argument, str(target), optimization)


def _wrong(subject: Runner):  # type: ignore[no-untyped-def]
    def shows(graph: Graph, inputs: Values) -> bool:
        return is_wrong(graph, inputs, subject.run(graph, inputs))

    return shows


def _small_case(graph: Graph, subject: Runner, result: BisectionResult) -> MinimalCase | None:
    """The judge's minimal case with all sizes cut; None where no node is faulty by itself."""
    for faulty in result.faulty:
        try:
            case = minimal_case(graph, subject, faulty, result.inputs)
        except VeraxError:
            continue
        if not case.alone or subject.capabilities.own_weights:
            return case
        small, values = smallest(case.graph, case.inputs, _wrong(subject))
        actual = subject.run(small, values)
        return dataclasses.replace(
            case,
            graph=small,
            inputs=dict(values),
            expected=dict(evaluate(small, values)),
            actual={v: np.asarray(actual[v]) for v in small.outputs if v in actual},
        )
    return None


def _failure(
    alarm: Alarm,
    graph: Graph,
    inputs: Values,
    subject: Runner,
    text: str,
    target: Path,
    against: str,
    name: str,
) -> Examination:
    """No answer, or one that changes: whoever else answers shows that it can be had."""
    small, values = graph, dict(inputs)
    if alarm.classification == REFUSAL:

        def shows(candidate: Graph, arrays: Values) -> bool:
            try:
                subject.run(candidate, arrays)
            except VeraxError as error:
                return of_failure(error, candidate, alarm.operator).cause == alarm.cause
            return False

        small, values = smallest(graph, inputs, shows)
    answers = opinions(small, values, text, against)
    support = [o for o in answers if o.supports and is_foreign(o)]
    level = HIGH if len(support) > 1 else MEDIUM if support else LOW
    summary = "; ".join(f"{o.source} {o.words}" for o in answers)
    argument = f"onnx.checker accepts the model; {summary}"
    target.mkdir(parents=True, exist_ok=True)
    _write_small(target, small, values, subject, alarm)
    lines = [
        f"## {code(text)}: {alarm.classification} of {code(alarm.operator)}",
        "",
        prose(alarm.message),
        "",
        *_opinion_lines(level, argument, answers, name),
        "",
        *(
            f"- {code(k)} {prose(v)}"
            for k, v in {**environment(), **subject.describe()}.items()
            if v
        ),
    ]
    _write_text(target / TEXT, "\n".join(lines))
    return Examination(level, argument, str(target))


def _write_small(target: Path, graph: Graph, inputs: Values, subject: Runner, alarm: Alarm) -> None:
    """Model, inputs, expected values and a script, for what has no verdict of a node."""
    with atomic_write(target / "model.onnx") as stream:
        stream.write(to_bytes(graph))
    write_npz(target / "input.npz", inputs)
    exact = evaluate(graph, inputs)
    expected = {v + ".float64": np.asarray(a, np.float64) for v, a in exact.items()}
    write_npz(target / "expected.npz", expected)
    kind, facts = subject.capabilities.script, subject.describe()
    title = f"{alarm.classification} of {alarm.operator}: {' '.join(alarm.message.split())}"
    script = show_script(title, kind, facts, list(graph.outputs), alone=True)
    _write_text(target / "show.py", script)
    _write_text(target / "graph.txt", str(graph))


def _write_certificate(
    target: Path,
    record: Bisection,
    level: str,
    argument: str,
    answers: tuple[Opinion, ...],
    name: str,
) -> None:
    """The Markdown certificate with the opinions, and the record."""
    lines = [issue_text(record).rstrip(), "", *_opinion_lines(level, argument, answers, name)]
    _write_text(target / TEXT, "\n".join(lines))
    _write_text(target / "bisection.json", record.to_json())
    opinions_json = json.dumps([dataclasses.asdict(o) for o in answers], indent=1)
    _write_text(target / "opinions.json", opinions_json)


def _opinion_lines(level: str, argument: str, answers: tuple[Opinion, ...], name: str) -> list[str]:
    return [
        "### Second opinions",
        "",
        f"Confidence: {level}.",
        "",
        *(f"- {code(o.source)}: {prose(o.words)}" for o in answers),
        "",
        f"Found by case {code(name)} of `verax hunt`.",
    ]


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as stream:
        stream.write(text.rstrip("\n").encode() + b"\n")
