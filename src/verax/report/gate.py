"""A `GateRecord` for the terminal: what changed on each model, and why it matters or does not."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.gate import GateChange, GateRecord, ModelChange, RunOutcome, SubjectResult
from verax.report.tables import Column, FittingTable

HEADLINES = {
    GateChange.unchanged: ("UNCHANGED", "green", "Every output has the same bits as before."),
    GateChange.harmless: (
        "DOES NOT MATTER",
        "green",
        "Bits changed, and nothing became worse.",
    ),
    GateChange.matters: ("MATTERS", "red", "Something became worse; it is named below."),
    GateChange.undecided: (
        "UNDECIDED",
        "yellow",
        "Bits changed, and a check cannot tell whether that is rounding.",
    ),
}
SHOWN = 8
"""Reasons that are printed of each model."""


def render_gate(record: GateRecord) -> RenderableType:
    """What `verax gate` prints."""
    return _GateReport(record)


def answer(result: SubjectResult) -> str:
    """A subject's answer on one model in a few words."""
    if result.outcome is not RunOutcome.ran or result.kind is None:
        return str(result.outcome)
    named = ", ".join(result.precisions) if result.precisions else ""
    return f"{result.kind}" + (f" ({named})" if named else "")


def difference(change: ModelChange) -> str:
    """How far apart the outputs of the two are, in a few words."""
    if not change.outputs:
        return ""
    differing = [d for d in change.outputs if not d.same_bits]
    if not differing:
        return "same bits"
    if any(d.reason for d in differing):
        return "other outputs"
    count, elements = sum(d.differing for d in differing), sum(d.elements for d in change.outputs)
    return f"{count:,} of {elements:,}, by {max(d.max_abs for d in differing):.3g}"


def version(result: SubjectResult) -> str:
    """The subject's name and version, as far as it says one."""
    return " ".join(
        t for t in (result.subject.get("name", "?"), result.subject.get("version")) if t
    )


class _GateReport:
    """A gate record as a rich renderable."""

    def __init__(self, record: GateRecord) -> None:
        self.record = record

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        word, color, sentence = HEADLINES[record.change]
        yield Text.assemble((f" {word} ", f"bold white on {color}"), f"  {sentence}")
        for model in record.models:
            if model.change is not GateChange.unchanged or len(model.reasons) > 1:
                yield from _model_lines(model)
        columns = (
            Column("model", unbroken=True),
            *(Column("old", rank=2), Column("new", rank=3)),
            *(Column("elements that differ", rank=1), Column("verdict", rank=4)),
        )
        rows = [
            (m.model, answer(m.old), answer(m.new), difference(m), str(m.change))
            for m in record.models
        ]
        yield FittingTable("", columns, rows)
        yield Text(f"old: {_versions(record, 'old')}; new: {_versions(record, 'new')}")
        yield Text(record.counts)


def _model_lines(model: ModelChange) -> Iterator[Text]:
    color = HEADLINES[model.change][1]
    yield Text.assemble((f"{model.model}: ", "bold"), (str(model.change), color))
    yield from (Text(f"  - {reason}") for reason in model.reasons[:SHOWN])
    if len(model.reasons) > SHOWN:
        yield Text(f"  and {len(model.reasons) - SHOWN} more")


def _versions(record: GateRecord, side: str) -> str:
    """The subject as it was asked for, with the versions that its models saw."""
    name = {"old": record.old, "new": record.new}[side]
    results = [model.old if side == "old" else model.new for model in record.models]
    versions = dict.fromkeys(r.subject.get("version", "") for r in results)
    listed = ", ".join(v for v in versions if v and v not in name)
    return f"{name} ({listed})" if listed else name
