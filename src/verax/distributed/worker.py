"""A worker as the process that uses it sees it: begun, asked one thing at a time, ended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from verax.distributed.messages import pack, unpack
from verax.distributed.outcome import error_of_plain


class Worker(ABC):
    """A worker: a process or an actor of Ray. Its methods are called from one thread, but for
    `kill`, which may come from any."""

    name = ""
    host = ""

    @abstractmethod
    def begin(self, seconds: float | None) -> dict[str, Any]:
        """Begin it: what `serving.begin` says of it, which may take so many seconds (None: as long
        as a cluster has no room for it). Raises `WorkerDiedError`, `WorkerLateError`, and what that
        raises."""

    @abstractmethod
    def exchange(self, message: bytes, seconds: float | None) -> bytes:
        """The answer to a request. Raises `WorkerDiedError`, and `WorkerLateError` behind so many
        seconds, when the worker has been ended."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; does nothing when it has ended."""


def ask(
    worker: Worker, request: dict[str, Any] | bytes, seconds: float | None
) -> tuple[Any, list[str]]:
    """The value of a request, and the digests that the worker's host received for it.

    request: data, or as packed. Raises as `Worker.exchange`, and what was raised there.
    """
    message = request if isinstance(request, bytes) else pack(request)
    return value_of(worker.exchange(message, seconds), worker.name)


def value_of(message: bytes, worker: str) -> tuple[Any, list[str]]:
    """The value of a worker's answer, and the digests that its host received. Raises what was
    raised there."""
    answer = unpack(message)
    if "error" in answer:
        raise error_of_plain(answer["error"], worker)
    return answer["value"], list(answer["received"])
