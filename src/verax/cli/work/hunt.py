"""What `verax hunt` does: shows the rate and the findings while workers judge."""

from __future__ import annotations

import re
from pathlib import Path

import typer

from verax.base.errors import UsageError
from verax.cli.console import can_write, output, progress
from verax.cli.interrupts import as_keyboard_interrupt
from verax.cli.results import write_record
from verax.hunt.session import hunt
from verax.hunt.worker import STORE
from verax.report.hunt import render_hunt

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


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
    ray: str | None,
    run_seconds: float,
    memory: int,
    json: Path | None,
    html: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.hunt`."""
    can_write(json, html, reads=[store / STORE])
    limit = seconds_of(time)
    if not 0 < run_seconds < float("inf"):
        raise UsageError(
            f"--run-seconds {run_seconds:g} is no time", next_step="give seconds, above 0"
        )
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
            ray=ray,
            run_seconds=run_seconds,
            memory_mb=memory,
            operators=_names(operators),
            families=_names(families),
            models=models or "",
            progress=show_rate,
        )
    output.print(render_hunt(result))
    output.print(f"the findings are in {store}", markup=False, highlight=False)
    write_record(result, json, html)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def seconds_of(text: str) -> float | None:
    """Seconds of "90s", "10m", "1.5h" or "90"; None for "". Raises `UsageError`."""
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None or not float(match[1]):
        raise UsageError(
            f"--time {text!r} is no time", next_step="for instance --time 90s, 10m or 1h"
        )
    return float(match[1]) * UNITS[match[2]]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
