"""What the panel found as a page of Markdown tables and a drawing."""

from __future__ import annotations

import html
import math
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verax.records.benchmark import Benchmark, Timing

OURS = ("verax:O1", "verax:O3")
TITLES: Mapping[str, str] = {
    "verax:O1": "O1",
    "verax:O2": "O2",
    "verax:O3": "O3",
    "verax:saved": "`.vx`",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "ncnn": "ncnn",
    "mnn": "MNN",
    "litert": "LiteRT",
    "torch": "PyTorch",
    "torch-compiled": "torch.compile",
    "torch-zentorch": "zentorch",
    "tvm": "TVM",
}
COLOURS: Mapping[str, str] = {
    "onnxruntime": "#1f77b4",
    "openvino": "#2ca02c",
    "ncnn": "#d62728",
    "mnn": "#9467bd",
    "litert": "#8c564b",
    "torch": "#e377c2",
    "torch-compiled": "#7f7f7f",
    "torch-zentorch": "#bcbd22",
    "tvm": "#17becf",
}
HEAD = """# Levels and peers on the panel

Made by `make bench`. Milliseconds of one call: the fastest call of the run; behind ± half of the
middle half of the rounds, in percent of their median; in brackets how far the outputs are from
those of O1, relative to the largest. All engines of a row take turns in one run, each in a process
of its own, with NumPy arrays in and out. Ratios are how many times as fast O1 and O3 are as the
fastest of the peers, by the fastest calls: other work on the machine slows some rounds down, and
no other. The share of the peak counts what convolutions and products do by their definition against
float32 multiply-adds measured in the same run; Winograd's and Strassen's algorithms do fewer, so
that it may pass 100. O1 has the bits of O0; O3 takes these algorithms where shapes say that it pays
([levels](levels.md), [certificates](certificates.md)). `name-int8` and `name-float16` are the
networks quantised and narrowed by ONNX Runtime's tools. ncnn is given images one by one: its arrays
have no batch. An engine whose calls take three times as long as the fastest's took two turns only;
those near the fastest go on until the fastest calls of two turns agree within 2 %, for up to 15.
What "—" stands for, and which networks were left out, is said below.

![Times of the peers relative to O3]({drawing})
"""


@dataclass(frozen=True)
class Row:
    """One network at one batch size. peaks: GFLOP/s by thread count; operations: of one call;
    target: what Verax's kernels were made for; host: the widest that the processor runs; date: on
    which it was measured; round_trips: nanoseconds in which a number comes back from the other core
    (`verax.compiler.describe.machine_peak`), before the network was measured and after."""

    batch: int
    operations: float
    peaks: Mapping[int, float]
    record: Benchmark
    target: str = ""
    host: str = ""
    date: str = ""
    round_trips: Sequence[float] = ()

    @property
    def name(self) -> str:
        return self.record.model

    @property
    def key(self) -> tuple[str, int]:
        """Name and batch, by which the plan knows it."""
        return self.name, self.batch

    def best_peer(self, threads: int) -> Timing | None:
        """The fastest of those that are not ours."""
        found = [t for t in self.record.timings if t.threads == threads and t.rounds]
        peers = [t for t in found if not t.engine.startswith("verax")]
        return min(peers, key=lambda t: t.best, default=None)

    def share(self, timing: Timing | None) -> float:
        """Of the peak, in percent; nan without a time."""
        peak = self.peaks.get(timing.threads, 0.0) if timing else 0.0
        return self.operations / timing.best / 1e4 / peak if timing and peak else math.nan


def disturbed(rows: Sequence[Row]) -> list[Row]:
    """Those of two threads that were measured while cores were further apart than they can be: the
    processors of a virtual machine share no cache at times, and all engines are slower then."""
    least = min((r for row in rows for r in row.round_trips), default=math.nan)
    return [r for r in rows if any(trip > APART * least for trip in r.round_trips)]


APART = 2.0
"""Times as long as the shortest round trip of the run that a row's may take."""


def page(
    rows: Sequence[Row],
    left: Mapping[tuple[str, int], str] | None = None,
    drawn: str = "panel.svg",
) -> str:
    """All of it as Markdown. left: why a network (name, batch) that was planned has no row; drawn:
    the file of the drawing, beside the page."""
    engines = [e for e in TITLES if any(t.engine == e for r in rows for t in r.record.timings)]
    lines = [HEAD.replace("{drawing}", drawn)]
    for batch in dict.fromkeys(r.batch for r in rows):
        part = [r for r in rows if r.batch == batch]
        for threads in dict.fromkeys(t for r in part for t in r.record.thread_counts):
            ran = [r for r in part if any(t.threads == threads for t in r.record.timings)]
            lines += ["", f"## Batch {batch}, {threads} thread{'s' if threads > 1 else ''}", ""]
            lines += _times(ran, [e for e in engines if e != "verax:saved"], threads)
            apart = [r.name for r in disturbed(rows) if r in ran and threads > 1]
            if apart:
                lines += ["", f"{_APART} {', '.join(apart)}."]
    lines += ["", "## Start-up and memory", "", _START, ""]
    lines += _starts([r for r in rows if r.batch == 1], engines)
    lines += ["", "## Not measured", "", *_missing(rows, left or {}), "", _foot(rows)]
    return "\n".join(lines) + "\n"


