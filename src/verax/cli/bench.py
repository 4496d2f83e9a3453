"""`verax bench`: the speed of a model beside other runtimes."""

from __future__ import annotations

import difflib
from typing import Annotated

import numpy as np
import typer
from rich.text import Text

from verax.api import load
from verax.base.errors import CompileError, UsageError
from verax.bench.rounds import TIMEOUT, Contestant, race
from verax.cli.console import (
    Json,
    Model,
    Seed,
    can_write,
    checked_timeout,
    output,
    progress,
    write_text,
)
from verax.cli.inputs import Inputs, read_inputs
from verax.compiler.saved import SavedExecutable
from verax.images import ImageOptions
from verax.judge import draw_inputs
from verax.report.benchmark import benchmark_table
from verax.runners.registry import ENGINES


def command(
    model: Model,
    against: Annotated[
        str, typer.Option(help=f"Engines, separated by commas: {', '.join(ENGINES)}.")
    ] = "onnxruntime",
    threads: Annotated[str, typer.Option(help="Thread counts, separated by commas.")] = "1",
    rounds: Annotated[int, typer.Option(help="Turns that every engine takes.", min=1)] = 15,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="The longest that an engine may take to load the model and run it warm, or for "
            "one turn. One that takes longer is stopped and is in the table as failed.",
        ),
    ] = TIMEOUT,
    input: Inputs = None,
    shape: Annotated[
        list[str] | None, typer.Option(metavar="NAME=SIZE", help="Sizes of symbols (n=1).")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Time a model beside other runtimes: own processes, taking turns, medians and a ratio."""
    can_write(json)
    checked_timeout(timeout)
    loaded = load(model)
    if isinstance(loaded, SavedExecutable):
        raise UsageError("other engines cannot run a .vx file", place=str(model))
    rivals = tuple(name.strip() for name in against.split(",") if name.strip())
    for name in rivals:
        if name not in ENGINES:
            near = difflib.get_close_matches(name, ENGINES, 1)
            raise UsageError(
                f"there is no engine {name!r}" + (f"; is {near[0]!r} meant?" if near else ""),
                next_step=f"choose from {', '.join(ENGINES)}",
            )
        reads = ENGINES[name].suffixes
        if reads and model.suffix not in reads:
            raise UsageError(
                f"{name} runs {' or '.join(reads)} files",
                place=str(model),
                next_step="`verax convert` writes ONNX; `benchmarks/networks.py` times PyTorch on "
                "the networks it makes",
            )
    counts = _integers("--threads", threads)
    sizes = {}
    for text in shape or ():
        name, _, size = text.partition("=")
        sizes[name] = _integers("--shape", size)[0]
    arrays = read_inputs(input, None, loaded.inputs, ImageOptions()).arrays
    if not arrays:
        sizes = {s: 1 for s in loaded.graph.symbols()} | sizes
        drawn, words = draw_inputs(loaded.graph, seed, sizes)
        arrays = {name: drawn[name] for name in loaded.graph.arguments}  # engines keep the state
        for name in arrays:
            output.print(Text(f"input {name}: {words[name]}"), soft_wrap=True)
    engines = tuple(dict.fromkeys(("verax", *rivals)))
    who = [Contestant(e, str(model), count) for count in counts for e in engines]
    with progress(model.name) as show:
        record = race(
            model.name,
            who,
            {n: np.ascontiguousarray(a) for n, a in arrays.items()},
            rounds=rounds,
            seed=seed,
            timeout=timeout,
            progress=show,
        )
    output.print(benchmark_table(record, "verax", rivals))
    write_text(json, record.to_json())
    failures = [t.failure for t in record.timings if t.engine == "verax" and t.failure]
    if failures:
        raise CompileError("Verax could not run the model", place=failures[0])


def _integers(option: str, text: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise UsageError(f"{option} {text!r} is not a list of positive integers")
    return found
