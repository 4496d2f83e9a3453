"""A `TuningRecord` as a terminal table."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from verax.records.tuning import NOT_REACHED, TUNED, TuningRecord


def tuning_table(record: TuningRecord) -> Table:
    """Kernels that were searched, by their share of the network's time."""
    threads = f"{record.threads} thread{'s' if record.threads > 1 else ''}"
    table = Table(title=f"{record.model}, {threads}", title_justify="left")
    table.add_column("kernel", ratio=3, overflow="fold")
    for title in ("calls", "share", "by rule", "best", "gain", "tried"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("schedule", ratio=3, overflow="fold")
    for kernel in record.kernels:
        if kernel.outcome == NOT_REACHED:
            continue
        tuned = kernel.outcome == TUNED
        gain = kernel.rule_us / kernel.best_us if kernel.best_us else 1.0
        table.add_row(
            Text(kernel.spec),
            str(kernel.calls),
            f"{100 * kernel.share:.1f} %",
            f"{kernel.rule_us:.0f} us",
            f"{kernel.best_us:.0f} us",
            f"{gain:.3f}",
            str(kernel.trials),
            Text(kernel.schedule if tuned else kernel.outcome),
            style="" if tuned else "dim",
        )
    return table
