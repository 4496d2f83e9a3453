"""A card of NVIDIA beside the processor: the same bits, and how fast beside PyTorch.

    make gpu                                                   # everything, under eight minutes
    python -m benchmarks.cuda --networks resnet50 --seconds 60 --json out/cuda.json
    python -m benchmarks.cuda --target cuda-emulated --networks resnet18   # a rehearsal without one

Networks of the panel are compiled for the card and for the processor at O1 and O3, and run on the
same inputs: their hashes must be equal. At batch 1 and 32 they are timed on tensors that lie on the
card, beside PyTorch in strict float32 (TF32 off): eager, as a CUDA graph, and for `COMPILED` by
torch.compile. Then as many cases of every operator as there is time for are compared bit by bit
(NaN only as such), the first case of every operator before the second of any. The record says what
was compared, on which card, by which commit. Exit code 1 where a bit differs, 2 without a card.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.digests import SHOWN, digest
from benchmarks.operators import graph_of
from benchmarks.provenance import commit, stamped, today

import verax
import verax.ops
from verax.base.errors import VeraxError
from verax.base.gpu.cuda_driver import card
from verax.base.gpu.targets import EMULATED_GPU, card_of
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.operator import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "out" / "cuda"
SECONDS = 440.0
SHARE_OF_NETWORKS = 0.7
"""Of the time; operators have the rest."""
BATCHES = (1, 32)
COMPILED = ("resnet50", "bert_6")
"""Networks for which torch.compile is timed too: it takes half a minute for each."""
CALLS, WARM = 30, 3
TOLD = 10
"""Differences that are printed."""


@dataclasses.dataclass
class Network:
    """One network at one batch and level. ms: by engine, the median of calls. error: where it could
    not be compiled or run, in words."""

    name: str
    batch: int
    level: int
    card_hash: str = ""
    processor_hash: str = ""
    compile_seconds: float = 0.0
    ms: dict[str, float] = dataclasses.field(default_factory=dict)
    on_reference: int = 0
    error: str = ""

    @property
    def differs(self) -> bool:
        return not self.error and self.card_hash != self.processor_hash


@dataclasses.dataclass
class Record:
    """What one run of this script found."""

    date: str
    commit: str
    card: str
    torch: str
    networks: list[Network] = dataclasses.field(default_factory=list)
    operator_cases: int = 0
    operators: int = 0
    differing: list[str] = dataclasses.field(default_factory=list)
    failing: list[str] = dataclasses.field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.differing and not self.failing and not any(
            n.differs or n.error for n in self.networks
        )  # fmt: skip


def median_ms(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Of calls one after the other, each waited for."""
    times = []
    for i in range(WARM + CALLS):
        begin = time.perf_counter()
        call()
        wait()
        if i >= WARM:
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def compared(name: str, batch: int, target: str, deadline: float) -> Iterator[Network]:
    """A network at every level, with its times at the last."""
    from panel_zoo import PANEL, write, zoo

    path = write(name, FOLDER, batch)
    arrays = PANEL[name].inputs(zoo.SEED, batch)
    for level in (1, 3):
        if time.monotonic() > deadline:
            return
        row = Network(name, batch, level)
        try:
            model = verax.load(path)
            host = verax.compile(model, opt_level=level, cache=False)
            begin = time.perf_counter()
            exe = verax.compile(model, opt_level=level, target=target, cache=False)
            row.card_hash = digest(exe.run(arrays))
            row.compile_seconds = time.perf_counter() - begin
            row.processor_hash = digest(host.run(arrays))
            row.on_reference = len(exe.plan.on_reference)
            if level == 3 and target != EMULATED_GPU:
                row.ms = times(PANEL[name], exe, arrays, target, name in COMPILED)
        except VeraxError as error:
            row.error = error.cause
        print(line_of(row), flush=True)
        yield row


