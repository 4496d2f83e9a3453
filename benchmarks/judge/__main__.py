"""The judge measured: false alarms on honest implementations, planted mistakes found.

    python benchmarks/judge                                 # everything (long)
    python benchmarks/judge honest --limit 50 --only torch
    python benchmarks/judge plants --limit 2 --only "bias missing" --seconds 60

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

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from verax.campaign.outcomes import RUNNERS, Case, HonestCase, Outcome, PlantCase, died, run_case
from verax.campaign.placements import PLANTS
from verax.campaign.plants_numbers import NUMBER_PLANTS
from verax.campaign.summary import honest_rows, judged, plant_figures, plant_rows, reasons
from verax.campaign.workers import run_cases

NETWORKS, PLACEMENTS = 500, 10
"""Random networks for every honest implementation, and placements of every kind of mistake."""
SLOW_EVERY = 4
"""Our own compiler takes seconds for a network at O0: it is tried on one network in so many."""
WIDTH = 150
"""Columns of the table in a file."""
HONEST_COLUMNS = ("implementation", "networks", "refused", "blind from outputs", "false alarms")
PLANT_COLUMNS = (
    *("planted mistake", "placed", "detected", "located", "reach outputs", "seen there"),
    *("located by cutting", "truth named", "named first", "named wrongly"),
)


def honest_cases(only: str, limit: int | None, seed: int) -> Iterator[Case]:
    """Every implementation on every network; those that compile for seconds on some of them."""
    for number, name in itertools.product(range(limit or NETWORKS), RUNNERS):
        slow = name.startswith("verax") and number % SLOW_EVERY
        if re.search(only, name) and not slow:
            yield HonestCase(seed + number, name)


def plant_cases(only: str, limit: int | None, seed: int) -> Iterator[Case]:
    """Every kind of mistake in the numbers and in a file, half of them in deep networks."""
    names = [n for n in PLANTS if re.search(only, n)]
    for number, in_file in itertools.product(range(limit or PLACEMENTS), (False, True)):
        for name in names:
            if in_file and PLANTS[name] in NUMBER_PLANTS:
                continue
            yield PlantCase(name, seed + number, deep=number % 2 == 1, in_file=in_file)


def honest_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(*HONEST_COLUMNS, title="Honest implementations on random networks")
    for row in honest_rows(outcomes):
        table.add_row(*row)
    return table


def plant_table(outcomes: Sequence[Outcome]) -> Table:
    table = Table(*PLANT_COLUMNS, title="Planted mistakes")
    table.columns[0].no_wrap = True
    for row in plant_rows(outcomes):
        table.add_row(*row)
    table.add_section()
    table.add_row("all", *map(str, plant_figures(judged(outcomes))))
    return table


PARTS: dict[str, tuple[Callable[[str, int | None, int], Iterator[Case]], Callable[..., Table]]] = {
    "honest": (honest_cases, honest_table),
    "plants": (plant_cases, plant_table),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)} (default: all)")
    parser.add_argument("--limit", type=int, help="networks, or placements of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="KIND", help="regular expression")
    parser.add_argument("--seconds", type=float, help="begin nothing new after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path("out/judge.json"))
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    console = Console(width=WIDTH if not sys.stdout.isatty() else None)
    results: dict[str, list[Outcome]] = {}
    for part in options.parts or PARTS:
        cases, table = PARTS[part]
        listed = list(cases(options.only, options.limit, options.seed))
        random.Random(options.seed).shuffle(listed)  # what an early end leaves is a fair sample
        results[part] = _run(part, listed, options, console)
        console.print(table(results[part]))
        for reason, count in reasons(results[part]).most_common(12):
            console.print(f"  not judged, {count}: {reason}", markup=False)
        options.json.parent.mkdir(parents=True, exist_ok=True)
        written = {p: [dataclasses.asdict(o) for o in own] for p, own in results.items()}
        options.json.write_text(json.dumps(written, indent=1))
    alarms = [a for o in results.get("honest", []) for a in o.alarms]
    missed = [o for o in judged(results.get("plants", [])) if not (o.detected and o.located)]
    for alarm in alarms[:20]:
        console.print(f"  alarm: {alarm}", markup=False)
    for outcome in missed[:20]:
        found = f"{outcome.verdict}, blamed {outcome.blamed}"
        console.print(f"  missed: {outcome.case} at {outcome.node}: {found}", markup=False)
    console.print(f"every outcome: {options.json}")
    return 1 if alarms or missed else 0


def _run(
    part: str, cases: list[Case], options: argparse.Namespace, console: Console
) -> list[Outcome]:
    """Outcomes of the cases, with progress on a terminal."""
    done: list[Outcome] = []
    began = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task(part, total=len(cases))
        for outcome in run_cases(
            cases, run_case, died, processes=options.processes, seconds=options.seconds
        ):
            done.append(outcome)
            progress.update(task, advance=1, description=f"{part}: {outcome.kind}")
    took = time.perf_counter() - began
    console.print(f"{part}: {len(done)} of {len(cases)} cases in {took:.0f} s")
    return done


if __name__ == "__main__":
    sys.exit(main())
