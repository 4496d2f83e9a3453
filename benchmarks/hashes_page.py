"""What runs of `hashes` are, how they are counted, and the page that is made of them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.digests import SHOWN
from benchmarks.provenance import stamped

LEVELS = (1, 3)
THREADS = (1, 2, 3)
OURS = tuple(f"verax:O{level}" for level in LEVELS)
TITLES: Mapping[str, str] = {
    **{name: f"Verax {name.rpartition(':')[2]}" for name in OURS},
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "torch": "PyTorch",
}
INSTRUCTIONS: Mapping[str, str] = {
    "avx512": "AVX-512", "avx2": "AVX2", "sse4": "SSE4", "aarch64": "ARM64",
}  # fmt: skip
"""What runs and the page call instruction sets, the widest first."""
NEHALEM = ("qemu-x86_64", "-cpu", "Nehalem")
"""An emulator of a processor with SSE4.2 and no AVX, for a peer that takes what it finds."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One instruction set of a peer. environment: variables that tell it; command: what runs
    Python so that it finds no other; words: the same, for the page."""

    instructions: str
    words: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    command: tuple[str, ...] = ()


SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "onnxruntime": (
        Setting("avx2", "as it is"),
        Setting("sse4", "under an emulated Nehalem", command=NEHALEM),
    ),
    "openvino": (
        Setting("avx512", "ONEDNN_MAX_CPU_ISA", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
        Setting("avx2", "ONEDNN_MAX_CPU_ISA", {"ONEDNN_MAX_CPU_ISA": "AVX2"}),
        Setting("sse4", "ONEDNN_MAX_CPU_ISA", {"ONEDNN_MAX_CPU_ISA": "SSE41"}),
    ),
    "torch": (
        Setting(
            "avx512", "ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA",
            {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
        ),
        Setting(
            "avx2", "ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA",
            {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        ),
        Setting(
            "sse4", "ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA",
            {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
        ),
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Run:
    """One run, or why there is none. machine: what ran it; digest: SHA-256 of the outputs, "" where
    `failure` says why; version: of the engine."""

    network: str
    engine: str
    instructions: str
    machine: str
    threads: int
    digest: str = ""
    failure: str = ""
    version: str = ""
    seconds: float = 0.0


def counts(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Distinct hashes by network and engine; an engine without a run of a network has none."""
    seen: dict[str, dict[str, set[str]]] = {}
    for run in runs:
        if run.digest:
            seen.setdefault(run.network, {}).setdefault(run.engine, set()).add(run.digest)
    return {n: {e: len(found) for e, found in own.items()} for n, own in seen.items()}


def counted(runs: Sequence[Run]) -> dict[str, dict[str, tuple[int, int]]]:
    """As `counts`, each with the number of settings that ran."""
    ran = Counter((r.network, r.engine) for r in runs if r.digest)
    return {n: {e: (number, ran[n, e]) for e, number in own.items()}
            for n, own in counts(runs).items()}  # fmt: skip


def broken(runs: Sequence[Run]) -> list[str]:
    """Networks and levels where Verax has more than one hash."""
    return [f"{network} at {engine.rpartition(':')[2]}"
            for network, own in counts(runs).items()
            for engine, number in own.items() if engine in OURS and number > 1]  # fmt: skip


def ratios(page: str) -> dict[str, float]:
    """How many times as fast as the fastest peer O3 is, by network: the column of the panel's page
    (one image, one thread)."""
    part = page.partition("## Batch 1, 1 thread")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")]
            for line in part.splitlines() if line.startswith("|")]  # fmt: skip
    at = rows[0].index("O3 / peer") - len(rows[0])
    return {row[0]: float(row[at]) for row in rows[2:]
            if row[at] != "—" and row[0] != "geometric mean"}  # fmt: skip


def page(record: Mapping[str, Any]) -> str:
    """The record as a page of Markdown."""
    runs = [Run(**run) for run in record["runs"]]
    found = counts(runs)
    engines = [e for e in TITLES if any(e in own for own in found.values())]
    lines = [HEAD, _row("network", *(
        TITLES[e] for e in engines)), "|---|" + "---:|" * len(engines)]  # fmt: skip
    for network, own in found.items():
        cells = (_count(runs, network, engine, own.get(engine, 0)) for engine in engines)
        lines.append(_row(network, *cells))
    lines += ["", *_where(runs, engines), "", "## Every run", "", EVERY, ""]
    lines += [_row("network", "engine", "instructions", *(f"{n} thread{'s' * (n > 1)}"
              for n in THREADS)), "|---|---|---|" + "---|" * len(THREADS)]  # fmt: skip
    for network in found:
        for engine in engines:
            lines += _runs_of(runs, network, engine)
    lines += ["", "## Not run", "", *_not_run(runs), "", _foot(record, runs)]
    return stamped("\n".join(lines) + "\n", record["commit"], record["date"])


