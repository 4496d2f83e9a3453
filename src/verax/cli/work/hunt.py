"""What `verax hunt` does: shows the rate and the findings while workers judge."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import typer
from rich.markup import escape
from rich.table import Table

from verax.base.errors import UsageError
from verax.cli.console import can_write, output, progress, write_json
from verax.cli.interrupts import as_keyboard_interrupt
from verax.hunt.session import HuntResult, hunt

SCHEMA = "verax.hunt/1"
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
SHOWN = 20
"""Findings in the table; all are in the store."""


def perform(
    *,
    subject: str,
    against: str,
    time: str,
    cases: int | None,
    seed: int,
    store: Path,
    operators: str,
    families: str,
    models: Path | None,
    workers: int,
    run_seconds: float,
    memory: int,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.hunt`."""
    can_write(json)
    limit = seconds_of(time)
    with as_keyboard_interrupt(), progress("hunting") as show:

        def show_rate(done: int, elapsed: float, findings: int) -> None:
            rate = done / elapsed if elapsed else 0.0
            share = max(done / cases if cases else 0.0, elapsed / limit if limit else 0.0)
            show(f"{done} cases, {rate:.1f} a second, {findings} findings", share)

        result = hunt(
            subject,
            against=against,
            seconds=limit,
            cases=cases,
            seed=seed,
            store=store,
            workers=workers,
            run_seconds=run_seconds,
            memory_mb=memory,
            operators=_names(operators),
            families=_names(families),
            models=models or "",
            progress=show_rate,
        )
    _show(result, store)
    write_json(json, SCHEMA, dataclasses.asdict(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def seconds_of(text: str) -> float | None:
    """Seconds of "90s", "10m", "1.5h" or "90"; None for "". Raises `UsageError`."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise UsageError(
            f"--time {text!r} is no time", next_step="for instance --time 90s, 10m or 1h"
        )
    return float(match[1]) * UNITS[match[2]]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _show(result: HuntResult, store: Path) -> None:
    ended = "interrupted: " if result.was_interrupted else ""
    rate = result.cases / result.seconds if result.seconds else 0.0
    output.print(
        f"{ended}{result.cases} cases in {result.seconds:.0f} s, {rate:.1f} a second; "
        f"{len(result.findings)} distinct findings in {store}, {len(result.confirmed)} of high "
        "confidence",
        markup=False,
        highlight=False,
    )
    counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(result.counts.items()))
    output.print(f"the store's cases: {counts}", markup=False, highlight=False)
    if not result.findings:
        return
    table = Table("finding", "operator", "cause", "fused with", "cases", "confidence", box=None)
    order = {"high": 0, "medium": 1}
    for f in sorted(result.findings, key=lambda f: order.get(f.confidence, 2))[:SHOWN]:
        texts = (f.classification, f.operator, f.cause, f.location, str(f.count), f.confidence)
        table.add_row(*(escape(t) for t in texts))
    output.print(table)
