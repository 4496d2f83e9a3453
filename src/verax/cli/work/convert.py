"""What `verax convert` does: any model that Verax reads, written as ONNX and judged."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from verax.base.errors import UsageError
from verax.base.option_groups.options import ModelOptions
from verax.cli.console import can_write, output, progress, write_text
from verax.cli.models import load_file, require_model
from verax.report.verdict import render_verdict
from verax.verified_conversion import convert

UNDECIDED = 3
"""Exit code when a verdict was wanted and there is none."""


def perform(
    *,
    model: Path,
    to: Path,
    verify: bool,
    opset: int | None,
    force: bool,
    reading: ModelOptions,
    seed: int,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.convert`."""
    can_write(to, json)
    if to.suffix != ".onnx":
        raise UsageError("models are written as ONNX", place=str(to), next_step="name it .onnx")
    if to.exists() and not force:
        raise UsageError(
            "the file exists", place=str(to), next_step="choose another name, or add --force"
        )
    loaded = require_model(
        load_file(model, reading),
        model,
        "a compiled program cannot be turned back into a model",
        "convert the model that it was compiled from",
    )
    with progress("converting") as show:
        converted = convert(
            loaded,
            to,
            opset=opset,
            verify=verify,
            seed=seed,
            progress=lambda done, total, stage: show(stage, done / max(total, 1)),
        )
    size = sum(f.stat().st_size for f in converted.files) / 1e6
    listed = ", ".join(f.name for f in converted.files)
    output.print(Text(f"{listed}: {len(loaded.graph.nodes)} nodes, {size:.2f} MB"))
    for note in converted.notes:
        output.print(Text(f"note: {note}"))
    if converted.verdict is None:
        output.print(Text(f"not verified: {converted.unverified}", style="yellow"))
        if verify:
            raise typer.Exit(UNDECIDED)
        return
    output.print(render_verdict(converted.verdict))
    write_text(json, converted.verdict.to_json())
    if converted.verdict.exit_code:
        raise typer.Exit(converted.verdict.exit_code)