_APART = (
    "Measured while the machine's cores shared no cache, which it does not for seconds to minutes, "
    "so that two threads of all engines are slower (`--resume` measures them again):"
)
_START = (
    "One thread, batch 1: seconds from a started interpreter to the first result (import, load, "
    "compile, first run) and the most memory that the process ever held, in megabytes. Verax "
    "compiles anew here; `.vx` is the same program, saved before."
)


def _times(rows: Sequence[Row], engines: Sequence[str], threads: int) -> Iterator[str]:
    shown = [e for e in engines if any(r.record.timing(e, threads) for r in rows)]
    heads = [
        "network",
        *(TITLES[e] for e in shown),
        "O1 / peer",
        "O3 / peer",
        "% of peak",
        "peer's",
    ]
    yield "| " + " | ".join(heads) + " |"
    yield "|---|" + "---:|" * (len(heads) - 1)
    ratios: dict[str, list[float]] = {e: [] for e in OURS}
    for row in rows:
        peer = row.best_peer(threads)
        cells = [row.name]
        cells += [_cell(row.record.timing(e, threads), peer) for e in shown]
        for engine in OURS:
            own = row.record.timing(engine, threads)
            if own and peer:
                ratios[engine].append(peer.best / own.best)
            cells.append(f"{peer.best / own.best:.2f}" if own and peer else "—")
        own = row.record.timing("verax:O3", threads)
        cells += [_percent(row.share(own)), _percent(row.share(peer))]
        yield "| " + " | ".join(cells) + " |"
    means = [f"{statistics.geometric_mean(f):.2f}" if f else "—" for f in ratios.values()]
    yield "| geometric mean |" + " |" * len(shown) + " " + " | ".join(means) + " | | |"


def _cell(found: Timing | None, peer: Timing | None) -> str:
    if found is None:
        return "—"
    text = f"{_short(found.best)} ±{100 * found.spread:.0f} % ({found.difference:.0e})"
    return f"**{text}**" if peer is found else text


def _percent(share: float) -> str:
    return "—" if math.isnan(share) else f"{share:.0f}"


