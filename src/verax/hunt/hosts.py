"""A hunt on the hosts of a cluster: cases go out by their numbers, findings come back as files.

Each worker of the pool has a session of its host (`host_session`) with a store of its own, which
lasts as long as the worker. The store of the hunt stays here: numbers are claimed in it before they
are sent, so that other hunts may share it and a later one goes on, and what a worker found is put
into it when it arrives. A finding that the store knows is examined nowhere again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from verax.base.errors import VeraxError
from verax.base.storage.files import atomic_write, scratch_folder
from verax.distributed import Reference, TaskOutcome, WorkerPool, fetch
from verax.hunt.host_session import JUDGING_SHARE, HostSession, Progress
from verax.hunt.judging import HuntTask
from verax.hunt.store import HuntOutcome, Store
from verax.hunt.worker import STORE
from verax.records.hunt import StoredFinding

CASES = 4
"""Cases that a worker is sent at a time."""
TEXTS = (".md", ".json", ".txt", ".py")
"""Files of a finding that may name the folder in which they were written."""
TRIES = 2
"""Times that a host's session may run a case whose subject dies, each in its limits."""


class HuntOnHosts:
    """A hunt by a pool's workers. done: cases that were finished. Arguments as of `HostSession`;
    memory_mb: what a worker's process may take."""

    def __init__(
        self,
        pool: WorkerPool,
        task: HuntTask,
        store: Store,
        settings: dict[str, str],
        memory_mb: int,
    ) -> None:
        self.pool, self.task, self.store, self.done = pool, task, store, 0
        models = pool.put(task.models) if task.models else None
        plain = {**dataclasses.asdict(task), "folder": "", "models": models}
        self.hunt = {"task": plain, "settings": settings, "memory_mb": memory_mb}
        self.claimed: set[int] = set()

    def run(self, seconds: float | None, cases: int | None, progress: Progress | None) -> bool:
        """Judge cases until time is up or so many were begun: True if it was interrupted."""
        began = time.monotonic()
        allowed = self.task.limit * JUDGING_SHARE + JUDGING_SHARE
        timeout = 2 * TRIES * CASES * allowed
        try:
            claims = self._claims(cases)
            for outcome in self.pool.run(judge_cases, claims, seconds=seconds, timeout=timeout):
                self._take(outcome)
                if progress is not None:
                    elapsed = time.monotonic() - began
                    progress(self.done, elapsed, len(self.store.findings()))
        except KeyboardInterrupt:
            return True
        finally:
            for case_number in self.claimed:
                self.store.give_back(self.task.seed, case_number)
        return False

    def _claims(self, cases: int | None) -> Generator[dict[str, Any]]:
        """Tasks of a few cases each, which are ours from then on."""
        begun = 0
        while cases is None or begun < cases:
            size = CASES if cases is None else min(CASES, cases - begun)
            numbers = [self.store.claim(self.task.seed) for _ in range(size)]
            self.claimed.update(numbers)
            begun += size
            keys = [finding.key for finding in self.store.findings()]
            yield {"hunt": self.hunt, "cases": numbers, "findings": keys}

    def _take(self, outcome: TaskOutcome) -> None:
        """Put what came of some cases into the store."""
        numbers = outcome.task["cases"]
        if outcome.is_done:
            for plain in outcome.value["findings"]:
                self._add(StoredFinding(**plain["finding"]), plain["files"], plain["root"])
            results = {n: HuntOutcome(**fields) for n, fields in outcome.value["outcomes"]}
        else:
            reason = outcome.loss or str(outcome.error)
            results = {n: HuntOutcome("unjudged", f"{reason} ({outcome.worker})") for n in numbers}
        for case_number, result in results.items():
            self.store.finish(self.task.seed, case_number, result)
            self.claimed.discard(case_number)
            self.done += 1

    def _add(self, finding: StoredFinding, files: dict[str, bytes], there: str) -> None:
        """A finding with the files of its folder, if the store does not know it. there: the folder
        of the worker's store, which texts name."""
        if any(stored.key == finding.key for stored in self.store.findings()):
            return
        root = Path(self.task.folder)
        for name, content in files.items():
            target = root / _inside(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.suffix in TEXTS:
                content = content.replace(there.encode(), os.fsencode(root))
            with atomic_write(target, durable=False) as stream:
                stream.write(content)
        folder = str(root / _inside(finding.folder)) if finding.folder else ""
        self.store.begin_finding(dataclasses.replace(finding, folder=folder, count=0))


def _inside(name: str) -> Path:
    """A path within a store's folder. Raises `VeraxError` for one that leaves it."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise VeraxError("a worker sent a file that lies outside of its store", place=name)
    return path


class _HuntStation:
    """What a worker has for one hunt: a folder, a store and a session. reported: findings that were
    sent, or were known to whoever asks."""

    def __init__(self, hunt: dict[str, Any]) -> None:
        self.hunt = hunt
        self.stack = contextlib.ExitStack()
        self.folder = self.stack.enter_context(scratch_folder())
        plain: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in hunt["task"].items()
        }
        models: Reference | None = plain["models"]
        plain["folder"], plain["models"] = str(self.folder), str(fetch(models)) if models else ""
        self.store = Store(self.folder / STORE, hunt["settings"])
        limit = hunt["memory_mb"] * 2**20
        self.session = HostSession(HuntTask(**plain), self.store, hunt["settings"], limit)
        self.reported: set[str] = set()

    def close(self) -> None:
        self.session.stop()
        self.store.close()
        self.stack.close()

    def judge(self, numbers: list[int], keys: list[str]) -> dict[str, Any]:
        seed = self.session.task.seed
        for key in keys:
            self.store.begin_finding(
                StoredFinding(key, "", "", "", "", "", seed, -1, 0, "", "", "")
            )
        self.reported.update(keys)
        self.store.open_cases(seed, numbers)
        self.session.run(1, None, len(numbers), None)
        fresh = [f for f in self.store.findings() if f.key not in self.reported]
        self.reported.update(f.key for f in fresh)
        outcomes = self.store.outcomes(seed, numbers)
        return {
            "outcomes": [[n, dataclasses.asdict(outcome)] for n, outcome in outcomes.items()],
            "findings": [self._sent(finding) for finding in fresh],
        }

    def _sent(self, finding: StoredFinding) -> dict[str, Any]:
        """A finding and the files of its folder, by paths within the store's folder."""
        root = str(self.folder)
        if not finding.folder:
            return {"finding": dataclasses.asdict(finding), "files": {}, "root": root}
        folder = Path(finding.folder).relative_to(self.folder)
        top = self.folder / Path(*folder.parts[:2])  # findings/NAME, which may hold cases
        files = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(top.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }
        own = dataclasses.replace(finding, folder=folder.as_posix())
        return {"finding": dataclasses.asdict(own), "files": files, "root": root}


_stations: list[_HuntStation] = []
"""In a worker: the last one."""


def judge_cases(task: dict[str, Any]) -> dict[str, Any]:
    """What came of some cases, in a worker: outcomes, and findings that nobody knew."""
    if not _stations or _stations[0].hunt != task["hunt"]:
        if _stations:
            _stations.pop().close()
        _stations.append(_HuntStation(task["hunt"]))
    return _stations[0].judge(task["cases"], task["findings"])
