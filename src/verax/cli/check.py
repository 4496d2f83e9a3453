"""`verax check`: is a difference rounding or a mistake, and whose?

Its arguments and groups of options are the fields of `judging.Request`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.options import (
    INPUTS,
    JUDGING,
    RESULT,
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
    PhotoOptions,
)
from verax.base.option_groups.settings import DEFAULT_LEVEL
from verax.cli.late import done_in
from verax.cli.options import Device, Html, Json, Markdown, Threads


@done_in(
    "verax.cli.work.check",
    judging=CheckOptions,
    optimizations=PassOptions,
    inputs=InputOptions,
    photo=PhotoOptions,
    reading=ModelOptions,
)
def command(
    model: Annotated[
        Path | None, typer.Argument(help="A model file (see `verax formats`).")
    ] = None,
    subject: Annotated[
        str,
        typer.Argument(help="A runner (see `verax runners`), a model file, a .vx or an .npz file."),
    ] = f"verax:O{DEFAULT_LEVEL}",
    other: Annotated[
        str | None,
        typer.Option(
            "--other", help="A second subject: which of the two is nearer?", rich_help_panel=JUDGING
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--images",
            metavar="DIR",
            help="Compare the chosen class, image by image.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", help="With --images: the output that chooses.", rich_help_panel=INPUTS
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            "--replay",
            metavar="RECORD",
            help="Judge again what a record of --json says: same files (by SHA-256, where they "
            "lay or beside the record), same options.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    allow_commands: Annotated[
        bool,
        typer.Option(
            "--allow-commands",
            help="With --replay: RUN the programs and files of code that the record names.",
            rich_help_panel=RESULT,
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every value.", rich_help_panel=RESULT)
    ] = False,
    device: Device = "",
    threads: Threads = 0,
    json: Json = None,
    html: Html = None,
    markdown: Markdown = None,
) -> None:
    """Judge a subject's numbers against the float64 meaning of a model.

    \b
      verax check net.onnx onnxruntime                  a runtime on the model's own file
      verax check net.onnx --image cat.jpg              our compiler, on a photo
      verax check net.onnx recorded.npz                 numbers recorded elsewhere
      verax check net.onnx net.tflite                   another file: the same network?
      verax check net.onnx openvino --other onnxruntime --json record.json
      verax check --replay record.json                  the same again

    When the subject is another model file, the two networks are aligned value by value instead,
    whatever their names and layouts: the same function or not, and where they part.

    A subject in a process of its own (a runtime, cmd:PROGRAM) is ended with all that it started,
    in time or not; only what another service started for it (a container, a cron job) is not.
    --timeout makes an error of a run that takes longer; judging beside it, or the comparison of two
    model files, stops after as long, and says what it did not get to.

    \b
    Exit codes:
      0  identical, rounding, precision, or the same function
      1  mistake, or digits lost that --allow does not name (by an unstable
         algorithm, or because the network makes the errors of a coarser
         arithmetic too large), or different functions
      2  unreadable, or a replay's file changed
      3  undecided; or no difference found between two networks whose operators
         are not the same; or a replay gives another answer
    """
