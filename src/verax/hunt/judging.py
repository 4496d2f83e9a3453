"""Judges one case in a worker: runs the subject, asks the judge, examines what is new.

A refusal counts only for a model that the standard's checker accepts (`generate` draws no other),
and a mistake only where reading the written file gives the graph that was drawn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verax.api import subject_of
from verax.base.errors import MissingPackageError, UnsupportedError, VeraxError
from verax.base.option_groups.options import CheckOptions
from verax.base.storage.files import atomic_write, scratch_folder
from verax.export.onnx.writer import write_onnx
from verax.frontends.model import Model
from verax.hunt.alarm import (
    MISTAKE,
    PRECISION,
    REFUSAL,
    Alarm,
    is_unsupported,
    of_failure,
    of_verdict,
)
from verax.hunt.case import HuntCase, NoCase
from verax.hunt.corpus import file_name
from verax.hunt.examine import Examination, ExaminedCase, examine
from verax.hunt.generate import generate
from verax.hunt.lowered import IN_SINGLE, is_of_single_precision
from verax.hunt.opinions import is_wrong
from verax.hunt.store import HuntOutcome, Store, StoredFinding
from verax.ir.graph import Graph
from verax.judge.check import check
from verax.judge.protocol import Runner
from verax.loading import load
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.children.child_runner import ChildRunner

Stage = Callable[[str], None]
GENERATING, RUNNING, JUDGING, EXAMINING = "generating", "running", "judging", "examining"
"""What a worker does. It is the subject's fault when it dies or hangs while RUNNING."""


@dataclass(frozen=True)
class HuntTask:
    """What a worker is to do with every case.

    subject, against: texts as `resolve` takes them; folder: of the store and the findings; limit:
    seconds for one run of the subject, and for judging it. operators, families, models: as for
    `generate`.
    """

    subject: str
    against: str
    folder: str
    seed: int
    limit: float
    operators: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    models: str = ""


OF_ADAPTERS = ("UnsupportedError", "Python interface", "No corresponding Numpy type")
"""Words of failures on the way between NumPy and a runtime, not in it."""


class Unjudged(Exception):
    """Our side cannot say anything of this case; the text says why."""


def judge(
    task: HuntTask, case_number: int, store: Store, stage: Stage, isolated: bool = False
) -> HuntOutcome:
    """What came of case `case_number`; a new finding is in the store and has its folder.

    isolated: as for `runner_for`, after a worker died of this case.
    """
    began = time.monotonic()
    stage(GENERATING)
    try:
        case = generate(task.seed, case_number, task.operators, task.families, task.models)
    except NoCase:
        return HuntOutcome("no case", "nothing that was drawn made a model of ONNX")
    try:
        result, detail, alarm = _judged(case, task, store, stage, isolated)
    except Unjudged as error:
        result, detail, alarm = "unjudged", str(error), None
    seconds = time.monotonic() - began
    key = "" if alarm is None else alarm.key
    return HuntOutcome(
        result, detail, key, case.family, case.subject_operator, case.reason, seconds
    )


def _judged(
    case: HuntCase, task: HuntTask, store: Store, stage: Stage, isolated: bool
) -> tuple[str, str, Alarm | None]:
    """The outcome, its words, and what was found."""
    with scratch_folder() as folder:
        network = _network(case, folder)
        alarm, detail = alarm_of(case, network, task, stage, isolated)
        if alarm is None:
            return ("undecided" if detail else "right"), detail, None
        if alarm.classification == REFUSAL and is_unsupported(alarm.message):
            return "unsupported", alarm.message, None
        if store.begin_finding(new_finding(alarm, case.seed, case.index)):
            stage(EXAMINING)
            record(store, alarm, _examined(alarm, case, network, task))
        return "finding", alarm.message, alarm


def _network(case: HuntCase, folder: Path) -> Model | Graph:
    """The case as the subject gets it: a file of the drawn operator set, or the graph. Raises
    `Unjudged` when reading the file gives another function."""
    if case.opset is None and not case.file:
        return case.graph
    path = folder / file_name(case.file)
    try:
        if case.file:
            with atomic_write(path) as stream:
                stream.write(case.file)
        else:
            write_onnx(case.graph, path, case.opset)
        model = load(str(path))
        assert isinstance(model, Model)
        if is_wrong(case.graph, case.inputs, evaluate(model.graph, case.inputs)):
            raise Unjudged("the file that was written is read as another function: ours to mend")
    except (VeraxError, KeyError) as error:
        raise Unjudged(f"the file that was written cannot be read: {error}") from error
    return model


