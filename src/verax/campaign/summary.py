"""Figures of a campaign, from its outcomes: what the project promises, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verax.campaign.outcomes import CaseOutcome


@dataclass(frozen=True)
class Proportion:
    """`count` of `total`."""

    count: int
    total: int

    @property
    def percent(self) -> float:
        """In percent; of nothing, 100."""
        return 100.0 * self.count / self.total if self.total else 100.0

    def __str__(self) -> str:
        return f"{self.count}/{self.total}"


def judged(outcomes: Iterable[CaseOutcome]) -> list[CaseOutcome]:
    """Outcomes of cases that were judged."""
    return [o for o in outcomes if not o.skipped]


def reasons(outcomes: Iterable[CaseOutcome]) -> Counter[str]:
    """Why cases were not judged, counted."""
    return Counter(o.skipped for o in outcomes if o.skipped)


def baseline_rows(outcomes: Sequence[CaseOutcome]) -> list[tuple[str, ...]]:
    """(runner, networks judged, refused, undecided from outputs alone, false alarms) each."""
    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(o.kind for o in outcomes):
        own = [o for o in outcomes if o.kind == kind]
        done = judged(own)
        blind = sum(o.without == "undecided" for o in done)
        alarms = sum(bool(o.alarms) for o in done)
        rows.append((kind, str(len(done)), str(len(own) - len(done)), str(blind), str(alarms)))
    return rows


def fault_rows(outcomes: Sequence[CaseOutcome]) -> list[tuple[str, ...]]:
    """(kind, and `fault_figures` of it) each."""
    rows = []
    for kind in dict.fromkeys(o.kind for o in outcomes):
        done = judged([o for o in outcomes if o.kind == kind])
        rows.append((kind, *map(str, fault_figures(done))))
    return rows


def fault_figures(done: Sequence[CaseOutcome]) -> tuple[object, ...]:
    """Placed, detected, located; reach the outputs, seen there; located by cutting; explained by
    the truth, and by it first; explained wrongly though nothing could explain it."""
    reaching = [o for o in done if o.reaches]
    cut = [o for o in done if o.located_without is not None]
    inside = [o for o in done if o.located and not o.outside]
    return (
        len(done),
        sum(o.detected for o in done),
        sum(o.located for o in done),
        len(reaching),
        sum(o.without == "mistake" for o in reaching),
        Proportion(sum(bool(o.located_without) for o in cut), len(cut)),
        Proportion(sum(bool(o.true) for o in inside), len(inside)),
        sum(bool(o.true) and o.explanations[0] in o.true for o in inside),
        sum(o.outside and bool(o.explanations) and not o.true for o in done),
    )
