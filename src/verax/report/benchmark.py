"""A `Benchmark` as a terminal table."""

from __future__ import annotations

import math

from rich.table import Table

from verax.records.benchmark import Benchmark


def benchmark_table(record: Benchmark, subject: str, peers: tuple[str, ...]) -> Table:
    """Engines as rows, thread counts as columns; `subject`'s speed against the fastest rival."""
    shape = ", ".join(f"{name}: {kind}" for name, kind in record.inputs.items())
    table = Table(title=f"{record.model}   ({shape})", title_justify="left", caption_justify="left")
    table.add_column("engine", overflow="fold")
    for threads in record.thread_counts:
        table.add_column(f"{threads} thread{'s' if threads > 1 else ''}", justify="right")
    table.add_column("load", justify="right")
    table.add_column("memory", justify="right")
    for engine in dict.fromkeys(t.engine for t in record.timings):
        row, load, memory = [engine], "", ""
        for threads in record.thread_counts:
            timing = record.timing(engine, threads)
            if timing is None:
                row.append("-")
                continue
            row.append(f"{_short(timing.median)} ({_short(timing.best)})")
            row[0] = f"{engine} {timing.version}"
            load, memory = f"{timing.prepare:.1f} s", f"{timing.memory:.0f} MB"
        table.add_row(*row, load, memory, style="bold" if engine == subject else "")
    table.caption = "\n".join(
        ["milliseconds: median (fastest call)", *_sentences(record, subject, peers)]
    )
    return table


def _short(milliseconds: float) -> str:
    """Four significant digits."""
    return f"{milliseconds:.0f}" if milliseconds >= 1000 else f"{milliseconds:.4g}"


def _sentences(record: Benchmark, subject: str, peers: tuple[str, ...]) -> list[str]:
    """The ratios, and why engines have no times."""
    lines = []
    for threads in record.thread_counts:
        ratio, peer = record.speed(subject, peers, threads)
        if not math.isnan(ratio):
            on = f"{threads} thread{'s' if threads > 1 else ''}"
            lines.append(f"{subject} on {on}: {ratio:.3f} of the speed of {peer}")
    lines += [f"note: {note}" for note in record.notes]
    failures = {t.engine: t.failure for t in record.timings if t.failure}
    return lines + [f"{engine}: {text}" for engine, text in failures.items()]
