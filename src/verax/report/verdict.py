"""A `Verdict` for the terminal, for readers who never heard of ulps."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verax.records.verdict import Blame, Finding, Kind, Verdict

HEADLINES = {
    Kind.identical: ("IDENTICAL", "green", "Every bit agrees."),
    Kind.rounding: (
        "ROUNDING",
        "green",
        "The numbers differ only because computers round; nothing is wrong.",
    ),
    Kind.precision: (
        "PRECISION",
        "yellow",
        "The numbers differ because a coarser arithmetic was used; it is named below.",
    ),
    Kind.mistake: ("MISTAKE", "red", "Rounding cannot explain the difference: something is wrong."),
    Kind.undecided: ("UNDECIDED", "yellow", "This check cannot tell; the reason is below."),
}
NODES_SHOWN = 5
"""Judged values that the table lists: the most suspicious ones."""


def render_verdict(verdict: Verdict, *, verbose: bool = False) -> RenderableType:
    """What `verax check` prints. verbose: every judged value, and the environment."""
    return _Report(verdict, verbose)


class _Report:
    """A verdict as a rich renderable."""

    def __init__(self, verdict: Verdict, verbose: bool) -> None:
        self.verdict, self.verbose = verdict, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        verdict = self.verdict
        word, colour, sentence = HEADLINES[verdict.kind]
        yield Text.assemble((f" {word} ", f"bold white on {colour}"), f"  {sentence}")
        yield Text(f"subject: {verdict.subject.get('name', '?')}   seen: {verdict.method}")
        if verdict.blame:
            yield from (_guilty(b) for b in verdict.blame)
        else:
            yield from (Text(f"- {r}") for r in verdict.reasons)
        if verdict.outputs:
            yield _outputs(verdict.outputs)
            yield from (Text(f"  {line}") for line in _misleading(verdict))
        if verdict.nodes:
            yield _nodes(verdict.nodes, self.verbose)
        for c in verdict.comparisons:
            bits = ", the same bits" if c.same_bits else ""
            yield Text(
                f"{c.value}: error {c.first_error:.3g} by {c.first}, {c.second_error:.3g} by "
                f"{c.second}; nearer to float64: {c.nearer}{bits}"
            )
        if verdict.unchecked:
            yield Text(f"not judged: {len(verdict.unchecked)} nodes ({_some(verdict.unchecked)})")
        yield from (Text(f"note: {n}", style="yellow") for n in verdict.notes)
        yield from (
            Text(f"input {i.name}: {i.type}, {i.origin}; SHA-256 {i.sha256[:12]}", style="dim")
            for i in verdict.inputs
        )
        if self.verbose:
            facts = {**verdict.subject, **verdict.environment}
            yield Text("; ".join(f"{k} {v}" for k, v in facts.items()), style="dim")


def _guilty(blame: Blame) -> RenderableType:
    where = f"node {blame.node} ({blame.operator})"
    if blame.region:
        where = f"one of {len(blame.region)} nodes up to {blame.node}: {_some(blame.region)}"
    attributes = ", ".join(f"{k}={v}" for k, v in blame.attributes.items())
    lines = [
        Text.assemble(("guilty: ", "bold red"), (where, "bold"), f", value {blame.value!r}"),
        Text(f"  {blame.reason}"),
    ]
    if attributes and not blame.region:
        lines.append(Text(f"  it should compute {blame.operator}({attributes})"))
    return Group(*lines)


def _outputs(findings: tuple[Finding, ...]) -> Table:
    table = Table(title="Outputs against the float64 meaning", title_justify="left")
    for name in ("output", "verdict", "largest difference", "relative", "cosine", "worst place"):
        table.add_column(name)
    for f in findings:
        place = ""
        if f.worst:
            worst = f.worst[0]
            at = ", ".join(map(str, worst.index))
            place = f"[{at}]: {worst.given:.7g}, should be {worst.expected:.7g}"
        table.add_row(
            escape(f.value),
            f.kind.value,
            f"{f.plain.max_abs:.3g}",
            f"{f.plain.max_rel:.3g}",
            f"{f.plain.cosine:.7f}",
            escape(place),
        )
    return table


def _nodes(findings: tuple[Finding, ...], verbose: bool) -> Table:
    ranked = sorted(findings, key=lambda f: (f.kind is not Kind.mistake, -f.statistic))
    shown = findings if verbose else ranked[:NODES_SHOWN]
    title = "Every judged value" if verbose else f"Most suspicious of {len(findings)} judged values"
    table = Table(title=title, title_justify="left")
    for name in ("node", "operator", "verdict", "error / allowed", "decided by", "worst in"):
        table.add_column(name)
    for f in shown:
        table.add_row(
            escape(f.node), f.operator, f.kind.value, f"{f.statistic:.3g}", f.test, escape(f.group)
        )
    return table


def _misleading(verdict: Verdict) -> list[str]:
    """Where the usual fixed tolerances would have answered otherwise, in words."""
    lines = []
    for f in verdict.outputs:
        failed = [name for name, passes in f.plain.allclose.items() if not passes]
        passed = [name for name, passes in f.plain.allclose.items() if passes]
        if f.kind in (Kind.identical, Kind.rounding) and failed:
            lines.append(
                f"{f.value}: allclose with {failed[0]} would call this wrong; a fixed tolerance "
                "does not know how much rounding this network makes"
            )
        if f.kind is Kind.mistake and passed:
            lines.append(
                f"{f.value}: allclose with {passed[0]} would let this pass; the error is small "
                "beside the tolerance and still far beyond rounding"
            )
    return lines


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:4]) + (", ..." if len(listed) > 4 else "")
