"""A `Verdict` for the terminal, for readers who never heard of ulps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verax.records.verdict import Finding, Kind, Precision, Repeat, Verdict
from verax.report.guilty import MOST, guilty_lines, said, some
from verax.report.plain_figures import figures_line, misleading

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
    Kind.precision_lost: (
        "PRECISION LOST",
        "red",
        "A coarser arithmetic was used, and the network makes its errors too large.",
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
        for cause in verdict.causes[:MOST]:
            yield Text.assemble(("outside of the network: ", "bold red"), said(cause))
        for blame in verdict.blame:
            yield from guilty_lines(blame, searched=bool(blame.explanations or blame.structure))
        if not verdict.blame:
            yield from (Text(f"- {r}") for r in verdict.reasons)
        yield from _precisions(verdict.precisions)
        if verdict.repeat is not None:
            yield from _repeated(verdict.repeat, self.verbose)
        if verdict.outputs:
            yield _outputs(verdict.outputs)
            lines = [line for f in verdict.outputs for line in misleading(f)]
            if self.verbose:
                lines += map(figures_line, verdict.outputs)
            yield from (Text(f"  {line}") for line in lines)
        if len(verdict.nodes) > 1 or (verdict.nodes and self.verbose):
            yield _nodes(verdict.nodes, self.verbose)
        for c in verdict.comparisons:
            bits = ", the same bits" if c.same_bits else ""
            yield Text(
                f"{c.value}: error {c.first_error:.3g} by {c.first}, {c.second_error:.3g} by "
                f"{c.second}; nearer to float64: {c.nearer}{bits}"
            )
        if verdict.unchecked:
            yield Text(f"not judged: {len(verdict.unchecked)} nodes ({some(verdict.unchecked)})")
        yield from (Text(f"note: {n}", style="yellow") for n in verdict.notes)
        yield from (
            Text(f"input {i.name}: {i.type}, {i.origin}; SHA-256 {i.sha256[:12]}", style="dim")
            for i in verdict.inputs
        )
        if self.verbose:
            facts = {**verdict.subject, **verdict.environment}
            yield Text("; ".join(f"{k} {v}" for k, v in facts.items()), style="dim")


def _precisions(found: tuple[Precision, ...]) -> Iterator[Text]:
    """One line for each arithmetic, the commonest first."""
    for name, count in Counter(p.format for p in found).most_common():
        own = [p for p in found if p.format == name]
        sure = "confirmed by recomputing" if all(p.confirmed for p in own) else "judged by its size"
        unit = math.log2(own[0].unit_roundoff) if own[0].unit_roundoff > 0 else -math.inf
        yield Text.assemble(
            ("arithmetic: ", "bold yellow"),
            f"{name} in {count} value{'s' * (count > 1)} ({some(p.node for p in own)}), one "
            f"rounding is about 2^{unit:.1f}; {sure}{_lost(own)}",
        )


def _lost(found: Sequence[Precision]) -> str:
    """What an unstable algorithm cost; "" for a stable one."""
    lost = max(p.lost_digits for p in found)
    return f"; up to {lost:.1f} decimal digits are lost" if lost > 0 else ""


def _repeated(repeat: Repeat, verbose: bool) -> Iterator[Text]:
    """What asking again gave; nothing worth a line when it gave the same."""
    poisoned = f", memory filled with {repeat.poisoned} in between" if repeat.poisoned else ""
    if repeat.same_bits:
        if verbose:
            yield Text(f"asked {repeat.runs} times{poisoned}: the same bits")
        return
    changed = some(f"{value} by up to {size:.3g}" for value, size in repeat.differing.items())
    cause = f"; cause: {repeat.cause}" if repeat.cause else ""
    yield Text.assemble(
        ("does not repeat itself: ", "bold red"),
        f"asked {repeat.runs} times{poisoned}, {changed}{cause}",
    )


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