HEAD = """# One input, how many answers?

![Speed beside the fastest peer, and the number of distinct outputs](hashes.svg)

One network, one input: how many different outputs does an engine give when only the processor's instructions and the number of threads change? Made by `python benchmarks/hashes.py`. The networks are made by a script with seeded weights; an output's hash is the SHA-256 over the names, types, shapes and bytes of all outputs. In brackets: how many settings ran, each once.

Verax promises bits for each level: O1 those of the network as it is, O3 those of its own recipe, which are others where O3 takes Winograd's or Strassen's algorithm. So its levels are counted apart, and each has one hash. The peers run at their defaults, in float32. That their outputs differ need not be a mistake (`verax check` says whether it is); it is what makes tests flicker, caches miss, and a result impossible to reproduce on another machine.

The speed in the picture is that of [the panel with AVX2](panel-avx2.md), one image on one thread: how many times as fast O3 is as the fastest of up to nine peers.
"""  # noqa: E501  (a line of Markdown is a paragraph)
EVERY = "The first digits of each hash. A hash is compared within a row's network and engine alone: engines name their outputs differently."  # noqa: E501


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _count(runs: Sequence[Run], network: str, engine: str, number: int) -> str:
    own = [r for r in runs if (r.network, r.engine) == (network, engine) and r.digest]
    return f"{number} ({len(own)})" if own else "—"


def _where(runs: Sequence[Run], engines: Sequence[str]) -> Iterator[str]:
    """On what each engine ran, a line each."""
    for engine in engines:
        own = [r for r in runs if r.engine == engine and r.digest]
        places: dict[str, set[int]] = {}
        for run in sorted(own, key=lambda r: list(INSTRUCTIONS).index(r.instructions)):
            by = "" if run.machine == "here" else f" (emulated, {run.machine.split()[0]})"
            places.setdefault(f"{INSTRUCTIONS[run.instructions]}{by}", set()).add(run.threads)
        told = "; ".join(f"{p}: {', '.join(map(str, sorted(t)))}" for p, t in places.items())
        yield f"- {TITLES[engine]} {own[0].version}, with these numbers of threads: {told}."


def _runs_of(runs: Sequence[Run], network: str, engine: str) -> Iterator[str]:
    own = [r for r in runs if (r.network, r.engine) == (network, engine) and r.digest]
    for instructions in INSTRUCTIONS:
        part = {r.threads: r.digest[:SHOWN] for r in own if r.instructions == instructions}
        if part:
            cells = (part.get(n, "—") for n in THREADS)
            yield _row(network, TITLES[engine], INSTRUCTIONS[instructions], *cells)


def _not_run(runs: Sequence[Run]) -> Iterator[str]:
    """What has no hash, and why."""
    told: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        if run.failure:
            names = told.setdefault((run.engine, run.instructions, run.failure), [])
            if run.network not in names:
                names.append(run.network)
    for (engine, instructions, why), names in told.items():
        yield f"- {TITLES[engine]}, {INSTRUCTIONS[instructions]}, {', '.join(names)}: {why}"
    tried = {(r.engine, r.instructions) for r in runs}
    for engine in TITLES:
        lacking = [name for n, name in INSTRUCTIONS.items() if (engine, n) not in tried]
        if engine in OURS and "SSE4" in lacking:
            lacking.remove("SSE4")
        if lacking:
            yield f"- {TITLES[engine]}, {', '.join(lacking)}: not run here."
    yield "- Verax makes no code for x86-64 without AVX2."


def _foot(record: Mapping[str, Any], runs: Sequence[Run]) -> str:
    return (
        f"{record['processor']}; {len([r for r in runs if r.digest])} runs. The peers' instruction "
        "sets are told by: "
        + "; ".join(
            f"{TITLES[engine]}, {', '.join(dict.fromkeys(s.words for s in settings))}"
            for engine, settings in SETTINGS.items()
        )
        + "."
    )
