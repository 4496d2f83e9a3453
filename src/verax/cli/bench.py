"""`verax bench`: the speed of a model beside other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Inputs, Json, Model, OpenLevel, Seed

ENGINES = (
    *("verax", "verax:saved", "torch-zentorch", "ncnn", "mnn"),
    *("verax:O0", "verax:O1", "verax:O2", "verax:O3"),
    *("onnxruntime", "onnxruntime:disabled", "onnxruntime:basic"),
    *("onnxruntime:extended", "onnxruntime:all"),
    *("openvino", "openvino:f32", "openvino:bf16", "openvino:f16", "openvino:default"),
    *("tvm", "tvm:O0", "tvm:O1", "tvm:O2"),
    *("torch", "torch-compiled", "litert", "litert-builtin", "litert-reference"),
)
"""Names of `runners.registry.ENGINES`, which takes its time to import; tests/cli/test_help.py holds
the two together, as it does the seconds."""
TIMEOUT = 300.0


@done_in("verax.cli.work.bench")
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
    opt_level: OpenLevel = None,
    target: Annotated[
        str,
        typer.Option(
            help="Instructions that Verax may use: host, avx512 or avx2. Peers whose libraries "
            "(oneDNN, PyTorch's own kernels) can be held to AVX2 are held to it as well."
        ),
    ] = "host",
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Time every step of Verax's program by itself instead: time, GFLOP/s, share of "
            "the machine's peak, bytes, GB/s, algorithm, schedule, threads.",
        ),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the profile as a trace that chrome://tracing and Perfetto open.",
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Time a model beside other runtimes: own processes, taking turns, medians and a ratio."""
