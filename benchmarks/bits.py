"""One network, one level: one hash, whatever the machine, the instruction set and the threads.

    python benchmarks/bits.py examples/digits/digits.onnx net.tflite
    python benchmarks/bits.py net.onnx --levels 2 3 --python "qemu-x86_64 -cpu Haswell-v4 python3" \
        --python "arm/run" --timeout 600 --json bits.json

Every network is compiled at every level for every target that the machine can run and every number
of threads, runs on the same seeded inputs, and gives a SHA-256 over its outputs (names, types,
shapes, bytes). `--python` names further machines: commands that run Python elsewhere, an emulator
for one; the Python that this runs on is always the first. One worker per machine and network prints
each hash as soon as it has it, so that what an emulator does in time counts.

Levels 0 and 1 promise the same bits; 2 and 3 each their own. Exit code 1 when a promise is broken.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import verax
from verax.base.option_groups.settings import LEVELS, Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.judge.inputs import draw_inputs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # a worker is this file, run by whatever Python

from benchmarks.digests import SHOWN, digest  # noqa: E402  (found by the line above)

TARGETS = ("avx512", "avx2", "aarch64")
PROMISES = {0: "O0, O1", 1: "O0, O1"}
"""Levels that promise the same bits; any other level is a promise of its own."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One program's run. inputs: their hash. processor: what the worker calls its machine."""

    network: str
    inputs: str
    machine: str
    processor: str
    target: str
    level: int
    threads: int
    digest: str
    seconds: float

    @property
    def promise(self) -> tuple[str, str]:
        """Network and inputs, and the levels of which the bits must be the same."""
        return f"{self.network} on {self.inputs}", PROMISES.get(self.level, f"O{self.level}")


def work(asked: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What a worker does: every combination that its machine can run."""
    shapes = {name: tuple(shape) for name, shape in asked["shapes"].items()}
    graph = verax.load(asked["network"], shapes=shapes).graph
    with np.load(asked["inputs"]) as stored:
        inputs = dict(stored)
    targets = [t for t in asked["targets"] if Target.named(t).runs_here()]
    for level in asked["levels"]:
        for target in targets:
            for threads in asked["threads"]:
                begin = time.perf_counter()
                settings = Settings(opt_level=level, threads=threads, target=target)
                found = digest(compile(graph, settings).run(inputs))
                yield {
                    "processor": platform.machine(),
                    "target": target,
                    "level": level,
                    "threads": threads,
                    "digest": found,
                    "seconds": round(time.perf_counter() - begin, 2),
                }


def runs(machine: Sequence[str], asked: Mapping[str, Any], timeout: float) -> Iterator[Run]:
    """Every hash that a worker on `machine` (a command that runs Python) gives in time."""
    name = Path(asked["network"]).name
    with tempfile.TemporaryDirectory() as folder:
        tell_version(Path(folder))
        paths = [str(ROOT / "src"), folder]
        child = subprocess.Popen(
            [*machine, str(Path(__file__).resolve()), "--work", json.dumps(asked)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said, wrong = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            said, wrong = child.communicate()
            print(f"{name} on {shown(machine)}: stopped after {timeout:g} s", file=sys.stderr)
        else:
            if child.returncode:
                print(f"{name} on {shown(machine)}: {wrong.strip()[-500:]}", file=sys.stderr)
    for line in said.splitlines():
        yield Run(name, asked["digest"][:SHOWN], shown(machine), **json.loads(line))


def tell_version(folder: Path) -> None:
    """Tell a Python in which Verax is not installed which version it is."""
    version = importlib.metadata.version("verax")
    notes = folder / f"verax-{version}.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: verax\nVersion: {version}\n")


def shown(machine: Sequence[str]) -> str:
    """A machine's command without the folders of its programs."""
    return " ".join(Path(word).name if "/" in word else word for word in machine)


def broken(found: Sequence[Run]) -> list[tuple[str, str]]:
    """Promises, as (network, levels), under which more than one hash was seen."""
    seen: dict[tuple[str, str], set[str]] = {}
    for run in found:
        seen.setdefault(run.promise, set()).add(run.digest)
    return [promise for promise, digests in seen.items() if len(digests) > 1]


def table(found: Sequence[Run]) -> str:
    """One row per network and promise: its hash, and on what it was seen, in Markdown."""
    lines = ["| network | level | SHA-256 | seen on | runs |", "|---|---|---|---|---|"]
    wrong = broken(found)
    for promise in dict.fromkeys(run.promise for run in found):
        own = [run for run in found if run.promise == promise]
        digests = sorted({run.digest[:SHOWN] for run in own})
        places: dict[str, set[int]] = {}
        for run in own:
            emulated = " (emulated)" if run.machine != own[0].machine else ""
            places.setdefault(f"{run.target}{emulated}", set()).add(run.threads)
        seen = "; ".join(
            f"{place}: {', '.join(map(str, sorted(threads)))} threads"
            for place, threads in places.items()
        )
        mark = " **differ**" if promise in wrong else ""
        lines.append(
            f"| {own[0].network} | {promise[1]} "
            f"| {', '.join(digests)}{mark} | {seen} | {len(own)} |"
        )
    return "\n".join(lines)


def shape_of(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=1x3x112x112`."""
    name, _, sizes = text.partition("=")
    return name, tuple(int(size) for size in sizes.split("x"))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("networks", type=Path, nargs="*", help="model files")
    parser.add_argument("--levels", type=int, nargs="+", default=list(LEVELS))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    parser.add_argument("--python", action="append", default=[], help="a further machine")
    parser.add_argument(
        "--shape", action="append", default=[], help="of every network: NAME=1x3x112x112"
    )
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds per worker")
    parser.add_argument("--json", type=Path, help="where to write every run")
    parser.add_argument(
        "--stored", type=Path, nargs="+", default=[], help="runs written before, here or elsewhere"
    )
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.work:
        for line in work(json.loads(given.work)):
            print(json.dumps(line), flush=True)
        return 0
    machines = [[sys.executable], *(shlex.split(command) for command in given.python)]
    found = [Run(**run) for file in given.stored for run in json.loads(file.read_text())]
    for path in given.networks:
        shapes = dict(map(shape_of, given.shape))
        graph = verax.load(path, shapes=shapes).graph
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "inputs.npz"
            inputs = draw_inputs(graph)[0]
            np.savez(file, **{v: inputs[v] for v in graph.arguments})  # type: ignore[arg-type]
            asked = {
                "network": str(path.resolve()), "inputs": str(file), "shapes": shapes,
                "digest": digest(inputs), "levels": given.levels, "threads": given.threads,
                "targets": given.targets,
            }  # fmt: skip
            for machine in machines:
                own = list(runs(machine, asked, given.timeout))
                found += own
                print(table(own) if own else f"{path.name}: nothing", file=sys.stderr, flush=True)
    when = datetime.now(UTC).date().isoformat()
    print(f"Verax {verax.__version__}, NumPy {np.__version__}, {when}\n\n{table(found)}")
    if given.json:
        given.json.write_text(json.dumps([dataclasses.asdict(run) for run in found], indent=1))
    wrong = broken(found)
    for network, levels in wrong:
        print(f"{network}: {levels} has more than one hash", file=sys.stderr)
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
