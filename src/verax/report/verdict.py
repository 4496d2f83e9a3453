"""A `Verdict` for the terminal, for readers who never heard of ulps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.base.figures import times
from verax.records.verdict import Finding, Kind, Precision, Repeat, Verdict
from verax.report.faulty_node import MOST, explanation_line, faulty_lines, list_names
from verax.report.plain_figures import figures_line, misleading
from verax.report.tables import Column, FittingTable

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
BLAMED_SHOWN = 8
"""Guilty nodes, of which the causes are sought; others are counted."""
LISTED = 20
"""Outputs, inputs, reasons and notes that are printed unless all are asked for."""
SEVERITY = (
    *(Kind.mistake, Kind.precision_lost, Kind.undecided),
    *(Kind.precision, Kind.rounding, Kind.identical),
)
BY_BOUND = ("hard bound", "quantum")
"""Tests that hold the error against its hard bound."""


def render_verdict(verdict: Verdict, *, verbose: bool = False) -> RenderableType:
    """What `verax check` prints. verbose: every judged value, and the environment."""
    return _VerdictReport(verdict, verbose)


class _VerdictReport:
    """A verdict as a rich renderable."""

    def __init__(self, verdict: Verdict, verbose: bool) -> None:
        self.verdict, self.verbose = verdict, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        verdict = self.verdict
        word, color, sentence = HEADLINES[verdict.kind]
        yield Text.assemble((f" {word} ", f"bold white on {color}"), f"  {sentence}")
        yield Text(f"subject: {verdict.subject.get('name', '?')}   seen: {verdict.method}")
        for cause in verdict.causes[:MOST]:
            yield Text.assemble(("outside of the network: ", "bold red"), explanation_line(cause))
        count = len(verdict.blame) if self.verbose else BLAMED_SHOWN
        for blame in verdict.blame[:count]:
            yield from faulty_lines(blame, searched=bool(blame.explanations or blame.structure))
        if verdict.blame[count:]:
            more = list_names(b.node for b in verdict.blame[count:])
            yield Text(f"guilty as well: {len(verdict.blame) - count} more ({more})")
        if not verdict.blame:
            yield from self._lines([f"- {r}" for r in verdict.reasons])
        yield from _precisions(verdict.precisions)
        if verdict.repeat is not None:
            yield from _repeated(verdict.repeat, self.verbose)
        if verdict.outputs:
            first = sorted(verdict.outputs, key=lambda f: SEVERITY.index(f.kind))[:LISTED]
            outputs = [f for f in verdict.outputs if self.verbose or f in first]
            yield _outputs(outputs)
            if verdict.outputs[len(outputs) :]:
                yield Text(f"  and {len(verdict.outputs) - len(outputs)} outputs more")
            lines = [line for f in outputs for line in misleading(f)]
            if self.verbose:
                lines += map(figures_line, verdict.outputs)
            yield from (Text(f"  {line}") for line in lines)
        if len(verdict.nodes) > 1 or (verdict.nodes and self.verbose):
            yield _nodes(verdict.nodes, self.verbose)
        comparisons = []
        for c in verdict.comparisons:
            bits = ", the same bits" if c.same_bits else ""
            comparisons.append(
                f"{c.value}: error {c.first_error:.3g} by {c.first}, {c.second_error:.3g} by "
                f"{c.second}; nearer to float64: {c.nearer}{bits}"
            )
        yield from self._lines(comparisons)
        if verdict.unchecked:
            yield Text(
                f"not judged: {len(verdict.unchecked)} nodes ({list_names(verdict.unchecked)})"
            )
        yield from self._lines([f"note: {n}" for n in verdict.notes], style="yellow")
        inputs = [
            f"input {i.name}: {i.type}, {i.origin}; SHA-256 {i.sha256[:12]}" for i in verdict.inputs
        ]
        yield from self._lines(inputs, style="dim")
        if self.verbose:
            facts = {**verdict.subject, **verdict.environment}
            yield Text("; ".join(f"{k} {v}" for k, v in facts.items()), style="dim")

    def _lines(self, lines: Sequence[str], style: str = "") -> Iterator[Text]:
        """The first of many lines; with --verbose all."""
        count = len(lines) if self.verbose else LISTED
        yield from (Text(line, style=style) for line in lines[:count])
        if lines[count:]:
            yield Text(f"  and {len(lines) - count} more (--verbose lists them)", style=style)


def _precisions(precisions: tuple[Precision, ...]) -> Iterator[Text]:
    """One line for each arithmetic, the commonest first."""
    for name, count in Counter(p.format for p in precisions).most_common():
        own = [p for p in precisions if p.format == name]
        sure = "confirmed by recomputing" if all(p.confirmed for p in own) else "judged by its size"
        unit = math.log2(own[0].unit_roundoff) if own[0].unit_roundoff > 0 else -math.inf
        yield Text.assemble(
            ("arithmetic: ", "bold yellow"),
            f"{name} in {count} value{'s' * (count > 1)} ({list_names(p.node for p in own)}), one "
            f"rounding is about 2^{unit:.1f}; {sure}{_lost(own)}",
        )


def _lost(precisions: Sequence[Precision]) -> str:
    """What an unstable algorithm cost; "" for a stable one."""
    lost = max(p.lost_digits for p in precisions)
    return f"; up to {lost:.1f} decimal digits are lost" if lost > 0 else ""


def _repeated(repeat: Repeat, verbose: bool) -> Iterator[Text]:
    """What asking again gave; nothing worth a line when it gave the same."""
    poisoned = f", memory filled with {repeat.poisoned} in between" if repeat.poisoned else ""
    if repeat.same_bits:
        if verbose:
            yield Text(f"asked {repeat.runs} times{poisoned}: the same bits")
        return
    changed = list_names(f"{value} by up to {size:.3g}" for value, size in repeat.differing.items())
    cause = f"; cause: {repeat.cause}" if repeat.cause else ""
    yield Text.assemble(
        ("does not repeat itself: ", "bold red"),
        f"asked {repeat.runs} times{poisoned}, {changed}{cause}",
    )


def _outputs(findings: Sequence[Finding]) -> FittingTable:
    columns = (
        Column("output", unbroken=True),
        Column("verdict", rank=4),
        Column("largest difference", rank=3),
        Column("relative", rank=1),
        Column("cosine", rank=0),
        Column("worst place", rank=2),
    )
    rows = []
    for f in findings:
        worst_text = ""
        if f.worst:
            worst = f.worst[0]
            at = ", ".join(map(str, worst.index))
            worst_text = f"[{at}]: {worst.given:.7g}, should be {worst.expected:.7g}"
        sizes = f"{f.plain.max_abs:.3g}", f"{f.plain.max_rel:.3g}", f"{f.plain.cosine:.7f}"
        rows.append((f.value, f.kind.value, *sizes, worst_text))
    return FittingTable("Outputs against the float64 meaning", columns, rows)


def _nodes(findings: Sequence[Finding], verbose: bool) -> FittingTable:
    ranked = sorted(findings, key=lambda f: (f.kind is not Kind.mistake, -f.statistic))
    listed = findings if verbose else ranked[:NODES_SHOWN]
    title = "Every judged value" if verbose else f"Most suspicious of {len(findings)} judged values"
    columns = (
        Column("node", unbroken=True),
        Column("operator", rank=2),
        Column("verdict", rank=4),
        Column("error / allowed", rank=3),
        Column("decided by", rank=0),
        Column("worst in", rank=1),
    )
    rows = [
        (f.node, f.operator, f.kind.value, times(over_allowed(f)), f.test, f.group) for f in listed
    ]
    return FittingTable(title, columns, rows)


def over_allowed(f: Finding) -> float:
    """The figure that the finding's reason gives: an error over what may be, as its test has it."""
    return f.bound_ratio if f.test in BY_BOUND and f.bound_ratio is not None else f.statistic
