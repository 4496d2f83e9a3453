"""Whole networks side by side: Verax, ONNX Runtime, OpenVINO, PyTorch eager and compiled.

    make bench                       # all networks, 1 and 2 threads; out/bench.json
    python benchmarks/networks.py --networks resnet50 --threads 1 --rounds 9

Batch 1, float32. All engines of one network take turns in one run; figures are medians over rounds
of the median call. The ratio is against the faster of ONNX Runtime and OpenVINO.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

import networks_zoo as zoo
from verax.base.files import atomic_write
from verax.bench.rounds import Contestant, race
from verax.report.benchmark import benchmark_table

ENGINES = ("verax", "onnxruntime", "openvino", "torch", "torch-compiled")
RIVALS = ("onnxruntime", "openvino")
SEED = zoo.SEED


def contestants(
    name: str, folder: Path, engines: list[str], threads: list[int]
) -> list[Contestant]:
    path = zoo.write(name, folder, seed=SEED)
    source = f"{Path(zoo.__file__)}:{name}_module"
    return [
        Contestant(engine, source if engine.startswith("torch") else str(path), count)
        for count in threads
        for engine in engines
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=sorted(zoo.NETWORKS))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path("out"), help="models and bench.json")
    given = parser.parse_args(arguments)
    console = Console()
    image = zoo.smooth_images(np.random.default_rng(SEED + 2), 1)
    records = []
    for name in given.networks or list(zoo.NETWORKS):
        who = contestants(name, given.folder, given.engines, given.threads)
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(name, total=1.0)

            def show(what: str, done: float, bar: Progress = bar, name: str = name) -> None:
                bar.update(task, completed=done, description=f"{name}: {what}")  # noqa: B023

            record = race(
                name, who, {zoo.INPUT: image}, rounds=given.rounds, seed=SEED, progress=show
            )
        records.append(record)
        console.print(benchmark_table(record, "verax", RIVALS))
        with atomic_write(given.folder / "bench.json") as stream:
            text = json.dumps([json.loads(r.to_json()) for r in records], indent=1)
            stream.write(text.encode())
    machine = records[-1].environment
    console.print(
        f"{machine.get('processor', '?')}, {machine.get('cores', '?')} cores; load", end=""
    )
    console.print(" " + ", ".join(f"{x:.1f}" for r in records for x in r.load))
    console.print(f"written: {given.folder / 'bench.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
