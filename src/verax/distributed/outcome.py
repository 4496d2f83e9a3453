"""What comes of a task: its value, the error that it raised, or the reason why it was lost."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verax.base.errors import VeraxError


class WorkerDiedError(VeraxError):
    """The process of a worker or an actor is gone, or its host is (`host_is_gone`)."""

    def __init__(self, cause: str, *, host_is_gone: bool = False, **context: str) -> None:
        super().__init__(cause, **context)
        self.host_is_gone = host_is_gone


class WorkerLateError(VeraxError):
    """A worker or an actor did not answer in time, and was ended."""


class RemoteError(VeraxError):
    """A function or a method raised, in a worker, what is no `VeraxError`. trace: its traceback."""

    def __init__(self, cause: str, *, trace: str = "", **context: str) -> None:
        super().__init__(cause, **context)
        self.trace = trace


@dataclass(frozen=True)
class TaskOutcome:
    """What came of one task.

    index: of the task in the order in which tasks were given, from 0; task: as it was given. value:
    what the function returned, as plain data. error: what it raised: a `VeraxError` as it was
    raised, else a `RemoteError`. loss: why there is neither ("" otherwise): its worker died twice,
    or took too long. worker: who did it last ("host:process"); host: the worker's host.
    """

    index: int
    task: Any
    value: Any = None
    error: VeraxError | None = None
    loss: str = ""
    worker: str = ""
    host: str = ""

    @property
    def is_done(self) -> bool:
        """True if there is a value."""
        return self.error is None and not self.loss

    def result(self) -> Any:
        """The value. Raises the task's error, and `WorkerDiedError` for a task that was lost."""
        if self.error is not None:
            raise self.error
        if self.loss:
            raise WorkerDiedError(f"a task was lost: {self.loss}", place=self.worker)
        return self.value


def error_to_plain(error: BaseException) -> dict[str, str]:
    """An error as data."""
    if isinstance(error, VeraxError):
        plain = {"kind": type(error).__name__, "cause": error.cause}
        return {**plain, "place": error.place, "next_step": error.next_step}
    trace = "".join(traceback.format_exception(error))
    return {"kind": "", "cause": f"{type(error).__name__}: {error}", "trace": trace}


def error_of_plain(plain: dict[str, str], worker: str) -> VeraxError:
    """The error again: of the class that has its name, if it was imported here, else `VeraxError`;
    what was none is a `RemoteError`."""
    cause, location = plain["cause"], plain.get("place", "")
    if not plain["kind"]:
        return RemoteError(cause, trace=plain.get("trace", ""), place=worker)
    kinds = {kind.__name__: kind for kind in _kinds(VeraxError)}
    kind = kinds.get(plain["kind"], VeraxError)
    return kind(cause, place=location, next_step=plain.get("next_step", ""))


def _kinds(kind: type[VeraxError]) -> Iterator[type[VeraxError]]:
    """A class and all that inherit from it, but for those that say something of workers."""
    if kind not in (WorkerDiedError, WorkerLateError):
        yield kind
        for inner in kind.__subclasses__():
            yield from _kinds(inner)
