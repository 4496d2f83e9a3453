"""`Bisection`: where a mistake is, what it is, what brought it, and how to show it by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.records.codec import read_json, write_json
from verax.records.verdict import Kind, Verdict

SCHEMA = "verax.bisection/1"


@dataclass(frozen=True)
class Tried:
    """One step that was run: its name, the verdict on its outputs, and whether they have the bits
    of the first step."""

    name: str
    kind: Kind
    same_bits: bool


@dataclass(frozen=True)
class Optimisations:
    """Which optimisation brings the mistake.

    words: the answer in a sentence; guilty: the name of the first step that is wrong, "" when none
    is to blame; count: steps there are; tried: those that were run, in order.
    """

    words: str
    guilty: str
    count: int
    tried: tuple[Tried, ...] = ()


@dataclass(frozen=True)
class Case:
    """A minimal case that was written: its folder, the nodes in it, and its files.

    alone: whether the subject shows the mistake on this case by itself; words: how it was made.
    """

    folder: str
    nodes: tuple[str, ...]
    files: tuple[str, ...]
    alone: bool
    words: str


@dataclass(frozen=True)
class Bisection:
    """The answer of `verax bisect`.

    verdict: with the guilty nodes that the search found; method: how it found them; evaluations:
    parts of the network that the subject ran for it; refused: parts that it would not run, with
    the reason; undecided: values that could not be judged, with the reason; optimisations: None
    when the subject has no steps to search; cases: minimal cases written.
    """

    verdict: Verdict
    method: str
    evaluations: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    optimisations: Optimisations | None = None
    cases: tuple[Case, ...] = ()

    @property
    def exit_code(self) -> int:
        """That of the verdict."""
        return self.verdict.exit_code

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Bisection:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(Bisection, text, SCHEMA)
