"""A `Bisection` for the terminal: who is guilty, of what, since when, and where the proof lies."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.bisection import Bisection, Optimisations
from verax.report.guilty import MOST, guilty_lines, said
from verax.report.verdict import HEADLINES


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
            yield _brought_by(record.optimisations)
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


def _brought_by(found: Optimisations) -> Text:
    effort = f"  ({len(found.tried)} of {found.count} steps were run)"
    style = "bold red" if found.guilty else "bold"
    return Text.assemble(("optimisations: ", style), found.words, effort)
