"""A finding tried outside of Verax: its `show.py` in a fresh process, with the runtime's API alone.

What only happens where our adapter stands between NumPy and the runtime is no finding of the
runtime.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verax.base.errors import VeraxError
from verax.base.process.processes import SubjectLateError, run_process
from verax.base.storage.files import scratch_folder
from verax.base.storage.npz import read_npz
from verax.hunt.alarm import CRASH, HANG, REFUSAL, Alarm, without_names

FAILED = "FAILED "
DRIVER = """\
import sys
import traceback
import numpy
script, own, target = sys.argv[1:]
namespace = {"__file__": script, "__name__": "__main__"}
try:
    exec(compile(open(script).read(), script, "exec"), namespace)
except Exception as error:
    if "given" not in namespace:
        print("FAILED " + " ".join(f"{type(error).__name__}: {error}".split()))
        sys.exit(0)
if own == "foreign" and "verax" in sys.modules:
    sys.exit("the script imports verax")
numpy.savez(target, **namespace["given"])
"""
SAME_MESSAGE = 0.5
"""Share of a message's characters that has to come again."""


@dataclass(frozen=True)
class BareRun:
    """What `show.py` did: the outputs, or the failure, one of `alarm.CLASSIFICATIONS` and its
    message. failure: "" where it answered; "none" where nothing could be run."""

    outputs: Mapping[str, np.ndarray] | None
    failure: str = ""
    message: str = ""


def run_bare(script: Path, *, seconds: float, own: bool = False) -> BareRun:
    """Run `script` in a process that imports nothing of ours. own: the subject is our compiler, so
    that the script imports it."""
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p) if own else ""}
    with scratch_folder() as folder:
        target = folder / "given.npz"
        words = [sys.executable, "-c", DRIVER, str(script), "own" if own else "foreign"]
        try:
            ended = run_process(
                [*words, str(target)], name="show.py", timeout=seconds, environment=paths
            )
        except SubjectLateError as error:
            return BareRun(None, HANG, error.cause)
        except VeraxError as error:
            return BareRun(None, "none", error.cause)
        if ended.code < 0:
            return BareRun(None, CRASH, ended.ending)
        if ended.code:
            return BareRun(None, "none", ended.last_words)
        if not target.is_file():
            return BareRun(None, REFUSAL, ended.printed.rpartition(FAILED)[2].strip())
        try:
            return BareRun(read_npz(target))
        except VeraxError as error:
            return BareRun(None, "none", error.cause)


def is_same_failure(run: BareRun, alarm: Alarm) -> bool:
    """True if the script fails as the alarm says: a refusal with its message."""
    if run.failure != alarm.classification:
        return False
    if run.failure != REFUSAL:
        return True
    first, second = without_names(alarm.message), without_names(run.message)
    matcher = difflib.SequenceMatcher(None, first, second, autojunk=False)
    return matcher.ratio() >= SAME_MESSAGE
