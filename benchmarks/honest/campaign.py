"""The driver: gives every architecture's missing runs to a child process and keeps what it says.

The record is a file of JSON lines that only grows, so a campaign that was interrupted goes on where
it stopped, and a run that was judged again shows both. A child that dies or hangs costs the one run
that it was at: it is tried once more by itself, and then recorded as that.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.honest.worker import FOLDER

ROOT = Path(__file__).resolve().parents[2]
NICENESS = 5
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
QUIET = {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
SILENCE = 150.0
"""Seconds without a word after which a child is taken for hanging."""
Died = Callable[[str, str], Any]
"""(key, why) -> the outcome of a run that took its process down."""


def version() -> str:
    """What judges: the last commit that changed the source tree that is imported ("+" where it was
    changed since), or the package's version."""
    import verax

    source = str(Path(str(verax.__file__)).parent)
    git = ["git", "-C", source]
    told = subprocess.run([*git, "log", "-1", "--format=%h", "--", "."], capture_output=True)
    if told.returncode == 0 and told.stdout.strip():
        changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "."]).returncode
        return told.stdout.decode().strip() + "+" * bool(changed)
    from verax.base.optional import installed_version

    return installed_version("verax")


def run_keys(
    keys: Sequence[str],
    died: Died,
    folder: Path,
    *,
    silence: float = SILENCE,
    seconds: float | None = None,
) -> Iterator[Any]:
    """Entries of outcomes (as read from JSON, or what `died` made), as they come; keys of one
    architecture should stand together. folder: for exported models. seconds: no child is begun,
    and none kept, after so long."""
    left, again = list(keys), ""
    until = None if seconds is None else time.monotonic() + seconds
    while left and (until is None or time.monotonic() < until):
        finished: list[str] = []
        current = why = ""
        for entry in _child(left, folder, silence, until):
            if "began" in entry:
                current = entry["began"]
            elif "why" in entry:
                why = entry["why"]
            else:
                finished.append(entry["key"])
                current = ""
                yield entry
        left = [k for k in left if k not in finished]
        if not current or why == "stopped":
            if not finished and left and why != "stopped":
                yield died(left.pop(0), why or "the process ended")
            if why == "stopped":
                return
            continue
        if again == current or why.startswith("silent"):
            yield died(current, why)
            left.remove(current)
        again = current


def _child(
    keys: Sequence[str], folder: Path, silence: float, until: float | None
) -> Iterator[dict[str, Any]]:
    """What one child says; at last {"why": ...} unless it ended by itself."""
    there, back = os.pipe()
    command = [sys.executable, "-m", "benchmarks.honest.worker", str(back)]
    environment = {**dict.fromkeys(THREADS, "1"), **QUIET, **os.environ}
    environment[FOLDER] = str(folder.resolve())
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[back],
        cwd=ROOT,
        env=environment,
        preexec_fn=lambda: os.nice(NICENESS),
        start_new_session=True,
    )
    os.close(back)
    errors = child.stderr
    assert child.stdin is not None and errors is not None
    os.set_blocking(errors.fileno(), False)
    tail, text, why = b"", b"", ""
    try:
        child.stdin.write("\n".join(keys).encode())
        child.stdin.close()
        waiting = {there, errors.fileno()}
        heard = time.monotonic()
        while there in waiting:
            ready, _, _ = select.select(list(waiting), [], [], 1.0)
            if errors.fileno() in ready:
                new = errors.read() or b""
                tail = (tail + new)[-600:]
                if not new:
                    waiting.discard(errors.fileno())
            if there in ready:
                heard = time.monotonic()
                more = os.read(there, 1 << 16)
                if not more:
                    break
                *lines, text = (text + more).split(b"\n")
                yield from (json.loads(line) for line in lines)
            if time.monotonic() - heard > silence:
                why = f"silent for {silence:.0f} s"
                break
            if until is not None and time.monotonic() > until:
                why = "stopped"
                break
    except BaseException:  # Ctrl-C, or a reader who stops listening
        why = "stopped"
        raise
    finally:
        if child.poll() is None and why:
            os.killpg(child.pid, signal.SIGKILL)
        code = child.wait()
        os.close(there)
        errors.close()
    if not why and code:
        last = tail.decode(errors="replace").strip().splitlines()[-1:]
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        why = " ".join([name, *last])
    if why:
        yield {"why": why}
