"""Loading files that may be hostile, each in a process of its own with limits.

    python -m tests.formats.confined < cases.json

The parent imports every frontend once and forks for every few cases, so that a case costs little.
What a file did is an `Outcome`: a model, a clear error, or anything else, with time and memory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

import verax
from verax.base.errors import VeraxError
from verax.frontends.coreml.messages import model_messages

SECONDS = 10
MEMORY = 1 << 30
"""What one import of a small file may take, beyond what the process has."""
TOGETHER = 16
"""Loads of one process."""
FRONTENDS = ("onnx", "torch", "tensorflow", "tflite", "keras", "coreml", "mxnet")


@dataclass(frozen=True)
class Outcome:
    """kind: "model", an error's class, or how the process ended otherwise. clear: whether `kind` is
    a model or a `VeraxError` with a cause. seconds: of processor time. memory: bytes of peak above
    the start."""

    kind: str
    text: str
    clear: bool
    seconds: float
    memory: int


def outcomes(paths: Sequence[Path], *, run: bool = False) -> list[Outcome]:
    """Load every path under the limits. run: also compile and run what was loaded, on zeros."""
    given = json.dumps({"paths": [str(p) for p in paths], "run": run})
    done = subprocess.run(
        [sys.executable, "-m", "tests.formats.confined"],
        input=given, capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2], timeout=60 + 2 * SECONDS * len(paths),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = [Outcome(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(found) == len(paths)
    return found


def _kilobytes(key: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))


def _limit() -> None:
    """For the next case: so many seconds of processor more, and a new peak of memory."""
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + SECONDS, resource.RLIM_INFINITY))
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _load(path: str, run: bool) -> tuple[str, str, bool]:
    try:
        model = verax.load(path)
        if run:
            types = {
                k: t.substitute(dict.fromkeys(t.symbols(), 2)) for k, t in model.inputs.items()
            }
            zeros = {k: np.zeros(t.shape, t.dtype.numpy) for k, t in types.items()}
            verax.compile(model).run(zeros)
        return "model", "", True
    except VeraxError as error:
        return type(error).__name__, str(error), bool(error.cause)
    except BaseException as error:
        return type(error).__name__, repr(error), False


def _outcome(path: str, run: bool) -> Outcome:
    _limit()
    before, start = _kilobytes("VmRSS"), time.process_time()
    kind, text, clear = _load(path, run)
    seconds = time.process_time() - start
    memory = max(0, _kilobytes("VmHWM") - before) << 10
    return Outcome(kind, text[:2000], clear, seconds, memory)


def _worker(paths: Sequence[str], run: bool, pipe: int) -> NoReturn:
    """Tell of one path after the other; never returns."""
    try:
        room = (_kilobytes("VmSize") << 10) + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for path in paths:
            os.write(pipe, json.dumps(vars(_outcome(path, run))).encode("ascii") + b"\n")
    finally:
        os._exit(0)


def confined(paths: Sequence[str], run: bool) -> Iterator[Outcome]:
    """Load in forked processes: a new one after every `TOGETHER` paths, and after every death."""
    left = list(paths)
    while left:
        read, write = os.pipe()
        start = time.perf_counter()
        child = os.fork()
        if child == 0:
            os.close(read)
            _worker(left[:TOGETHER], run, write)
        os.close(write)
        told = 0
        with os.fdopen(read, "rb") as pipe:
            for line in pipe:
                yield Outcome(**json.loads(line))
                told += 1
                start = time.perf_counter()
        _, status = os.waitpid(child, 0)
        if told < len(left[:TOGETHER]):
            end = f"ended by {os.waitstatus_to_exitcode(status)}"
            yield Outcome(end, "", False, time.perf_counter() - start, 0)
            told += 1
        left = left[told:]


def main() -> None:
    given = json.load(sys.stdin)
    assert callable(verax.load)  # which imports the interface
    for name in FRONTENDS:
        importlib.import_module(f"verax.frontends.{name}")
    with contextlib.suppress(VeraxError):
        model_messages()
    for found in confined(given["paths"], given["run"]):
        print(json.dumps(vars(found)), flush=True)


if __name__ == "__main__":
    main()
