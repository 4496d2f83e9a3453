"""`Agreement`: on how many of a folder's images two implementations choose the same class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.base.printing import Reported
from verax.records.codec import read_json, write_json
from verax.records.verdict import Kind, Verdict, with_no_network

SCHEMA = "verax.agreement/2"
WITHOUT_NETWORK = "verax.agreement/1"
"""The record of before, whose verdict held no network."""


@dataclass(frozen=True)
class Disagreement:
    """One image on which the choices differ.

    expected, given: the classes that the float64 meaning and the subject choose; margin: how much
    higher the meaning scores its own class than the subject's; sigma: how far honest rounding moves
    that margin (standard deviation); near: whether rounding may decide.
    """

    image: str
    expected: int
    given: int
    margin: float
    sigma: float
    near: bool


@dataclass(frozen=True, repr=False)
class Agreement(Reported):
    """The answer on a folder of images.

    kind: as of a `Verdict`; output: the value whose largest element is the choice, along its last
    axis; images: how many were judged; disagreements: widest margin first; unread: files that are
    no images, each with the reason; judged: the image whose numbers were judged as a whole (the
    worst one), and `verdict` what came of it; hashes: SHA-256 of each image's array.
    """

    kind: Kind
    reasons: tuple[str, ...]
    subject: Mapping[str, str]
    output: str
    images: int
    disagreements: tuple[Disagreement, ...]
    judged: str
    verdict: Verdict
    unread: Mapping[str, str] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    replay: Mapping[str, str] = field(default_factory=dict)

    def _brief(self) -> str:
        name = self.subject.get("name", "?")
        return f"{self.kind}, {name}; the same choice on {self.agreeing} of {self.images} images"

    @property
    def agreeing(self) -> int:
        """Images on which both choose the same."""
        return self.images - len(self.disagreements)

    @property
    def near_ties(self) -> int:
        """Disagreements that rounding may decide."""
        return sum(d.near for d in self.disagreements)

    @property
    def exit_code(self) -> int:
        """0 rounding or a named precision; 1 mistake; 3 undecided."""
        return {Kind.mistake: 1, Kind.undecided: 3}.get(self.kind, 0)

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Agreement:
        """Read `to_json`'s text, or that of version 1. Raises `UsageError` for anything else."""
        return read_json(Agreement, text, SCHEMA, {WITHOUT_NETWORK: _with_no_network})


def _with_no_network(data: Any) -> Any:
    """The plain form of a record of version 1 in that of this one."""
    return {**data, "verdict": with_no_network(data.get("verdict"))}
