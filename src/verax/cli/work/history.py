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
from verax.compiler.tune.history import History
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
    paths = files or [Path(_default())]
    can_write(out, json, reads=paths)
    _require_replaceable(out)
    read = read_lines(paths)
    selection = Selection(kernel, machine, target, network, threads)
    lines = [line for line in read.lines if selection.takes(line)]
    facts: dict[str, Any] = {"action": action, "skipped": read.skipped, "damaged": read.damaged}
    if read.skipped or read.damaged:
        errors.print(
            Text(f"warning: {read.damaged} damaged lines and {read.skipped} of later versions are "
                 "left out"),
            soft_wrap=True,
        )  # fmt: skip
    if not lines:
        errors.print(Text(_nothing(len(read.lines))), soft_wrap=True)
    if writes:
        selected = best(lines) if action == "best" else lines
        facts["lines"] = len(selected)
        _write(out, selected)
    elif action == "list":
        summaries, words = machines(lines), best(lines)
        if summaries:
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


def _nothing(count: int) -> str:
    """Why nothing is shown or written, of so many lines that were read."""
    if not count:
        return "the history is empty: `verax tune MODEL --history FILE` appends to it"
    return (
        f"none of the {count} lines is of what --kernel, --machine, --target, --network and "
        "--threads ask for; `verax history list` without them says what there is"
    )


def _require_replaceable(out: Path | None) -> None:
    """Raise `UsageError` where a file would be lost that is no history."""
    if out is None or not out.is_file():
        return
    try:
        History(out).read()
    except UsageError as error:
        raise UsageError(
            "this is no history, and is not overwritten",
            place=str(out),
            next_step="give --output another name",
        ) from error


def _write(out: Path | None, lines: Sequence[Line]) -> None:
    if out is not None:
        count = write_lines(out, lines)
        output.print(Text(f"{out}: {_counted(count, 'line')}"), soft_wrap=True)
        return
    for line in lines:
        sys.stdout.write(line.text.decode() + "\n")


def _machine_table(summaries: Sequence[MachineSummary]) -> Table:
    """At most 80 columns wide, as far as names allow: those lie one above the other."""
    table = Table(title="machines", title_justify="left", show_lines=True)
    table.add_column("machine, device, target, processor", overflow="fold", min_width=20)
    for title in ("kernels", "gain", "measured", "faults", "last"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in summaries:
        target = one.host.target.partition(" ")[0]
        code = f"{target}, {_counted(one.host.threads, 'thread')}"
        warning = "IN QUARANTINE: it gave other bits" if one.quarantines else ""
        names = (one.machine, one.device, code, one.host.processor, warning)
        numbers = (one.kernels, f"{one.gain:.3f}", one.measured, one.faults, one.last[:DAY])
        name = Text("\n".join(filter(None, names)))
        table.add_row(name, *map(str, numbers))
    return table


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _kernel_table(lines: Sequence[Line]) -> Table:
    table = Table(title="kernels, and what is taken", title_justify="left")
    for title in ("kernel", "network, machine"):
        table.add_column(title, overflow="fold", min_width=20 if title == "kernel" else 12)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("schedule", overflow="fold", min_width=20)
    for line in lines:
        target = line.host.target.partition(" ")[0]
        machine, device = line.origin.machine, line.origin.device
        location = " ".join(filter(None, (machine, device, target, f"x{line.host.threads}")))
        name = Text("\n".join(filter(None, (line.origin.network, location))))
        gain = float(line.entry["gain"])
        kernel = Text(line.origin.spec or line.kernel[:12])
        table.add_row(kernel, name, f"{gain:.3f}", Text(line.schedule_words))
    return table


def _comparison_table(kernels: Sequence[Compared], between: Sequence[str]) -> Table:
    table = Table(title=" and ".join(between), title_justify="left")
    table.add_column("kernel", overflow="fold")
    table.add_column("won on", overflow="fold")
    table.add_column("schedule", overflow="fold", min_width=20)
    for title in ("gain there", "on the other"):
        table.add_column(title, justify="right", no_wrap=True)
    for kernel in kernels:
        words = (kernel.first_words, kernel.second_words)
        gains = (kernel.first_gain, kernel.second_gain)
        carried = (kernel.first_on_second, kernel.second_on_first)
        for side in range(2):
            table.add_row(
                Text("" if side else kernel.spec or kernel.kernel[:12]),
                Text(between[side]),
                Text("the same" if side and kernel.is_same else words[side]),
                f"{gains[side]:.3f}",
                f"{carried[side]:.3f}" if carried[side] else "not measured",
                end_section=side == 1,
            )
    return table


def _summary(kernels: Sequence[Compared], between: Sequence[str]) -> str:
    same = sum(kernel.is_same for kernel in kernels)
    carried = [k.first_on_second for k in kernels if k.first_on_second]
    gaining = sum(gain > 1 for gain in carried)
    return (
        f"{_counted(len(kernels), 'kernel')} in common, {same} with the same schedule; of "
        f"{len(carried)} schedules of {between[0]} that were measured on {between[1]}, "
        f"{gaining} gain there"
    )
