"""A `Benchmark` as a terminal table."""

from __future__ import annotations

import math

from rich.table import Table

from verax.records.benchmark import Benchmark


def benchmark_table(record: Benchmark, subject: str, rivals: tuple[str, ...]) -> Table:
    """Engines as rows, thread counts as columns; `subject`'s speed against the fastest rival."""
    shape = ", ".join(f"{name}: {kind}" for name, kind in record.inputs.items())
    table = Table(title=f"{record.model}   ({shape})", title_justify="left", caption_justify="left")
    table.add_column("engine", no_wrap=True)
    for threads in record.thread_counts:
        title = f"ms, {threads} thread{'s' if threads > 1 else ''}"
        table.add_column(title, justify="right", no_wrap=True)
        table.add_column("best", justify="right", style="dim")
    table.add_column("load, s", justify="right")
    table.add_column("MB", justify="right")
    failures: dict[str, str] = {}
    for engine in dict.fromkeys(t.engine for t in record.timings):
        row, prepare, memory = [engine], "", ""
        for threads in record.thread_counts:
            found = record.timing(engine, threads)
            if found is None:
                row += ["-", ""]
                continue
            row += [f"{found.median:.2f}", f"{found.best:.2f}"]
            row[0] = f"{engine} {found.version}"
            prepare, memory = f"{found.prepare:.1f}", f"{found.memory:.0f}"
        for found in record.timings:
            if found.engine == engine and found.failure:
                failures[engine] = found.failure
        table.add_row(*row, prepare, memory, style="bold" if engine == subject else "")
    lines = []
    for threads in record.thread_counts:
        ratio, rival = record.speed(subject, rivals, threads)
        if not math.isnan(ratio):
            lines.append(f"{subject} on {threads}: {ratio:.3f} of the speed of {rival}")
    lines += [f"{engine}: {text}" for engine, text in failures.items()]
    table.caption = "\n".join(lines) or None
    return table
