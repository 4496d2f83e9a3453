"""Memory and first calls of a network that is run with many input sizes: Verax beside ONNX Runtime.

    python benchmarks/size_memory.py bert.onnx --sizes 16,24,40,64,128
    python benchmarks/size_memory.py bert.onnx --sizes 16,24,40,64,128 --cache DIR   # kept programs

Each engine is a process of its own with one thread. A size is put wherever an input has a symbol
behind its first axis, which gets 1. Reported after each size: seconds of processor time of the
first call and the least of five further ones, and what the process holds (resident, in MB), of
which "own" is not mapped from files.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Run = Callable[[Mapping[str, np.ndarray]], Any]
FURTHER = 5


def held() -> tuple[float, float, float]:
    """MB that this process holds: in all, its own, and in all at most so far."""
    with open("/proc/self/status") as status:
        values = dict(line.split(":", 1) for line in status if ":" in line)
    kilobytes = (int(values[name].split()[0]) for name in ("VmRSS", "RssAnon", "VmHWM"))
    resident, own, peak = (n / 1024 for n in kilobytes)
    return resident, own, peak


def verax_engine(path: str) -> tuple[dict[str, tuple[list[Any], Any]], Run]:
    """Inputs by name (dims, dtype), and what runs the network."""
    import verax

    exe = verax.compile(path, threads=1, programs=1000)
    types = {name: (list(t.dims), t.dtype.numpy) for name, t in exe.inputs.items()}
    return types, exe.run


def onnxruntime_engine(path: str) -> tuple[dict[str, tuple[list[Any], Any]], Run]:
    """As `verax_engine`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
    types = {i.name: (i.shape, np.dtype(kinds[i.type])) for i in session.get_inputs()}
    return types, lambda inputs: session.run(None, inputs)


ENGINES = {"verax": verax_engine, "onnxruntime": onnxruntime_engine}


def measure(engine: str, path: str, sizes: list[int]) -> None:
    """Print a JSON line for each size."""
    types, run = ENGINES[engine](path)
    for size in sizes:
        inputs = {}
        for name, (dims, dtype) in types.items():
            shape = [d if isinstance(d, int) else size if i else 1 for i, d in enumerate(dims)]
            inputs[name] = np.ones(shape, dtype)
        seconds = []
        for _ in range(1 + FURTHER):
            start = time.process_time()
            run(inputs)
            seconds.append(time.process_time() - start)
        row = [engine, size, seconds[0], min(seconds[1:]), *held()]
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--sizes", default="16,24,40,64,128")
    parser.add_argument("--cache", help="folder of kept programs; by default an empty one")
    parser.add_argument("--engine", choices=ENGINES, help="measure it in this process")
    arguments = parser.parse_args()
    if arguments.engine:
        measure(arguments.engine, arguments.model, [int(n) for n in arguments.sizes.split(",")])
        return
    print("| engine | size | first call, s | further calls, s | holds, MB | own, MB | peak, MB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as empty:
        environment = {**os.environ, "VERAX_CACHE": arguments.cache or empty}
        for engine in ENGINES:
            command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
            found = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env=environment
            )
            for line in found.stdout.splitlines():
                name, size, first, further, *amounts = json.loads(line)
                cells = [f"{first:.3f}", f"{further:.4f}", *(f"{n:.0f}" for n in amounts)]
                print(f"| {name} | {size} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
