"""A `Bisection` for the terminal: who is guilty, of what, since when, and where the proof lies."""

from __future__ import annotations

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.bisection import Bisection, Optimisations
from verax.records.verdict import Blame
from verax.report.verdict import HEADLINES

MOST = 6
"""Names listed before "and N more"; explanations and refusals shown."""


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
        for blame in verdict.blame:
            yield from _guilty(blame)
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


def _guilty(blame: Blame) -> RenderResult:
    where = f"node {blame.node} ({blame.operator})"
    if blame.region:
        where = f"{len(blame.region)} nodes together: {_some(blame.region)}"
    yield Text.assemble(("guilty: ", "bold red"), (where, "bold"), f", value {blame.value!r}")
    yield Text(f"  {blame.reason}")
    attributes = ", ".join(f"{k}={v}" for k, v in blame.attributes.items())
    if attributes and not blame.region:
        yield Text(f"  it should compute {blame.operator}({attributes})")
    for i, found in enumerate(blame.explanations[:MOST]):
        used = ", ".join(f"{k}={v}" for k, v in found.attributes.items())
        refuted = " (refuted by a further input)" if found.refuted else ""
        lead = "cause: " if i == 0 else "   or: "
        yield Text.assemble(
            (f"  {lead}", "bold"),
            f"{found.hypothesis}: {found.words}{f' [{used}]' if used else ''}{refuted}",
        )
    if not (blame.explanations or blame.region or blame.structure):
        yield Text("  cause: none of the known mistakes gives these numbers")
    if len(blame.explanations) > 1:
        told = blame.told_apart or "on this input these cannot be told apart"
        yield Text(f"  {told}")
    yield from (Text(f"  the error: {line}") for line in blame.structure)


def _brought_by(found: Optimisations) -> Text:
    tried = len(found.tried)
    effort = f"  ({tried} of {found.count} steps were run)"
    if found.guilty:
        return Text.assemble(("brought by: ", "bold red"), (found.guilty, "bold"), effort)
    return Text.assemble(("brought by: ", "bold"), found.words, effort)


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
