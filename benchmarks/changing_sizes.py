"""Streams of calls whose sizes change: Verax beside ONNX Runtime.

Run: python -m benchmarks.changing_sizes FOLDER [NAME ...] [--calls 30] [--after 60]

The networks are those of `benchmarks.sizes_networks`, written into FOLDER. Every input axis that a
file names by a symbol changes, the same for the same name, drawn with a seed. Each row is a process
of its own with one thread. *Verax, nothing kept* begins with an empty cache on disk; *Verax, kept*
finds there what the process before it made, and draws other sizes. Reported: processor seconds of
the whole stream and of the same calls once more; ms that the first call at a size costs more than
the second (median over sizes behind the first); programs made in the process; MB that it holds in
the end; with --after, seconds of the stream once more after so many seconds of calls, in which
sizes that came often were specialized beside them (of the calling thread alone).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.size_memory import ENGINES, held
from benchmarks.sizes_networks import NETWORKS, SIZES, Sizes, write

SEEDS = {"onnxruntime": 38, "nothing kept": 38, "onnxruntime, others": 83, "kept": 83}
ROWS = {
    "onnxruntime": "ONNX Runtime",
    "nothing kept": "Verax, nothing kept",
    "onnxruntime, others": "ONNX Runtime, other sizes",
    "kept": "Verax, kept, other sizes",
}
COLUMNS = ("network", "engine", "stream s", "again s", "new size ms", "after s", "programs", "MB")


def stream(
    types: dict[str, tuple[list[Any], Any]], calls: int, sizes: Sizes, seed: int
) -> list[dict[str, np.ndarray]]:
    """The inputs of every call."""
    rng = np.random.default_rng(seed)
    names = sorted({str(d) for dims, _ in types.values() for d in dims if not isinstance(d, int)})
    first = {str(dims[0]) for dims, _ in types.values() if dims and not isinstance(dims[0], int)}
    feeds = []
    for _ in range(calls):
        steps = (sizes.high - sizes.low) // sizes.step + 1
        drawn = {
            n: int(
                rng.integers(1, sizes.batch + 1)
                if n in first
                else sizes.low + sizes.step * rng.integers(0, steps)
            )
            for n in names
        }
        feed = {}
        for name, (dims, dtype) in types.items():
            shape = [d if isinstance(d, int) else drawn[str(d)] for d in dims]
            is_float = np.issubdtype(dtype, np.floating)
            values = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
            feed[name] = values.astype(dtype)
        feeds.append(feed)
    return feeds


def _counted(made: list[int]) -> None:
    """Count the programs that Verax makes."""
    from verax.compiler.specialize import Specializer

    for name in ("specialize", "specialize_open"):
        method: Callable[..., Any] = getattr(Specializer, name)

        def counting(self: Any, *given: Any, _method: Any = method, **named: Any) -> Any:
            made[0] += 1
            return _method(self, *given, **named)

        setattr(Specializer, name, counting)


def measure(row: str, network: str, path: str, calls: int, after: float) -> dict[str, Any]:
    """What one engine takes; in a process of its own."""
    made = [0]
    engine = "onnxruntime" if row.startswith("onnxruntime") else "verax"
    if engine == "verax":
        _counted(made)
    types, run = ENGINES[engine](path)
    feeds = stream(types, calls, SIZES[network], SEEDS[row])

    def seconds(clock: Callable[[], float]) -> list[float]:
        taken = []
        for feed in feeds:
            before = clock()
            run(feed)
            taken.append(clock() - before)
        return taken

    first = seconds(time.process_time)
    again = seconds(time.process_time)
    later = None
    if after:
        until = time.monotonic() + after
        while time.monotonic() < until:
            seconds(time.thread_time)
        later = sum(seconds(time.thread_time))
    new = [1e3 * (a - b) for a, b in zip(first[1:], again[1:], strict=True)]
    return {
        "stream": sum(first),
        "again": sum(again),
        "new": statistics.median(new),
        "after": later,
        "programs": made[0] if engine == "verax" else None,
        "held": held()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--after", type=float, default=0.0)
    parser.add_argument("--row", choices=list(ROWS), help="one row of one network, as JSON")
    given = parser.parse_args()
    if given.row:
        warnings.simplefilter("ignore")
        (network,) = given.names
        path = str(write(network, given.folder))
        print(json.dumps(measure(given.row, network, path, given.calls, given.after)))
        return
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * (len(COLUMNS) - 2))
    for name in given.names:
        write(name, given.folder)
        with tempfile.TemporaryDirectory() as cache:
            for row, text in ROWS.items():
                command = [sys.executable, "-m", "benchmarks.changing_sizes", str(given.folder)]
                command += [name, "--row", row, "--calls", str(given.calls)]
                command += ["--after", str(given.after)]
                environment = {**os.environ, "XDG_CACHE_HOME": cache}
                found = json.loads(
                    subprocess.run(
                        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
                    ).stdout.splitlines()[-1]
                )
                after = "" if found["after"] is None else f"{found['after']:.2f}"
                programs = "" if found["programs"] is None else str(found["programs"])
                cells = [name, text, f"{found['stream']:.2f}", f"{found['again']:.2f}"]
                cells += [f"{found['new']:.1f}", after, programs, f"{found['held']:.0f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
