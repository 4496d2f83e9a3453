"""A judged test as summaries show it, and which of two is worse."""

from __future__ import annotations

from dataclasses import dataclass

from verax.base.figures import times
from verax.testing.judgement import Judgement

SEVERITY = ("mistake", "precision lost", "not judged", "undecided", "blind", "precision")
"""Words of a judgement, the worst first; those that are not here are as good as can be."""


@dataclass(frozen=True)
class JudgedTest:
    """A test, its worst judgement, how many there were, and how it ended: "passed", "failed",
    "skipped", or "xfailed"."""

    worst: Judgement
    count: int
    outcome: str

    @property
    def line(self) -> str:
        """One line of the summary."""
        row = self.worst
        used = "-" if row.used is None else f"{times(row.used)} of the allowed error"
        if row.used is not None and row.used > 1:
            used = f"{times(row.used)} times the allowed error"
        several = f" (the worst of {self.count})" if self.count > 1 else ""
        cause = f": {row.cause}" if row.cause else ""
        ended = {"xfailed": "; expected to fail", "passed": "; the test passed all the same"}
        note = "" if row.accepted else ended.get(self.outcome, "")
        return f"{row.verdict:<10} {used:<33} {row.test}{several}{cause}{note}"


def badness(row: Judgement) -> tuple[bool, int, float]:
    """Sorts judgements, the worst first."""
    rank = SEVERITY.index(row.verdict) if row.verdict in SEVERITY else len(SEVERITY)
    return row.accepted, rank, -(row.used or 0.0)
