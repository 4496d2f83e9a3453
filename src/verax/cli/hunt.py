"""`verax hunt`: many generated cases, judged, made small and kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import RUNNING
from verax.cli.late import done_in
from verax.cli.options import Html, Json, Ray, Workers


@done_in("verax.cli.work.hunt")
def command(
    subject: Annotated[
        str,
        typer.Argument(
            help="A runner (see `verax runners`), cmd:PROGRAM {model} {input} {output}, or "
            "torch.compile[:BACKEND], which is given programs of PyTorch."
        ),
    ],
    against: Annotated[
        str,
        typer.Option("--against", metavar="SECOND", help="Asked for a second opinion as well."),
    ] = "",
    time: Annotated[
        str,
        typer.Option("--time", metavar="TIME", help="When to stop: 90s, 10m, 1h. Else Ctrl-C."),
    ] = "",
    cases: Annotated[
        int | None, typer.Option("--cases", help="Stop after so many cases.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which cases are generated.", min=0)] = 0,
    store: Annotated[
        Path,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Folder of the store and of the findings; hunts that share it divide the cases, "
            "and a later one goes on.",
        ),
    ] = Path("hunt"),
    operators: Annotated[
        str,
        typer.Option("--operators", metavar="A,B", help="The only operators drawn alone."),
    ] = "",
    families: Annotated[
        str,
        typer.Option(
            "--families",
            metavar="A,B",
            help="Of operator, extreme, surrounded, near_miss, network, auto_pad, symbolic, "
            "old_opset, model; of torch.compile torch_views, torch_writes, torch_types, "
            "torch_pointwise, torch_reductions, torch_indexing, torch_layers, torch_patterns.",
        ),
    ] = "",
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            metavar="DIR",
            help="A folder of ONNX or TFLite models that are cases, too (family model), with the "
            "inputs of ONNX's own test data where they lie beside them.",
        ),
    ] = None,
    workers: Workers = 0,
    ray: Ray = None,
    run_seconds: Annotated[
        float,
        typer.Option(
            "--run-seconds",
            help="Seconds that one run of the subject may take; more is a hang.",
            rich_help_panel=RUNNING,
        ),
    ] = 20.0,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            metavar="MB",
            help="Memory that one run of the subject may take.",
            min=64,
            rich_help_panel=RUNNING,
        ),
    ] = 4096,
    json: Json = None,
    html: Html = None,
) -> None:
    """Generate cases, have a subject run them, and judge, shrink and keep what is wrong.

    Crashes, hangs and refusals are findings, too. Each finding is a folder: the model, its input,
    a script that shows it, and a text for the issue tracker with the opinions of others.

    Exit codes: 0 nothing of high confidence was found, 1 something was, 2 bad usage.
    """
