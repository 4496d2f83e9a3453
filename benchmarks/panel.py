"""The panel: Verax beside every peer that can be installed, network by network.

    make bench                                       # all: docs/panel.md and .svg, out/panel.json
                                                     # (panel-avx2 for kernels of AVX2, and so on)
    make bench ARGS="--networks resnet18 --quick"    # one network, few rounds, out/panel.md
    python benchmarks/panel.py --install             # peers that are missing, into out/peers
    python benchmarks/panel.py --again               # only write the page of out/panel.json
    python benchmarks/panel.py --prepare             # only make the networks' files, at leisure
    make bench ARGS="--resume --minutes 15"          # go on with what is not in out/panel.json yet,
                                                     # or was measured while cores were far apart

One and two threads, batch 1 and 8. All engines of one network take turns in one run, each in a
process of its own, peers in an environment of theirs where they have one (`panel_peers`). What
compiles for tens of seconds (torch.compile, zentorch, TVM) runs on the networks of SLOWLY only,
batch 8 on those of BATCHED; --all takes every engine and batch everywhere. After --minutes no
further network is begun; the page says which are left out and why. A network that was measured is
kept at once, so that quiet quarters of an hour add up to the whole with --resume.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

import networks_zoo as zoo
import panel_files as files
import panel_peers as peers
from panel_page import Row, cause, disturbed, drawing, page
from provenance import stamped
from verax.base.errors import VeraxError
from verax.base.storage.files import atomic_write
from verax.bench.rounds import HELD_TO_AVX2, Contestant, race
from verax.compiler.describe.machine_peak import peak_gflops, round_trip_ns
from verax.compiler.kernels.target import Target
from verax.records.benchmark import Benchmark, Timing

UNTIMED = "there was no time for it in the runs that this page was made from"
OURS = ("verax:O1", "verax:O3", "verax:saved")
FAST = ("onnxruntime", "openvino", "ncnn", "mnn", "litert", "torch")
SLOW = ("torch-compiled", "torch-zentorch", "tvm")
SLOWLY = ("resnet50", "mobilenetv2", "vit_small")
BATCHED = ("resnet18", "resnet50", "mobilenetv2", "vit_small", "bert_6", "resnet18-int8")
FURTHER = 2
"""Times as many rounds more for those near the fastest, until each was as fast twice."""
PATIENCE, READY, BEHIND = 4.0, 120.0, 3.0
"""Seconds that the turns of one engine may take together, and that it may take to get ready; it
takes two turns only if its calls then take so many times as long as those of the fastest."""


def planned(given: argparse.Namespace) -> list[tuple[str, int]]:
    """(network, batch) in the order in which they are measured."""
    return [
        (name, batch)
        for batch in given.batches
        for name in given.networks
        if batch == 1 or name in BATCHED or given.all
    ]


def measured(name: str, batch: int, given: argparse.Namespace, found: Found) -> Row:
    """The race of one network. Raises `Skipped` when it cannot be had."""
    asked = [e for e in given.engines if e not in SLOW or given.all or _slowly(name, batch)]
    asked = [e for e in asked if e != "verax:saved" or batch == 1]
    able = [e for e in asked if not found.missing.get(e)]
    entry = files.entry(name, batch, given.folder, given.models, able, found.pythons)
    who, failed = [], []
    for threads in given.threads:
        for engine in asked:
            kind = files.KINDS.get(engine, "source")
            why = found.missing.get(engine) or entry.missing.get(kind)
            if engine == "verax:saved" and threads != given.threads[0]:
                continue
            if why:
                failed.append(Timing(engine, threads, failure=why))
                continue
            settings = {"target": given.target} if engine in OURS[:2] else {}
            held = HELD_TO_AVX2 if given.target == "avx2" else {}
            python = found.pythons.get(engine, "")
            who.append(Contestant(engine, entry.files[kind], threads, settings, python, held))
    target = Target.named(given.target)
    trips = [round_trip_ns(target)] if max(given.threads) > 1 else []
    record = race(
        name,
        who,
        entry.inputs,
        rounds=given.rounds,
        seconds=given.seconds,
        calls=1,
        warm=given.seconds,
        seed=zoo.SEED,
        timeout=READY,
        patience=PATIENCE,
        behind=BEHIND,
        further=FURTHER * given.rounds,
        hasty=True,
    )
    record = dataclasses.replace(record, timings=(*record.timings, *failed))
    trips += [round_trip_ns(target)] if trips else []
    peaks = {n: max(peak_gflops(target, n, 0.05) for _ in range(3)) for n in given.threads}
    names, date = (target.name, Target.host().name), datetime.date.today().isoformat()
    return Row(batch, entry.operations, peaks, record, *names, date, trips)


def _slowly(name: str, batch: int) -> bool:
    return name in SLOWLY and batch == 1


@dataclasses.dataclass(frozen=True)
class Found:
    """The interpreters of engines that have their own, and why engines cannot be timed."""

    pythons: dict[str, str]
    missing: dict[str, str]


def _found(given: argparse.Namespace) -> Found:
    named = dict(text.split("=", 1) for text in given.python)
    pairs = {e: peers.find(e, given.folder, named) for e in given.engines}
    pythons = {e: python for e, (python, _) in pairs.items() if python}
    return Found(pythons, {e: why for e, (_, why) in pairs.items() if why})


Key = tuple[str, int]


def _write(rows: list[Row], left: Mapping[Key, str], given: argparse.Namespace) -> None:
    rows = sorted(rows, key=lambda r: (r.batch, files.NAMES.index(r.name)))
    have = {r.key for r in rows}
    left = {pair: why for pair, why in left.items() if pair not in have}
    kept = [{**vars(r), "record": json.loads(r.record.to_json())} for r in rows]
    drawn = given.page.with_suffix(".svg")
    texts = {_kept(given): json.dumps(kept, indent=1)}
    texts |= {given.page: stamped(page(rows, left, drawn.name)), drawn: drawing(rows, 1)}
    for path, text in texts.items():
        with atomic_write(path) as stream:
            stream.write(text.encode())


def _kept(given: argparse.Namespace) -> Path:
    """Where the figures of the page are: pages of several targets do not mix."""
    return Path(given.folder / given.page.name).with_suffix(".json")


def _read(path: Path) -> list[Row]:
    return [
        Row(
            kept["batch"],
            kept["operations"],
            {int(n): peak for n, peak in kept["peaks"].items()},
            Benchmark.from_json(json.dumps(kept["record"])),
            *(kept.get(name, "") for name in ("target", "host", "date")),
            kept.get("round_trips", ()),
        )
        for kept in json.loads(path.read_text())
    ]


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="+", choices=files.NAMES, default=list(files.NAMES))
    parser.add_argument("--engines", nargs="+", default=[*OURS, *FAST, *SLOW])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15, help="of an engine's turn, at least")
    parser.add_argument("--minutes", type=float, default=25.0, help="begin no network after these")
    parser.add_argument("--all", action="store_true", help="every engine, every batch, everywhere")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, batch 1, in out/")
    parser.add_argument("--target", default="host", help="host, avx512 or avx2")
    parser.add_argument("--models", type=Path, default=Path("../shared/models"))
    parser.add_argument("--folder", type=Path, default=Path("out"), help="models and panel.json")
    parser.add_argument("--page", type=Path, help="docs/panel.md, or panel-TARGET.md")
    parser.add_argument("--again", action="store_true", help="only write the page of panel.json")
    parser.add_argument("--resume", action="store_true", help="measure what panel.json has not")
    parser.add_argument("--prepare", action="store_true", help="only make the networks' files")
    parser.add_argument("--python", action="append", default=[], metavar="ENGINE=PATH")
    parser.add_argument("--install", nargs="*", metavar="ENGINE", help="peers to install first")
    return parser


def main(arguments: list[str] | None = None) -> int:
    given = _arguments().parse_args(arguments)
    given.folder = given.folder.resolve()
    given.folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    if given.quick:
        given.rounds, given.seconds, given.batches = 3, 0.05, [1]
    if given.page is None:
        made = Target.named(given.target)
        name = "panel.md" if made.vector_bits == 512 else f"panel-{made.name}.md"
        given.page = (given.folder if given.quick else Path("docs")) / name
    kept = _kept(given)
    given.page.parent.mkdir(parents=True, exist_ok=True)
    if given.again:
        _write(_read(kept), dict.fromkeys(planned(given), UNTIMED), given)
        return 0
    if given.install is not None:
        for wrong in peers.install(given.install or list(peers.ENVIRONMENTS), given.folder):
            console.print(f"not installed: {wrong}", soft_wrap=True)
    found = _found(given)
    for engine, why in found.missing.items():
        console.print(f"{engine}: {why}", soft_wrap=True)
    if given.prepare:
        _prepare(given, found, console)
        return 0
    rows, plan = _read(kept) if kept.exists() else [], planned(given)
    if not given.resume:  # what is not measured again stays
        rows = [r for r in rows if r.key not in plan]
    done = {r.key for r in rows} - {r.key for r in disturbed(rows)}
    left = dict.fromkeys((p for p in plan if p not in done), UNTIMED)
    begin = time.monotonic()
    for name, batch in list(left):
        if time.monotonic() - begin > 60 * given.minutes:
            console.print(f"{given.minutes:g} minutes are over; {len(left)} are left (--resume)")
            break
        try:
            row = measured(name, batch, given, found)
        except (files.Skipped, VeraxError) as why:
            console.print(f"{name}, batch {batch}: skipped: {why}", soft_wrap=True)
            left[name, batch] = str(why)
            continue
        rows = [r for r in rows if r.key != row.key] + [row]
        del left[name, batch]
        for timing in row.record.timings:
            words = timing.failure and cause(timing.failure)
            words = words or f"{timing.best:.3f} ms, output {timing.difference:.0e} off"
            console.print(f"{name} {batch} {timing.engine} {timing.threads}: {words}")
        _write(rows, left, given)
    if rows:
        _write(rows, left, given)
        seconds = time.monotonic() - begin
        console.print(f"written: {given.page}, {kept}; {seconds:.0f} s")
        if apart := [f"{r.name} {r.batch}" for r in disturbed(rows)]:
            words = "measured while the cores shared no cache (--resume measures them again)"
            console.print(f"{words}: {', '.join(apart)}", soft_wrap=True)
    return 0


def _prepare(given: argparse.Namespace, found: Found, console: Console) -> None:
    """Make the files of all that is planned."""
    able = [e for e in given.engines if e not in found.missing]
    for name, batch in planned(given):
        try:
            made = files.entry(name, batch, given.folder, given.models, able, found.pythons)
            console.print(f"{name}, batch {batch}: {', '.join(made.files)}; {made.missing}")
        except (files.Skipped, VeraxError) as why:
            console.print(f"{name}, batch {batch}: skipped: {why}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
