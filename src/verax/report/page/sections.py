"""Each kind of record as a `RecordSection` of a page."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import singledispatch
from itertools import chain
from typing import Any

from verax.base.figures import times
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment, Divergence, Relation
from verax.records.benchmark import Benchmark
from verax.records.bisection import Bisection, Optimizations
from verax.records.evaluation import EvaluationRecord
from verax.records.gate import GateRecord
from verax.records.hunt import HuntResult
from verax.records.tuning import TuningRecord
from verax.records.verdict import Blame, Finding, Verdict
from verax.report.alignment import HEADLINES as RELATIONS
from verax.report.faulty_node import explanation_line, faulty_lines
from verax.report.issue_text import issue_text
from verax.report.page.cells import MAX_ROWS, count, counted, figure, kind_cell, name, yes
from verax.report.page.gate import gate_section
from verax.report.page.hunt import hunt_section
from verax.report.page.measured import benchmark_section, evaluation_section, tuning_section
from verax.report.page.model import FaultyView, GraphView, PageTable, RecordSection, TableCell
from verax.report.page.network_details import (
    error_view,
    graph_view,
    node_details,
    style_of,
    verdict_graph,
)
from verax.report.plain_figures import misleading
from verax.report.verdict import HEADLINES, SEVERITY

FAULTY = 24
"""Faulty nodes that are described on the page; others are in the drawing."""
RELATION_KINDS = {
    Relation.same: "identical",
    Relation.different: "mistake",
    Relation.no_difference: "undecided",
    Relation.undecided: "undecided",
}


@singledispatch
def section_of(record: Any) -> RecordSection:
    """The section of a record. Raises `TypeError` for what is none."""
    raise TypeError(f"{type(record).__name__} is no record that a report shows")


@section_of.register
def _verdict(record: Verdict) -> RecordSection:
    return _judged(record, {})


def _judged(record: Verdict, cases: Mapping[str, list[str]], **more: Any) -> RecordSection:
    word, _, sentence = HEADLINES[record.kind]
    graph = verdict_graph(record, cases)
    errors = {e.value: e for e in record.errors}
    faulty = []
    for blame in record.blame[:FAULTY]:
        own = errors.get(blame.value)
        lines = (*_faulty_lines(blame), *(("minimal case", x) for x in cases.get(blame.node, ())))
        faulty.append(
            FaultyView(blame.node, blame.operator, lines, None if own is None else error_view(own))
        )
    facts = [("seen", record.method)]
    if record.coverage is not None:
        seen = f"{record.coverage.seen} of {record.coverage.tried} nodes"
        facts.append(
            ("would have shown", f"a relative error of {record.coverage.level:g} in {seen}")
        )
    facts.append(("seed", str(record.seed)))
    values = {
        "kind": style_of(record.kind),
        "word": word,
        "sentence": sentence,
        "title": record.subject.get("name", "?"),
        "facts": tuple(facts),
        "reasons": record.reasons,
        "causes": [explanation_line(c) for c in record.causes],
        "faulty": tuple(faulty),
        "graphs": () if graph is None else (graph,),
        "tables": tuple(_verdict_tables(record)),
        "notes": [*chain.from_iterable(map(misleading, record.outputs)), *record.notes],
        "certificate": issue_text(record),
        "environment": tuple({**record.subject, **record.environment}.items()),
    }
    return RecordSection(**(values | more))


def _faulty_lines(blame: Blame) -> tuple[tuple[str, str], ...]:
    """What the terminal says of a faulty node, as (head, text)."""
    searched = bool(blame.explanations or blame.structure)
    lines = []
    for text in list(faulty_lines(blame, searched=searched))[1:]:
        head, colon, tail = text.plain.strip().partition(": ")
        is_head = head in ("cause", "or", "the error", "brought by")
        lines.append((head, tail) if colon and is_head else ("", text.plain.strip()))
    return tuple(lines)


def _verdict_tables(record: Verdict) -> Iterable[PageTable]:
    if record.outputs:
        yield PageTable(
            "Outputs against the float64 reference",
            (
                *("output", "verdict", "largest difference", "relative", "cosine"),
                *("worst place", "expected", "given"),
            ),
            tuple(_output_row(f) for f in record.outputs[:MAX_ROWS]),
        )
    if record.comparisons:
        yield PageTable(
            "Which is nearer to float64",
            ("output", "first", "error", "second", "error", "nearer"),
            tuple(
                (
                    *(name(c.value), TableCell(c.first), figure(c.first_error)),
                    *(TableCell(c.second), figure(c.second_error), TableCell(c.nearer)),
                )
                for c in record.comparisons[:MAX_ROWS]
            ),
        )
    if record.precisions:
        yield PageTable(
            "Arithmetics that were found",
            ("node", "arithmetic", "one rounding", "confirmed by recomputing", "digits lost"),
            tuple(
                (
                    *(name(p.node), TableCell(p.format), figure(p.unit_roundoff)),
                    *(yes(p.confirmed), figure(p.lost_digits)),
                )
                for p in record.precisions[:MAX_ROWS]
            ),
            is_open=False,
        )
    if record.nodes:
        ranked = sorted(record.nodes, key=lambda f: (SEVERITY.index(f.kind), -f.statistic))
        listed = ranked[:MAX_ROWS]
        more = f" (the {len(listed)} most suspicious)" if len(listed) < len(ranked) else ""
        yield PageTable(
            counted(len(record.nodes), "judged value") + more,
            ("node", "operator", "verdict", "error / allowed", "decided by", "worst in"),
            tuple(
                (
                    *(name(f.node), TableCell(f.operator), kind_cell(f.kind)),
                    *(
                        TableCell(times(f.statistic), "number"),
                        TableCell(f.test),
                        TableCell(f.group),
                    ),
                )
                for f in listed
            ),
            is_open=False,
        )
    if record.unchecked:
        rows = tuple((name(k), TableCell(v)) for k, v in list(record.unchecked.items())[:MAX_ROWS])
        yield PageTable("Not judged", ("node", "reason"), rows, is_open=False)
    if record.inputs:
        yield PageTable(
            "Inputs",
            ("input", "type", "origin", "SHA-256"),
            tuple(
                (name(i.name), TableCell(i.type), TableCell(i.origin), name(i.sha256[:16]))
                for i in record.inputs[:MAX_ROWS]
            ),
        )


def _output_row(f: Finding) -> tuple[TableCell, ...]:
    worst = f.worst[0] if f.worst else None
    index = "" if worst is None else "[" + ", ".join(map(str, worst.index)) + "]"
    return (
        name(f.value),
        kind_cell(f.kind),
        figure(f.plain.max_abs),
        figure(f.plain.max_rel),
        TableCell(f"{f.plain.cosine:.7f}", "number"),
        TableCell(index, "name"),
        TableCell("" if worst is None else f"{worst.expected:.8g}", "number"),
        TableCell("" if worst is None else f"{worst.given:.8g}", "number"),
    )


@section_of.register
def _bisection(record: Bisection) -> RecordSection:
    cases: dict[str, list[str]] = {}
    blocks = []
    for case in record.cases:
        alone = "" if case.alone else " (not shown by itself)"
        for node in case.nodes:
            cases.setdefault(node, []).append(f"{case.folder}{alone}: {case.words}")
        files = "\n".join(f"  {file}" for file in case.files)
        blocks.append((f"Minimal case: {case.folder}{alone}", f"{case.words}\n{files}"))
    searches = {"Optimizations": record.optimizations, "Accuracy": record.accuracy}
    tables = []
    for title, search in searches.items():
        if search is not None:
            blocks += _step_blocks(search, title)
            tables.append(_tried_table(search, title))
    base = _judged(record.verdict, cases)
    return _judged(
        record.verdict,
        cases,
        facts=(*base.facts, ("searched", record.method)),
        tables=(*base.tables, *tables),
        blocks=tuple(blocks),
        certificate=issue_text(record),
    )


def _step_blocks(search: Optimizations, title: str) -> Iterable[tuple[str, str]]:
    for step in search.steps:
        location = f"{step.part}, from {step.level} on"
        text = "\n".join(
            line
            for line in (
                f"nodes: {', '.join(step.region)}" if step.region else "",
                f"before:\n{step.before}" if step.before else "",
                f"after:\n{step.after}" if step.after else "",
            )
            if line
        )
        yield f"{title}: {step.name} ({location})", text or search.words


def _tried_table(search: Optimizations, title: str) -> PageTable:
    rows = tuple(
        (
            name(t.name),
            kind_cell(t.kind),
            yes(t.same_bits),
            TableCell(t.words),
        )
        for t in search.tried[:MAX_ROWS]
    )
    caption = f"{title}: {search.words}"
    return PageTable(caption, ("step", "verdict", "bits of the first", "notes"), rows)


@section_of.register
def _agreement(record: Agreement) -> RecordSection:
    share = f"{record.agreeing} of {record.images} images: the same choice in {record.output!r}"
    table = PageTable(
        "Images on which the choice differs",
        ("image", "should be", "given", "margin", "rounding moves it by", "near tie"),
        tuple(
            (
                *(
                    name(d.image),
                    count(d.expected),
                    count(d.given),
                ),
                *(figure(d.margin), figure(d.sigma), yes(d.near)),
            )
            for d in record.disagreements[:MAX_ROWS]
        ),
    )
    base = _judged(record.verdict, {})
    word, _, sentence = HEADLINES[record.kind]
    return _judged(
        record.verdict,
        {},
        kind=style_of(record.kind),
        word=word,
        sentence=sentence,
        title=record.subject.get("name", "?"),
        facts=(("images", share), ("judged as a whole", record.judged), *base.facts),
        reasons=record.reasons,
        tables=(*((table,) if record.disagreements else ()), *base.tables),
        environment=tuple(record.environment.items()),
    )


@section_of.register
def _alignment(record: Alignment) -> RecordSection:
    word, _, sentence = RELATIONS[record.relation]
    tables = [
        *map(_divergence_table, record.divergences[:FAULTY]),
        PageTable(
            "Outputs",
            ("first", "second", "read as", "largest difference", "reason"),
            tuple(
                (
                    name(o.first),
                    name(o.second),
                    TableCell(o.how),
                    figure(o.max_abs),
                    TableCell(o.reason),
                )
                for o in record.outputs[:MAX_ROWS]
            ),
        ),
        PageTable(
            counted(len(record.matches), "value") + " that agree",
            ("first", "operator", "second", "operator", "read as"),
            tuple(
                (
                    *(name(m.first), TableCell(m.first_operator)),
                    *(name(m.second), TableCell(m.second_operator)),
                    TableCell(m.how if m.exact else f"{m.how} (up to rounded weights)"),
                )
                for m in record.matches[:MAX_ROWS]
            ),
            is_open=False,
        ),
    ]
    return RecordSection(
        kind=RELATION_KINDS[record.relation],
        word=word,
        sentence=sentence,
        title=f"{record.first} and {record.second}",
        facts=(
            ("first", f"{record.first}, {record.first_values} values"),
            ("second", f"{record.second}, {record.second_values} values"),
            ("seed", str(record.seed)),
        ),
        reasons=record.reasons,
        graphs=tuple(_aligned_graphs(record)),
        tables=tuple(tables),
        notes=record.notes,
        certificate=issue_text(record),
        environment=tuple({**record.drawn, **record.environment}.items()),
    )


def _divergence_table(divergence: Divergence) -> PageTable:
    rows: list[tuple[TableCell, ...]] = []
    for d in divergence.attributes:
        rows.append((name(f"{d.operator}.{d.attribute}"), name(d.first), name(d.second)))
    for w in divergence.weights:
        count = f"{w.differing:,} of {w.elements:,} differ"
        rows.append((TableCell(f"weights, {count}"), figure(w.first_value), figure(w.second_value)))
    sides = [
        "; ".join(f"{n.node} ({n.operator}): {n.type}" for n in side) or "nothing"
        for side in (divergence.first, divergence.second)
    ]
    rows.append((TableCell("nodes"), *map(name, sides)))
    return PageTable(f"Where they part: {divergence.reason}", ("", "first", "second"), tuple(rows))


def _aligned_graphs(record: Alignment) -> Iterable[GraphView]:
    """Both networks: values found in the other one, and where they part."""
    for side, network in enumerate(record.networks[:2]):
        matches = {(m.first, m.second)[side]: m for m in record.matches}
        outputs = {(o.first, o.second)[side]: o for o in record.outputs if not o.reason}
        parted: dict[str, list[str]] = {}
        for d in record.divergences:
            for layer in (d.first, d.second)[side]:
                parted.setdefault(layer.node, []).append(d.reason)
        kinds, details = [], []
        for i, node in enumerate(network.nodes):
            found_here = [matches[v] for v in node.outputs if v in matches]
            is_same = found_here or any(v in outputs for v in node.outputs)
            kind = "parted" if node.name in parted else "same" if is_same else "unmatched"
            text = [*parted.get(node.name, ())]
            text += [f"the same as {(m.second, m.first)[side]}, read {m.how}" for m in found_here]
            kinds.append(kind)
            details.append({**node_details(network, i, kind), "text": text})
        title = f"{('First', 'Second')[side]}: {(record.first, record.second)[side]}"
        graph = graph_view(title, network, kinds, details)
        suspects = tuple(i for i, kind in enumerate(kinds) if kind == "parted")
        yield dataclasses.replace(graph, suspects=suspects[:FAULTY], is_faulty=bool(suspects))


@section_of.register
def _gate(record: GateRecord) -> RecordSection:
    return gate_section(record, _verdict)


section_of.register(EvaluationRecord, evaluation_section)
section_of.register(Benchmark, benchmark_section)
section_of.register(TuningRecord, tuning_section)
section_of.register(HuntResult, hunt_section)

RECORD_TYPES: tuple[type, ...] = (
    *(Verdict, Bisection, Alignment, Agreement, GateRecord),
    *(EvaluationRecord, Benchmark, TuningRecord, HuntResult),
)
"""Records that a page shows."""
