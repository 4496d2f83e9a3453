"""`hunt`: workers judge cases until time is up, and what they find stays in the store.

The workers are of this host (`host_session`), or of all hosts of a cluster (`hosts`).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import verax
from verax.base.errors import UsageError
from verax.distributed import open_pool, require_room
from verax.hunt.corpus import models as find_models
from verax.hunt.examine import TEXT
from verax.hunt.generate import FAMILIES, MODEL
from verax.hunt.host_session import HostSession, Progress
from verax.hunt.hosts import HuntOnHosts
from verax.hunt.judging import HuntTask
from verax.hunt.programs.names import FAMILIES as PROGRAM_FAMILIES
from verax.hunt.programs.names import is_program_subject
from verax.hunt.store import Store
from verax.hunt.worker import STORE
from verax.ir.operator import REGISTRY
from verax.records.environment import environment
from verax.records.hunt import HuntResult, StoredFinding
from verax.runners.subjects.resolve import Command, NamedRunner, resolve_text

RUN_SECONDS = 20.0
"""Seconds that one run of the subject may take."""
MEMORY_MB = 4096


def hunt(
    subject: str,
    *,
    against: str = "",
    seconds: float | None = None,
    cases: int | None = None,
    seed: int = 0,
    store: str | os.PathLike[str] = "hunt",
    workers: int = 0,
    ray: str | None = None,
    run_seconds: float = RUN_SECONDS,
    memory_mb: int = MEMORY_MB,
    operators: tuple[str, ...] = (),
    families: tuple[str, ...] = (),
    models: str | os.PathLike[str] = "",
    progress: Progress | None = None,
) -> HuntResult:
    """Generate cases, have `subject` run them, and judge what it gives.

    workers: processes that judge (0: one); with ray, workers of a cluster, each with its processes,
    as `verax.distributed.open_pool` takes them.
    subject: a runner's name, or `cmd:PROGRAM {model} {input} {output}`. against: another one, asked
    for a second opinion. seconds, cases: when to stop (neither: Ctrl-C). store: the folder of the
    store and the findings, which several hunts may share and later ones continue. run_seconds,
    memory_mb: what one run of the subject may take. operators: the only ones drawn alone; families:
    of generators; models: a folder of ONNX models that are cases, too. Raises `UsageError` for a
    subject that cannot run any network, and a folder that holds none.
    """
    if ray is None:
        require_room(workers)
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
    own = Store(folder / STORE, settings)
    began = time.monotonic()
    try:
        if ray is not None:
            with open_pool(workers, ray) as pool:
                on_hosts = HuntOnHosts(pool, task, own, settings, memory_mb)
                interrupted = on_hosts.run(seconds, cases, progress)
                done = on_hosts.done
        else:
            session = HostSession(task, own, settings, memory_mb * 2**20)
            try:
                interrupted = session.run(workers or 1, seconds, cases, progress)
            finally:
                session.stop()
            done = session.done
        findings = tuple(own.findings())
        return HuntResult(
            subject,
            seed,
            own.counts(),
            findings,
            done,
            time.monotonic() - began,
            interrupted,
            _certificates(findings),
            environment(),
        )
    finally:
        own.close()


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


def _certificates(findings: Iterable[StoredFinding]) -> dict[str, str]:
    """What was written for an issue tracker; nothing of a folder that somebody took away."""
    texts = {}
    for finding in findings:
        if finding.folder:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                texts[finding.key] = (Path(finding.folder) / TEXT).read_text(encoding="utf-8")
    return texts
