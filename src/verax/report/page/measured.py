"""Records of what was counted or timed, as sections of a page."""

from __future__ import annotations

from verax.records.benchmark import Benchmark
from verax.records.evaluation import Accuracy, EvaluationRecord, Share
from verax.records.tuning import TuningRecord
from verax.report.page.cells import MAX_ROWS, count, counted, figure, name, percent
from verax.report.page.model import PageTable, RecordSection, TableCell
from verax.report.page.network_details import UNJUDGED

NEAR = {True: "yes", False: "no", None: "undecided"}


def evaluation_section(record: EvaluationRecord) -> RecordSection:
    """How often a network is right, and where another one chooses differently."""
    kind = {0: "rounding", 1: "mistake", 3: "undecided"}[record.exit_code]
    sides = [(record.model.get("name", "?"), record.accuracy)]
    tables = []
    if record.comparison is not None:
        sides.append((record.comparison.subject.get("name", "?"), record.comparison.accuracy))
        tables.append(
            PageTable(
                counted(len(record.comparison.flips), "sample") + " on which the choices differ",
                ("sample", "label", "model", "subject", "float64", "margin", "rounding", "near"),
                tuple(
                    (
                        *(
                            name(f.sample),
                            *(TableCell(str(c)) for c in (f.label, f.model, f.subject)),
                        ),
                        *(TableCell("" if f.meaning is None else str(f.meaning)), figure(f.margin)),
                        *(
                            figure(f.sigma),
                            TableCell(NEAR[f.near] + (f": {f.why}" if f.why else "")),
                        ),
                    )
                    for f in record.comparison.flips[:MAX_ROWS]
                ),
            )
        )
    rows = tuple(_accuracy_row(side, accuracy) for side, accuracy in sides)
    columns = ("implementation", "top-1", "95 % interval", f"top-{record.accuracy.k}", "metrics")
    tables.insert(0, PageTable(counted(record.samples, "sample"), columns, rows))
    return RecordSection(
        kind=kind,
        word=f"{right_of(record.accuracy.top1)} right",
        sentence=record._brief(),
        title=sides[0][0],
        facts=(("chosen by", record.output), ("seed", str(record.seed))),
        reasons_title="In words",
        reasons=record.reasons,
        tables=tuple(tables),
        notes=record.steps,
        environment=tuple({**record.hashes, **record.environment}.items()),
    )


def right_of(share: Share) -> str:
    """A share in percent; "none" of no sample."""
    return f"{100 * share.value:.2f} %" if share.of else "none"


def _accuracy_row(side: str, accuracy: Accuracy) -> tuple[TableCell, ...]:
    top1 = accuracy.top1
    metrics = ", ".join(f"{k} {v:.6g}" for k, v in accuracy.metrics.items())
    return (
        name(side),
        TableCell(f"{top1.right} of {top1.of} ({right_of(top1)})", "number"),
        TableCell(f"{100 * top1.low:.1f} to {100 * top1.high:.1f} %", "number"),
        TableCell(right_of(accuracy.topk), "number"),
        TableCell(metrics),
    )


def benchmark_section(record: Benchmark) -> RecordSection:
    """Times of engines side by side."""
    rows = []
    for t in record.timings:
        figures: tuple[TableCell, ...] = (TableCell(t.failure),)
        if t.rounds:
            figures = (
                *(figure(t.median), figure(t.best), percent(t.spread)),
                *(figure(t.prepare), TableCell(f"{t.memory:.0f}", "number")),
            )
        rows.append((name(f"{t.engine} {t.version}".strip()), TableCell(str(t.threads)), *figures))
    engines = tuple(dict.fromkeys(t.engine for t in record.timings))
    reasons = []
    for threads in record.thread_counts:
        ratio, peer = record.speed(engines[0], engines[1:], threads)
        if ratio == ratio:
            reasons.append(f"{engines[0]}, threads {threads}: {ratio:.3f} of the speed of {peer}")
    columns = (
        *("engine", "threads", "median, ms", "fastest, ms", "spread", "load, s"),
        "memory, MB",
    )
    return RecordSection(
        kind=UNJUDGED,
        word="TIMES",
        sentence="Measured side by side, in turns.",
        title=record.model,
        facts=tuple((k, v) for k, v in record.inputs.items()),
        reasons_title="In words",
        reasons=reasons,
        tables=(PageTable("Engines", columns, tuple(rows)),),
        notes=record.notes,
        environment=tuple(record.environment.items()),
    )


def tuning_section(record: TuningRecord) -> RecordSection:
    """Schedules that were measured."""
    columns = ("kernel", "calls", "share", "by rule, us", "best, us", "schedule", "outcome")
    rows = tuple(
        (
            *(
                name(k.spec),
                count(k.calls),
                percent(k.share),
            ),
            *(figure(k.rule_us), figure(k.best_us), TableCell(k.schedule), TableCell(k.outcome)),
        )
        for k in record.kernels[:MAX_ROWS]
    )
    return RecordSection(
        kind="rounding" if record.equal_bits and not record.faults else "mistake",
        word=f"{record.speedup:.3f} TIMES AS FAST",
        sentence="The same bits before and after." if record.equal_bits else "OTHER BITS.",
        title=record.model,
        facts=(("level", f"O{record.opt_level}"), ("threads", str(record.threads))),
        reasons_title="In words",
        reasons=str(record).splitlines(),
        tables=(PageTable("Kernels", columns, rows),),
        environment=tuple({**record.host, **record.environment}.items()),
    )
