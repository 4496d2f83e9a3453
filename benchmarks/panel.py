"""The panel: Verax at O1, O2 and O3 beside ONNX Runtime, OpenVINO and PyTorch, network by network.

    python benchmarks/panel.py                        # all of it: out/panel.json, docs/panel.md
    python benchmarks/panel.py --networks unet --threads 1 --rounds 5 --page out/panel.md

Batch 1, float32, one and two threads. All engines of one network take turns in one run. Ratios are
those of the fastest calls: what else runs on the machine slows some rounds down, and no other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

import networks_zoo as zoo
from panel_zoo import PANEL, write
from verax.base.files import atomic_write
from verax.bench.rounds import Contestant, race
from verax.records.benchmark import Benchmark

OURS = ("verax:O1", "verax:O2", "verax:O3")
RIVALS = ("onnxruntime", "openvino")
ENGINES = (*OURS, *RIVALS)
HEAD = """# Levels and peers on the panel

Made by `python benchmarks/panel.py`. Milliseconds of one call, batch 1, float32: the fastest call,
and in brackets the median over rounds of the median call. The ratios are how many times as fast O1
and O3 are as the faster of ONNX Runtime and OpenVINO, and O3 as O1, by their fastest calls in one
run; where no pass changes a network they show what is chance. O1 has the same bits as O0; O2 stays
within the rounding of every region; O3 takes Winograd's algorithm where its error model allows
([levels](levels.md), [certificates](certificates.md)). The last column is the largest difference of
O3's output from O1's, relative to the largest output.
"""


def measured(name: str, folder: Path, given: argparse.Namespace) -> Benchmark:
    """The race of one network."""
    path = str(write(name, folder))
    who = [Contestant(engine, path, count) for count in given.threads for engine in given.engines]
    inputs = PANEL[name].inputs(zoo.SEED + 2)
    return race(name, who, inputs, rounds=given.rounds, seconds=given.seconds, seed=zoo.SEED)


def page(records: Sequence[Benchmark]) -> str:
    """The table as Markdown."""
    lines = [HEAD]
    for threads in dict.fromkeys(t for r in records for t in r.thread_counts):
        lines += ["", f"## {threads} thread{'s' if threads > 1 else ''}", ""]
        lines += [
            "| network | O1 | O2 | O3 | ONNX Runtime | OpenVINO | O1 | O3 | O3 / O1 | error |"
        ]
        lines += ["|---|" + "---:|" * 9]
        lines += _rows(records, threads)
    machine = records[-1].environment
    versions = {t.engine: t.version for r in records for t in r.timings if t.version}
    load = [x for r in records for x in r.load]
    lines += [
        "",
        f"{machine.get('processor', '?')}, {machine.get('cores', '?')} cores; "
        f"load {min(load):.1f} to {max(load):.1f}; "
        + ", ".join(f"{name} {versions[name]}" for name in RIVALS if name in versions)
        + ".",
    ]
    return "\n".join(lines) + "\n"


def _rows(records: Sequence[Benchmark], threads: int) -> Iterator[str]:
    ratios: dict[tuple[str, str], list[float]] = {}
    for record in records:
        cells = [record.model]
        for engine in ENGINES:
            found = record.timing(engine, threads)
            cells.append(f"{found.best:.2f} ({found.median:.2f})" if found else "—")
        for mine, against in (("verax:O1", RIVALS), ("verax:O3", RIVALS), ("verax:O3", OURS[:1])):
            own = record.timing(mine, threads)
            others = [t.best for e in against if (t := record.timing(e, threads))]
            if own is None or not others:
                cells.append("—")
                continue
            ratio = min(others) / own.best
            cells.append(f"{ratio:.2f}")
            ratios.setdefault((mine, against[0]), []).append(ratio)
        last = record.timing("verax:O3", threads)
        cells.append(f"{last.difference:.0e}" if last else "—")
        yield "| " + " | ".join(cells) + " |"
    means = [f"{statistics.geometric_mean(found):.2f}" for found in ratios.values()]
    yield "| geometric mean |" + " |" * len(ENGINES) + " " + " | ".join(means) + " | |"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=sorted(PANEL), default=list(PANEL))
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.2, help="of an engine's turn, at least")
    parser.add_argument("--folder", type=Path, default=Path("out"), help="models and panel.json")
    parser.add_argument("--page", type=Path, default=Path("docs/panel.md"))
    parser.add_argument("--again", action="store_true", help="only write the page of panel.json")
    given = parser.parse_args(arguments)
    console, records = Console(), []
    if given.again:
        kept = json.loads((given.folder / "panel.json").read_text())
        given.page.write_text(page([Benchmark.from_json(json.dumps(record)) for record in kept]))
        return 0
    for name in given.networks:
        record = measured(name, given.folder, given)
        records.append(record)
        for timing in record.timings:
            words = timing.failure or f"{timing.median:.2f} ms, output {timing.difference:.0e} off"
            console.print(f"{name} {timing.engine} {timing.threads}: {words}")
        with atomic_write(given.folder / "panel.json") as stream:
            text = json.dumps([json.loads(r.to_json()) for r in records], indent=1)
            stream.write(text.encode())
        with atomic_write(given.page) as stream:
            stream.write(page(records).encode())
    console.print(f"written: {given.page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
