"""What `verax history` does: histories of `verax tune` listed, filtered, merged and compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from verax.base.errors import UsageError
from verax.cli.console import can_write, errors, output, write_json
from verax.compiler.artifacts.default_history import default_history
from verax.compiler.tune.history_files import (
    Compared,
    Line,
    MachineSummary,
    Selection,
    best,
    compared,
    machines,
    plain,
    read_lines,
    schedule_text,
    write_lines,
)

ACTIONS = ("list", "filter", "merge", "best", "compare")
SCHEMA = "verax.history/1"
DAY = len("2026-01-31")


def perform(
    *,
    action: str,
    files: list[Path] | None,
    kernel: str,
    machine: str,
    target: str,
    network: str,
    threads: int,
    between: list[str] | None,
    out: Path | None,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.history`."""
    if action not in ACTIONS:
        raise UsageError(
            f"there is nothing called {action!r} to do with a history",
            next_step=f"choose one of {', '.join(ACTIONS)}",
        )
    writes = action in ("filter", "merge", "best")
    if out is not None and not writes:
        raise UsageError(f"{action} writes no history", next_step="leave out --output, or use best")
    if len(between or ()) != (2 if action == "compare" else 0):
        raise UsageError(
            "--between names the two machines of compare, once each",
            next_step="for instance verax history compare --between avx2 --between avx512",
        )
    can_write(out, json)
    read = read_lines(files or [_default()])
    selection = Selection(kernel, machine, target, network, threads)
    lines = [line for line in read.lines if selection.takes(line)]
    facts: dict[str, Any] = {"action": action, "skipped": read.skipped, "damaged": read.damaged}
    if read.skipped or read.damaged:
        errors.print(
            Text(f"warning: {read.damaged} damaged lines and {read.skipped} of later versions are "
                 "left out"),
            soft_wrap=True,
        )  # fmt: skip
    if writes:
        selected = best(lines) if action == "best" else lines
        facts["lines"] = len(selected)
        _write(out, selected)
    elif action == "list":
        summaries, words = machines(lines), best(lines)
        output.print(_machine_table(summaries))
        output.print(_kernel_table(words))
        facts["machines"] = [plain(summary) for summary in summaries]
        facts["kernels"] = [dict(line.entry) for line in words]
    elif between is not None:
        kernels = compared(lines, *between)
        output.print(_comparison_table(kernels, between))
        output.print(Text(_summary(kernels, between)), soft_wrap=True)
        facts |= {"between": between, "kernels": [plain(one) for one in kernels]}
    write_json(json, SCHEMA, facts)


def _default() -> str:
    path = default_history()
    if path is None:
        raise UsageError(
            "programs are not kept (VERAX_CACHE is off), so there is no usual history",
            next_step="name a file",
        )
    return path


def _write(out: Path | None, lines: Sequence[Line]) -> None:
    if out is not None:
        count = write_lines(out, lines)
        output.print(Text(f"{out}: {count} lines"), soft_wrap=True)
        return
    for line in lines:
        sys.stdout.write(line.text.decode() + "\n")


def _machine_table(summaries: Sequence[MachineSummary]) -> Table:
    """At most 80 columns wide, as far as names allow: those lie one above the other."""
    table = Table(title="machines", title_justify="left", show_lines=True)
    table.add_column("machine, device, target, processor", overflow="fold", min_width=20)
    for title in ("threads", "kernels", "gain", "measured", "faults", "last"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in summaries:
        names = (one.machine, one.device, one.host.target.partition(" ")[0], one.host.processor)
        numbers = (one.kernels, f"{one.gain:.3f}", one.measured, one.faults, one.last[:DAY])
        name = Text("\n".join(filter(None, names)))
        table.add_row(name, *map(str, (one.host.threads, *numbers)))
    return table


def _kernel_table(lines: Sequence[Line]) -> Table:
    table = Table(title="kernels, and what is taken", title_justify="left")
    for title in ("kernel", "machine", "network"):
        table.add_column(title, overflow="fold", min_width=16 if title == "kernel" else 7)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("schedule", overflow="fold")
    for line in lines:
        target = line.host.target.partition(" ")[0]
        name = " ".join(filter(None, (line.origin.machine, target, f"x{line.host.threads}")))
        texts = (line.origin.spec or line.kernel[:12], name, line.origin.network)
        gain = float(line.entry["gain"])
        table.add_row(*map(Text, texts), f"{gain:.3f}", Text(schedule_text(line.schedule)))
    return table


def _comparison_table(kernels: Sequence[Compared], between: Sequence[str]) -> Table:
    table = Table(title=" and ".join(between), title_justify="left")
    table.add_column("kernel", overflow="fold")
    for name in between:
        table.add_column(f"gain on {name}", justify="right")
    for first, second in (tuple(between), tuple(reversed(between))):
        table.add_column(f"what won on {first}, on {second}", justify="right")
    table.add_column("schedule", overflow="fold")
    for kernel in kernels:
        same = "the same" if kernel.is_same else f"{kernel.first} / {kernel.second}"
        gains = (kernel.first_gain, kernel.second_gain)
        carried = (kernel.first_on_second, kernel.second_on_first)
        table.add_row(
            Text(kernel.spec or kernel.kernel[:12]),
            *(f"{gain:.3f}" for gain in gains),
            *(f"{gain:.3f}" if gain else "not measured" for gain in carried),
            Text(same),
        )
    return table


def _summary(kernels: Sequence[Compared], between: Sequence[str]) -> str:
    same = sum(kernel.is_same for kernel in kernels)
    carried = [k.first_on_second for k in kernels if k.first_on_second]
    gaining = sum(gain > 1 for gain in carried)
    return (
        f"{len(kernels)} kernels in common, {same} with the same schedule; of {len(carried)} "
        f"schedules of {between[0]} that were measured on {between[1]}, {gaining} gain there"
    )
