"""The judge measured: false alarms on honest implementations, planted mistakes found.

    python -m benchmarks.judge                                 # everything (long)
    python -m benchmarks.judge honest --limit 50 --only torch
    python -m benchmarks.judge plants --limit 2 --only "bias missing" --seconds 60
    python -m benchmarks.judge models                          # real networks, if they are there

Prints a table as it goes, and writes every outcome to out/judge.json. Ctrl-C keeps what was done.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.judge.models import ModelCase, model_cases, model_lost, model_to_plain
from benchmarks.pools import add_pool_options, pool_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from verax.base.storage.files import atomic_write
from verax.campaign.faults_in_numbers import NUMBER_FAULTS
from verax.campaign.hostile_inputs import STYLES
from verax.campaign.outcomes import (
    RUNNERS,
    BaselineCase,
    Case,
    CaseOutcome,
    FaultCase,
    PairCase,
    case_to_plain,
    lost,
)
from verax.campaign.placements import FAULTS
from verax.campaign.summary import baseline_rows, fault_figures, fault_rows, judged, reasons

NETWORKS, PLACEMENTS, PAIRS = 500, 10, 100
"""Random networks for every honest implementation; placements of every kind; pairs of mistakes."""
WRITTEN_EVERY = 20
"""Outcomes between two writings of the record."""
SLOW_EVERY = 4
"""Our own compiler takes seconds for a network at O0: it is tried on one network in so many."""
WIDTH = 150
"""Columns of the table in a file."""
HONEST_COLUMNS = ("implementation", "networks", "refused", "blind from outputs", "false alarms")
PLANT_COLUMNS = (
    *("planted mistake", "placed", "detected", "located", "reach outputs", "seen there"),
    *("located by cutting", "truth named", "named first", "named wrongly"),
)


def honest_cases(only: str, limit: int | None, seed: int) -> Iterator[BaselineCase]:
    """Every implementation on every network; those that compile for seconds on some of them."""
    for number, name in itertools.product(range(limit or NETWORKS), RUNNERS):
        slow = name.startswith("verax") and number % SLOW_EVERY
        if re.search(only, name) and not slow:
            yield BaselineCase(seed + number, name)


def hostile_cases(only: str, limit: int | None, seed: int) -> Iterator[Case]:
    """As `honest_cases`, on inputs of every style in turn."""
    styles = list(STYLES)[1:]
    for case in honest_cases(only, limit, seed):
        yield dataclasses.replace(case, style=styles[case.seed % len(styles)])


def plant_cases(only: str, limit: int | None, seed: int) -> Iterator[Case]:
    """Every kind of mistake in the numbers and in a file, half of them in deep networks."""
    names = [n for n in FAULTS if re.search(only, n)]
    for number, in_file in itertools.product(range(limit or PLACEMENTS), (False, True)):
        for name in names:
            if in_file and FAULTS[name] in NUMBER_FAULTS:
                continue
            yield FaultCase(name, seed + number, deep=number % 2 == 1, in_file=in_file)


def pair_cases(only: str, limit: int | None, seed: int) -> Iterator[Case]:
    """Random pairs of kinds."""
    draw = random.Random(seed)
    names = [n for n in FAULTS if re.search(only, n)]
    for number in range(limit or PAIRS):
        yield PairCase(draw.choice(names), draw.choice(names), seed + number)


def honest_table(outcomes: Sequence[CaseOutcome]) -> Table:
    table = Table(*HONEST_COLUMNS, title="Honest implementations on random networks")
    for row in baseline_rows(outcomes):
        table.add_row(*row)
    return table


def plant_table(outcomes: Sequence[CaseOutcome]) -> Table:
    table = Table(*PLANT_COLUMNS, title="Planted mistakes")
    table.columns[0].no_wrap = True
    for row in fault_rows(outcomes):
        table.add_row(*row)
    table.add_section()
    table.add_row("all", *map(str, fault_figures(judged(outcomes))))
    return table


def pair_table(outcomes: Sequence[CaseOutcome]) -> Table:
    table = Table(*PLANT_COLUMNS[1:4], "located by cutting", title="Two mistakes at once")
    placed, detected, located, _, _, cut, *_ = fault_figures(judged(outcomes))
    table.add_row(*map(str, (placed, detected, located, cut)))
    return table


def real_cases(only: str, limit: int | None, seed: int) -> Iterator[ModelCase]:
    """Real networks with the answers that were stored for them, and live runtimes."""
    cases = [c for c in model_cases() if re.search(only, c.kind)]
    yield from cases[:limit]


def real_table(outcomes: Sequence[CaseOutcome]) -> Table:
    table = Table("model, and who answered", "verdict", title="Honest answers to real networks")
    for outcome in sorted(outcomes, key=lambda o: o.case):
        table.add_row(outcome.case, outcome.verdict or f"not judged: {outcome.skipped}")
    return table


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the campaign: its cases, the table of what came of them, how workers run one, and
    what becomes of one that takes its worker down."""

    cases: Callable[[str, int | None, int], Iterator[Any]]
    table: Callable[[Sequence[CaseOutcome]], Table]
    function: str = "verax.campaign.outcomes:run_plain_case"
    to_plain: Callable[[Any], dict[str, Any]] = case_to_plain
    lost: Callable[[Any, str], CaseOutcome] = lost


