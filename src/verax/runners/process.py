"""One foreign process with a time limit: what it prints is read, bounded, and never in our way."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from verax.base.errors import VeraxError

TAIL_BYTES = 1 << 14
"""How much of what a process printed last is kept."""
LINES, LINE_LENGTH = 3, 300
"""Lines of it that an error quotes, and how much of each."""


class SubjectError(VeraxError):
    """The subject refused, crashed or took too long."""


@dataclass(frozen=True)
class Ended:
    """Exit code (negative: the signal that killed it) and the end of what was printed."""

    code: int
    printed: str

    @property
    def how(self) -> str:
        """`exit code 1` or `signal SIGSEGV`."""
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"signal {signal.Signals(-self.code).name}"
        except ValueError:
            return f"signal {-self.code}"

    @property
    def last_words(self) -> str:
        """The last lines printed, for an error text."""
        lines = [line.strip() for line in self.printed.splitlines() if line.strip()]
        return " / ".join(line[-LINE_LENGTH:] for line in lines[-LINES:]) or "it said nothing"


def run_process(
    command: Sequence[str],
    *,
    name: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run `command` to its end, at most `timeout` seconds; nothing that it started survives.

    environment: added to ours. Raises `SubjectError` when it cannot be started or does not end.
    """
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise SubjectError(
            f"the program cannot be started ({error})",
            place=name,
            next_step="check that it exists and may be executed",
        ) from error
    assert child.stdout is not None
    tail = _Tail(child.stdout)
    try:
        code = child.wait(timeout)
    except subprocess.TimeoutExpired as error:
        raise SubjectError(
            f"the subject gave no answer in {timeout:g} s and was stopped",
            place=name,
            next_step="give a longer time limit or a smaller input",
        ) from error
    finally:
        _kill_group(child)
    return Ended(code, tail.text())


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the process and whatever it started (it leads a session of its own)."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        child.kill()
    child.wait()


class _Tail:
    """Reads a stream to its end in a thread and keeps its last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while piece := os.read(self._stream.fileno(), TAIL_BYTES):
                self._kept = (self._kept + piece)[-TAIL_BYTES:]

    def text(self) -> str:
        """What was kept, once the stream has ended."""
        self._thread.join(timeout=5.0)
        return self._kept.decode(errors="replace")
