"""Why some readers are written by hand: damaged files, read by the library and by ours.

    python benchmarks/hostile_libraries.py --files 2000

Small HDF5 and TFLite files get some bytes changed. Each is read in a process of its own, within
1 GB more than it has and 10 seconds: by h5py and by our Keras reader, by FlatBuffers' Python code
(the package `tflite`) and by our TFLite reader. A reader gives a model, an error of its own that
says so, any other exception, a signal (the process is gone), or does not end. Also: one fused
multiply-add of a million float32 numbers, by `math.fma` where Python has it and by ours.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from verax.base.errors import VeraxError
from verax.frontends.keras import load_keras
from verax.frontends.tflite import load_tflite
from verax.numerics.fma import fma32

SEED = 20
SECONDS, MEMORY = 10, 1 << 30
EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "digits"
OUTCOMES = ("read", "its own error", "another exception", "out of memory", "a signal", "no end")
Reader = Callable[[Path], Any]


def by_h5py(path: Path) -> None:
    """Every dataset and attribute of an HDF5 file."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            found: list[Any] = [file]
            file.visititems(lambda name, item: found.append(item))
            for item in found:
                for name in item.attrs:
                    item.attrs[name]
                if isinstance(item, h5py.Dataset):
                    item[()]
    except (OSError, KeyError, RuntimeError, ValueError) as error:  # what h5py says errors with
        raise VeraxError(str(error)) from error


def by_flatbuffers(path: Path) -> None:
    """Every tensor's shape and bytes and every operator of a TFLite file."""
    import tflite

    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        tensor.ShapeAsNumpy(), tensor.Name()
        model.Buffers(tensor.Buffer()).DataAsNumpy()
    for index in range(graph.OperatorsLength()):
        node = graph.Operators(index)
        model.OperatorCodes(node.OpcodeIndex()).BuiltinCode()
        node.InputsAsNumpy(), node.OutputsAsNumpy()


def damaged(random: np.random.Generator, data: bytes) -> bytes:
    """One to three places overwritten by numbers that are often sizes or offsets."""
    copy = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        at, size = int(random.integers(len(copy))), int(random.integers(1, 9))
        word = int(random.choice([0, 1, 2**31 - 1, 2**63 - 1, len(copy), random.integers(2**32)]))
        copy[at : at + size] = struct.pack("<Q", word)[:size][: len(copy) - at]
    return bytes(copy)


def outcome(read: Reader, path: Path) -> str:
    """What a reader did with a file, one of OUTCOMES."""
    child = os.fork()
    if child == 0:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        signal.alarm(3 * SECONDS)
        code = 0
        try:
            read(path)
        except VeraxError:
            code = 1
        except MemoryError:
            code = 3
        except BaseException:
            code = 2
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        ended = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM, signal.SIGKILL)
        return OUTCOMES[5 if ended else 4]
    return OUTCOMES[os.WEXITSTATUS(status)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, default=2000)
    given = parser.parse_args()
    random = np.random.default_rng(SEED)
    table = Table("reader", *OUTCOMES, title=f"{given.files} damaged files of each kind")
    pairs: list[tuple[str, list[tuple[str, Reader]]]] = [
        ("digits.h5", [("h5py", by_h5py), ("Verax, HDF5", load_keras)]),
        ("digits.tflite", [("FlatBuffers", by_flatbuffers), ("Verax, TFLite", load_tflite)]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, readers in pairs:
            whole = (EXAMPLES / name).read_bytes()
            path = Path(folder) / name
            counts: dict[str, Counter[str]] = {who: Counter() for who, _ in readers}
            path.write_bytes(whole)
            for _, read in readers:
                read(path)  # also imports what it needs, before the forks
            for _ in range(given.files):
                path.write_bytes(damaged(random, whole))
                for who, read in readers:
                    counts[who][outcome(read, path)] += 1
            for who, found in counts.items():
                table.add_row(who, *(str(found[o]) for o in OUTCOMES))
    console = Console()
    console.print(table)
    a, b, c = random.standard_normal((3, 1_000_000)).astype(np.float32)
    start = time.perf_counter()
    fma32(a, b, c)
    console.print(f"a million fused multiply-adds: ours {time.perf_counter() - start:.3f} s")
    if hasattr(math, "fma"):
        lists = [x.tolist() for x in (a, b, c)]
        start = time.perf_counter()
        found = np.array(list(map(math.fma, *lists))).astype(np.float32)  # float64, rounded twice
        took = time.perf_counter() - start
        console.print(f"math.fma {took:.3f} s, wrong in {int((found != fma32(a, b, c)).sum())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
