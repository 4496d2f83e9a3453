"""A `TuningRecord` as a terminal table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from verax.records.tuning import NOT_REACHED, TUNED, TuningRecord


def tuning_table(record: TuningRecord) -> Table:
    """Kernels that were searched, by their share of the network's time, each above what is taken
    for it: 80 columns have no room for both side by side."""
    threads = f"{record.threads} thread{'s' if record.threads > 1 else ''}"
    table = Table(title=f"{record.model}, {threads}", title_justify="left")
    table.add_column("kernel -> schedule", ratio=1, overflow="fold")
    for title in ("calls", "share", "by rule", "best", "gain", "tried"):
        table.add_column(title, justify="right", no_wrap=True)
    for kernel in record.kernels:
        if kernel.outcome == NOT_REACHED:
            continue
        tuned = kernel.outcome == TUNED
        gain = kernel.rule_us / kernel.best_us if kernel.best_us else 1.0
        table.add_row(
            Text(f"{kernel.spec}\n-> {kernel.finding}"),
            str(kernel.calls),
            f"{100 * kernel.share:.1f} %",
            f"{kernel.rule_us:.0f} us",
            f"{kernel.best_us:.0f} us",
            f"{gain:.3f}",
            str(kernel.trials),
            style="" if tuned else "dim",
        )
    return table
