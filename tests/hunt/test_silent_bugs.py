"""Silent bugs of torch.compile, class by class: the hunt tells 22 of 24, `verax_judge` 23.

The compiler of each test is a backend that gives what the compiled program of the issue gave.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from silent_bugs import SILENT_BUGS, SilentBug  # noqa: E402

import verax.torch  # noqa: E402
from verax.hunt.alarm import MISTAKE, PRECISION  # noqa: E402
from verax.hunt.programs.judging import (  # noqa: E402
    NotJudged,
    alarm_of,
    imported,
    require_readable,
)

NOT_READ = {191308}
"""Products of int8, which our importer of PyTorch's programs refuses."""
WITHIN_ROUNDING = {183761}
"""Casts to float16 that are left out, followed by a sum: the answer is nearer to the exact one than
float16 has to be, which nobody's rounding forbids."""
CLASSES = pytest.mark.parametrize("bug", SILENT_BUGS, ids=lambda b: f"{b.issue}, {b.kind}")


def wrong_backend(bug: SilentBug) -> Any:
    """What torch.compile calls: it gives what the wrong statements give."""
    function = bug.program(wrong=True).function()

    def backend(graph: Any, arguments: Any) -> Any:
        # Dynamo hands inputs over in the order in which they are read
        read = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
        order = [read.index(f"l_{name}_") for name in bug.shapes]
        return lambda *given: function(*(given[i] for i in order))

    return backend


@CLASSES
def test_the_hunt_tells_a_class(bug: SilentBug) -> None:
    if bug.issue in NOT_READ:
        with pytest.raises(NotJudged):
            imported(bug.program())
        return
    case = imported(bug.program())
    require_readable(case)
    name = f"wrong_{bug.issue}"
    if name not in torch._dynamo.list_backends(exclude_tags=None):
        torch._dynamo.register_backend(wrong_backend(bug), name=name)
    alarm, detail = alarm_of(case, name, 5, 60.0)
    assert (alarm is None) == (bug.issue in WITHIN_ROUNDING), (alarm, detail)
    assert alarm is None or alarm.classification in (MISTAKE, PRECISION)
    right, _ = alarm_of(case, "eager", 5, 60.0)
    assert right is None


@CLASSES
def test_the_judging_backend_tells_a_class(bug: SilentBug) -> None:
    torch._dynamo.reset()  # else sizes of the program before are symbols
    program = bug.program()
    options = {"inner": wrong_backend(bug)}
    compiled = torch.compile(program.function(), backend="verax_judge", options=options)
    with torch.no_grad():
        compiled(*program.tensors(program.inputs))
    report = verax.torch.report()
    told = bool(report.mistakes) or any("mistake" in t for g in report for t in g.notes)
    assert told == (bug.issue not in WITHIN_ROUNDING)