def runner_for(task: HuntTask, network: Model | Graph | None, isolated: bool) -> Runner:
    """The subject. isolated: whether its runtime gets a process of its own for every run; a worker
    is one already, and what dies in it is run again so."""
    model = network if isinstance(network, Model) else None
    runner = subject_of(task.subject, model, threads=1, timeout=task.limit)
    if isinstance(runner, ChildRunner) and not isolated:
        runner.isolate(False)
    return runner


def alarm_of(
    case: HuntCase,
    network: Model | Graph,
    task: HuntTask,
    stage: Stage,
    isolated: bool = True,
) -> tuple[Alarm | None, str]:
    """What is wrong with the subject on this case; and where nothing is, why that is undecided."""
    graph = network.graph if isinstance(network, Model) else network
    subject = runner_for(task, network, isolated)
    stage(RUNNING)
    try:
        answer = subject.run(graph, case.inputs)
    except (UnsupportedError, MissingPackageError) as error:
        raise Unjudged(f"our adapter refuses: {error.cause}") from error
    except VeraxError as error:
        if any(words in error.cause for words in OF_ADAPTERS):
            raise Unjudged(f"our adapter refuses: {error.cause}") from error
        return of_failure(error, graph, case.subject_operator), ""
    except Exception:
        if isolated:
            raise
        # a runtime's own error: its adapter puts it in words where it has a process of its own
        return alarm_of(case, network, task, stage, isolated=True)
    stage(JUDGING)
    try:
        options = CheckOptions(timeout=task.limit, seed=case.seed)
        verdict = check(graph, subject, case.inputs, options=options)
    except VeraxError as error:
        raise Unjudged(f"no verdict: {error.cause}") from error
    alarm = of_verdict(verdict, graph)
    if (
        alarm is not None
        and alarm.classification == MISTAKE
        and is_of_single_precision(graph, case.inputs, answer)
    ):
        alarm = Alarm(PRECISION, "any operator", IN_SINGLE, "", alarm.message)
    detail = verdict.reasons[0] if alarm is None and verdict.kind is Kind.undecided else ""
    return alarm, detail


def new_finding(alarm: Alarm, seed: int, case_number: int) -> StoredFinding:
    """The finding before anybody was asked."""
    return StoredFinding(
        alarm.key,
        alarm.classification,
        alarm.operator,
        alarm.cause,
        alarm.location,
        alarm.message,
        seed,
        case_number,
        count=0,
        confidence="unexamined",
        argument="",
        folder="",
    )


def record(store: Store, alarm: Alarm, examined: Examination) -> None:
    more = f"; brought by {examined.optimization}" if examined.optimization else ""
    store.examined(alarm.key, examined.confidence, examined.argument, examined.folder, more)


def _examined(alarm: Alarm, case: HuntCase, network: Model | Graph, task: HuntTask) -> Examination:
    """The finding made small and asked about; on the graph where it shows there as well, as a file
    of the drawn operator set cannot be made smaller."""
    is_tflite = isinstance(network, Model) and Path(network.source).suffix == ".tflite"
    graph, model = case.graph, None
    subject = runner_for(task, network if is_tflite else None, isolated=True)
    if isinstance(network, Model):
        # LiteRT runs its own files alone
        again = None if is_tflite else _again(case, task)[0]
        if again is None or again.key != alarm.key:
            graph, model = network.graph, network
            subject = runner_for(task, network, isolated=True)
    suspect = ExaminedCase(
        alarm, graph, case.inputs, subject, task.subject, task.against, case.name, model, task.limit
    )
    return examine(suspect, Path(task.folder))


def _again(case: HuntCase, task: HuntTask) -> tuple[Alarm | None, str]:
    try:
        return alarm_of(case, case.graph, task, lambda _: None)
    except Unjudged:
        return None, ""
