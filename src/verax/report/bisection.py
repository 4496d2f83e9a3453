"""A `Bisection` for the terminal: who is guilty, of what, since when, and where the proof lies."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.bisection import Bisection, Optimisations
from verax.report.guilty import MOST, guilty_lines, said
from verax.report.verdict import HEADLINES

NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d{5,}(?:e[+-]?\d+)?")
HASH = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]+")
NODES, LINES = 8, 12
"""Nodes of a step, and lines of its text form, that are printed; the record holds all."""


def render_bisection(record: Bisection) -> RenderableType:
    """What `verax bisect` prints."""
    return _Report(record)


class _Report:
    """A bisection as a rich renderable."""

    def __init__(self, record: Bisection) -> None:
        self.record = record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        verdict = record.verdict
        word, colour, sentence = HEADLINES[verdict.kind]
        yield Text.assemble((f" {word} ", f"bold white on {colour}"), f"  {sentence}")
        yield Text(f"subject: {verdict.subject.get('name', '?')}   searched: {record.method}")
        for cause in verdict.causes[:MOST]:
            yield Text.assemble(("outside of the network: ", "bold red"), said(cause))
        for blame in verdict.blame if not verdict.causes else ():
            yield from guilty_lines(blame, searched=True)
        if not verdict.blame:
            yield from (Text(f"- {r}") for r in verdict.reasons)
        if record.optimisations is not None:
            yield from _brought_by(record.optimisations, "optimisations")
        if record.accuracy is not None:
            shown = () if record.optimisations is None else record.optimisations.steps
            known = {step.name for step in shown}
            yield from _brought_by(record.accuracy, "accuracy", known)
        for case in record.cases:
            alone = "" if case.alone else " (not shown by itself)"
            yield Text.assemble(("minimal case: ", "bold"), f"{case.folder}{alone}")
            yield Text(f"  {case.words}")
        for value, why in list(record.undecided.items())[:MOST]:
            yield Text(f"not decided: {value}: {why}", style="yellow")
        if record.refused:
            first, why = next(iter(record.refused.items()))
            yield Text(
                f"note: {len(record.refused)} parts could not be run by themselves; {first}: {why}",
                style="yellow",
            )
        yield from (Text(f"note: {n}", style="yellow") for n in verdict.notes)
        yield from (
            Text(f"input {i.name}: {i.type}, {i.origin}; SHA-256 {i.sha256[:12]}", style="dim")
            for i in verdict.inputs
        )


def _brought_by(found: Optimisations, title: str, known: Collection[str] = ()) -> Iterator[Text]:
    """known: names of steps that were described before."""
    effort = f"  ({len(found.tried)} of {found.count} steps were run)"
    style = "bold red" if found.guilty else "bold"
    yield Text.assemble((f"{title}: ", style), found.words, effort)
    for tried in found.tried:
        if tried.words:
            yield Text(f"  {tried.words} with {tried.name}")
    for step in found.steps:
        if step.name in known:
            continue
        promise = ", exact" if step.exact else ""
        yield Text(
            f"  {step.part}, from {step.level} on{promise}: step {step.number} of {found.count - 1}"
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
    return HASH.sub(r"\1", NUMBER.sub(lambda found: f"{float(found[0]):.4g}", line))
