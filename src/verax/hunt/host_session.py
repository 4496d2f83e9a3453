"""Workers of one host that judge cases: watched for the time and the memory that they take.

A worker that dies, hangs or takes too much memory while the subject runs is a finding; another one
takes its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from verax.base.errors import VeraxError
from verax.base.process.processes import Guarded
from verax.hunt.alarm import CRASH, HANG, MEMORY, Alarm
from verax.hunt.case import NoCase
from verax.hunt.generate import generate
from verax.hunt.judging import JUDGING, RUNNING, HuntTask, new_finding
from verax.hunt.opinions import LOW, MEDIUM
from verax.hunt.programs.names import is_program_subject
from verax.hunt.store import HuntOutcome, Store
from verax.hunt.worker import MESSAGE_BYTES

POLL_SECONDS = 0.5
JUDGING_SHARE = 6.0
"""Times as long that judging and examining a case may take."""
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
Progress = Callable[[int, float, int], None]
"""Called with (cases done, seconds, distinct findings)."""


@dataclass
class _Worker:
    """A worker process, the case it has, and what it does."""

    process: Guarded
    channel: socket.socket
    case_number: int | None = None
    isolated: bool = False
    stage: str = ""
    since: float = field(default_factory=time.monotonic)

    def stop(self) -> None:
        self.channel.close()
        self.process.stop()


class HostSession:
    """The loop over workers. limit: bytes that a worker and its children may take."""

    def __init__(self, task: HuntTask, store: Store, settings: dict[str, str], limit: int) -> None:
        self.task, self.store, self.settings = task, store, settings
        self.memory_limit, self.done, self.begun = limit, 0, 0
        self.selector = selectors.DefaultSelector()
        self.workers: list[_Worker] = []
        self.repeats: list[int] = []  # cases of which a worker died once

    def run(
        self, workers: int, seconds: float | None, cases: int | None, progress: Progress | None
    ) -> bool:
        """Judge cases until time is up or so many were begun here: True if it was interrupted.

        Workers stay for another run; `stop` ends them.
        """
        began, self.begun = time.monotonic(), 0
        try:
            for _ in range(workers - len(self.workers)):
                self._start()
            while True:
                elapsed = time.monotonic() - began
                over = seconds is not None and elapsed >= seconds
                for worker in list(self.workers):
                    more = not over and (cases is None or self.begun < cases)
                    if worker.case_number is None and (more or self.repeats):
                        self._assign(worker)
                if all(w.case_number is None for w in self.workers):
                    return False
                self._listen()
                self._watch()
                if progress is not None:
                    progress(self.done, elapsed, len(self.store.findings()))
        except KeyboardInterrupt:
            return True

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
            process = Guarded(
                [sys.executable, "-m", "verax.hunt.worker", str(theirs.fileno())],
                name="a worker of the hunt",
                environment=paths,
                stdout=os.open(os.devnull, os.O_WRONLY),
                pass_fds=[theirs.fileno()],
            )
        worker = _Worker(process, ours)
        plain = {**dataclasses.asdict(self.task), "settings": self.settings}
        ours.send(json.dumps(plain).encode())
        self.selector.register(ours, selectors.EVENT_READ, worker)
        self.workers.append(worker)

    def _assign(self, worker: _Worker) -> None:
        worker.isolated = bool(self.repeats)
        if self.repeats:
            case_number = self.repeats.pop()
        else:
            case_number = self.store.claim(self.task.seed)
            self.begun += 1
        worker.case_number, worker.stage, worker.since = case_number, "", time.monotonic()
        with contextlib.suppress(OSError):  # a dead one is seen by `_listen`
            worker.channel.send(
                json.dumps({"case_number": case_number, "isolated": worker.isolated}).encode()
            )

    def _listen(self) -> None:
        """Take what workers say; a closed channel is a worker's death."""
        for key, _ in self.selector.select(POLL_SECONDS):
            worker: _Worker = key.data
            try:
                message = worker.channel.recv(MESSAGE_BYTES)
            except OSError:
                message = b""
            if not message:
                self._lost(worker, CRASH, "its process died")
                continue
            event = json.loads(message)
            worker.since = time.monotonic()
            worker.stage = event.get("stage", worker.stage)
            if "done" in event:
                worker.case_number = None
                self.done += 1

    def _watch(self) -> None:
        """Stop workers that take too long or too much memory."""
        limit = self.task.limit
        for worker in list(self.workers):
            if worker.case_number is None:
                continue
            # the subject has a limit of its own, which gives a better message
            allowed = limit * (1.5 if worker.stage == RUNNING else JUDGING_SHARE) + JUDGING_SHARE
            if time.monotonic() - worker.since > allowed:
                self._lost(worker, HANG, f"no answer within {allowed:.0f} s")
            elif (used := resident(worker.process.process.pid)) > self.memory_limit:
                self._lost(worker, MEMORY, f"it took {used >> 20} MiB")

    def _lost(self, worker: _Worker, classification: str, reason: str) -> None:
        """Record what became of a worker's case, and put another worker in its place."""
        self._forget(worker)
        case_number, seed = worker.case_number, self.task.seed
        fault = worker.stage == RUNNING or (classification == CRASH and worker.stage == JUDGING)
        if case_number is not None and fault and not worker.isolated:
            self.repeats.append(case_number)
        elif case_number is not None:
            outcome = HuntOutcome("unjudged", f"{reason} while {worker.stage or 'starting'}")
            if fault:
                outcome = self._finding(case_number, classification, reason, worker.stage)
            self.store.finish(seed, case_number, outcome)
            self.done += 1
        self._start()

    def _finding(
        self, case_number: int, classification: str, reason: str, stage: str
    ) -> HuntOutcome:
        a = self.task
        try:
            family, aim, variant = self._description(case_number)
        except (NoCase, VeraxError):
            return HuntOutcome("unjudged", reason)
        message = f"{aim} ({variant}): {reason} while the subject was {stage}"
        alarm = Alarm(
            classification, aim, reason.partition(" MiB")[0].rstrip("0123456789"), "", message
        )
        if self.store.begin_finding(new_finding(alarm, a.seed, case_number)):
            sure = MEDIUM if stage == RUNNING else LOW
            argument = "it happened twice, in two processes; nobody else was asked"
            self.store.examined(alarm.key, sure, argument, "", "")
        return HuntOutcome("finding", message, alarm.key, family, aim, variant)

    def _description(self, case_number: int) -> tuple[str, str, str]:
        """Family, what it aims at, and what is tried, of a case that was drawn before."""
        a = self.task
        if is_program_subject(a.subject):
            campaign = importlib.import_module("verax.hunt.programs.campaign")
            words: tuple[str, str, str] = campaign.described(a.seed, case_number, a.families)
            return words
        case = generate(a.seed, case_number, a.operators, a.families, a.models)
        return case.family, case.subject_operator, case.reason

    def _forget(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        self.selector.unregister(worker.channel)
        worker.stop()

    def stop(self) -> None:
        """End the workers, and give back what they were at."""
        for case_number in self.repeats:
            self.store.give_back(self.task.seed, case_number)
        for worker in list(self.workers):
            self._forget(worker)
            if worker.case_number is not None:
                self.store.give_back(self.task.seed, worker.case_number)


def resident(pid: int) -> int:
    """Bytes of memory that a process and its descendants hold; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * PAGE + sum(resident(int(child)) for child in children)
