"""An interruption ends every command with one line and code 130, wherever it arrives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from verax.cli.interrupts import GRACE

HEAD = "import os, sys, threading, time, weakref\n"


INSTEAD = "instead_of_the_commands"
"""A module that takes the place of the commands where there is one."""
MAIN = (
    "import sys; from importlib.util import find_spec; from verax.cli import main\n"
    f"if find_spec('{INSTEAD}'): main.APP = '{INSTEAD}'\n"
    "main.main()"
)


def started(
    folder: Path, *arguments: object, usual: Callable[..., object] | int = signal.SIG_DFL
) -> subprocess.Popen[str]:
    """`verax ARGUMENTS`, before whose packages come those in `folder`."""
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(folder)},
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, usual),
    )


def interrupted(process: subprocess.Popen[str], mark: str, number: int = signal.SIGINT) -> str:
    """Send the signal when the process has printed `mark`; what it printed after that."""
    assert process.stdout is not None
    assert process.stdout.readline() == f"{mark}\n"
    time.sleep(0.1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert err == "interrupted\n"
    return out


SLOW_IMPORTS = {
    "simply": "time.sleep(60)",
    "and it becomes another error": (
        "try: time.sleep(60)\nexcept BaseException: raise ImportError('broken')"
    ),
    "and it is dropped": (
        "end = time.monotonic() + 60\nwhile time.monotonic() < end:\n"
        "    try: time.sleep(1)\n    except BaseException: pass"
    ),
}


@pytest.mark.parametrize("how", SLOW_IMPORTS)
def test_during_imports(tmp_path: Path, how: str) -> None:
    text = f"{HEAD}print('importing', flush=True)\n{SLOW_IMPORTS[how]}\n"
    (tmp_path / "typer.py").write_text(text)
    process = started(tmp_path, "formats")
    assert interrupted(process, "importing") == ""
    assert process.returncode == 130


def test_an_import_is_not_unwound(tmp_path: Path) -> None:
    """Not even one that a command does later: what native code it has set up stays as it is."""
    (tmp_path / "slow_module.py").write_text(
        f"{HEAD}print('importing', flush=True)\n"
        "try: time.sleep(60)\nfinally: print('unwound', flush=True)\n"
    )
    body = "print('ready', flush=True)\ntry: import slow_module\nfinally: print('unwound')"
    process = started(command(tmp_path, body), "formats")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert interrupted(process, "importing") == ""
    assert process.returncode == 130


def _interrupted_at_random(tmp_path: Path, file: Path, seed: int, count: int) -> None:
    """Within the first 0.75 s, most of which imports take."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        process = started(tmp_path, "check", file, "--shape", "n=1")
        wait = float(rng.uniform(0.1, 0.75))
        time.sleep(wait)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        # Before anything of ours runs, the interpreter answers itself.
        sound = (0, 1, 130, -signal.SIGINT)
        assert process.returncode in sound, (number, wait, process.returncode, out, err)
        if process.returncode == 130:
            assert err == "interrupted\n", (number, wait)


def test_at_any_moment_of_the_beginning(tmp_path: Path, tiny: Path) -> None:
    _interrupted_at_random(tmp_path, tiny, 351, 12)


@pytest.mark.slow
def test_thousands_of_times(tmp_path: Path, tiny: Path) -> None:
    _interrupted_at_random(tmp_path, tiny, 352, 5000)


def command(folder: Path, body: str) -> Path:
    """A package whose command, in place of ours, does `body`."""
    inside = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / f"{INSTEAD}.py").write_text(f"{HEAD}def run_command():\n{inside}")
    return folder


def test_in_the_callback_of_a_weak_reference(tmp_path: Path) -> None:
    """Python drops the exception there; it comes again, and everything is cleared up."""
    body = (
        "class Object: pass\n"
        "def callback(_):\n    print('inside', flush=True); time.sleep(60)\n"
        "thing = Object(); reference = weakref.ref(thing, callback)\n"
        "try:\n    del thing; time.sleep(60); print('not interrupted')\n"
        "finally:\n    print('cleared up')"
    )
    process = started(command(tmp_path, body), "formats")
    assert interrupted(process, "inside") == "cleared up\n"
    assert process.returncode == 130


def test_while_a_thread_works_that_the_command_would_wait_for(tmp_path: Path) -> None:
    body = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from verax.base.storage.files import scratch_folder\n"
        "def work():\n    with scratch_folder():\n"
        "        print('working', flush=True); time.sleep(60)\n"
        "with ThreadPoolExecutor(1) as pool:\n    pool.submit(work).result()"
    )
    process = started(command(tmp_path, body), "formats")
    begin = time.monotonic()
    interrupted(process, "working")
    assert process.returncode == 130
    assert time.monotonic() - begin < GRACE + 20
    assert not list(tmp_path.glob("verax-*"))


def test_twice_ends_it_at_once(tmp_path: Path) -> None:
    body = (
        "try: print('working', flush=True); time.sleep(60)\n"
        "finally: os.kill(os.getpid(), 2); time.sleep(60)"
    )
    process = started(command(tmp_path, body), "formats")
    interrupted(process, "working")
    assert process.returncode == 130


def test_being_asked_to_end_is_the_same(tmp_path: Path) -> None:
    body = "try: print('working', flush=True); time.sleep(60)\nfinally: print('cleared up')"
    process = started(command(tmp_path, body), "formats")
    assert interrupted(process, "working", signal.SIGTERM) == "cleared up\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_what_ends_well_by_it_and_then_does_not(tmp_path: Path) -> None:
    """A hunt stops at Ctrl-C with what it has; a second one, on its way, is an interruption."""
    body = (
        "import typer\n"
        "from verax.cli.interrupts import as_keyboard_interrupt\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def hunt():\n"
        "    with as_keyboard_interrupt():\n"
        "        try: print('working', flush=True); time.sleep(60)\n"
        "        except KeyboardInterrupt: raise KeyboardInterrupt\n"
        "app([])"
    )
    process = started(command(tmp_path, body), "formats")
    interrupted(process, "working")
    assert process.returncode == 130


def test_what_the_caller_ignores_stays_ignored(tmp_path: Path) -> None:
    body = "print('working', flush=True); time.sleep(1); print('done')"
    process = started(command(tmp_path, body), "formats", usual=signal.SIG_IGN)
    assert process.stdout is not None and process.stdout.readline() == "working\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60) == ("done\n", "")
    assert process.returncode == 0


def test_during_the_second_run_of_a_subject(tiny: Path, tmp_path: Path) -> None:
    """It goes in another thread, for which the command would have to wait."""
    (tmp_path / "subject.py").write_text(
        "import os, sys, time\nimport numpy as np\n"
        "x = dict(np.load(sys.argv[1]))\n"
        f"mark = {str(tmp_path / 'ran')!r}\n"
        "if os.path.exists(mark):\n"
        "    open(mark + 'again', 'w').write(str(os.getpid())); time.sleep(60)\n"
        "open(mark, 'w')\n"
        "np.savez(sys.argv[2], scores=np.zeros((1, 4), np.float32))\n"
    )
    np.savez(tmp_path / "in.npz", image=np.zeros((1, 1, 9, 7), np.float32))
    again = tmp_path / "ranagain"
    subject = f"cmd:{sys.executable} {tmp_path / 'subject.py'}"
    json = tmp_path / "record.json"
    process = started(
        tmp_path, "check", tiny, subject, "--input", tmp_path / "in.npz", "--json", json
    )
    end = time.monotonic() + 60
    while not (again.exists() and again.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(again.read_text()), 0)
    assert not json.exists() and not list(tmp_path.glob("verax-*"))
