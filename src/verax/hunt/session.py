"""`hunt`: workers judge cases until time is up, and what they find stays in the store.

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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import verax
from verax.base.errors import UsageError, VeraxError
from verax.base.processes import Guarded
from verax.hunt.alarm import CRASH, HANG, MEMORY, Alarm
from verax.hunt.case import NoCase
from verax.hunt.corpus import models as find_models
from verax.hunt.examine import TEXT
from verax.hunt.generate import FAMILIES, MODEL, generate
from verax.hunt.judging import JUDGING, RUNNING, HuntTask, new_finding
from verax.hunt.opinions import LOW, MEDIUM
from verax.hunt.programs.names import FAMILIES as PROGRAM_FAMILIES
from verax.hunt.programs.names import is_program_subject
from verax.hunt.store import HuntOutcome, Store
from verax.hunt.worker import MESSAGE_BYTES, STORE
from verax.ir.operator import REGISTRY
from verax.records.environment import environment
from verax.records.hunt import HuntResult, StoredFinding
from verax.runners.subjects.resolve import Command, NamedRunner, resolve_text

POLL_SECONDS = 0.5
RUN_SECONDS = 20.0
"""Seconds that one run of the subject may take."""
JUDGING_SHARE = 6.0
"""Times as long that judging and examining a case may take."""
MEMORY_MB = 4096
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


Progress = Callable[[int, float, int], None]
"""Called with (cases done, seconds, distinct findings)."""


def hunt(
    subject: str,
    *,
    against: str = "",
    seconds: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] = "hunt",
    workers: int = 1,
    run_seconds: float = RUN_SECONDS,
    memory_mb: int = MEMORY_MB,
    operators: tuple[str, ...] = (),
    families: tuple[str, ...] = (),
    models: str | os.PathLike[str] = "",
    progress: Progress | None = None,
) -> HuntResult:
    """Generate cases, have `subject` run them, and judge what it gives.

    subject: a runner's name, or `cmd:PROGRAM {model} {input} {output}`. against: another one, asked
    for a second opinion. seconds, cases: when to stop (neither: Ctrl-C). store: the folder of the
    store and the findings, which several hunts may share and later ones continue. run_seconds,
    memory_mb: what one run of the subject may take. operators: the only ones drawn alone; families:
    of generators; models: a folder of ONNX models that are cases, too. Raises `UsageError` for a
    subject that cannot run any network, and a folder that holds none.
    """
    _require_runner(subject)
    if against:
        _require_runner(against)
    _require_names("operator", operators, REGISTRY)
    programs = is_program_subject(subject)
    available = PROGRAM_FAMILIES if programs else (*FAMILIES, MODEL)
    _require_names("family", families, available)
    if programs and (operators or models or against):
        raise UsageError(
            "programs of PyTorch are drawn without --operators, --models and --against",
            next_step=f"choose of the families {', '.join(available)}",
        )
    if models:
        models = str(Path(models).absolute())
        find_models(models)
    elif MODEL in families:
        raise UsageError("there are no models to take", next_step="give their folder with --models")
    folder = Path(store).absolute()
    settings = {"subject": subject, "verax": verax.__version__}
    task = HuntTask(
        subject,
        against,
        str(folder),
        seed,
        run_seconds,
        tuple(operators),
        tuple(families),
        str(models),
    )
    session = _Session(task, Store(folder / STORE, settings), settings, memory_mb * 2**20)
    return session.run(workers, seconds, cases, progress)


def _require_runner(text: str) -> None:
    """Raises `UsageError` for recorded answers and files, which run one network only."""
    if is_program_subject(text):
        importlib.import_module("verax.hunt.programs.subject").require_backend(text)
        return
    resolved = resolve_text(text)
    if isinstance(resolved, Command) and "{model}" not in resolved.line:
        raise UsageError(
            "the command is not told which network to run",
            place=text,
            next_step="write {model} where it takes an ONNX file",
        )
    if not isinstance(resolved, NamedRunner | Command):
        raise UsageError(
            "a hunt needs a subject that runs any network",
            place=text,
            next_step="give a runner (`verax runners`) or cmd:PROGRAM {model} {input} {output}",
        )


def _require_names(kind: str, names: tuple[str, ...], supported: object) -> None:
    for name in names:
        if name not in supported:  # type: ignore[operator]
            raise UsageError(
                f"there is no {kind} {name!r}",
                next_step=f"choose of {', '.join(sorted(supported))}"  # type: ignore[call-overload]
                if kind == "family"
                else "`verax ops` lists them",
            )


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


class _Session:
    """The loop over workers. limit: bytes that a worker and its children may take."""

    def __init__(self, task: HuntTask, store: Store, settings: dict[str, str], limit: int) -> None:
        self.task, self.store, self.settings = task, store, settings
        self.memory_limit, self.done, self.begun = limit, 0, 0
        self.selector = selectors.DefaultSelector()
        self.workers: list[_Worker] = []
        self.repeats: list[int] = []  # cases of which a worker died once

    def run(
        self, workers: int, seconds: float | None, cases: int | None, progress: Progress | None
    ) -> HuntResult:
        began, interrupted = time.monotonic(), False
        try:
            for _ in range(workers):
                self._start()
            while True:
                elapsed = time.monotonic() - began
                over = seconds is not None and elapsed >= seconds
                for worker in list(self.workers):
                    more = not over and (cases is None or self.begun < cases)
                    if worker.case_number is None and (more or self.repeats):
                        self._assign(worker)
                if all(w.case_number is None for w in self.workers):
                    break
                self._listen()
                self._watch()
                if progress is not None:
                    progress(self.done, elapsed, len(self.store.findings()))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self._stop()
        findings = tuple(self.store.findings())
        result = HuntResult(
            self.task.subject,
            self.task.seed,
            self.store.counts(),
            findings,
            self.done,
            time.monotonic() - began,
            interrupted,
            _certificates(findings),
            environment(),
        )
        self.store.close()
        return result

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

    def _stop(self) -> None:
        for case_number in self.repeats:
            self.store.give_back(self.task.seed, case_number)
        for worker in list(self.workers):
            self._forget(worker)
            if worker.case_number is not None:
                self.store.give_back(self.task.seed, worker.case_number)


def _certificates(findings: Iterable[StoredFinding]) -> dict[str, str]:
    """What was written for an issue tracker; nothing of a folder that somebody took away."""
    texts = {}
    for finding in findings:
        if finding.folder:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                texts[finding.key] = (Path(finding.folder) / TEXT).read_text(encoding="utf-8")
    return texts


def resident(pid: int) -> int:
    """Bytes of memory that a process and its descendants hold; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return pages * PAGE + sum(resident(int(child)) for child in children)
