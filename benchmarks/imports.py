"""How long and how much memory an import takes: a model of 100 MB in every format, beside what the
format's own library needs to load it.

    python benchmarks/imports.py                       # every format; out/imports.json
    python benchmarks/imports.py --formats pt2 tflite --rounds 5

Each import runs in a fresh process that has imported the library before the clock starts; the
files are in the page cache. Seconds are of processor time, which a busy machine changes little.
Memory is the peak over what the process had before (the mapped pages that were touched included).
The limits are 3 seconds and 3 times the size of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

import imports_models
from verax.base.storage.files import atomic_write

SECONDS, MEMORY = 3.0, 3.0
"""Limits: of an import's time, and of its memory in sizes of the file."""
PATIENCE = 600
"""Seconds after which a maker or an import is given up."""

PEERS = {
    "onnx": ("import onnx", "onnx.load(path)"),
    "onnx external": ("import onnx", "onnx.load(path)"),
    "pt2": ("import torch", "torch.export.load(path)"),
    "pb": (
        "import tensorflow as tf",
        "g = tf.compat.v1.GraphDef.FromString(open(path, 'rb').read()); "
        "tf.graph_util.import_graph_def(g)",
    ),
    "SavedModel": ("import tensorflow as tf", "tf.saved_model.load(path)"),
    "tflite": (
        "from ai_edge_litert.interpreter import Interpreter",
        "i = Interpreter(path); i.allocate_tensors()",
    ),
    "h5": ("import keras", "keras.models.load_model(path, compile=False)"),
    "keras": ("import keras", "keras.models.load_model(path, compile=False)"),
    "mlmodel": ("import coremltools as ct", "ct.utils.load_spec(path)"),
    "mlpackage": ("import coremltools as ct", "ct.utils.load_spec(path)"),
}
"""How the format's own library loads the file: what to import first, and the call."""
OURS = ("import verax; verax.load", "verax.load(path)")

CHILD = """
import json, sys, time
path = sys.argv[1]
{first}
def kilobytes(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = kilobytes("VmRSS")
start = time.process_time()
kept = {call}
seconds = time.process_time() - start
print(json.dumps([seconds, 1024 * (kilobytes("VmHWM") - before)]))
"""
"""Not ru_maxrss: a child inherits it from its parent. Writing 5 resets the peak (Linux only)."""


@dataclass(frozen=True)
class Figures:
    """One format. Seconds and bytes are medians; None with the `reason` when there are none."""

    format: str
    size: int = 0
    seconds: float | None = None
    memory: int | None = None
    peer_seconds: float | None = None
    peer_memory: int | None = None
    reason: str = ""

    @property
    def misses(self) -> list[str]:
        """The limits that are not kept."""
        if self.seconds is None or self.memory is None:
            return []
        late, large = self.seconds > SECONDS, self.memory > MEMORY * self.size
        return ["time"] * late + ["memory"] * large


def run(*command: str) -> str:
    """What a child prints last; raises `RuntimeError` with the last line of its errors."""
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return done.stdout.strip().splitlines()[-1]


def size_of(path: Path) -> int:
    """Bytes of a model: of the file, of a folder's files, or of all files of that name."""
    if path.is_dir():
        return sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    return sum(p.stat().st_size for p in path.parent.iterdir() if p.is_file())


def measured(first: str, call: str, path: Path, rounds: int) -> tuple[float, int]:
    """Medians of seconds and bytes over fresh processes."""
    multiple = call.rpartition("; ")
    code = CHILD.format(first=first, call=multiple[2])
    if multiple[0]:
        code = code.replace("kept = ", f"{multiple[0]}\nkept = ")
    found = [json.loads(run("-c", code, str(path))) for _ in range(rounds)]
    seconds, memory = zip(*found)
    return statistics.median(seconds), int(statistics.median(memory))


def figures(name: str, folder: Path, rounds: int) -> Figures:
    """Make, import, and let the format's own library load, one after the other."""
    folder.mkdir()
    try:
        path = Path(run(str(imports_models.__file__), name, str(folder)))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return Figures(name, reason=f"the file cannot be made: {error}")
    found = Figures(name, size_of(path))
    try:
        seconds, memory = measured(*OURS, path, rounds)
        found = replace(found, seconds=seconds, memory=memory)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        found = replace(found, reason=f"the import fails: {error}")
    if name not in PEERS:
        return found
    try:
        seconds, memory = measured(*PEERS[name], path, rounds)
        return replace(found, peer_seconds=seconds, peer_memory=memory)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return replace(found, reason=f"{found.reason} the peer fails: {error}".strip())


def table_of(records: list[Figures]) -> Table:
    """A row per format; what misses a limit is red."""
    table = Table(title=f"Imports; limits {SECONDS:g} s and {MEMORY:g}x the file")
    for title in ("format", "MB", "s", "memory", "peer s", "peer memory", "time / peer", ""):
        table.add_column(title, justify="left" if title in ("format", "") else "right")
    for r in records:
        if r.seconds is None or r.memory is None:
            table.add_row(r.format, f"{r.size / 1e6:.0f}", "", "", "", "", "", r.reason)
            continue
        peer = ["", "", ""]
        if r.peer_seconds is not None and r.peer_memory is not None:
            ratio = r.seconds / r.peer_seconds
            peer = [f"{r.peer_seconds:.2f}", f"{r.peer_memory / r.size:.2f}x", f"{ratio:.2f}"]
        said = f"[red]{' and '.join(r.misses)} over the limit[/]" if r.misses else r.reason
        memory = f"{r.memory / r.size:.2f}x"
        table.add_row(r.format, f"{r.size / 1e6:.0f}", f"{r.seconds:.2f}", memory, *peer, said)
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = list(imports_models.MAKERS)
    parser.add_argument("--formats", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path("out"), help="of imports.json")
    given = parser.parse_args(arguments)
    console = Console()
    records: list[Figures] = []
    for name in given.formats:
        with tempfile.TemporaryDirectory() as folder, console.status(name):
            records.append(figures(name, Path(folder) / "model", given.rounds))
        if not sys.stdout.isatty():
            console.print(f"{name} done")
    console.print(table_of(records))
    given.folder.mkdir(exist_ok=True)
    with atomic_write(given.folder / "imports.json") as stream:
        stream.write(json.dumps([asdict(r) for r in records], indent=1).encode())
    return int(any(r.misses or r.seconds is None for r in records))


if __name__ == "__main__":
    sys.exit(main())
