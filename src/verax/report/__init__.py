"""Records in words and tables. Everything shown is in the record: nothing is computed anew."""

from verax.report.agreement import render_agreement, render_replay
from verax.report.alignment import render_alignment
from verax.report.evaluation import render_evaluation
from verax.report.verdict import render_verdict

__all__ = [
    "render_agreement",
    "render_alignment",
    "render_evaluation",
    "render_replay",
    "render_verdict",
]
