"""`verax convert`: any model that Verax reads, written as ONNX and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from verax.base.errors import UsageError
from verax.cli.console import can_write, output, parse_shapes, parse_values, progress, write_text
from verax.cli.options import Json, Model, Params, Seed, Shape, Value
from verax.compiler.saved import SavedExecutable
from verax.loading import load
from verax.report.verdict import render_verdict
from verax.verified_conversion import convert

UNDECIDED = 3
"""Exit code when a verdict was wanted and there is none."""


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
    shape: Shape = None,
    value: Value = None,
    params: Params = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Write a model as ONNX, with every attribute and pad spelled out, and judge the result.

    The verdict is printed and stored in the file. Exit codes are those of `check`, 3 also when
    the result could not be judged; the file is written in any case.
    """
    can_write(to, json)
    if to.suffix != ".onnx":
        raise UsageError("models are written as ONNX", place=str(to), next_step="name it .onnx")
    if to.exists() and not force:
        raise UsageError(
            "the file exists", place=str(to), next_step="choose another name, or add --force"
        )
    loaded = load(
        model, shapes=parse_shapes(shape) or None, values=parse_values(value), params=params
    )
    if isinstance(loaded, SavedExecutable):
        raise UsageError(
            "a compiled program cannot be turned back into a model",
            place=str(model),
            next_step="convert the model that it was compiled from",
        )
    with progress("converting") as show:
        made = convert(
            loaded,
            to,
            opset=opset,
            verify=verify,
            seed=seed,
            progress=lambda done, total, what: show(what, done / max(total, 1)),
        )
    size = sum(f.stat().st_size for f in made.files) / 1e6
    listed = ", ".join(f.name for f in made.files)
    output.print(Text(f"{listed}: {len(loaded.graph.nodes)} nodes, {size:.2f} MB"))
    for note in made.notes:
        output.print(Text(f"note: {note}"))
    if made.verdict is None:
        output.print(Text(f"not verified: {made.unverified}", style="yellow"))
        if verify:
            raise typer.Exit(UNDECIDED)
        return
    output.print(render_verdict(made.verdict))
    write_text(json, made.verdict.to_json())
    if made.verdict.exit_code:
        raise typer.Exit(made.verdict.exit_code)
