"""Report on the backends: every graph, how often it was compiled, which graphs ran elsewhere and
why, and the judge's verdicts. `verax.torch.report()` returns it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from verax.base.notebooks import of_text
from verax.base.printing import OneLine
from verax.records.verdict import Kind, Verdict

_spent = 0.0


@dataclass
class GraphReport:
    """One graph that torch.compile handed over.

    name: "graph 0", ...; kind: "inference", "forward", "backward" or "judged"; operators: how many
    it calls; programs: how many were compiled for it; dropped: how many of these made room for ones
    of other sizes; runs: how often it ran; weight_changes: how often a program was given up as a
    weight had changed; on_reference: nodes that no kernel takes;
    fallback: why it runs in eager PyTorch, "" when it does not; notes: what else is worth knowing;
    verdicts: of the judge, in order; unjudged: runs that were not judged for `rate` or `budget`.
    """

    name: str
    kind: str
    operators: int = 0
    programs: int = 0
    dropped: int = 0
    runs: int = 0
    weight_changes: int = 0
    on_reference: tuple[str, ...] = ()
    fallback: str = ""
    notes: list[str] = field(default_factory=list)
    verdicts: list[Judged] = field(default_factory=list)
    unjudged: int = 0

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def __str__(self) -> str:
        text = f"{self.name} ({self.kind}, {self.operators} operators): {self.runs} runs"
        if self.kind != "judged":
            text += f", {self.programs} programs compiled"
        if self.dropped:
            text += f", {self.dropped} dropped for other sizes"
        if self.weight_changes:
            text += f", {self.weight_changes} changes of weights"
        lines = [text]
        if self.on_reference:
            lines.append(f"  on the reference, slowly: {', '.join(self.on_reference)}")
        if self.fallback:
            lines.append(f"  runs in eager PyTorch: {self.fallback}")
        lines += [f"  {note}" for note in self.notes]
        if self.unjudged:
            lines.append(f"  {self.unjudged} runs were not judged (rate, budget)")
        lines += [f"  run {one.run}: {one}" for one in self.verdicts]
        return "\n".join(lines)


@dataclass(frozen=True)
class Judged:
    """One run of a graph as the judge saw it. where: the user's lines behind the guilty nodes."""

    run: int
    verdict: Verdict
    where: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        return self.verdict.kind

    def __str__(self) -> str:
        reasons = "; ".join(self.verdict.reasons[:2])
        lines = [f"{self.kind}: {reasons}" if reasons else str(self.kind)]
        for blame in self.verdict.blame:
            words = [e.words for e in blame.explanations[:2]] or blame.structure[:2]
            causes = f": {', '.join(words)}" if words else ""
            lines.append(f"    guilty: {blame.node} ({blame.operator}){causes}")
        lines += [f"    at {line}" for line in self.where]
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Report(OneLine):
    """Every graph since the last reset, in order."""

    graphs: tuple[GraphReport, ...]

    @property
    def verdicts(self) -> tuple[Judged, ...]:
        """All of the judge's verdicts."""
        return tuple(v for graph in self.graphs for v in graph.verdicts)

    @property
    def mistakes(self) -> tuple[Judged, ...]:
        """Those among them that are mistakes."""
        return tuple(v for v in self.verdicts if v.kind is Kind.mistake)

    def __iter__(self) -> Iterator[GraphReport]:
        return iter(self.graphs)

    def _brief(self) -> str:
        return (
            f"{len(self.graphs)} graphs, {len(self.verdicts)} judged, {len(self.mistakes)} mistakes"
        )

    def __str__(self) -> str:
        return "\n".join(map(str, self.graphs)) or "no graph has been compiled"

    def _repr_html_(self) -> str:
        return of_text(f"{len(self.graphs)} graphs of torch.compile", str(self))


_graphs: list[GraphReport] = []
_lock = threading.Lock()


def opened(kind: str, operators: int) -> GraphReport:
    """A new entry."""
    with _lock:
        entry = GraphReport(f"graph {len(_graphs)}", kind, operators)
        _graphs.append(entry)
    return entry


def report() -> Report:
    """What the backends "verax" and "verax_judge" did since the process began, or since
    `verax.torch.reset()`."""
    with _lock:
        return Report(tuple(_graphs))


def forget() -> None:
    """Begin a new report, and a new budget for judging."""
    global _spent
    with _lock:
        _spent = 0.0
        _graphs.clear()


def spend(seconds: float) -> None:
    """Count seconds that judging has taken."""
    global _spent
    with _lock:
        _spent += seconds


def spent() -> float:
    """Seconds that judging has taken since the report began."""
    return _spent
