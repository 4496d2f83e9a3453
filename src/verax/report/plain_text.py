"""A record as plain text: what `str` gives of it in Python."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import RenderableType

from verax.base.notebooks import LINES
from verax.records.agreement import Agreement
from verax.records.alignment import Alignment
from verax.records.benchmark import Benchmark
from verax.records.bisection import Bisection
from verax.records.evaluation import EvaluationRecord
from verax.records.gate import GateRecord
from verax.records.hunt import HuntResult
from verax.records.verdict import Verdict
from verax.report.agreement import render_agreement
from verax.report.alignment import render_alignment
from verax.report.benchmark import benchmark_table
from verax.report.bisection import render_bisection
from verax.report.console import PlainConsole
from verax.report.evaluation import render_evaluation
from verax.report.gate import render_gate
from verax.report.hunt import render_hunt
from verax.report.verdict import render_verdict

WIDTH = 100


def _benchmark(record: Benchmark) -> RenderableType:
    engines = tuple(dict.fromkeys(t.engine for t in record.timings))
    return benchmark_table(record, engines[0] if engines else "", engines[1:])


RENDERERS: Mapping[type, Callable[[Any], RenderableType]] = {
    Verdict: render_verdict,
    Bisection: render_bisection,
    Alignment: render_alignment,
    Agreement: render_agreement,
    EvaluationRecord: render_evaluation,
    GateRecord: render_gate,
    HuntResult: render_hunt,
    Benchmark: _benchmark,
}
"""What the command line prints of each kind of record."""


def text_of(record: Any) -> str:
    """The report on a record, at most `LINES` lines of WIDTH characters; the record holds all."""
    file = io.StringIO()
    console = PlainConsole(file=file, width=WIDTH, color_system=None, highlight=False)
    console.print(RENDERERS[type(record)](record))
    lines = [line.rstrip() for line in file.getvalue().splitlines()]
    if len(lines) > LINES:
        lines = [*lines[:LINES], f"... and {len(lines) - LINES} lines more"]
    return "\n".join(lines)
