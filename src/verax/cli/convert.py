"""`verax convert`: any model that Verax reads, written as ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from verax.api import graph_of, load
from verax.base.errors import UsageError
from verax.base.files import atomic_write
from verax.cli.console import Json, Model, Shape, can_write, output, parse_shapes, write_json
from verax.compiler.saved import SavedExecutable
from verax.frontends.onnx.writer import to_bytes


def command(
    model: Model,
    to: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    shape: Shape = None,
    json: Json = None,
) -> None:
    """Write a model as ONNX, with every attribute and pad spelled out."""
    can_write(to, json)
    if to.suffix != ".onnx":
        raise UsageError("models are written as ONNX", place=str(to), next_step="name it .onnx")
    loaded = load(model, shapes=parse_shapes(shape) or None)
    if isinstance(loaded, SavedExecutable):
        raise UsageError(
            "a compiled program cannot be turned back into a model",
            place=str(model),
            next_step="convert the model that it was compiled from",
        )
    data = to_bytes(graph_of(loaded))
    with atomic_write(to) as stream:
        stream.write(data)
    output.print(Text(f"{to}: {len(loaded.graph.nodes)} nodes, {len(data) / 1e6:.2f} MB"))
    write_json(
        json, "verax.convert/1", {"model": str(model), "output": str(to), "bytes": len(data)}
    )
