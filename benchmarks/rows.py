"""The command line of benchmarks that make a page from one row per network.

Rows that were measured before are kept in a file and not measured again, so that a benchmark which
takes long can be stopped and taken up.
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from benchmarks.provenance import stamped


class Measured(Protocol):
    """A dataclass of numbers and text, which says what it shows."""

    name: str

    def cells(self) -> list[str]:
        """Its cells in the table."""


Row = TypeVar("Row", bound=Measured)


def run(
    words: str,
    row: Callable[..., Row],
    names: Callable[[Sequence[str]], Sequence[str]],
    measure: Callable[[str], Row],
    page: Callable[[Sequence[Row]], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Measure rows on one thread of PyTorch and print them; the exit code.

    words: what it is, for --help. row: makes one from what was kept. names: what to measure for
    the names that were asked for (none: all). page: the text that --write writes.
    """
    parser = argparse.ArgumentParser(description=words.partition("\n\n")[0])
    parser.add_argument("names", nargs="*", help="which; all when none is named")
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--rows", type=Path, help="JSON of what was measured before, and then")
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin no further one after")
    asked = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    chosen, rows, begin = names(asked.names), [], time.monotonic()
    if asked.rows is not None and asked.rows.exists():
        rows = [row(**kept) for kept in json.loads(asked.rows.read_text())]
    done = {r.name for r in rows}
    for name in [n for n in chosen if n not in done]:
        if time.monotonic() - begin > asked.seconds:
            print(f"stopped with {len(rows)} of {len(chosen)}")
            break
        rows.append(measure(name))
        print(" | ".join(rows[-1].cells()), flush=True)
        if asked.rows is not None:
            asked.rows.write_text(json.dumps([asdict(r) for r in rows]))  # type: ignore[call-overload]
    if asked.write is not None:
        asked.write.write_text(stamped(page(rows)))
    return 0 if rows else 2


def among(known: Collection[str], asked: Sequence[str]) -> Sequence[str]:
    """What was asked for. Ends the program, exit code 2, at a name that is not known."""
    for name in asked:
        if name not in known:
            close = ", ".join(difflib.get_close_matches(name, known)) or ", ".join(sorted(known))
            print(f"error: there is no {name!r}\n  next: choose {close}", file=sys.stderr)
            raise SystemExit(2)
    return asked


def table(head: Sequence[str], rows: Sequence[Measured]) -> list[str]:
    """The lines of a Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(c.replace("|", "/") for c in r.cells()) + " |" for r in rows]
    return lines


def milliseconds(
    calls: Sequence[Callable[[], Any] | None], rounds: int, runs: int = 1
) -> tuple[float, ...]:
    """The quickest call of each, in turns; infinite where there is none."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(runs if call is not None else 0):
                begin = time.perf_counter()
                assert call is not None
                call()
                best[i] = min(best[i], 1e3 * (time.perf_counter() - begin))
    return tuple(best)
