"""`--workers N` and `--ray [ADDRESS]` of benchmarks and campaigns, as the commands have them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NoReturn

from verax.base.errors import VeraxError
from verax.distributed import WorkerPool, open_pool


def add_pool_options(parser: argparse.ArgumentParser, workers: int = 1) -> None:
    """The two options. workers: the default without --ray."""
    parser.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help=f"processes (default {workers}), or workers of a cluster (default: one for each core)",
    )
    parser.add_argument(
        "--ray",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="run on a Ray cluster (without an address: the one of this machine, or a new one)",
    )
    parser.set_defaults(default_workers=workers)


def pool_of(options: argparse.Namespace) -> WorkerPool:
    """The pool that the options ask for; what cannot be had is said, and ends the process with
    code 2."""
    unsaid = 0 if options.ray is not None else options.default_workers
    try:
        return open_pool(unsaid if options.workers is None else options.workers, options.ray)
    except VeraxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def run_script(main: Callable[[], int | None]) -> NoReturn:
    """End the process with the code of a script's `main`; Ctrl-C is one line and 130."""
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError(f"{count} is below 0")
    return count
