"""A new finding: bisected, made small, a second opinion answers, and written as a folder."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verax.base.errors import VeraxError
from verax.base.option_groups.options import CheckOptions
from verax.base.storage.files import atomic_write
from verax.base.storage.npz import write_npz
from verax.export.onnx.writer import to_bytes
from verax.frontends.model import Model
from verax.hunt.alarm import CRASH, HANG, MISTAKE, REFUSAL, Alarm, of_failure
from verax.hunt.bare import BareRun, is_same_failure, run_bare
from verax.hunt.corpus import file_name
from verax.hunt.opinions import (
    LOW,
    Opinion,
    confidence,
    confidence_of_failure,
    doubtful,
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
SCRIPTED = ("onnxruntime", "openvino", "tvm", "litert", "cmd", "verax")
"""Runtimes that `show.py` calls by their own API."""


@dataclass(frozen=True)
class ExaminedCase:
    """What is examined: the graph that the alarm is about and its inputs.

    subject, text: as a Runner, and as the user wrote it; against: another runner's name, asked as
    well; name: of the case, for the reader; model: the file that the subject runs where the graph
    written as ONNX does not show it, None for the graph; seconds: that one run may take.
    """

    alarm: Alarm
    graph: Graph
    inputs: Values
    subject: Runner
    text: str
    against: str = ""
    name: str = ""
    model: Model | None = None
    seconds: float = LIMIT


@dataclass(frozen=True)
class Examination:
    """confidence: "high", "medium" or "low"; argument: why; folder: what was written, "" where
    nothing could be; optimization: what brought it."""

    confidence: str
    argument: str
    folder: str
    optimization: str = ""


def examine(suspect: ExaminedCase, folder: Path) -> Examination:
    """Everything that is done about a new finding. Never raises: what fails is said in the
    argument."""
    alarm = suspect.alarm
    target = folder / "findings" / f"{alarm.classification.replace(' ', '_')}_{alarm.key}"
    try:
        if alarm.classification == MISTAKE:
            return _mistake(suspect, target)
        return _failure(suspect, target)
    except VeraxError as error:
        return Examination(LOW, f"the examination failed: {error.cause}", "")


def _mistake(suspect: ExaminedCase, target: Path) -> Examination:
    """A wrong answer: bisected to a node and an optimization, and made small by the judge."""
    graph, inputs, subject = suspect.graph, suspect.inputs, suspect.subject
    result = bisect(graph, subject, inputs, options=CheckOptions(timeout=LIMIT))
    case = None if suspect.model is not None else _small_case(graph, subject, result)
    optimization = next((f.blame.guilty_pass for f in result.faulty if f.blame.guilty_pass), "")
    if case is not None:
        small, values, alone = case.graph, dict(case.inputs), case.alone
    else:
        small, values = graph, dict(inputs)
        if suspect.model is None:
            small, values = smallest(graph, inputs, _wrong(subject))
        alone = _wrong(subject)(small, values)
    actual = subject.run(small, values)
    answers = opinions(small, values, suspect.text, suspect.against, actual, suspect.model)
    target.mkdir(parents=True, exist_ok=True)
    record, folder = result.record, target
    if case is not None:
        written = write_case(case, subject, target)
        record, folder = dataclasses.replace(record, cases=(written,)), Path(written.folder)
    else:
        _write_small(target, small, values, suspect)
    bare = _run_script(folder, suspect)
    shows = bare.outputs is not None and is_wrong(small, values, bare.outputs)
    doubt = _unscripted(suspect) or doubtful(small, values, evaluate(small, values))
    level, argument = confidence(answers, alone=alone, is_bare=shows or not alone, doubt=doubt)
    _write_certificate(target, record, level, argument, answers, suspect.name)
    return Examination(level, argument, str(target), optimization)


def _run_script(folder: Path, suspect: ExaminedCase) -> BareRun:
    own = suspect.subject.capabilities.script == "verax"
    return run_bare(folder / "show.py", seconds=suspect.seconds, own=own)


def _script_kind(suspect: ExaminedCase) -> str:
    """The runtime that the script calls: LiteRT runs what only a TFLite file says."""
    is_tflite = suspect.model is not None and Path(suspect.model.source).suffix == ".tflite"
    return "litert" if is_tflite else suspect.subject.capabilities.script


def _unscripted(suspect: ExaminedCase) -> str:
    if _script_kind(suspect) in SCRIPTED:
        return ""
    return "its script shows what was recorded: nothing runs this subject outside of Verax"


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


def _failure(suspect: ExaminedCase, target: Path) -> Examination:
    """No answer, or one that changes: whoever else answers shows that it can be had."""
    alarm, subject = suspect.alarm, suspect.subject
    small, values = suspect.graph, dict(suspect.inputs)
    if alarm.classification == REFUSAL and suspect.model is None:

        def shows(candidate: Graph, arrays: Values) -> bool:
            try:
                subject.run(candidate, arrays)
            except VeraxError as error:
                return of_failure(error, candidate, alarm.operator).cause == alarm.cause
            return False

        small, values = smallest(small, values, shows)
    answers = opinions(small, values, suspect.text, suspect.against, None, suspect.model)
    target.mkdir(parents=True, exist_ok=True)
    _write_small(target, small, values, suspect)
    doubt = _unscripted(suspect) or doubtful(small, values, evaluate(small, values))
    is_bare = True
    if alarm.classification in (REFUSAL, CRASH, HANG):
        is_bare = is_same_failure(_run_script(target, suspect), alarm)
    else:
        doubt = doubt or "a script shows chance at times only"
    level, argument = confidence_of_failure(answers, is_bare=is_bare, doubt=doubt)
    lines = [
        f"## {code(suspect.text)}: {alarm.classification} of {code(alarm.operator)}",
        "",
        prose(alarm.message),
        "",
        *_opinion_lines(level, argument, answers, suspect.name),
        "",
        *(
            f"- {code(k)} {prose(v)}"
            for k, v in {**environment(), **subject.describe()}.items()
            if v
        ),
    ]
    _write_text(target / TEXT, "\n".join(lines))
    return Examination(level, argument, str(target))


def _write_small(target: Path, graph: Graph, inputs: Values, suspect: ExaminedCase) -> None:
    """Model, inputs, expected values and a script, for what has no verdict of a node."""
    subject, alarm, model = suspect.subject, suspect.alarm, suspect.model
    content = to_bytes(graph) if model is None else Path(model.source).read_bytes()
    with atomic_write(target / file_name(content)) as stream:
        stream.write(content)
    write_npz(target / "input.npz", inputs)
    exact = evaluate(graph, inputs)
    expected = {v + ".float64": np.asarray(a, np.float64) for v, a in exact.items()}
    write_npz(target / "expected.npz", expected)
    kind, facts = _script_kind(suspect), subject.describe()
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
        prose(argument),
        "",
        *(f"- {code(o.source)}: {prose(o.words)}" for o in answers),
        "",
        f"Found by case {code(name)} of `verax hunt`.",
    ]


def _write_text(path: Path, text: str) -> None:
    with atomic_write(path) as stream:
        stream.write(text.rstrip("\n").encode() + b"\n")
