"""`GateRecord`: what changed from one version of a subject to another, and whether it matters."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.printing import Reported
from verax.records.codec import read_json, write_json
from verax.records.verdict import Blame, InputRecord, Kind, Verdict

SCHEMA = "verax.gate/1"


class GateChange(enum.StrEnum):
    """What the new subject is to the old one, on one model."""

    unchanged = "unchanged"
    """The same bits in every output, or the same failure."""
    harmless = "changed, does not matter"
    """Other bits, which rounding or an allowed arithmetic explains, or something was mended."""
    matters = "changed, matters"
    """A mistake, a lower precision or a failure that the old subject had not."""
    undecided = "changed, undecided"
    """Other bits, and the check of one of them cannot tell."""


class RunOutcome(enum.StrEnum):
    """How a run of a subject ended."""

    ran = "ran"
    refused = "refused"
    """It said that it does not run this model, or gave nothing of it."""
    timed_out = "timed out"
    crashed = "crashed"
    """A signal ended its process."""


@dataclass(frozen=True)
class SubjectResult:
    """One subject on one model.

    subject: what it says of itself (name, version, options); message: why it did not run; kind,
    reasons, blame, precisions: of its verdict, None and empty where it did not run; precisions:
    names of coarser arithmetics. repeats: whether a second run gave the same bits. verdict: whole
    where it is neither identical nor rounding.
    """

    outcome: RunOutcome
    subject: Mapping[str, str]
    message: str = ""
    kind: Kind | None = None
    reasons: tuple[str, ...] = ()
    blame: tuple[Blame, ...] = ()
    precisions: tuple[str, ...] = ()
    repeats: bool = True
    verdict: Verdict | None = None


@dataclass(frozen=True)
class OutputDifference:
    """One output, held against that of the other subject.

    differing: elements with other bits, of `elements`; 0 of 0 where type, shape or presence differ,
    which `reason` says. max_abs: largest difference of finite elements. old_error, new_error: root
    mean square of the error against the float64 reference, and nearer: the subject's name with the
    smaller one, as far as both were judged.
    """

    value: str
    same_bits: bool
    differing: int
    elements: int
    max_abs: float
    reason: str = ""
    old_error: float | None = None
    new_error: float | None = None
    nearer: str = ""


@dataclass(frozen=True)
class ModelChange:
    """What changed on one model. reasons: in sentences, the most important first."""

    model: str
    change: GateChange
    reasons: tuple[str, ...]
    old: SubjectResult
    new: SubjectResult
    outputs: tuple[OutputDifference, ...] = ()
    inputs: tuple[InputRecord, ...] = ()


@dataclass(frozen=True, repr=False)
class GateRecord(Reported):
    """The answer of `verax gate`. old, new: the subjects as they were asked for; models: in the
    order in which they were given. Speed is not compared."""

    old: str
    new: str
    models: tuple[ModelChange, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0

    def _brief(self) -> str:
        return f"{self.change}, from {self.old} to {self.new}; {self.counts}"

    def count(self, change: GateChange) -> int:
        """Models with that change."""
        return sum(m.change is change for m in self.models)

    @property
    def change(self) -> GateChange:
        """The worst of all models."""
        order = GateChange.matters, GateChange.undecided, GateChange.harmless
        return next((c for c in order if self.count(c)), GateChange.unchanged)

    @property
    def counts(self) -> str:
        """How many models have which change, in words."""
        counts = [(change, self.count(change)) for change in GateChange]
        listed = ", ".join(f"{count} {change}" for change, count in counts if count)
        return f"{len(self.models)} model{'s' * (len(self.models) != 1)}: {listed}"

    @property
    def exit_code(self) -> int:
        """1 if something matters, else 3 if something is undecided, else 0."""
        return {GateChange.matters: 1, GateChange.undecided: 3}.get(self.change, 0)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> GateRecord:
        """Read `to_json`'s text. Raises `UsageError` for anything else."""
        return read_json(GateRecord, text, SCHEMA)
