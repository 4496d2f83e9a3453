"""An `EvaluationRecord` for the terminal: both accuracies, and the flips."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from verax.records.evaluation import Accuracy, ComparedImplementation, EvaluationRecord, Share
from verax.report.tables import Column, FittingTable

SHOWN = 10
"""Flips, and ways from class to class, listed unless all are asked for."""
NEAR = {True: "yes", False: "no", None: "undecided"}


def render_evaluation(evaluation: EvaluationRecord, *, verbose: bool = False) -> RenderableType:
    """What `verax evaluate` prints. verbose: every flip."""
    return _EvaluationReport(evaluation, verbose)


class _EvaluationReport:
    """An evaluation as a rich renderable."""

    def __init__(self, evaluation: EvaluationRecord, verbose: bool) -> None:
        self.record, self.verbose = evaluation, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        yield _accuracies(record)
        yield from (Text(f"- {r}") for r in record.reasons)
        if record.comparison is not None:
            yield from _flips(record.comparison, record.classes, self.verbose)
        yield Text(f"samples, such as {'; '.join(record.steps)}", style="dim")


def _accuracies(record: EvaluationRecord) -> FittingTable:
    sides: list[tuple[str, Accuracy]] = [(record.model["name"], record.accuracy)]
    if record.comparison is not None:
        sides.append((record.comparison.subject["name"], record.comparison.accuracy))
    k = record.accuracy.k
    metrics = list(record.accuracy.metrics)
    columns = [Column("implementation", unbroken=True), Column("top-1", rank=2)]
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


def _class(index: int | None, classes: Sequence[str]) -> str:
    if index is None:
        return "?"
    return f"{index} {classes[index]}" if index < len(classes) else str(index)


def _flips(
    comparison: ComparedImplementation, classes: Sequence[str], verbose: bool
) -> RenderResult:
    yield Text(
        f"the same choice on {comparison.agreeing} of "
        f"{comparison.agreeing + len(comparison.flips)} samples; the largest difference of two "
        f"scores is {comparison.largest:.3g} ({comparison.where})"
    )
    if not comparison.flips:
        return
    flips = comparison.flips if verbose else comparison.flips[:SHOWN]
    columns = (
        Column("sample", unbroken=True),
        *(Column(name, rank=3) for name in ("label", "model", "subject", "float64")),
        Column("margin", rank=1),
        Column("rounding moves it by"),
        Column("near tie", rank=2),
    )
    rows = []
    for f in flips:
        names = (_class(c, classes) for c in (f.label, f.model, f.subject, f.meaning))
        near = NEAR[f.near] + (f": {f.why}" if f.why else "")
        rows.append((f.sample, *names, f"{f.margin:.3g}", f"{f.sigma:.3g}", near))
    yield FittingTable(
        _title("Samples that flip", len(flips), len(comparison.flips)), columns, rows
    )
    confusions = comparison.confusion if verbose else comparison.confusion[:SHOWN]
    title = _title("From class to class", len(confusions), len(comparison.confusion))
    columns = (Column("model", unbroken=True), Column("subject", unbroken=True), Column("samples"))
    rows = [
        (_class(w.model, classes), _class(w.subject, classes), str(w.count)) for w in confusions
    ]
    yield FittingTable(title, columns, rows)


def _title(heading: str, count: int, total: int) -> str:
    return f"{heading} ({'all' if count == total else f'{count} of {total}'})"
