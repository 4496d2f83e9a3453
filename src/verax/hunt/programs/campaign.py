"""One program of a hunt, from drawing to the store and the folder of a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from verax.base.errors import VeraxError
from verax.base.storage.files import atomic_write
from verax.base.storage.npz import write_npz
from verax.hunt.alarm import CRASH, HANG, MISTAKE, REFUSAL, Alarm, is_unsupported
from verax.hunt.bare import is_same_failure, run_bare
from verax.hunt.case import NoCase
from verax.hunt.judging import EXAMINING, GENERATING, JUDGING, RUNNING, HuntTask, new_finding
from verax.hunt.opinions import confidence, confidence_of_failure, doubtful, is_wrong
from verax.hunt.programs.judging import (
    NotJudged,
    ProgramCase,
    ProgramFinding,
    alarm_of,
    drawn,
    examined,
    functions,
    imported,
    require_readable,
)
from verax.hunt.programs.names import backend_of, groups_of
from verax.hunt.programs.program import DYNAMIC, LAYOUTS, SECOND
from verax.hunt.store import HuntOutcome, Store
from verax.records.environment import environment
from verax.reference.evaluate import evaluate
from verax.report.issue_text import code, prose

Stage = Callable[[str], None]
TEXT = "finding.md"
SCRIPT = '''\
"""{title}"""

from pathlib import Path

import numpy as np
{torch}

here = Path(__file__).parent
stored = np.load(here / "input.npz")


{source}

def arguments(change=lambda x: x):
{tensors}
    return [{names}]


names = {outputs!r}
with torch.no_grad():
    compiled = torch.compile(program, backend="{backend}"{dynamic})
{before}    result = compiled(*arguments())
    eager = program(*arguments())
given = {{}}
for name, a, b in zip(names, result, eager):
    given[name] = (a.float() if a.dtype == torch.bfloat16 else a).numpy()
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        print(f"{{name}}: {{a.dtype}} {{list(a.shape)}}, should be {{b.dtype}} {{list(b.shape)}}")
        continue
    difference = (a.double() - b.double()).abs().flatten()
    at = int(difference.argmax())
    print(f"{{name}}, element {{at}}: {{a.flatten()[at]}}, should be {{b.flatten()[at]}}")
'''
HALVED = "lambda x: x.flip(0) if not x.is_floating_point() else x * 0.5 + 0.25"


def judge_program(task: HuntTask, case_number: int, store: Store, stage: Stage) -> HuntOutcome:
    """What came of program `case_number`; a new finding is in the store and has its folder."""
    stage(GENERATING)
    try:
        group, program = drawn(task.seed, case_number, groups_of(task.families))
    except NoCase:
        return HuntOutcome("no case", "nothing that was drawn ran in eager PyTorch")
    family, aim, backend = f"torch_{group}", functions(program), backend_of(task.subject)
    try:
        case = imported(program)
        require_readable(case)
        stage(RUNNING)
        alarm, detail = alarm_of(case, backend, task.seed, task.limit)
    except NotJudged as error:
        return HuntOutcome("unjudged", str(error), "", family, aim, program.mode)
    if alarm is None:
        result = "undecided" if detail else "right"
        return HuntOutcome(result, detail, "", family, aim, program.mode)
    if alarm.classification == REFUSAL and is_unsupported(alarm.message):
        return HuntOutcome("unsupported", alarm.message, "", family, aim, program.mode)
    stage(EXAMINING)
    try:
        finding = examined(case, backend, alarm, task.seed, task.limit)
    except (NotJudged, VeraxError):
        return HuntOutcome("unjudged", f"examination: {alarm.message}", "", family, aim)
    alarm = finding.alarm
    if store.begin_finding(new_finding(alarm, task.seed, case_number)):
        name = f"{task.seed}:{case_number}"
        stage(JUDGING)
        level, argument, folder = written(finding, backend, Path(task.folder), task.limit, name)
        store.examined(alarm.key, level, argument, folder, f"; {alarm.location}")
    return HuntOutcome("finding", alarm.message, alarm.key, family, aim, program.mode)


def described(seed: int, case_number: int, families: tuple[str, ...]) -> tuple[str, str, str]:
    """Family, functions and mode of a program, for one whose process died. Raises `NoCase`."""
    group, program = drawn(seed, case_number, groups_of(families))
    return f"torch_{group}", functions(program), program.mode


def written(
    finding: ProgramFinding, backend: str, folder: Path, limit: float, name: str
) -> tuple[str, str, str]:
    """The confidence, the argument for it, and the folder that was written."""
    alarm, case = finding.alarm, finding.case
    target = folder / "findings" / f"{alarm.classification.replace(' ', '_')}_{alarm.key}"
    target.mkdir(parents=True, exist_ok=True)
    exact = evaluate(case.graph, case.inputs)
    expected = {v + ".float64": np.asarray(a, np.float64) for v, a in exact.items()}
    write_npz(target / "input.npz", dict(case.program.inputs))
    write_npz(target / "expected.npz", expected)
    _write(target / "show.py", script_of(case, backend, alarm))
    bare = run_bare(target / "show.py", seconds=limit, own=backend.startswith("verax"))
    doubt = doubtful(case.graph, case.inputs, exact)
    if alarm.classification == MISTAKE:
        shows = bare.outputs is not None and (
            is_wrong(case.graph, case.inputs, bare.outputs) or " is of " in alarm.message
        )
        level, argument = confidence(finding.opinions, alone=True, is_bare=shows, doubt=doubt)
    else:
        failed = alarm.classification not in (REFUSAL, CRASH, HANG) or is_same_failure(bare, alarm)
        level, argument = confidence_of_failure(finding.opinions, is_bare=failed, doubt=doubt)
    lines = [
        f"## {code(f'torch.compile, {backend}')}: {alarm.classification} of {code(alarm.operator)}",
        "",
        prose(alarm.message),
        "",
        f"It shows from this step on: {alarm.location}. Compiled with {case.program.mode}.",
        "",
        "```python",
        case.program.source.rstrip(),
        "```",
        "",
        f"Confidence: {level}.",
        "",
        prose(argument),
        "",
        *(f"- {code(o.source)}: {prose(o.words)}" for o in finding.opinions),
        *(f"- {code(k)} {prose(v)}" for k, v in environment().items() if v),
        "",
        f"Found by case {code(name)} of `verax hunt`.",
    ]
    _write(target / TEXT, "\n".join(lines))
    _write(target / "program.json", json.dumps({"source": case.program.source}))
    return level, argument, str(target)


def script_of(case: ProgramCase, backend: str, alarm: Alarm) -> str:
    """A script that needs PyTorch and NumPy alone: compiled, and eager beside it."""
    program = case.program
    tensors = []
    for name in program.inputs:
        layout = LAYOUTS[program.layouts.get(name, "contiguous")].format(name)
        tensors.append(f'    {name} = change(torch.from_numpy(stored["{name}"]))')
        if layout != name:
            tensors.append(f"    {name} = {layout}")
    second = f"    compiled(*arguments({HALVED}))\n" if program.mode == SECOND else ""
    title = f"{alarm.classification} of {alarm.operator}: {alarm.message}"
    return SCRIPT.format(
        title=" ".join(title.split()).replace('"""', "'''").replace("\\", "\\\\"),
        source=program.source,
        tensors="\n".join(tensors),
        names=", ".join(program.inputs),
        outputs=list(case.graph.outputs),
        torch="import torch\nimport torch.nn.functional as F",
        backend=backend,
        dynamic=", dynamic=True" if program.mode == DYNAMIC else "",
        before=second,
    )


def _write(path: Path, text: str) -> None:
    with atomic_write(path) as stream:
        stream.write(text.rstrip("\n").encode() + b"\n")
