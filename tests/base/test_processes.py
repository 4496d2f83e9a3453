"""Foreign processes: how they end is told, and nothing that they started is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verax.base.process.processes import Guarded, SubjectError, run_process
from verax.runners.children.child import run_in_child

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux gives orphans to the process that guards them"
)

FAMILY = """
import os, sys, time
def stay():
    with open(sys.argv[1], "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    time.sleep(60)
if not os.fork():
    os.setsid()
    if not os.fork():
        os.setsid()  # its parent ends: an orphan in a session of its own
        stay()
    os._exit(0)
if not os.fork():
    stay()
while not os.path.exists(sys.argv[1]) or len(open(sys.argv[1]).read().split()) < 2:
    time.sleep(0.01)
if len(sys.argv) > 2:
    stay()
"""
"""Starts a child and an orphan, which write their numbers into a file; stays as well when asked."""


def family(folder: Path, *stay: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", FAMILY, str(folder / "pids"), *stay]


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    """Whether a process runs; those that have ended and wait for their parent do not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


@pytest.mark.parametrize(
    ("body", "code", "how", "words"),
    [
        ("print('well')", 0, "exit code 0", "well"),
        ("print('bad'); sys.exit(7)", 7, "exit code 7", "bad"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", -11, "signal SIGSEGV", "it said nothing"),
        ("os.kill(0, signal.SIGTERM); time.sleep(9)", -15, "signal SIGTERM", "it said nothing"),
    ],
)
def test_how_a_program_ended_is_told(body: str, code: int, how: str, words: str) -> None:
    command = [sys.executable, "-c", f"import os, signal, sys, time; {body}"]
    ended = run_process(command, name="program", timeout=60)
    assert (ended.code, ended.ending, ended.last_words) == (code, how, words)


def test_a_program_that_is_not_there_is_said() -> None:
    with pytest.raises(SubjectError, match=r"cannot be started.*No such file") as caught:
        run_process(["./no-such-program"], name="program", timeout=60)
    assert "ended" not in caught.value.cause


def test_a_program_gets_its_environment_and_no_input() -> None:
    code = "import os, sys; print(os.environ['COLOUR'], sys.stdin.read() == '')"
    ended = run_process(
        [sys.executable, "-c", code], name="program", timeout=60, environment={"COLOUR": "green"}
    )
    assert ended.printed == "green True\n"


@LINUX
@pytest.mark.parametrize("kind", ["in time", "too late", "interrupted"])
def test_nothing_that_a_program_started_is_left(tmp_path: Path, kind: str) -> None:
    if kind == "in time":
        assert run_process(family(tmp_path), name="family", timeout=60).code == 0
    elif kind == "too late":
        with pytest.raises(SubjectError, match="no answer in 3 s"):
            run_process(family(tmp_path, "stay"), name="family", timeout=3)
    else:
        guarded = Guarded(family(tmp_path, "stay"), name="family")
        assert until(lambda: len(pids(tmp_path)) == 3)
        timer = threading.Timer(0.1, guarded.cut)
        timer.start()
        with pytest.raises(SubjectError):
            guarded.wait(60)
        guarded.stop()
    assert len(pids(tmp_path)) >= 2
    assert not [pid for pid in pids(tmp_path) if alive(pid)]


@LINUX
@pytest.mark.parametrize("sibling", [False, True])
def test_the_program_ends_with_a_parent_that_is_killed(tmp_path: Path, sibling: bool) -> None:
    """sibling: a forked child of the parent lives on, with copies of all that was open."""
    code = (
        "import os, sys, time\n"
        "from verax.base.process.processes import Guarded\n"
        "guarded = Guarded(sys.argv[2:], name='family')\n"
        "if sys.argv[1] == 'True' and not os.fork():\n"
        "    time.sleep(20); os._exit(0)\n"
        "guarded.wait(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(sibling), *family(tmp_path, "stay")],
        start_new_session=True,
    )
    assert until(lambda: len(pids(tmp_path)) == 3)
    parent.kill()
    parent.wait()
    gone = until(lambda: not any(map(alive, pids(tmp_path))))
    if sibling:
        os.killpg(parent.pid, signal.SIGKILL)
    assert gone


@LINUX
def test_a_guard_that_is_killed_is_said_and_takes_the_program_along(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys, os, time; open(sys.argv[1], 'w').write("]
    command[-1] += "str(os.getpid())); time.sleep(60)"
    guarded = Guarded([*command, str(tmp_path / "pids")], name="program")
    assert until(lambda: len(pids(tmp_path)) == 1)
    guarded.process.kill()
    with pytest.raises(SubjectError, match="guards the subject was killed"):
        guarded.wait(60)
    assert until(lambda: not alive(pids(tmp_path)[0]))


def test_a_runtime_that_dies_is_said_with_its_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("import os, signal; os.kill(os.getpid(), 9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SubjectError, match=r"process died \(signal SIGKILL\)"):
        run_in_child(
            "onnx_runtime", {"model": b""}, {"x": np.zeros((2, 3))}, name="fake", timeout=60
        )
