"""The race: one process per engine and thread count, taking turns round after round."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.machine.cores import available_cores
from verax.base.option_groups.compile_options import TURN_TIMEOUT
from verax.base.process.processes import Ended, Guarded, SubjectError
from verax.base.storage.files import scratch_folder
from verax.bench.worker import WARM_SECONDS
from verax.records.benchmark import Benchmark, Timing
from verax.records.environment import environment
from verax.runners.registry import ENGINES

BUSY = 0.25
"""Load per core, before the race, from which figures are doubtful."""
REST = 0.25
"""Seconds between turns: threads of OpenMP look for more work for 200 ms after theirs, and would do
so beside whoever is next."""
SETTLED, NEAR = 1.02, 1.3
"""Times as long as the fastest that the fastest call of a second turn may take; and how far behind
the fastest of as many threads an engine may be for its figure to matter."""
LONGEST_WATCH = 1e6
"""Seconds; for whoever may take longer, nobody looks where it stands."""
HELD_TO_AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""Variables that keep oneDNN (of PyTorch and OpenVINO) and PyTorch's own kernels from using more
than AVX2. The other peers know no such switch."""

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of all is done, 0 to 1."""


@dataclass(frozen=True)
class Contestant:
    """An engine (a key of `ENGINES`), the model as it takes it, and its threads.

    settings: beside the engine's own. python: the interpreter of an environment in which the
    engine is installed, empty for this one; NumPy must be installed there too. environment:
    variables of its process.
    """

    engine: str
    model: str
    threads: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    python: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class _Lane:
    """A contestant's process and what it has shown so far."""

    who: Contestant
    process: Guarded
    outputs: Path
    timeout: float
    ready: dict[str, Any] = field(default_factory=dict)
    failure: str = ""
    rounds: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    calls: int = 0
    memory: float = 0.0
    peak_memory: float = 0.0
    spent: float = 0.0

    @property
    def best(self) -> float:
        """The fastest call, in milliseconds."""
        return min(self.lows, default=math.inf)

    @property
    def is_settled(self) -> bool:
        """Whether the fastest call of another turn was as fast as the fastest of all."""
        low = sorted(self.lows)[:2]
        return len(low) == 2 and low[1] <= SETTLED * low[0]

    @property
    def standing(self) -> Path:
        """Where its process writes what it is doing when it is late."""
        return self.outputs.with_suffix(".standing")

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Send an order, wait for the answer; a process that died answers with a failure, and one
        that takes too long is ended and does so as well."""
        orders, answers = self.process.process.stdin, self.process.process.stdout
        assert orders is not None and answers is not None
        if self.timeout < LONGEST_WATCH:
            order |= {"limit": self.timeout, "standing": str(self.standing)}
        limit = threading.Timer(min(self.timeout, threading.TIMEOUT_MAX), self.process.cut)
        limit.start()
        try:
            orders.write(json.dumps(order).encode() + b"\n")
            orders.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        finally:
            limit.cancel()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self.process.was_cut:
            standing = _standing(self.standing)
            return {"failure": f"it gave no answer in {self.timeout:g} s and was stopped{standing}"}
        try:
            ending = Ended(self.process.wait(self.timeout), "").ending
        except SubjectError as error:
            ending = error.cause
        return {"failure": f"its process died ({ending})"}

    def close(self) -> None:
        """End the process."""
        self.process.stop()
        for stream in (self.process.process.stdin, self.process.process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()

    def load(self, order: dict[str, Any]) -> None:
        """Let it get ready."""
        self.ready = self.ask(order)
        self.failure = self.ready.get("failure", "")

    def turn(self, seconds: float, calls: int) -> None:
        begin = time.monotonic()
        answer = self.ask({"seconds": seconds, "calls": calls})
        self.spent += time.monotonic() - begin
        if "failure" in answer:
            self.failure = answer["failure"]
            return
        self.rounds.append(statistics.median(answer["times"]))
        self.lows.append(min(answer["times"]))
        self.calls += len(answer["times"])
        self.memory, self.peak_memory = answer["memory"], answer["peak_memory"]


def race(
    model: str,
    contestants: Sequence[Contestant],
    inputs: Mapping[str, np.ndarray],
    *,
    rounds: int = 15,
    seconds: float = 0.3,
    calls: int = 3,
    seed: int = 0,
    timeout: float = TURN_TIMEOUT,
    patience: float = math.inf,
    behind: float = math.inf,
    further: int = 0,
    hasty: bool = False,
    warm: float = WARM_SECONDS,
    progress: Progress = lambda stage, done: None,
) -> Benchmark:
    """Time `contestants` on `inputs`; `model` is its name in the record.

    Every round, each engine runs for `seconds` and at least `calls` calls; the order moves by one
    each round. An engine that cannot load the model, or takes more than `timeout` seconds for that
    or for a turn, is in the record with its failure; one whose turns have taken `patience` seconds
    together takes no more of them; nor does one that after two turns takes `behind` times as long
    as the fastest with as many threads. further: so many more rounds, at most, for engines near the
    fastest, until two turns of each had equally fast calls (on a machine that others disturb, the
    fastest call of a few turns is a matter of luck); they may take as much longer. hasty: engines
    on more threads than the fewest are loaded side by side, and how long that took says nothing.
    warm: seconds for which an engine runs before it is timed. Processes are ended when this returns
    or is interrupted.
    """
    before = _load()
    lanes: list[_Lane] = []
    with scratch_folder() as scratch:
        stored = scratch / "inputs.npz"
        np.savez(stored, **dict(inputs))  # type: ignore[arg-type]
        try:
            for index, who in enumerate(contestants):
                lanes.append(_start(who, scratch, scratch / f"{index}.npz", timeout))
            orders = [_order(lane, stored, warm) for lane in lanes]
            fewest_threads = min((lane.who.threads for lane in lanes), default=1)
            alone = [not hasty or lane.who.threads == fewest_threads for lane in lanes]
            for index, (lane, order) in enumerate(zip(lanes, orders)):
                if alone[index]:
                    progress(f"loading {_title(lane.who)}", index / (len(lanes) * 2))
                    lane.load(order)
            together = [n for n, by_itself in enumerate(alone) if not by_itself]
            with ThreadPoolExecutor(available_cores()) as beside:
                try:
                    list(beside.map(lambda n: lanes[n].load(orders[n]), together))
                except BaseException:  # an interrupt: nobody is waited for
                    for lane in lanes:
                        lane.process.stop()
                    raise
            running = [lane for lane in lanes if not lane.failure]
            for index in range(rounds + further):
                turns, allowed = running, patience
                if index >= rounds:
                    allowed = patience * (index + 1) / max(rounds, 1)
                    turns = [x for x in _close_enough(running, NEAR) if not x.is_settled]
                    if not turns:
                        break
                label = f"round {index + 1}" + (f" of {rounds}" if index < rounds else "")
                progress(label, min(0.5 + index / (2 * rounds), 1.0))
                for i in range(len(turns)):
                    lane = turns[(i + index) % len(turns)]
                    if lane.spent < allowed:
                        time.sleep(REST)
                        lane.turn(seconds, calls)
                running = [lane for lane in running if not lane.failure]
                if index > 0:
                    running = _close_enough(running, behind)
            first = next((lane.outputs for lane in lanes if not lane.failure), None)
            timings = tuple(_timing(lane, first) for lane in lanes)
        finally:
            for lane in lanes:
                lane.close()
    shapes = {name: f"{a.dtype}[{', '.join(map(str, a.shape))}]" for name, a in inputs.items()}
    return Benchmark(model, shapes, timings, environment(), (before, _load()), seed, _notes(before))


def _order(lane: _Lane, inputs: Path, warm: float) -> dict[str, Any]:
    """What a worker is told first."""
    engine = ENGINES[lane.who.engine]
    return {
        "module": engine.module,
        "settings": {**engine.settings, **lane.who.settings},
        "model": lane.who.model,
        "threads": lane.who.threads,
        "inputs": str(inputs),
        "outputs": str(lane.outputs),
        "warm": warm,
    }


def _close_enough(lanes: Sequence[_Lane], behind: float) -> list[_Lane]:
    """Those whose fastest call took less than `behind` times the fastest with as many threads."""
    best: dict[int, float] = {}
    for lane in lanes:
        best[lane.who.threads] = min(best.get(lane.who.threads, math.inf), lane.best)
    return [lane for lane in lanes if lane.best <= behind * best[lane.who.threads]]


def _title(who: Contestant) -> str:
    return f"{who.engine}, {who.threads} thread{'s' if who.threads > 1 else ''}"


def _notes(load: float) -> tuple[str, ...]:
    """What makes the figures doubtful, in words."""
    cores = available_cores()
    if load < cores * BUSY:
        return ()
    return (
        f"the machine was busy with other work (load {load:.1f} on {cores} cores): figures of "
        "several threads suffer most, and no figure holds for a quiet machine",
    )


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _start(who: Contestant, scratch: Path, outputs: Path, timeout: float) -> _Lane:
    environment = {"OMP_NUM_THREADS": str(who.threads), **who.environment}
    if who.python:  # nothing of this environment but ourselves may be seen in the other
        package_folder = scratch / "path"
        package_folder.mkdir(exist_ok=True)
        link = package_folder / "verax"
        if not link.exists():
            link.symlink_to(Path(__file__).parents[1], target_is_directory=True)
        environment["PYTHONPATH"] = str(package_folder)
    process = Guarded(
        [who.python or sys.executable, "-m", "verax.bench.worker"],
        name=_title(who),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        environment=environment,
    )
    return _Lane(who, process, outputs, timeout)


def _timing(lane: _Lane, first: Path | None) -> Timing:
    who = lane.who
    if lane.failure or first is None:
        return Timing(who.engine, who.threads, failure=lane.failure or "no engine ran")
    return Timing(
        who.engine,
        who.threads,
        lane.ready["version"],
        tuple(round(t, 5) for t in lane.rounds),
        round(lane.best, 5),
        round(lane.ready["prepare"], 4),
        round(lane.ready["imports"], 4),
        round(lane.ready["first"], 4),
        round(lane.memory, 1),
        round(lane.peak_memory, 1),
        lane.calls,
        _difference(lane.outputs, first),
    )


def _without_ones(array: np.ndarray) -> tuple[int, ...]:
    """The shape without axes of one, which some engines drop."""
    return tuple(n for n in array.shape if n != 1)


def _standing(path: Path) -> str:
    """What a worker that is late was doing, for the end of a sentence: the innermost line of each
    thread, the main one's last. "" where it had no time to write that."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    inner = [
        line.strip().removeprefix("File ").replace('"', "")
        for before, line in itertools.pairwise(lines)
        if before.startswith(("Thread ", "Current thread "))
    ]
    return f"; it stood at {'; '.join(inner)}" if inner else ""


def _difference(path: Path, first: Path) -> float:
    """Largest absolute difference of the outputs relative to the first engine's largest output."""
    with np.load(path) as mine, np.load(first) as theirs:
        worst = 0.0
        for key in theirs.files:
            if key not in mine.files or _without_ones(mine[key]) != _without_ones(theirs[key]):
                return float("inf")
            b = theirs[key].astype(np.float64)
            a = mine[key].astype(np.float64).reshape(b.shape)
            if a.size:
                worst = max(worst, float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-300)))
        return worst
