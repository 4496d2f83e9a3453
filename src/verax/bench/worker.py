"""The process of one engine: prepares it, then runs turns when told to.

Spoken on standard input and output, one JSON object a line. First the parent sends
{"module", "settings", "model", "threads", "inputs": an .npz file, "outputs": where to write one,
"warm": seconds}, module and settings being those of a `runners.engines.Engine`; the worker answers
{"version", "imports", "prepare", "first"}, seconds (to import the runtime, to load and compile the
model with that, for the first run), or {"failure"}. Then for each {"seconds", "calls"} it runs at
least that many calls for at least that long and answers {"times": milliseconds of each call,
"memory", "peak_memory"}: megabytes now and at most. With {"limit": seconds, "standing": a file} in
an order, where each thread stands is written there shortly before the limit is over.
It leaves when its input closes. What libraries print goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from verax.base.errors import VeraxError

WARM_SECONDS = 0.5
LATE = 0.9
"""Share of the time that an order may take after which it is noted where each thread stands."""


def resident_megabytes(field: str = "VmRSS") -> float:
    """Resident memory of this process, now or ("VmHWM") at most; 0 where the system does not
    tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(x.split()[1]) * 1.024e-3 for x in lines if x.startswith(f"{field}:"))
    except (OSError, IndexError, ValueError, StopIteration):
        return 0.0


def prepare(order: dict[str, Any]) -> tuple[Callable[[], Sequence[np.ndarray]], dict[str, Any]]:
    """Load the model and run it warm; the function to time and the answer to the parent."""
    inputs = dict(np.load(order["inputs"]))
    begin = time.perf_counter()
    engine = importlib.import_module(f"verax.runners.engines.{order['module']}")
    getattr(engine, "runtime", lambda: None)()
    imported = time.perf_counter()
    prepared = engine.prepared(order["model"], order["threads"], order["settings"])
    run = prepared.bind(inputs)
    loaded = time.perf_counter()
    outputs = [np.array(array) for array in run()]
    end = time.perf_counter()
    np.savez(order["outputs"], *outputs)
    turn(run, order.get("warm", WARM_SECONDS), 1)
    return run, {
        "version": prepared.version,
        "imports": imported - begin,
        "prepare": loaded - begin,
        "first": end - loaded,
    }


@contextlib.contextmanager
def watched(order: dict[str, Any]) -> Iterator[None]:
    """While an order is followed: see the protocol for "limit" and "standing"."""
    if not order.get("limit"):
        yield
        return
    with open(order["standing"], "w") as stream:
        faulthandler.dump_traceback_later(order["limit"] * LATE, file=stream)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def turn(run: Callable[[], object], seconds: float, calls: int) -> list[float]:
    """Times of single calls, milliseconds."""
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < calls or time.perf_counter() - begin < seconds:
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


def serve(orders: TextIO, answers: TextIO) -> None:
    """Follow the protocol of the module's docstring until `orders` closes."""

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    first = orders.readline()
    if not first:
        return
    order = json.loads(first)
    try:
        with watched(order):
            run, ready = prepare(order)
    except VeraxError as error:
        answer({"failure": str(error)})
        return
    except Exception as error:
        answer({"failure": f"{type(error).__name__}: {error}"})
        return
    answer(ready)
    for line in orders:
        order = json.loads(line)
        with watched(order):
            times = turn(run, order["seconds"], order["calls"])
        peak = resident_megabytes("VmHWM")
        answer({"times": times, "memory": resident_megabytes(), "peak_memory": peak})


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
