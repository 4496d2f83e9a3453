"""A `Bisection` for the terminal: the faulty nodes, their causes, the step, the minimal cases."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.bisection import Bisection, Optimizations
from verax.report.faulty_node import MOST, explanation_line, faulty_lines
from verax.report.verdict import HEADLINES

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d{5,}(?:e[+-]?\d+)?")
HASH = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]+")
NODES, LINES = 8, 12
"""Nodes of a step, and lines of its text form, that are printed; the record holds all."""


def render_bisection(record: Bisection) -> RenderableType:
    """What `verax bisect` prints."""
    return _BisectionReport(record)


class _BisectionReport:
    """A bisection as a rich renderable."""

    def __init__(self, record: Bisection) -> None:
        self.record = record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        verdict = record.verdict
        word, color, sentence = HEADLINES[verdict.kind]
        yield Text.assemble((f" {word} ", f"bold white on {color}"), f"  {sentence}")
        yield Text(f"subject: {verdict.subject.get('name', '?')}   searched: {record.method}")
        for cause in verdict.causes[:MOST]:
            yield Text.assemble(("outside of the network: ", "bold red"), explanation_line(cause))
        for blame in verdict.blame if not verdict.causes else ():
            yield from faulty_lines(blame, searched=True)
        if not verdict.blame:
            yield from (Text(f"- {r}") for r in verdict.reasons)
        if record.optimizations is not None:
            yield from _search_lines(record.optimizations, "optimizations")
        if record.accuracy is not None:
            steps = () if record.optimizations is None else record.optimizations.steps
            described = {step.name for step in steps}
            yield from _search_lines(record.accuracy, "accuracy", described)
        for case in record.cases:
            alone = "" if case.alone else " (not shown by itself)"
            yield Text.assemble(("minimal case: ", "bold"), f"{case.folder}{alone}")
            yield Text(f"  {case.words}")
        for value, reason in list(record.undecided.items())[:MOST]:
            yield Text(f"not decided: {value}: {reason}", style="yellow")
        if record.refused:
            first, reason = next(iter(record.refused.items()))
            yield Text(
                f"note: {len(record.refused)} parts could not be run by themselves; {first}: "
                f"{reason}",
                style="yellow",
            )
        yield from (Text(f"note: {n}", style="yellow") for n in verdict.notes)
        yield from (
            Text(f"input {i.name}: {i.type}, {i.origin}; SHA-256 {i.sha256[:12]}", style="dim")
            for i in verdict.inputs
        )


def _search_lines(
    search: Optimizations, title: str, described: Collection[str] = ()
) -> Iterator[Text]:
    """Yield the lines on a search. described: names of steps that were described before."""
    effort = f"  ({len(search.tried)} of {search.count} steps were run)"
    style = "bold red" if search.guilty else "bold"
    yield Text.assemble((f"{title}: ", style), search.words, effort)
    for entry in search.tried:
        if entry.words:
            yield Text(f"  {entry.words} with {entry.name}")
    for step in search.steps:
        if step.name in described:
            continue
        promise = ", exact" if step.exact else ""
        yield Text(
            f"  {step.part}, from {step.level} on{promise}: "
            f"step {step.number} of {search.count - 1}"
            + (f", nodes {', '.join(step.region[:NODES])}" if step.region else "")
            + (f" and {len(step.region) - NODES} more" if len(step.region) > NODES else "")
        )
        for title, text in (("before", step.before), ("after", step.after)):
            lines = text.splitlines()
            more = [f"... {len(lines) - LINES} more"] if len(lines) > LINES else []
            if lines:
                yield Text(f"    {title}:")
            yield from (Text(f"      {_short(v)}", style="dim") for v in [*lines[:LINES], *more])


def _short(line: str) -> str:
    """A line with numbers of four digits and hashes of eight; the record has all."""
    return HASH.sub(r"\1", NUMBER.sub(lambda match: f"{float(match[0]):.4g}", line))