def _short(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _starts(rows: Sequence[Row], engines: Sequence[str]) -> Iterator[str]:
    yield "| network | " + " | ".join(TITLES[e] for e in engines) + " |"
    yield "|---|" + "---:|" * len(engines)
    for row in rows:
        least = min((t.threads for t in row.record.timings), default=1)
        found = [row.record.timing(e, least) for e in engines]
        cells = [f"{t.start_up:.2f} s, {t.peak_memory:.0f}" if t else "—" for t in found]
        yield f"| {row.name} | " + " | ".join(cells) + " |"


def _missing(rows: Sequence[Row], left: Mapping[tuple[str, int], str]) -> Iterator[str]:
    """Reasons, each with the engines and networks that share it; then the networks left out."""
    told: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for timing in row.record.timings:
            if timing.failure:
                names = told.setdefault((timing.engine, cause(timing.failure)), [])
                if (title := _titled(row.name, row.batch)) not in names:
                    names.append(title)
    for (engine, reason), names in told.items():
        yield f"- {TITLES.get(engine, engine)} on {', '.join(names)}: {_quoted(reason)}"
    out: dict[str, list[str]] = {}
    for (name, batch), reason in left.items():
        out.setdefault(cause(reason), []).append(_titled(name, batch))
    for reason, names in out.items():
        yield f"- All engines on {', '.join(names)}: {_quoted(reason)}"
    if not told and not out:
        yield "Nothing is missing."


def _titled(name: str, batch: int) -> str:
    return name if batch == 1 else f"{name} at batch {batch}"


def _quoted(text: str) -> str:
    """As Markdown takes it: quotation marks stay as they are."""
    return html.escape(text, quote=False)


NOISE = re.compile(
    r"^(\w*(Error|Exception): *)?(Exception from \S+:\d+:|Check '.*' failed at \S+:\d+:"
    r"|While validating |FrontEnd API failed|Model wasn't fully converted"
    r"|-- .* with a message:$|Traceback |File \"|at: \S+:\d+$)"
)
"""Lines that say where in a runtime's own source something was found, and not what it was."""
LONGEST = 240


def cause(failure: str) -> str:
    """What a runtime says went wrong, as one sentence: the first line that says so, or the last one
    before a blank line where a list of places precedes it. It ends with a word."""
    text = failure.replace(f"{Path.cwd()}/", "")
    lines = [line.strip() for line in text.split("\n\n")[0].splitlines() if line.strip()]
    telling = [line for line in lines if not NOISE.match(line)]
    if telling and telling[0] != lines[0]:
        telling = telling[-1:]
    said = " ".join((telling or lines or ["nothing"])[0].replace("what(): ", "").split())
    said = re.sub(r"^(RuntimeError|Exception): *(?=\S)", "", said)
    if len(telling) > 1 and said.endswith(":"):
        said += f" {telling[1]}"
    if len(said) > LONGEST:
        said = said[:LONGEST].rsplit(None, 1)[0].rstrip(",;:") + " ..."
    return said


def _foot(rows: Sequence[Row]) -> str:
    machine = rows[-1].record.environment
    versions = {t.engine: t.version for r in rows for t in r.record.timings if t.version}
    load = [x for r in rows for x in r.record.load]
    peaks = {n: max(r.peaks.get(n, 0.0) for r in rows) for r in rows for n in r.peaks}
    told = ", ".join(f"{n} thread{'s' if n > 1 else ''} {p:.0f}" for n, p in peaks.items())
    trips = [trip for r in rows for trip in r.round_trips if trip == trip]
    if trips:
        told += f"; round trip between two cores: {min(trips):.0f} to {max(trips):.0f} ns"
    return (
        f"{_instructions(rows)}\n\n{machine.get('processor', '?')}, "
        f"{machine.get('cores', '?')} cores; {_dates(rows)}peak in GFLOP/s: {told}; "
        f"load {min(load):.1f} to {max(load):.1f}; a median round took {_unrest(rows):.2f} times "
        "as long as the fastest call (1.0 on a quiet machine); "
        + ", ".join(f"{TITLES[e]} {v}" for e, v in versions.items() if not e.startswith("verax"))
        + "."
    )


def _unrest(rows: Sequence[Row]) -> float:
    """How many times as long as the fastest call the median round took: the geometric mean of all
    engines."""
    timings = [t for r in rows for t in r.record.timings if t.rounds and t.best]
    logs = [math.log(statistics.median(t.rounds) / t.best) for t in timings]
    return math.exp(statistics.fmean(logs)) if logs else 1.0


def _dates(rows: Sequence[Row]) -> str:
    dates = sorted({r.date for r in rows} - {""})
    return f"measured on {', '.join(dates)}; " if dates else ""


def _instructions(rows: Sequence[Row]) -> str:
    """Which instructions were used by whom."""
    made, can = ({getattr(r, f) for r in rows} - {""} for f in ("target", "host"))
    if made == can:
        return (
            f"Verax's kernels are for {', '.join(sorted(made)) or 'this processor'}, the widest "
            "instructions of this processor, as are the peers': nobody was held back."
        )
    return (
        f"Verax's kernels are for {', '.join(sorted(made))}, and this processor has "
        f"{', '.join(sorted(can))}: OpenVINO's and PyTorch's oneDNN and PyTorch's own kernels were "
        "held to AVX2 as well; the other peers know no such switch and were not."
    )


LEFT, RIGHT, ROW, TOP = 150, 640, 20, 46


def drawing(rows: Sequence[Row], threads: int) -> str:
    """Batch 1 as SVG: for each network the peers' times relative to O3's, on a logarithmic axis.
    What lies right of the line is slower than Verax."""
    shown = [r for r in rows if r.batch == 1 and r.record.timing("verax:O3", threads)]
    low, high = 0.5, 16.0
    width, bottom = RIGHT + 30, TOP + ROW * len(shown)

    def across(ratio: float) -> float:
        share = math.log(min(max(ratio, low), high) / low) / math.log(high / low)
        return LEFT + (RIGHT - LEFT) * share

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 30}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{bottom + 30}" fill="white"/>',
    ]
    for tick in (0.5, 1, 2, 4, 8, 16):
        x, line = across(tick), "#333" if tick == 1 else "#ddd"
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{line}"/>'
        )
        lines.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}</text>')
    words = f"time of a call relative to Verax at O3, {threads} thread{'s' if threads > 1 else ''}"
    lines.append(f'<text x="{LEFT}" y="{bottom + 27}">{words}</text>')
    ran = [e for e in COLOURS if any(r.record.timing(e, threads) for r in shown)]
    for i, engine in enumerate(ran):
        x, y = LEFT - 130 + 125 * (i % 5), 12 + 15 * (i // 5)
        lines.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{COLOURS[engine]}"/>')
        lines.append(f'<text x="{x + 8}" y="{y}">{html.escape(TITLES[engine])}</text>')
    for i, row in enumerate(shown):
        y = TOP + ROW * i + ROW / 2
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{row.name}</text>')
        own = row.record.timing("verax:O3", threads)
        for engine in ran:
            found = row.record.timing(engine, threads)
            if found and own:
                ratio = found.best / own.best
                title = f"{TITLES[engine]}, {row.name}: {ratio:.2f}"
                lines.append(
                    f'<circle cx="{across(ratio):.1f}" cy="{y}" r="4" fill="{COLOURS[engine]}" '
                    f'fill-opacity="0.8"><title>{html.escape(title)}</title></circle>'
                )
    return "\n".join([*lines, "</svg>"]) + "\n"
