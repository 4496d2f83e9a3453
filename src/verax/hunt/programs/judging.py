"""Judges a program: its export is the reference, eager PyTorch in float64 the second opinion.

A program that eager PyTorch answers wrongly by our reference says nothing about the compiler: it
is recorded as *unjudged*, because either our reading of the export or PyTorch's kernel is wrong.
"""

from __future__ import annotations

import dataclasses
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.base.option_groups.options import CheckOptions
from verax.base.optional import optional
from verax.frontends.model import Model
from verax.hunt.alarm import MISTAKE, PRECISION, REFUSAL, Alarm, of_verdict, without_names
from verax.hunt.case import NoCase
from verax.hunt.opinions import Opinion, is_wrong
from verax.hunt.programs.draw import draw_program
from verax.hunt.programs.names import INDUCTOR
from verax.hunt.programs.program import HuntedProgram
from verax.hunt.programs.subject import EAGER, STAGES, CompiledProgramRunner, type_difference
from verax.ir.graph import Graph
from verax.judge.check import check
from verax.loading import load
from verax.records.verdict import Kind

torch: Any = optional("torch", "to hunt over torch.compile")

SHRINK_SECONDS = 90.0
"""Seconds for making one program small; what it is then is kept."""
CAST, LEFT_OUT = "to", "casts to 16 bits and back are left out"
SIXTEEN_BITS = re.compile(r"\bb?float16\b")
FUNCTION = re.compile(
    r"(?:torch|F)\.(?:[a-z]+\.)?(\w+)\(|\.(\w+)\(|(\*\*|//|<<|>>|[-+*/@%]=?|==|>)"
)


class NotJudged(Exception):
    """Our side can say nothing about a program."""


@dataclass(frozen=True)
class ProgramCase:
    """A program, its export as a graph, and the inputs under the graph's names."""

    program: HuntedProgram
    graph: Graph
    inputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class ProgramFinding:
    """alarm: with the small program's functions as operators, and the stage; case: the small one;
    opinions: of eager PyTorch."""

    alarm: Alarm
    case: ProgramCase
    opinions: tuple[Opinion, ...]


def imported(program: HuntedProgram) -> ProgramCase:
    """The program with its export. Raises `NotJudged` where it cannot be exported or read."""
    try:
        with warnings.catch_warnings(action="ignore"), torch.no_grad():
            exported = torch.export.export(
                program.module(), tuple(program.tensors(program.inputs)), strict=False
            )
        model = load(exported)
        assert isinstance(model, Model)
    except VeraxError as error:
        raise NotJudged(f"its export cannot be read: {error.cause}") from error
    except Exception as error:  # torch.export's own
        raise NotJudged(f"it cannot be exported: {type(error).__name__}") from error
    graph = model.graph
    names = (*program.outputs, *program.written)
    if len(graph.inputs) != len(program.inputs) or len(graph.outputs) != len(names):
        raise NotJudged("its export has other inputs or outputs")
    return ProgramCase(program, graph, dict(zip(graph.inputs, program.inputs.values())))


def drawn(seed: int, index: int, groups: tuple[str, ...]) -> tuple[str, HuntedProgram]:
    """Program `index` of `seed`, and its group. Raises `NoCase`."""
    random = np.random.default_rng([seed, index])
    for _ in range(10):
        try:
            return draw_program(random, groups)
        except NoCase:
            continue
    raise NoCase


def require_readable(case: ProgramCase) -> None:
    """Raises `NotJudged` where eager PyTorch is wrong by our reference."""
    eager = CompiledProgramRunner(case.program, EAGER)
    try:
        answer = eager.run(case.graph, case.inputs)
        wrong = is_wrong(case.graph, case.inputs, answer)
    except VeraxError as error:
        raise NotJudged(f"no verdict on eager PyTorch: {error.cause}") from error
    if wrong:
        raise NotJudged("eager PyTorch differs from our reference of its export")


def alarm_of(case: ProgramCase, backend: str, seed: int, limit: float) -> tuple[Alarm | None, str]:
    """What is wrong with a backend on this program; where nothing is, why it is undecided."""
    runner = CompiledProgramRunner(case.program, backend)
    aim = functions(case.program)
    try:
        runner.run(case.graph, case.inputs)
    except VeraxError as error:
        return Alarm(REFUSAL, aim, without_names(error.cause), "", error.cause), ""
    difference = type_difference(case.program, runner)
    if difference:
        return Alarm(MISTAKE, aim, without_names(difference), "", difference), ""
    try:
        options = CheckOptions(timeout=limit, seed=seed)
        verdict = check(case.graph, runner, case.inputs, options=options)
    except VeraxError as error:
        raise NotJudged(f"no verdict: {error.cause}") from error
    alarm = of_verdict(verdict, case.graph)
    if alarm is not None and leaves_casts_out(case, runner):
        alarm = Alarm(PRECISION, CAST, LEFT_OUT, "", alarm.message)
        return alarm, ""
    if alarm is None:
        return None, verdict.reasons[0] if verdict.kind is Kind.undecided else ""
    return Alarm(alarm.classification, aim, alarm.cause, "", alarm.message), ""