def times(network: Any, exe: Any, arrays: dict[str, Any], target: str, compiled: bool) -> Any:
    """Milliseconds of a call on tensors of the card, by engine."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda", card_of(target) or 0)
    tensors = {n: torch.from_numpy(a).to(device) for n, a in arrays.items()}
    inputs, wait = tuple(tensors.values()), torch.cuda.synchronize
    ms = {"verax": median_ms(lambda: exe.run(tensors), wait)}
    if network.suppresses:
        return ms
    with torch.no_grad():
        module = network.module().to(device)
        ms["eager"] = median_ms(lambda: module(*inputs), wait)
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                module(*inputs)
            ms["graph"] = median_ms(graph.replay, wait)
        except RuntimeError as error:  # what cannot be captured
            print(f"  no CUDA graph: {str(error).partition(chr(10))[0][:100]}")
        if compiled:
            faster = torch.compile(module, mode="reduce-overhead")
            ms["torch.compile"] = median_ms(lambda: faster(*inputs), wait)
    return ms


def compare_operators(record: Record, target: str, deadline: float) -> None:
    """Cases of operators, the first ones of all before the second ones."""
    cases = {name: list(op.cases(np.random.default_rng(0))) for name, op in REGISTRY.items()}
    seen: set[str] = set()
    for i in range(max(map(len, cases.values()))):
        for name, own in cases.items():
            if i >= len(own):
                continue
            if time.monotonic() > deadline:
                record.operators = len(seen)
                return
            try:
                graph, inputs = graph_of(own[i])
                expected = compile(graph, Settings(1)).run(inputs)
            except VeraxError:
                continue  # no network by itself
            label = f"{name} {i} {own[i].label}".strip()
            try:
                outputs = compile(graph, Settings(1, target=target)).run(inputs)
            except VeraxError as error:
                record.failing.append(f"{label}: {error.cause}")
                continue
            seen.add(name)
            record.operator_cases += 1
            if not all(same(outputs[v], y) for v, y in expected.items()):
                record.differing.append(label)
    record.operators = len(seen)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, but for NaN, of which there must be the same ones."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fV":
        return a.tobytes() == b.tobytes()
    nans = np.isnan(a.astype(np.float64)), np.isnan(b.astype(np.float64))
    bits = [np.where(n, np.zeros((), x.dtype), x).tobytes() for n, x in zip(nans, (a, b))]
    return bool((nans[0] == nans[1]).all()) and bits[0] == bits[1]


def line_of(row: Network) -> str:
    """A row of the table."""
    engines = ("verax", "eager", "graph", "torch.compile")
    shown = " | ".join(f"{row.ms[e]:.3f}" if e in row.ms else "" for e in engines)
    verdict = row.error or ("DIFFERS" if row.differs else "equal")
    return (
        f"| {row.name} | {row.batch} | O{row.level} | {row.card_hash[:SHOWN]} | {verdict} | "
        f"{shown} | {row.compile_seconds:.1f} |"
    )


def page(record: Record) -> str:
    """The record in words."""
    equal = [n for n in record.networks if not n.differs and not n.error]
    head = (
        "| network | batch | level | hash | the processor's bits | Verax, ms | PyTorch, ms | its "
        "CUDA graph | torch.compile | compiling, s |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    text = [
        "# A card beside the processor",
        f"Made by `make gpu` on {record.card}; PyTorch {record.torch or 'missing'}, TF32 off.",
        f"Of {len(record.networks)} programs of networks {len(equal)} gave the processor's hash, "
        f"and of {record.operator_cases} cases of {record.operators} operators all but "
        f"{len(record.differing)}; {len(record.failing)} could not be run.",
        "\n".join([head, *map(line_of, record.networks)]),
        *("\n".join(f"- {line}" for line in lines) for lines in (record.differing, record.failing)),
    ]
    return stamped("\n\n".join(filter(None, text)) + "\n", record.commit, record.date)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="cuda", help="a card, or cuda-emulated for a rehearsal")
    parser.add_argument("--networks", nargs="*", help="of the panel; by default all")
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything")
    parser.add_argument("--json", type=Path, default=FOLDER / "record.json")
    parser.add_argument("--write", type=Path, default=FOLDER / "record.md", help="the page")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    try:
        index = card_of(options.target)
        name = options.target if index is None else str(card(index))
    except VeraxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        import torch

        version = torch.__version__
        from panel_zoo import PANEL
    except ImportError as error:
        print(f"networks are left out: {error}", file=sys.stderr)
        PANEL, version = {}, ""
    record = Record(today(), commit(), name, version)
    print(f"{name}; commit {record.commit}")
    until_networks = begin + SHARE_OF_NETWORKS * options.seconds
    for batch in options.batches:
        for network in options.networks or PANEL:
            if time.monotonic() < until_networks:
                record.networks += compared(network, batch, options.target, until_networks)
    compare_operators(record, options.target, begin + options.seconds)
    for label in (*record.differing, *record.failing)[:TOLD]:
        print(f"  {label}")
    for path, text in ((options.json, json.dumps(dataclasses.asdict(record), indent=1)),
                       (options.write, page(record))):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path}")
    print(page(record).splitlines()[6])
    return 0 if record.is_right else 1


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks"))
    sys.exit(main())
