"""The record of `verax gate` as a section of a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from verax.records.gate import GateChange, GateRecord, ModelChange, SubjectResult
from verax.records.verdict import Verdict
from verax.report.gate import HEADLINES, answer, difference, version
from verax.report.issue_text import issue_text
from verax.report.page.cells import MAX_ROWS, count, figure, name, yes
from verax.report.page.model import PageTable, RecordSection, TableCell

KINDS = {
    GateChange.unchanged: "identical",
    GateChange.harmless: "rounding",
    GateChange.matters: "mistake",
    GateChange.undecided: "undecided",
}
DRAWN = 4
"""Models whose network is drawn with the new subject's verdict: the first that matter."""


def gate_section(
    record: GateRecord, section_of_verdict: Callable[[Verdict], RecordSection]
) -> RecordSection:
    """What changed on which model. section_of_verdict: how a page shows a verdict by itself."""
    word, _, sentence = HEADLINES[record.change]
    faulty, graphs = [], []
    for model in [m for m in record.models if m.new.verdict is not None and _is_shown(m)][:DRAWN]:
        assert model.new.verdict is not None
        section = section_of_verdict(model.new.verdict)
        faulty += [
            dataclasses.replace(one, lines=(("model", model.model), *one.lines))
            for one in section.faulty
        ]
        graphs += [
            dataclasses.replace(g, title=f"{model.model}: {g.title}") for g in section.graphs
        ]
    return RecordSection(
        kind=KINDS[record.change],
        word=word,
        sentence=sentence,
        title=f"{record.old} to {record.new}",
        facts=(("counted", record.counts), ("seed", str(record.seed))),
        faulty=tuple(faulty),
        graphs=tuple(graphs),
        tables=(_models(record), *_reasons(record), *_outputs(record)),
        certificate=issue_text(record),
        environment=tuple({**_subjects(record), **record.environment}.items()),
    )


def _is_shown(model: ModelChange) -> bool:
    return model.change in (GateChange.matters, GateChange.undecided)


def _models(record: GateRecord) -> PageTable:
    rows = tuple(
        (
            *(name(m.model), TableCell(answer(m.old)), TableCell(answer(m.new))),
            *(TableCell(difference(m)), TableCell(str(m.change))),
        )
        for m in record.models[:MAX_ROWS]
    )
    columns = "model", "old", "new", "elements that differ", "verdict"
    return PageTable("Models", columns, rows)


def _reasons(record: GateRecord) -> Iterator[PageTable]:
    rows = tuple((name(m.model), TableCell(text)) for m in record.models for text in m.reasons)
    if rows:
        yield PageTable("Why", ("model", "reason"), rows[:MAX_ROWS])


def _outputs(record: GateRecord) -> Iterator[PageTable]:
    """Every output of every model, of which both subjects gave something."""
    rows = tuple(
        (
            *(name(m.model), name(d.value), yes(d.same_bits), count(d.differing)),
            *(figure(d.max_abs), _error(d.old_error), _error(d.new_error), TableCell(d.nearer)),
        )
        for m in record.models
        for d in m.outputs
    )
    if rows:
        columns = (
            *("model", "output", "same bits", "elements that differ", "by at most"),
            *("old error against float64", "new error", "nearer"),
        )
        yield PageTable("Outputs", columns, rows[:MAX_ROWS], is_open=False)


def _error(value: float | None) -> TableCell:
    return TableCell("", "number") if value is None else figure(value)


def _subjects(record: GateRecord) -> dict[str, str]:
    """What the two subjects said of themselves on the first model."""
    if not record.models:
        return {}
    first = record.models[0]
    return {f"{side}: {k}": v for side, k, v in _described(first)}


def _described(model: ModelChange) -> Iterator[tuple[str, str, str]]:
    sides: tuple[tuple[str, SubjectResult], ...] = (("old", model.old), ("new", model.new))
    for side, result in sides:
        yield side, "subject", version(result)
        yield from ((side, key, value) for key, value in result.subject.items() if key != "name")
