"""Chaos on a pool: hosts and workers are killed, hang and return, and every task is counted.

    python -m benchmarks.chaos                       # 30 minutes on a simulated Ray cluster
    python -m benchmarks.chaos --seconds 120 --seed 7
    python -m benchmarks.chaos --processes           # the pool of processes

A round gives the pool a hundred tasks that read contents, nap, raise, kill their worker once or
always, or hang. Meanwhile workers die by SIGKILL and, on a cluster of simulated hosts (Ray's own
utilities), hosts vanish and others join. Behind each round every task has to have exactly one
outcome, and the one that it was made for: done with its own value, its own error, or lost where it
kills or hangs always. One that
was lost though it neither kills nor hangs always needs two deaths by chaos, which are counted.
No host may have received contents twice. The exit code is 1 if anything was lost or mixed up.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from verax.distributed import RemoteError, TaskOutcome, WorkerPool, fetch, open_pool
from verax.distributed.contents import FOLDER
from verax.distributed.opening import SETTINGS

TASKS, WORKERS, HOSTS, CORES = 100, 6, 3, 2
A_HOST, A_WORKER = 0.015, 0.06
"""Chances, behind each outcome, that a host vanishes, and that a worker is killed."""
STARTS = 5
"""Times that a host is started: on a machine with other work it may come up too late for Ray."""
TIMEOUT = 8.0
"""Seconds that a task may take; hanging ones take longer."""
KINDS = {"read": 30, "nap": 40, "raise": 10, "die once": 6, "die": 2, "hang": 1}
"""Kinds of tasks, and how often each is drawn, to 89."""
QUICK = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
MEMORY = 80 << 20


def chaotic(task: dict[str, Any]) -> list[Any]:
    """What a task of a kind does, in a worker: its name and what it read."""
    kind, name = task["kind"], task["name"]
    if kind == "raise":
        raise LookupError(name)
    if kind == "hang":
        time.sleep(10 * TIMEOUT)
    mark = Path(task["marks"]) / name
    if kind == "die" or (kind == "die once" and not mark.exists()):
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "nap":
        time.sleep(task["seconds"])
    text = fetch(task["content"]).read_text() if kind == "read" else ""
    return [name, text]


@dataclasses.dataclass
class Tally:
    """What was counted. faults: in words; unlucky: tasks that were lost though they neither kill
    nor hang always; hits: how often chaos must have killed their workers for that."""

    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[str] = dataclasses.field(default_factory=list)
    unlucky: int = 0
    hits: int = 0
    killed: Counter[str] = dataclasses.field(default_factory=Counter)


class Simulated:
    """A cluster of simulated hosts, of which some vanish and others join."""

    def __init__(self, folder: Path) -> None:
        utilities = importlib.import_module("ray.cluster_utils")
        head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
        self.cluster = utilities.Cluster(
            initialize_head=True, head_node_args={**head, "_system_config": QUICK}
        )
        self.folder, self.nodes, self.joined = folder, {}, 0
        for _ in range(HOSTS):
            self.join()

    def join(self) -> None:
        """Another host."""
        self.joined += 1
        name = f"host{self.joined}"
        variables = {FOLDER: str(self.folder / name)}
        for left in reversed(range(STARTS)):
            try:
                self.nodes[name] = self.cluster.add_node(
                    num_cpus=CORES, env_vars=variables, object_store_memory=MEMORY, node_name=name
                )
                return
            except Exception as error:  # Ray has no class for a host that came up too late
                if not left:
                    raise
                print(f"{name} did not start: {error}", flush=True)

    def vanish(self, draw: random.Random) -> None:
        """Kill a host, and have another join in its place."""
        name = draw.choice(sorted(self.nodes))
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)
        self.join()


def workers_here() -> list[psutil.Process]:
    """The processes of workers that this process and its cluster have."""
    workers = []
    for child in psutil.Process().children(recursive=True):
        try:
            words = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "ray::Server" in words or (
            words.endswith(tuple("0123456789"))
            and ("-m verax.distributed.worker_process" in words and "guard.py" not in words)
        ):
            workers.append(child)
    return workers


def havoc(draw: random.Random, hosts: Simulated | None, tally: Tally) -> None:
    """Behind an outcome: now and then a worker is killed, and, less often, a host vanishes.

    It goes by outcomes, not by time: on a busy machine workers take seconds to begin.
    """
    chance = draw.random()
    if chance < A_HOST and hosts is not None:
        hosts.vanish(draw)
        tally.killed["hosts"] += 1
    elif chance < A_HOST + A_WORKER and (workers := workers_here()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(draw.choice(workers).pid, signal.SIGKILL)
            tally.killed["workers"] += 1


def tasks_of(pool: WorkerPool, draw: random.Random, marks: Path) -> Iterator[dict[str, Any]]:
    """The tasks of a round, with contents that all of them share."""
    texts = [f"content {n} of {draw.random()}" for n in range(5)]
    contents = [pool.put(text.encode(), f"{n}.txt") for n, text in enumerate(texts)]
    kinds = draw.choices(list(KINDS), list(KINDS.values()), k=TASKS)
    for number, kind in enumerate(kinds):
        own = number % len(texts)
        yield {
            "name": f"{number}-{draw.random()}",
            "kind": kind,
            "marks": str(marks),
            "seconds": draw.uniform(0.0, 0.2),
            "content": contents[own],
            "text": texts[own] if kind == "read" else "",
        }


def fault_of(outcome: TaskOutcome, tally: Tally) -> str:
    """What is wrong with an outcome, in words; "" for nothing."""
    task = outcome.task
    kind, name = task["kind"], task["name"]
    if outcome.is_done:
        tally.outcomes["done"] += 1
        right = outcome.value == [name, task["text"]] and kind not in ("raise", "die", "hang")
        return "" if right else f"task {name} ({kind}) gave {outcome.value}"
    if outcome.error is not None:
        tally.outcomes["raised"] += 1
        right = kind == "raise" and isinstance(outcome.error, RemoteError)
        if right and outcome.error.cause == f"LookupError: {name}":
            return ""
        return f"task {name} ({kind}) raised {outcome.error}"
    is_late = outcome.loss.startswith("no answer")
    tally.outcomes["late" if is_late else "lost"] += 1
    if kind in ("die", "hang") or is_late:  # a busy machine may be late with anything
        return ""
    tally.unlucky += 1
    tally.hits += 1 if kind == "die once" else 2
    return ""


def play(
    pool: WorkerPool, draw: random.Random, marks: Path, tally: Tally, hosts: Simulated | None
) -> None:
    """One round. Hosts vanish and join on the main thread, as Ray demands."""
    seen: Counter[int] = Counter()
    tasks = tasks_of(pool, draw, marks)
    for outcome in pool.run("benchmarks.chaos:chaotic", tasks, timeout=TIMEOUT):
        havoc(draw, hosts, tally)
        seen[outcome.index] += 1
        if fault := fault_of(outcome, tally):
            tally.faults.append(fault)
    if seen != Counter(range(TASKS)):
        missing = set(range(TASKS)) - set(seen)
        doubled = [n for n, count in seen.items() if count > 1]
        tally.faults.append(f"tasks without an outcome: {missing}, with several: {doubled}")
    kills = tally.killed["workers"] + CORES * tally.killed["hosts"]
    if tally.hits > kills:
        tally.faults.append(f"{tally.hits} deaths are told, and {kills} workers were killed")
    if twice := [key for key, count in pool.transfers.items() if count > 1]:
        tally.faults.append(f"contents that reached a host twice: {twice}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", action="store_true", help="no cluster, but processes")
    options = parser.parse_args(arguments)
    os.environ.update({k: v for k, v in SETTINGS.items() if k not in os.environ})
    tally, began, rounds = Tally(), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.processes:
            os.environ[FOLDER] = str(folder / "here")
        hosts = None if options.processes else Simulated(folder)
        address = None if hosts is None else hosts.cluster.address
        draw = random.Random(options.seed)
        try:
            with open_pool(2 if hosts is None else WORKERS, address) as pool:
                while time.monotonic() - began < options.seconds:
                    marks = folder / f"marks{rounds}"
                    marks.mkdir()
                    play(pool, draw, marks, tally, hosts)
                    rounds += 1
                    print(_line(rounds, began, tally), flush=True)
        except KeyboardInterrupt:
            pass
        finally:
            if hosts is not None:
                hosts.cluster.shutdown()
    for fault in tally.faults[:20]:
        print(f"  {fault}")
    return 1 if tally.faults else 0


def _line(rounds: int, began: float, tally: Tally) -> str:
    return (
        f"{time.monotonic() - began:.0f} s, {rounds} rounds of {TASKS} tasks: "
        f"{dict(tally.outcomes)}, {tally.unlucky} of them lost for two hits; killed: "
        f"{dict(tally.killed)}; {len(tally.faults)} faults"
    )


if __name__ == "__main__":
    sys.exit(main())