def leaves_casts_out(case: ProgramCase, runner: CompiledProgramRunner) -> bool:
    """True if the answer is that of the program with float32 wherever it casts to 16 bits, which
    Inductor does on purpose unless `emulate_precision_casts` is set."""
    lines = tuple(SIXTEEN_BITS.sub("float32", line) for line in case.program.lines)
    if lines == case.program.lines:
        return False
    try:
        plain = imported(dataclasses.replace(case.program, lines=lines))
        answer = runner.run(case.graph, case.inputs)
        outputs = dict(zip(plain.graph.outputs, (answer[v] for v in case.graph.outputs)))
        return not is_wrong(plain.graph, plain.inputs, outputs)
    except (NotJudged, VeraxError):
        return False


def functions(program: HuntedProgram) -> str:
    """The functions and operators that a program's statements use, each once, in order."""
    matches = [next(g for g in m if g) for s in program.lines for m in FUNCTION.findall(s)]
    names = [n for n in dict.fromkeys(matches) if n != "clone"]
    return " > ".join(names[:6]) + (" > ..." if len(names) > 6 else "")


Shows = Callable[[HuntedProgram], bool]


def small(case: ProgramCase, shows: Shows, seconds: float = SHRINK_SECONDS) -> HuntedProgram:
    """A program with fewer outputs, statements and elements that still shows it."""
    program, deadline = case.program, time.monotonic() + seconds

    def better(candidate: HuntedProgram) -> bool:
        if time.monotonic() > deadline:
            return False
        try:
            with warnings.catch_warnings(action="ignore"):
                candidate.eager()
            return shows(candidate)
        except Exception:  # what was left out was needed
            return False

    for output in program.outputs:
        candidate = program.with_lines(program.lines, (output,))
        if len(program.outputs) > 1 and better(candidate):
            program = candidate
            break
    shorter = True
    while shorter:
        shorter = False
        for index in reversed(range(len(program.lines))):
            for candidate in without_line(program, index):
                if better(candidate):
                    program, shorter = candidate, True
                    break
            if shorter:
                break
    return program


def without_line(program: HuntedProgram, index: int) -> list[HuntedProgram]:
    """The program without a statement; where it makes a value, with one that it reads instead."""
    line = program.lines[index]
    remainder = (*program.lines[:index], *program.lines[index + 1 :])
    candidates = [program.with_lines(remainder, program.outputs)]
    target, _, text = line.partition(" = ")
    if target.isidentifier():
        values = [*program.inputs, *(s.partition(" = ")[0] for s in program.lines[:index])]
        for name in dict.fromkeys(re.findall(r"\b[a-z]\w*", text)):
            if name in values and name != target:
                lines = tuple(re.sub(rf"\b{target}\b", name, s) for s in remainder)
                outputs = tuple(name if o == target else o for o in program.outputs)
                if all(o not in program.inputs for o in outputs):
                    candidates.append(program.with_lines(lines, outputs))
    return candidates


def examined(
    case: ProgramCase, backend: str, alarm: Alarm, seed: int, limit: float
) -> ProgramFinding:
    """The alarm made small, with the first stage that shows it and what eager PyTorch says."""

    def shows(candidate: HuntedProgram) -> bool:
        again, _ = alarm_of(imported(candidate), backend, seed, limit)
        return (
            again is not None
            and again.classification == alarm.classification
            and (again.classification != REFUSAL or again.cause == alarm.cause)
        )

    if alarm.cause == LEFT_OUT:
        return ProgramFinding(dataclasses.replace(alarm, location=STAGES[INDUCTOR]), case, ())
    reduced = small(case, shows)
    case = imported(reduced)
    again, _ = alarm_of(case, backend, seed, limit)
    message = (again or alarm).message
    cause = (again or alarm).cause
    stage = stage_of(case, backend, seed, limit)
    reduced_alarm = Alarm(alarm.classification, functions(reduced), cause, stage, message)
    return ProgramFinding(reduced_alarm, case, opinions(case))


def stage_of(case: ProgramCase, backend: str, seed: int, limit: float) -> str:
    """The first stage of torch.compile that shows it: in words of STAGES."""
    if backend not in STAGES:
        return backend
    for name, words in STAGES.items():
        if name == EAGER:
            continue
        try:
            alarm, _ = alarm_of(case, name, seed, limit)
        except NotJudged:
            continue
        if alarm is not None:
            return words
        if name == backend:
            break
    return STAGES[INDUCTOR]


def opinions(case: ProgramCase) -> tuple[Opinion, ...]:
    """Of eager PyTorch, in float64 and in the program's own types."""
    result = []
    for source, dtype in (("eager PyTorch in float64", torch.float64), (EAGER, None)):
        try:
            answer = CompiledProgramRunner(case.program, EAGER, dtype).run(case.graph, case.inputs)
            wrong = is_wrong(case.graph, case.inputs, answer)
        except VeraxError as error:
            result.append(Opinion(source, None, True, f"no answer ({error.cause[:100]})"))
            continue
        words = "differs from our reference" if wrong else "agrees with our reference"
        result.append(Opinion(source, not wrong, True, words))
    return tuple(result)
