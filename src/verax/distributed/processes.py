"""Workers that are processes of this machine, each with a guard: none outlives this process."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from typing import Any

from verax.base.errors import UsageError
from verax.base.process.processes import Ended, Guarded, SubjectError, Tail
from verax.distributed.contents import host_name
from verax.distributed.device import ExclusiveDevice
from verax.distributed.outcome import WorkerDiedError, WorkerLateError
from verax.distributed.pool import WorkerPool
from verax.distributed.worker import Worker, ask

MIN_LIMIT, A_CORE = 16, 4
"""Workers that a machine may have at least, and for each of its cores: more would only take its
memory."""
BEGIN_SECONDS = 120.0
"""What a worker may take to import and to say who it is."""
END_SECONDS = 5.0
"""What is waited to learn how a process ended whose channel is closed."""
LENGTH = struct.Struct("<Q")
BLOCK = 1 << 20


def require_room(workers: int) -> None:
    """Raise `UsageError` for so many workers that this machine could only choke on them."""
    cores = os.cpu_count() or 1
    limit = max(MIN_LIMIT, A_CORE * cores)
    if workers > limit:
        raise UsageError(
            f"{workers} workers are too many for this machine of {cores} cores: each is a process "
            "with libraries of its own",
            next_step=f"give at most {limit}; as many as there are cores is usual",
        )


class ProcessPool(WorkerPool):
    """A pool of processes of this machine."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        require_room(workers)

    def _worker(self, device: ExclusiveDevice | None) -> Worker:
        if device is not None and device.host not in ("", host_name()):
            raise UsageError(
                f"host={device.host} is another machine than this one, {host_name()}",
                place=device.label,
                next_step="leave host= out, or give --ray: a cluster has several hosts",
            )
        return ProcessWorker(device)

    @property
    def hosts(self) -> tuple[str, ...]:
        """This one."""
        return (host_name(),)


class ProcessWorker(Worker):
    """A process that runs `worker_process`."""

    def __init__(self, device: ExclusiveDevice | None) -> None:
        self._device, self._is_killed = device, False
        self._process: Guarded | None = None
        self._channel: socket.socket | None = None
        self._tail: Tail | None = None
        self._lock = threading.Lock()

    def begin(self, seconds: float | None) -> dict[str, Any]:
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._is_killed:
                ours.close()
                raise WorkerDiedError("the worker was ended before it began")
            try:
                self._process = Guarded(
                    [
                        *(sys.executable, "-m", "verax.distributed.worker_process"),
                        str(theirs.fileno()),
                    ],
                    name="a worker",
                    environment={"PYTHONPATH": search_path()},
                    pass_fds=[theirs.fileno()],
                )
            except SubjectError as error:
                ours.close()
                raise WorkerDiedError(error.cause, next_step=error.next_step) from error
            self._channel = ours
            assert self._process.process.stdout is not None
            self._tail = Tail(self._process.process.stdout)
            self.name = f"process {self._process.process.pid}"
        plain = None if self._device is None else self._device.to_plain()
        value, _ = ask(self, {"begin": {"device": plain}}, seconds or BEGIN_SECONDS)
        return dict(value)

    def exchange(self, message: bytes, seconds: float | None) -> bytes:
        deadline = None if seconds is None else time.monotonic() + seconds
        channel = self._channel
        assert channel is not None
        try:
            channel.settimeout(seconds)
            channel.sendall(LENGTH.pack(len(message)) + message)
            (length,) = LENGTH.unpack(_read(channel, LENGTH.size, deadline))
            return _read(channel, length, deadline)
        except TimeoutError:
            self.kill()
            raise WorkerLateError(f"no answer within {seconds:g} s", place=self.name) from None
        except OSError:
            raise WorkerDiedError(self._ending(), place=self.name) from None

    def _ending(self) -> str:
        """How the process ended, in words."""
        if self._is_killed or self._process is None or self._tail is None:
            return "it was ended"
        try:
            ended = Ended(self._process.wait(END_SECONDS), self._tail.text())
        except SubjectError as error:
            return error.cause
        return f"{ended.ending}: {ended.last_words}"

    def kill(self) -> None:
        with self._lock:
            self._is_killed = True
            process, channel = self._process, self._channel
        if channel is not None:
            with contextlib.suppress(OSError):
                channel.shutdown(socket.SHUT_RDWR)  # whoever waits for an answer hears of it
        if process is not None:
            process.stop()


def search_path() -> str:
    """Where this process finds modules, as PYTHONPATH says it."""
    return os.pathsep.join(os.path.abspath(p) for p in dict.fromkeys(sys.path))


def _read(channel: socket.socket, size: int, deadline: float | None) -> bytes:
    """So many bytes. Raises `TimeoutError`, and `OSError` when the other end is closed."""
    pieces = []
    while size:
        if deadline is not None:
            channel.settimeout(max(0.001, deadline - time.monotonic()))
        piece = channel.recv(min(size, BLOCK))
        if not piece:
            raise ConnectionResetError("closed")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)
