"""A child process that lives through one check and forks for every run of the subject.

Starting Python and importing a framework takes seconds, a run of a small network milliseconds. So
the child (`worker.serve`) imports once, and each run happens in a fork of it: a process of its own
as before, which may crash, leave processes behind, or have its memory poisoned, with no trace in
the next run. Only Linux can do it: elsewhere frameworks do not survive a fork.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from verax.base.process.processes import GUARD_SECONDS, Ended, Guarded, Tail, too_late

CAN_FORK = sys.platform == "linux"
BEGUN, ENDED, UNFIT = b"begun", b"ended ", b"unfit"
"""What the child says: a run has begun; it has ended, with which code; it cannot fork safely."""
STARTS = 2
"""How often the child is started for one run, should it die before the run begins."""
_MESSAGE_BYTES = 4096


class ForkServer:
    """The child. command: without the descriptor that it is spoken to through, its last word.
    environment: added to ours. Started when it is needed, and again after it has died."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = tuple(command), dict(environment)
        self._busy = threading.Lock()
        self._fit = True
        self._child: Guarded | None = None
        self._output: Tail | None = None

    def run(self, folder: Path, *, name: str, timeout: float, fill: int | None) -> Ended | None:
        """How a fork ended that did what `folder` asks for; None when this has to be done without
        forking: another thread is at it, or the framework has started threads of its own.

        name: of the subject, for errors. timeout: seconds, with starting the child. fill: the byte
        that fresh memory of the fork holds. Raises `SubjectError` when the child cannot be started
        or the run takes too long; nothing is left of either then.
        """
        if not self._fit or not self._busy.acquire(blocking=False):
            return None
        try:
            end = time.monotonic() + min(timeout, threading.TIMEOUT_MAX)
            return self._run(folder, name, end, timeout, fill)
        except BaseException:
            self.stop()  # a run may be going on
            raise
        finally:
            self._busy.release()

    def _run(
        self, folder: Path, name: str, end: float, timeout: float, fill: int | None
    ) -> Ended | None:
        for _ in range(STARTS):
            child = self._child or self._start(name)
            child.name = name
            tail, heard = self._ask(folder, fill)
            begun = False
            while True:
                try:
                    self._channel.settimeout(max(1e-3, end - time.monotonic()))
                    message = self._channel.recv(_MESSAGE_BYTES) if heard else b""
                except TimeoutError as error:
                    raise too_late(name, timeout) from error
                except ConnectionError:
                    message = b""
                if message == BEGUN:
                    begun = True
                    continue
                break
            if message.startswith(ENDED):
                return Ended(int(message.removeprefix(ENDED)), tail.text())
            if message == UNFIT:
                self._fit = False
                self.stop()
                return None
            ended = self._died(child, tail)
            if begun:
                break
        return ended

    def _start(self, name: str) -> Guarded:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._child = Guarded(
                [*self._command, str(theirs.fileno())],
                name=name,
                environment=self._environment,
                pass_fds=[theirs.fileno()],
            )
        assert self._child.process.stdout is not None
        self._output = Tail(self._child.process.stdout)
        return self._child

    def _ask(self, folder: Path, fill: int | None) -> tuple[Tail, bool]:
        """Have a run begun; what it prints, and whether the child was there to hear it."""
        ours, theirs = os.pipe()
        tail = Tail(os.fdopen(ours, "rb"))
        words = json.dumps({"folder": str(folder), "fill": fill, "at": os.getcwd()})
        try:
            socket.send_fds(self._channel, [words.encode()], [theirs])
        except OSError:
            return tail, False
        finally:
            os.close(theirs)
        return tail, True

    def _died(self, child: Guarded, tail: Tail) -> Ended:
        """How the child itself ended. Raises `SubjectError` when it was stopped from outside."""
        output, self._child = self._output, None
        self._channel.close()
        code = child.wait(GUARD_SECONDS)
        words = tail.text() or (output.text() if output else "")
        return Ended(code, words)

    def stop(self) -> None:
        """End the child and a run that is going on."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()
            self._channel.close()
