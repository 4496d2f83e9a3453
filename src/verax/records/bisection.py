"""`Bisection`: where a mistake is, what it is, what brought it, and how to show it by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verax.base.option_groups.deprecation import present_pass, renamed_members, renamed_property
from verax.base.printing import Reported
from verax.records.codec import read_json, write_json
from verax.records.verdict import Kind, Verdict, with_no_network

SCHEMA = "verax.bisection/4"
WITHOUT_NETWORK = "verax.bisection/3"
"""The record of before, whose verdict held no network."""
BRITISH = "verax.bisection/2"
"""The record before that: its member `optimizations` and some passes in it had British names."""
__getattr__ = renamed_members(__name__, {"Optimisations": "Optimizations"})


@dataclass(frozen=True)
class Tried:
    """One step that was run: its name, the verdict on its outputs, whether they have the bits of
    the first step, and what else was found out ("right on 339 of 360")."""

    name: str
    kind: Kind
    same_bits: bool
    words: str = ""


@dataclass(frozen=True)
class Step:
    """What one step of an optimization did.

    name: in the subject's words; part: the pass, the decision or the optimizer that it belongs to;
    level: the lowest that has it; number: which of all steps in their order, from 1; region: names
    of the nodes that it changed; before, after: those in text form, as far as it can be had;
    exact: whether it promises to change no bit.
    """

    name: str
    part: str
    level: str
    number: int
    region: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    exact: bool = False


@dataclass(frozen=True)
class Optimizations:
    """Which optimization brings the mistake.

    words: the answer in a sentence; guilty: the name of the first step that is wrong (or that
    changes bits and promises not to), "" when none is to blame; count: steps there are; tried:
    those that were run, in order. partners: steps without which the guilty one is right; steps: the
    guilty one and then those, as far as the subject tells what they did; cured: whether the subject
    is right without all steps of the guilty one's part, None where that was not tried; runs: how
    often the subject ran.
    """

    words: str
    guilty: str
    count: int
    tried: tuple[Tried, ...] = ()
    partners: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    cured: bool | None = None
    runs: int = 0


@dataclass(frozen=True)
class RecordedCase:
    """A minimal case that was written: its folder, the nodes in it, and its files.

    alone: whether the subject shows the mistake on this case by itself; words: how it was made.
    """

    folder: str
    nodes: tuple[str, ...]
    files: tuple[str, ...]
    alone: bool
    words: str


@dataclass(frozen=True, repr=False)
class Bisection(Reported):
    """The answer of `verax bisect`.

    verdict: with the guilty nodes that the search found; method: how it found them; evaluations:
    parts of the network that the subject ran for it; refused: parts that it would not run, with
    the reason; undecided: values that could not be judged, with the reason; optimizations: None
    when the subject has no steps to search; accuracy: the same with the accuracy on labeled
    samples in the verdict's place; cases: minimal cases written.
    """

    verdict: Verdict
    method: str
    evaluations: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, str] = field(default_factory=dict)
    optimizations: Optimizations | None = None
    accuracy: Optimizations | None = None
    cases: tuple[RecordedCase, ...] = ()

    optimisations = renamed_property("optimisations", "optimizations")

    def _brief(self) -> str:
        steps = self.optimizations.words if self.optimizations is not None else ""
        return self.verdict._brief() + (f"; {steps}" if steps else "")

    @property
    def exit_code(self) -> int:
        """That of the verdict."""
        return self.verdict.exit_code

    def to_json(self) -> str:
        """The whole record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Bisection:
        """Read `to_json`'s text, or that of versions 2 and 3. Raises `UsageError` for anything
        else."""
        older = {
            BRITISH: lambda d: _with_no_network(_american(d)),
            WITHOUT_NETWORK: _with_no_network,
        }
        return read_json(Bisection, text, SCHEMA, older)


def _with_no_network(data: Any) -> Any:
    """The plain form of a record of version 3 in that of this one."""
    return {**data, "verdict": with_no_network(data.get("verdict"))}


def _american(data: Any) -> Any:
    """The plain form of a record of version 2 in that of version 3."""
    if "optimisations" not in data:
        return data
    searches = {"optimizations": data["optimisations"], "accuracy": data.get("accuracy")}
    return {**data, **{name: _present(search) for name, search in searches.items()}}


def _present(search: Any) -> Any:
    """The plain form of `Optimizations` with the present names of passes."""
    if isinstance(search, str):
        return present_pass(search)
    if isinstance(search, list):
        return [_present(one) for one in search]
    if isinstance(search, dict):
        fields = ("guilty", "partners", "tried", "steps", "name", "part")
        return {k: _present(v) if k in fields else v for k, v in search.items()}
    return search
