"""Model files that change after they were loaded: what a process that has one loaded then computes.

    python -m tests.formats.changing_files WAY FOLDER < {"onnx": "path", ...}

Prints a JSON object: "same" for every format whose outputs are the bits that they were before.
Run as a process of its own, since a mapped file that shrinks ends its readers with SIGBUS.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import verax

RUNS = 200
"""Of a compiled program while its file changes."""
OPEN = 2
"""Size of what a model leaves open."""


def truncated(path: Path) -> None:
    os.truncate(path, 0)


def overwritten(path: Path) -> None:
    """Other bytes in place; the time of change as well, so that only the bytes tell."""
    found = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"\xaa" * found.st_size)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"\xbb" * path.stat().st_size)
    other.replace(path)


WAYS: dict[str, Callable[[Path], None]] = {
    "truncated": truncated,
    "overwritten": overwritten,
    "replaced": replaced,
}


def change(way: str, path: Path) -> None:
    """All files of a model."""
    files = [path]
    if path.is_dir() or path.name == "saved_model.pb":
        folder = path if path.is_dir() else path.parent
        files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    elif path.name.endswith(("-symbol.json", ".onnx")):
        files = [p for p in sorted(path.parent.iterdir()) if p.is_file()]
    for file in files:
        WAYS[way](file)


def inputs(loaded: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    found = {}
    for name, type_ in loaded.inputs.items():
        shape = [d if isinstance(d, int) else OPEN for d in type_.dims]
        found[name] = rng.normal(size=shape).astype(type_.dtype.numpy)
    return found


def outputs(loaded: Any) -> list[bytes]:
    return [a.tobytes() for a in verax.reference(loaded, inputs(loaded)).values()]


def model(path: Path, way: str, spare: Path) -> str:
    shutil.copytree(path.parent, spare)
    spare = spare / path.name
    expected = outputs(verax.load(path))
    loaded = verax.load(spare)  # no byte of its weights was looked at yet
    change(way, spare)
    return "same" if outputs(loaded) == expected else "other numbers"


def program(path: Path, way: str) -> str:
    """A .vx file, changed while it runs."""
    loaded = verax.load(path)
    given = inputs(loaded)
    expected = [a.tobytes() for a in loaded.run(given).values()]
    loaded = verax.load(path)
    found, started = [], threading.Event()

    def work() -> None:
        for number in range(RUNS):
            found.append([a.tobytes() for a in loaded.run(given).values()])
            if number == 2:
                started.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait(60)
    change(way, path)
    thread.join()
    return "same" if found == [expected] * RUNS else "other numbers"


def main() -> None:
    way, folder = sys.argv[1], Path(sys.argv[2])
    found = {}
    for number, (kind, path) in enumerate(json.load(sys.stdin).items()):
        if kind == "vx":
            found[kind] = program(Path(path), way)
        else:
            found[kind] = model(Path(path), way, folder / str(number))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
