"""What came of a run, as one line of JSON; and a file of such lines that only grows."""

from __future__ import annotations

import dataclasses
import json
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verax.base.errors import VeraxError
from verax.records.verdict import Finding, Kind, Verdict

ACCUSED, UNDECIDED = str(Kind.mistake), str(Kind.undecided)
REFUSED, DIED, TIMED_OUT, FAILED = "refused", "died", "timed out", "failed"
"""No verdict: the runtime or the exporter cannot do it; the process died; it took too long; an
exception that is no refusal came out of Verax."""
MOST_LISTED = 12


@dataclass
class Outcome:
    """One run's outcome. result: the verdict's kind, or why there is none; worst: the node that
    decided it, with the judge's figures; listed: every value that is no rounding; blind: values
    marked undecided; seen, tried: nodes in which a relative error of `level` would have shown, and
    nodes that were asked; restated: of an accused quantised network, in which other words for it
    the runtime is right (`restated`); again: what was said of a second run, in poisoned memory
    where that can be, if it gave other bits; judge: the version of the source that judged."""

    key: str
    family: str
    origin: str
    result: str
    seconds: float = 0.0
    nodes: int = 0
    reasons: list[str] = field(default_factory=list)
    worst: dict[str, Any] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    blind: int = 0
    seen: int = 0
    tried: int = 0
    level: float = 0.0
    notes: list[str] = field(default_factory=list)
    restated: str = ""
    again: str = ""
    judge: str = ""

    @property
    def judged(self) -> bool:
        """Whether there is a verdict."""
        return self.result in set(Kind)


def of_verdict(key: str, family: str, origin: str, verdict: Verdict) -> Outcome:
    """The outcome of a check that came to a verdict."""
    odd = [f for f in verdict.nodes if f.kind not in (Kind.identical, Kind.rounding)]
    ranked = sorted(verdict.nodes, key=lambda f: (f.kind is verdict.kind, f.statistic))
    told = verdict.coverage
    return Outcome(
        key,
        family,
        origin,
        str(verdict.kind),
        nodes=len(verdict.nodes),
        reasons=list(verdict.reasons[:4]),
        worst=_figures(ranked[-1]) if ranked else {},
        listed=[_line(f) for f in odd[:MOST_LISTED]],
        blind=sum(f.kind is Kind.undecided for f in odd),
        seen=0 if told is None else told.seen,
        tried=0 if told is None else told.tried,
        level=0.0 if told is None else told.level,
        notes=list(verdict.notes[:4]),
        again="" if verdict.repeat is None else verdict.repeat.cause,
    )


def _figures(found: Finding) -> dict[str, Any]:
    return {
        "node": found.node,
        "operator": found.operator,
        "value": found.value,
        "kind": str(found.kind),
        "test": found.test,
        "statistic": found.statistic,
        "bound_ratio": found.bound_ratio,
        "group": found.group,
        "reason": found.reason,
        "region": len(found.region),
    }


def _line(found: Finding) -> str:
    bound = "" if found.bound_ratio is None else f", {found.bound_ratio:.3g} of its bound"
    figures = f"{found.statistic:.3g} by {found.test}{bound}"
    return f"{found.kind}: {found.node} ({found.operator}) {figures}: {found.reason}"[:400]


def from_verax(error: BaseException) -> bool:
    """Whether it is an exception that Verax should not have let out."""
    if isinstance(error, VeraxError):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return f"{os.sep}verax{os.sep}" in last and "runners" not in last


def append(path: Path, outcome: Any) -> None:
    """Add a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(dataclasses.asdict(outcome)) + "\n")


def read(path: Path, kind: type[Any] = Outcome) -> dict[str, Any]:
    """Outcomes by key, the latest of each; a line that a crash cut short is passed over."""
    return {o.key: o for o in lines(path, kind)}


def lines(path: Path, kind: type[Any]) -> Iterator[Any]:
    if not path.exists():
        return
    known = {f.name for f in dataclasses.fields(kind)}
    for line in path.read_text().splitlines():
        try:
            entries = json.loads(line)
        except json.JSONDecodeError:
            continue
        yield kind(**{k: v for k, v in entries.items() if k in known})
