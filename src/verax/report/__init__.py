"""Records in words, tables and pages. Everything shown is in the record: nothing is computed anew.

`write_report` is loaded when it is first used: the terminal needs no templates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verax.base.lazy import lazy
from verax.report.agreement import render_agreement, render_replay
from verax.report.alignment import render_alignment
from verax.report.evaluation import render_evaluation
from verax.report.verdict import render_verdict

if TYPE_CHECKING:
    from verax.report.issue_text import issue_text
    from verax.report.model_explorer import node_data
    from verax.report.page.build import write_report
    from verax.report.reader import read_any_record

__all__ = [
    "issue_text",
    "node_data",
    "read_any_record",
    "render_agreement",
    "render_alignment",
    "render_evaluation",
    "render_replay",
    "render_verdict",
    "write_report",
]
__getattr__ = lazy(
    __name__,
    {
        "issue_text": "verax.report.issue_text",
        "node_data": "verax.report.model_explorer",
        "read_any_record": "verax.report.reader",
        "write_report": "verax.report.page.build",
    },
)
