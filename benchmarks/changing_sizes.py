"""A stream of calls whose sizes change: Verax beside ONNX Runtime.

Run: python -m benchmarks.changing_sizes NET.onnx [--calls 30] [--low 16] [--high 128] [--batch 3]

Every input axis that a file names by a symbol changes: the first axis from 1 to --batch, the others
from --low to --high, the same for the same name, drawn once with a seed. Each engine is a process
of its own with one thread, and nothing is read from a disk cache. Reported: processor seconds of
the whole stream, of its later half, and of the same calls once more; the programs that Verax made;
MB that the process holds in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from benchmarks.size_memory import ENGINES, held

SEED = 38


def stream(
    types: dict[str, tuple[list[Any], Any]], calls: int, low: int, high: int, batch: int
) -> list[dict[str, np.ndarray]]:
    """The inputs of every call."""
    rng = np.random.default_rng(SEED)
    names = sorted({str(d) for dims, _ in types.values() for d in dims if not isinstance(d, int)})
    first = {str(dims[0]) for dims, _ in types.values() if dims and not isinstance(dims[0], int)}
    feeds = []
    for _ in range(calls):
        sizes = {
            n: int(rng.integers(1, batch + 1) if n in first else rng.integers(low, high + 1))
            for n in names
        }
        feed = {}
        for name, (dims, dtype) in types.items():
            shape = [d if isinstance(d, int) else sizes[str(d)] for d in dims]
            is_float = np.issubdtype(dtype, np.floating)
            drawn = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
            feed[name] = drawn.astype(dtype)
        feeds.append(feed)
    return feeds


def measure(engine: str, path: str, options: list[int]) -> dict[str, Any]:
    """What one engine takes; in a process of its own."""
    types, run = ENGINES[engine](path)
    feeds = stream(types, *options)
    seconds = []
    for feed in (*feeds, *feeds):
        before = time.process_time()
        run(feed)
        seconds.append(time.process_time() - before)
    count = len(feeds)
    executable = getattr(run, "__self__", None)
    programs = [
        *getattr(getattr(executable, "_open", None), "programs", ()),
        *getattr(executable, "_programs", ()),
    ]
    return {
        "stream": sum(seconds[:count]),
        "later": sum(seconds[count // 2 : count]),
        "again": sum(seconds[count:]),
        "programs": len(programs) if engine == "verax" else None,
        "held": held()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="+")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="one engine, as JSON")
    for name, usual in (("calls", 30), ("low", 16), ("high", 128), ("batch", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    options = [given.calls, given.low, given.high, given.batch]
    if given.engine:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(given.engine, given.networks[0], options)))
        return
    print("| network | engine | stream s | later half s | again s | programs | MB |")
    print("|---|---|---|---|---|---|---|")
    for path in given.networks:
        for engine in ENGINES:
            command = [sys.executable, "-m", "benchmarks.changing_sizes", path, "--engine", engine]
            for name, value in zip(("calls", "low", "high", "batch"), options, strict=True):
                command += [f"--{name}", str(value)]
            environment = {**os.environ, "VERAX_CACHE": "off"}
            text = subprocess.run(
                command, check=True, capture_output=True, text=True, env=environment
            ).stdout
            found = json.loads(text.splitlines()[-1])
            cells = [f"{found[k]:.2f}" for k in ("stream", "later", "again")]
            made = "" if found["programs"] is None else str(found["programs"])
            name = os.path.basename(path)
            print(f"| {name} | {engine} | {' | '.join(cells)} | {made} | {found['held']:.0f} |")


if __name__ == "__main__":
    main()
