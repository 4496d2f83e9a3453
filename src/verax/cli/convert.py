"""`verax convert`: any model that Verax reads, written as ONNX and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import ModelOptions
from verax.cli.late import done_in
from verax.cli.options import Json, Model, Seed


@done_in("verax.cli.work.convert", reading=ModelOptions)
def command(
    model: Model,
    to: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    verify: Annotated[
        bool, typer.Option(help="Judge what ONNX Runtime makes of the written file.")
    ] = True,
    opset: Annotated[
        int | None,
        typer.Option(help="Operator set; by default the oldest, from 13 on, that says it all."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Write a model as ONNX, with every attribute and pad spelled out, and judge the result.

    The verdict is printed and stored in the file. Exit codes are those of `check`, 3 also when
    the result could not be judged; the file is written in any case.
    """
