"""`verax report`: records of `--json` as one page, as Markdown, or as data for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.cli.late import done_in
from verax.cli.options import Markdown


@done_in("verax.cli.work.report")
def command(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD...", help="Files that --json wrote, of any command."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.html",
            help="The page; without any of these options RECORD.html beside the first record.",
        ),
    ] = None,
    markdown: Markdown = None,
    model_explorer: Annotated[
        Path | None,
        typer.Option(
            "--model-explorer",
            metavar="FILE",
            help="Node data for Model Explorer: verdicts as colors, error over allowed as values.",
        ),
    ] = None,
    annotate: Annotated[
        Path | None,
        typer.Option(
            "--annotate",
            metavar="MODEL.onnx",
            help="The ONNX file that was judged: a copy with each node's verdict in its metadata, "
            "which Netron shows, is written beside it (MODEL.verdict.onnx).",
        ),
    ] = None,
) -> None:
    """Show records of --json as one HTML page that needs nothing else.

    \b
      verax report record.json -o report.html
      verax report first.json second.json -o both.html
      verax report record.json --markdown issue.md           to paste into an issue tracker
      verax report record.json --model-explorer nodes.json   colors for Model Explorer
      verax report record.json --annotate net.onnx           metadata for Netron

    The page opens from disk, loads nothing and computes nothing anew: the verdict, the network
    colored by it (click a node for its errors, attributes and cause), outputs, environment. Records
    of older versions are shown as far as they go.
    """
