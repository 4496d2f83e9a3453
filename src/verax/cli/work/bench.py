"""What `verax bench` does: the speed of a model beside other runtimes."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from verax.base.errors import CompileError, UsageError
from verax.base.gpu.targets import card_of
from verax.base.option_groups.compile_options import BenchOptions
from verax.base.option_groups.options import InputOptions, ModelOptions
from verax.bench.rounds import HELD_TO_AVX2, Contestant, race
from verax.cli.console import can_write, checked_timeout, output, progress, write_json, write_text
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.cli.results import write_record
from verax.compiler.kernels.target import Target
from verax.compiling import compile
from verax.frontends import model as loading
from verax.images import ImageOptions
from verax.judge import draw_inputs
from verax.report.benchmark import benchmark_table
from verax.runners.registry import ENGINES

PROFILE = "verax.profile/1"


def perform(
    *,
    model: Path,
    timing: BenchOptions,
    inputs: InputOptions,
    json: Path | None,
    html: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.bench`."""
    can_write(json, html)
    trace = None if timing.trace is None else Path(timing.trace)
    can_write(trace)
    checked_timeout(timing.timeout)
    if not Target.named(timing.target).runs_here(card_of(timing.target) or 0):
        raise UsageError(
            "this machine cannot run code for that target",
            place=f"--target {timing.target}",
            next_step="choose one that it has, or run where it runs",
        )
    settings = timing.engine_settings
    loaded = require_model(
        load_file(model, ModelOptions(shape=timing.shape)),
        model,
        "other engines cannot run a .vx file",
    )
    profiled = timing.profile or trace is not None
    competitors = tuple(n.strip() for n in timing.against.split(",") if n.strip() and not profiled)
    for name in competitors:
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
                next_step="`verax convert` writes ONNX; `benchmarks/panel.py` times every peer "
                "on the networks it makes",
            )
    counts = _integers("--threads", timing.threads)
    arrays = read_inputs(inputs, loaded.inputs, ImageOptions()).arrays
    if not arrays:
        bounds = loaded.graph.bounds
        sizes = {s: max(1, bounds.get(s, (1, None))[0]) for s in loaded.graph.symbols()}
        drawn, words = draw_inputs(loaded.graph, timing.seed, sizes)
        arrays = {name: drawn[name] for name in loaded.graph.arguments}  # engines keep the state
        for name in arrays:
            output.print(Text(f"input {name}: {words[name]}"), soft_wrap=True)
    arrays = {n: np.asarray(a, order="C") for n, a in arrays.items()}
    if profiled:
        if html is not None:
            raise UsageError("--html shows times, not a profile", next_step="leave --profile out")
        _profile(loaded, arrays, counts, settings, timing.rounds, json, trace)
        return
    engines = tuple(dict.fromkeys(("verax", *competitors)))
    who = [
        Contestant(
            e,
            str(model),
            count,
            settings if e == "verax" else {},
            environment=HELD_TO_AVX2 if timing.target == "avx2" else {},
        )
        for count in counts
        for e in engines
    ]
    with progress(model.name) as show:
        record = race(
            model.name,
            who,
            arrays,
            rounds=timing.rounds,
            seed=timing.seed,
            timeout=timing.timeout,
            progress=show,
        )
    record = dataclasses.replace(record, options=timing)
    output.print(benchmark_table(record, "verax", competitors))
    write_record(record, json, html)
    failures = [t.failure for t in record.timings if t.engine == "verax" and t.failure]
    if failures:
        raise CompileError("Verax could not run the model", place=failures[0])


def _profile(
    model: loading.Model,
    arrays: Mapping[str, np.ndarray],
    counts: list[int],
    settings: Mapping[str, Any],
    runs: int,
    json: Path | None,
    trace: Path | None,
) -> None:
    """Print where the time goes, for each thread count; files hold the last one."""
    for count in counts:
        profile = compile(model, threads=count, **settings).profile(arrays, runs)
        output.print(Text(str(profile)), soft_wrap=True)
    write_json(json, PROFILE, profile.to_json())
    write_text(trace, dumps(profile.to_trace()))


def _integers(option: str, text: str) -> list[int]:
    try:
        integers = [int(item) for item in text.split(",")]
    except ValueError:
        integers = []
    if not integers or min(integers) < 1:
        raise UsageError(f"{option} {text!r} is not a list of positive integers")
    return integers
