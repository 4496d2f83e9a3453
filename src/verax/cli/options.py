"""Options that several sub-commands share and that belong to no group of
`base.option_groups.options`, and single ones of those groups.

Nothing slow may be imported here: `--help` needs no more than this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.option_groups.options import (
    RESULT,
    RUNNING,
    CheckOptions,
    InputOptions,
    ModelOptions,
    PassOptions,
)
from verax.cli.groups import typer_option

Model = Annotated[Path, typer.Argument(help="A model file (see `verax formats`).")]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the result as JSON, too.", rich_help_panel=RESULT
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="FILE",
        help="Write the result as one HTML page, too (`verax report`).",
        rich_help_panel=RESULT,
    ),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write what one pastes into an issue tracker: the claim, why it is not rounding, a "
        "script that shows it, versions.",
        rich_help_panel=RESULT,
    ),
]
Level = Annotated[int | None, typer_option(CompilationOptions, "opt_level")]
Target = Annotated[str, typer_option(CompilationOptions, "target")]
Memory = Annotated[str | None, typer_option(CompilationOptions, "memory")]
Programs = Annotated[int, typer_option(CompilationOptions, "programs")]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        help="Threads; 0: as many as cores, CPU quota and OMP_NUM_THREADS allow (`verax doctor`).",
        min=0,
        rich_help_panel=RUNNING,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        "--target",
        metavar="NAME",
        help="What torch and torch-compiled run on (cuda:0, mps, cpu); without, where the model's "
        "file was exported. What verax compiles for: a target such as cuda or cuda-emulated.",
        rich_help_panel=RUNNING,
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        min=0,
        help="Processes that share the work (0: no others), or, with --ray, workers of a cluster "
        "(0: one for each of its cores).",
        rich_help_panel=RUNNING,
    ),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Share the work on a Ray cluster: at HOST:PORT, or, without an address, the one that "
        "this machine belongs to, else one that is begun here.",
        rich_help_panel=RUNNING,
    ),
]
Shape = Annotated[list[str] | None, typer_option(ModelOptions, "shape")]
Inputs = Annotated[list[str] | None, typer_option(InputOptions, "input")]
Seed = Annotated[int, typer_option(CheckOptions, "seed")]
Timeout = Annotated[float | None, typer_option(CheckOptions, "timeout")]
Disable = Annotated[list[str] | None, typer_option(PassOptions, "disable")]
Inject = Annotated[list[Path] | None, typer_option(PassOptions, "inject")]