PARTS = {
    "honest": Part(honest_cases, honest_table),
    "hostile": Part(hostile_cases, honest_table),
    "plants": Part(plant_cases, plant_table),
    "pairs": Part(pair_cases, pair_table),
    "models": Part(
        real_cases,
        real_table,
        "benchmarks.judge.models:run_plain_model",
        model_to_plain,
        model_lost,
    ),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--limit", type=int, help="networks, or placements of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="KIND", help="regular expression")
    parser.add_argument("--seconds", type=float, help="begin nothing new after so long")
    add_pool_options(parser, workers=2)
    parser.add_argument("--json", type=Path, default=Path("out/judge.json"))
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: choose of {', '.join(PARTS)}")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only {options.only!r} is no regular expression: {error}")
    console = Console(width=WIDTH if not sys.stdout.isatty() else None)
    results: dict[str, list[CaseOutcome]] = {}
    for part in options.parts or PARTS:
        listed = list(PARTS[part].cases(options.only, options.limit, options.seed))
        random.Random(options.seed).shuffle(listed)  # what an early end leaves is a fair sample
        results[part] = []
        began = time.perf_counter()
        interrupted = False
        try:
            for outcome in _outcomes(part, listed, options, console):
                results[part].append(outcome)
                if len(results[part]) % WRITTEN_EVERY == 1:
                    _write(options.json, results)
        except KeyboardInterrupt:
            interrupted = True
        took = time.perf_counter() - began
        console.print(f"{part}: {len(results[part])} of {len(listed)} cases in {took:.0f} s")
        console.print(PARTS[part].table(results[part]))
        for reason, count in reasons(results[part]).most_common(12):
            console.print(f"  not judged, {count}: {reason}", markup=False)
        _write(options.json, results)
        if interrupted:
            break
    alarms = [a for part in results.values() for o in part for a in o.alarms]
    planted = [o for part in ("plants", "pairs") for o in judged(results.get(part, []))]
    missed = [o for o in planted if not (o.detected and o.located)]
    for alarm in alarms[:20]:
        console.print(f"  alarm: {alarm}", markup=False)
    for outcome in missed[:20]:
        found = f"{outcome.verdict}, blamed {outcome.blamed}"
        console.print(f"  missed: {outcome.case} at {outcome.node}: {found}", markup=False)
    console.print(f"every outcome: {options.json}")
    return 1 if alarms or missed else 0


def _outcomes(
    part: str, cases: list[Any], options: argparse.Namespace, console: Console
) -> Iterator[CaseOutcome]:
    """Outcomes of the cases as they come, with progress on a terminal."""
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(part, total=len(cases))
        own = PARTS[part]
        with pool_of(options) as pool:
            given = (own.to_plain(case) for case in cases)
            for ended in pool.run(own.function, given, seconds=options.seconds):
                if ended.loss:
                    outcome = own.lost(cases[ended.index], ended.loss)
                else:
                    outcome = CaseOutcome(**ended.result())
                yield outcome
                progress.update(task, advance=1, description=f"{part}: {outcome.kind}")


def _write(path: Path, results: dict[str, list[CaseOutcome]]) -> None:
    """Every outcome so far, as JSON by part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = {part: [dataclasses.asdict(o) for o in own] for part, own in results.items()}
    with atomic_write(path) as stream:
        stream.write(json.dumps(written, indent=1).encode())


if __name__ == "__main__":
    sys.exit(main())
