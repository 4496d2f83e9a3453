"""`HuntResult`: what a hunt's store holds after it: cases by outcome, and the distinct findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import OneLine, rendered
from verax.records.codec import read_json, write_json

SCHEMA = "verax.hunt/2"
HIGH, MEDIUM, LOW = "high", "medium", "low"
"""Confidence in a finding."""
CONFIDENCES = (HIGH, MEDIUM, LOW)


@dataclass(frozen=True)
class StoredFinding:
    """One distinct finding; count: of the cases that showed it; argument: for its confidence."""

    key: str
    classification: str
    operator: str
    cause: str
    location: str
    message: str
    seed: int
    case_number: int
    count: int
    confidence: str
    argument: str
    folder: str


@dataclass(frozen=True, repr=False)
class HuntResult(OneLine):
    """What the store holds after a hunt. counts: cases by outcome; cases, seconds: of this hunt.
    certificates: Markdown for an issue tracker, by the finding's key."""

    subject: str
    seed: int
    counts: Mapping[str, int]
    findings: tuple[StoredFinding, ...]
    cases: int
    seconds: float
    was_interrupted: bool = False
    certificates: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def confirmed(self) -> tuple[StoredFinding, ...]:
        """Findings of high confidence."""
        return tuple(f for f in self.findings if f.confidence == HIGH)

    @property
    def sorted_findings(self) -> list[StoredFinding]:
        """The surest first."""
        order = {confidence: i for i, confidence in enumerate(CONFIDENCES)}
        return sorted(self.findings, key=lambda f: order.get(f.confidence, len(order)))

    @property
    def exit_code(self) -> int:
        """1 when something of high confidence was found."""
        return 1 if self.confirmed else 0

    def figures(self) -> str:
        """What it did, in one sentence."""
        ended = "interrupted: " if self.was_interrupted else ""
        rate = self.cases / self.seconds if self.seconds else 0.0
        total = len(self.findings)
        cases = f"{self.cases} case{'s' * (self.cases != 1)}"
        return (
            f"{ended}{cases} in {self.seconds:.0f} s, {rate:.1f} a second; {total} distinct "
            f"finding{'s' * (total != 1)}, {len(self.confirmed)} of high confidence"
        )

    def outcomes(self) -> str:
        """The store's cases by outcome."""
        return ", ".join(f"{n} {outcome}" for outcome, n in sorted(self.counts.items()))

    def _brief(self) -> str:
        return f"{self.subject}: {self.figures()}"

    def __str__(self) -> str:
        return rendered("text", self)

    def _repr_html_(self) -> str:
        return rendered("html", self)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> HuntResult:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(HuntResult, text, SCHEMA)
