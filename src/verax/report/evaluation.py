"""An `Evaluation` for the terminal: the accuracy, the second implementation's, and the flips."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.evaluation import Accuracy, Comparison, Evaluation, Share
from verax.report.tables import Column, FittingTable

SHOWN = 10
"""Flips, and ways from class to class, listed unless all are asked for."""
NEAR = {True: "yes", False: "no", None: "undecided"}


def render_evaluation(evaluation: Evaluation, *, verbose: bool = False) -> RenderableType:
    """What `verax evaluate` prints. verbose: every flip."""
    return _Report(evaluation, verbose)


class _Report:
    """An evaluation as a rich renderable."""

    def __init__(self, evaluation: Evaluation, verbose: bool) -> None:
        self.record, self.verbose = evaluation, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        yield _accuracies(record)
        yield from (Text(f"- {r}") for r in record.reasons)
        if record.comparison is not None:
            yield from _flips(record.comparison, record.classes, self.verbose)
        yield Text(f"samples, such as {'; '.join(record.steps)}", style="dim")


def _accuracies(record: Evaluation) -> FittingTable:
    sides: list[tuple[str, Accuracy]] = [(record.model["name"], record.accuracy)]
    if record.comparison is not None:
        sides.append((record.comparison.subject["name"], record.comparison.accuracy))
    k = record.accuracy.k
    metrics = list(record.accuracy.metrics)
    columns = [Column("implementation", whole=True), Column("top-1", rank=2)]
    columns += [Column("95 % interval")]
    columns += [Column(f"top-{k}", rank=1)] if k > 1 else []
    columns += [Column(name, rank=3) for name in metrics]
    rows = []
    for name, accuracy in sides:
        cells = [*_share(accuracy.top1), *_share(accuracy.topk)[: k > 1]]
        numbers = [f"{accuracy.metrics.get(m, float('nan')):.6g}" for m in metrics]
        rows.append((name, *cells, *numbers))
    title = f"{record.samples} samples, classes chosen by {record.output!r}"
    return FittingTable(title, columns, rows)


def _share(share: Share) -> tuple[str, str]:
    return (
        f"{share.right} of {share.of} ({100 * share.value:.2f} %)",
        f"{100 * share.low:.1f} to {100 * share.high:.1f} %",
    )


def _class(number: int | None, classes: Sequence[str]) -> str:
    if number is None:
        return "?"
    return f"{number} {classes[number]}" if number < len(classes) else str(number)


def _flips(comparison: Comparison, classes: Sequence[str], verbose: bool) -> RenderResult:
    yield Text(
        f"the same choice on {comparison.agreeing} of "
        f"{comparison.agreeing + len(comparison.flips)} samples; the largest difference of two "
        f"scores is {comparison.largest:.3g} ({comparison.where})"
    )
    if not comparison.flips:
        return
    flips = comparison.flips if verbose else comparison.flips[:SHOWN]
    columns = (
        Column("sample", whole=True),
        *(Column(name, rank=3) for name in ("label", "model", "subject", "float64")),
        Column("margin", rank=1),
        Column("rounding moves it by"),
        Column("near tie", rank=2),
    )
    rows = []
    for f in flips:
        chosen = (_class(c, classes) for c in (f.label, f.model, f.subject, f.meaning))
        near = NEAR[f.near] + (f": {f.why}" if f.why else "")
        rows.append((f.sample, *chosen, f"{f.margin:.3g}", f"{f.sigma:.3g}", near))
    yield FittingTable(
        _title("Samples that flip", len(flips), len(comparison.flips)), columns, rows
    )
    ways = comparison.confusion if verbose else comparison.confusion[:SHOWN]
    title = _title("From class to class", len(ways), len(comparison.confusion))
    columns = (Column("model", whole=True), Column("subject", whole=True), Column("samples"))
    rows = [(_class(w.model, classes), _class(w.subject, classes), str(w.count)) for w in ways]
    yield FittingTable(title, columns, rows)


def _title(what: str, shown: int, total: int) -> str:
    return f"{what} ({'all' if shown == total else f'{shown} of {total}'})"
