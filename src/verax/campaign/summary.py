"""Figures of a campaign, from its outcomes: what the project promises, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from verax.campaign.outcomes import Outcome


@dataclass(frozen=True)
class Share:
    """`count` of `total`."""

    count: int
    total: int

    @property
    def percent(self) -> float:
        """In percent; of nothing, 100."""
        return 100.0 * self.count / self.total if self.total else 100.0

    def __str__(self) -> str:
        return f"{self.count} of {self.total}" + (f" ({self.percent:.1f} %)" if self.total else "")


def share(outcomes: Iterable[Outcome], of: str) -> Share:
    """How many outcomes have the attribute `of` true; those where it is None do not count."""
    values = [getattr(o, of) for o in outcomes]
    counted = [v for v in values if v is not None]
    return Share(sum(map(bool, counted)), len(counted))


def judged(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes of cases that were judged."""
    return [o for o in outcomes if not o.skipped]


def reasons(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Why cases were not judged, counted."""
    return Counter(o.skipped for o in outcomes if o.skipped)


def honest_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """(runner, networks judged, refused, undecided from outputs alone, false alarms) each."""
    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(o.kind for o in outcomes):
        own = [o for o in outcomes if o.kind == kind]
        done = judged(own)
        blind = sum(o.without == "undecided" for o in done)
        alarms = sum(bool(o.alarms) for o in done)
        rows.append((kind, str(len(done)), str(len(own) - len(done)), str(blind), str(alarms)))
    return rows


def plant_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """(kind, placed, detected, located, reach the outputs, seen there, located there) each."""
    rows = []
    for kind in dict.fromkeys(o.kind for o in outcomes):
        done = judged([o for o in outcomes if o.kind == kind])
        rows.append((kind, *map(str, plant_figures(done))))
    return rows


def plant_figures(done: Sequence[Outcome]) -> tuple[object, ...]:
    """Placed; detected; located; reach the outputs; of these seen there; of these located."""
    reaching = [o for o in done if o.reaches]
    return (
        len(done),
        share(done, "detected").count,
        share(done, "located").count,
        len(reaching),
        sum(o.without == "mistake" for o in reaching),
        Share(
            sum(bool(o.located_without) for o in reaching),
            sum(o.located_without is not None for o in reaching),
        ),
    )
