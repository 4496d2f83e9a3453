"""One foreign process with a time limit: what it prints is read, bounded, and never in our way."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from verax.base.errors import VeraxError
from verax.base.process import guard
from verax.base.process.forks import on_fork
from verax.base.process.leaving import when_interrupted

GUARD = Path(guard.__file__)
GUARD_SECONDS = 2 * guard.PATIENCE
"""How long a guard may take to end what its program started."""
_MESSAGE_BYTES = 4096
_alive: set[Guarded] = set()
"""In a forked child: none, for these are the parent's."""
on_fork(_alive.clear)
_leaving = False

TAIL_BYTES = 1 << 14
"""How much of what a process printed last is kept."""
LINES, LINE_LENGTH = 3, 300
"""Lines of it that an error quotes, and how much of each."""


class SubjectError(VeraxError):
    """The subject refused, crashed or took too long."""


class SubjectDiedError(SubjectError):
    """A signal ended the subject's process."""


class SubjectLateError(SubjectError):
    """The subject took longer than it may."""


@dataclass(frozen=True)
class Ended:
    """Exit code (negative: the signal that killed it) and the end of what was printed."""

    code: int
    printed: str

    @property
    def ending(self) -> str:
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


class Guarded:
    """A foreign process, and the process that guards it (see `guard`): nothing that the program
    started survives its end, `stop`, or the end of this process, however that comes about.

    stdin, stdout, stderr: as for `subprocess.Popen`, whose attributes of these names are those of
    `process`. Raises `SubjectError` when the guard cannot be started; that the program cannot is
    said by `wait`.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.STDOUT,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """environment: added to ours. pass_fds: descriptors that the program gets as well."""
        self.name, self.was_cut = name, False
        if _leaving:
            raise SubjectError("Verax is being stopped", place=name)
        self._channel, theirs = socket.socketpair()
        # -I -S: no packages, no variables of the environment; it starts in some 20 ms.
        words = [sys.executable, "-I", "-S", str(GUARD), str(theirs.fileno()), *command]
        try:
            self.process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=[theirs.fileno(), *pass_fds],
            )
        except (OSError, ValueError) as error:
            self._channel.close()
            raise _unstarted(name, error) from error
        finally:
            theirs.close()
        _alive.add(self)

    def wait(self, timeout: float) -> int:
        """Exit code of the program (negative: the signal that killed it), once it and all that it
        started are gone.

        timeout: seconds. Raises `SubjectError` when it could not be started or does not end in
        time; then it has been stopped.
        """
        try:
            self._channel.settimeout(timeout if timeout < threading.TIMEOUT_MAX else None)
            message = self._channel.recv(_MESSAGE_BYTES).decode(errors="replace")
            self._await_guard()
        except TimeoutError as error:
            raise too_late(self.name, timeout) from error
        finally:
            self.stop()
        if message.startswith("unstarted "):
            raise _unstarted(self.name, message.partition(" ")[2].removesuffix("ended 127"))
        if not message.startswith("ended "):
            raise SubjectError(
                "the subject was stopped from outside"
                if _leaving
                else "the process that guards the subject was killed from outside",
                place=self.name,
            )
        return int(message.split()[1])

    def stop(self) -> None:
        """End the program and all that it started; does nothing when they have ended."""
        self._hang_up()
        self._await_guard()
        self._channel.close()
        _alive.discard(self)

    def cut(self) -> None:
        """Have it stopped, from any thread, without waiting for that."""
        self.was_cut = True
        self._hang_up()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            # Other than closing, this works too while a forked child holds a copy of the socket.
            self._channel.shutdown(socket.SHUT_RDWR)

    def _await_guard(self) -> None:
        try:
            self.process.wait(GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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
    guarded = Guarded(command, name=name, environment=environment)
    assert guarded.process.stdout is not None
    tail = Tail(guarded.process.stdout)
    return Ended(guarded.wait(timeout), tail.text())


def stop_all() -> None:
    """This process is to end: end all that `Guarded` started, and start no more."""
    global _leaving
    _leaving = True
    for guarded in list(_alive):
        guarded.cut()


when_interrupted(stop_all)


def too_late(name: str, timeout: float) -> SubjectLateError:
    """The error of a subject that was stopped after so many seconds."""
    return SubjectLateError(
        f"the subject gave no answer in {timeout:g} s and was stopped",
        place=name,
        next_step="give a longer time limit (--timeout) or a smaller input",
    )


def _unstarted(name: str, error: object) -> SubjectError:
    return SubjectError(
        f"the program cannot be started ({error})",
        place=name,
        next_step="check that it exists and may be executed",
    )


class Tail:
    """Reads a stream to its end in a thread and keeps its last bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._last = stream, b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while piece := os.read(self._stream.fileno(), TAIL_BYTES):
                self._last = (self._last + piece)[-TAIL_BYTES:]

    def text(self) -> str:
        """What was kept, once the stream has ended (a copy of its other end, in a forked child of
        this process, is not waited for)."""
        self._thread.join(timeout=1.0)
        return self._last.decode(errors="replace")
