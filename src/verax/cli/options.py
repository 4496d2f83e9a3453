"""Options that several sub-commands share, in the groups in which `--help` lists them.

Nothing slow may be imported here: `--help` needs no more than this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INPUTS, PHOTOS, RUNNING = "Inputs", "Photos as inputs", "How it runs"
JUDGING, RESULT, COMPILING = "How it is judged", "What comes out", "Compiling"
GROUPS = (INPUTS, PHOTOS, RUNNING, COMPILING, JUDGING, RESULT)
"""Groups of options, in the order of `--help`; options of none come first."""

Model = Annotated[Path, typer.Argument(help="A model file (see `verax formats`).")]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the result as JSON, too.", rich_help_panel=RESULT
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="NAME=SIZES",
        help="Sizes that the model leaves open: an input's (x=1x3x224x224) or a symbol's (n=1).",
        rich_help_panel=INPUTS,
    ),
]
Value = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        metavar="NAME=NUMBER",
        help="An input of an ONNX model to be made a constant (sr=16000): branches and loops that "
        "it decides are decided then.",
        rich_help_panel=INPUTS,
    ),
]
Evaluation = Annotated[
    bool,
    typer.Option(
        "--eval",
        help="Read an ONNX file that was exported in training mode as it is at inference: Dropout "
        "drops nothing, BatchNormalization uses its stored statistics.",
        rich_help_panel=INPUTS,
    ),
]
Params = Annotated[
    Path | None,
    typer.Option(
        "--params",
        metavar="FILE",
        help="The arrays of an MXNet symbol; else NAME-NNNN.params beside it, the newest epoch.",
        rich_help_panel=INPUTS,
    ),
]
_LEVEL = typer.Option(
    "-O",
    "--opt-level",
    help="0: every node by itself. 1: fused, same bits. 2: scales folded, within rounding. "
    "3: Winograd's and Strassen's algorithms, approximate. By default 3.",
    show_default=False,
    rich_help_panel=COMPILING,
)
Level = Annotated[int, _LEVEL]
OpenLevel = Annotated[int | None, _LEVEL]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        help="Threads; 0: as many as cores, CPU quota and OMP_NUM_THREADS allow (`verax doctor`).",
        min=0,
        rich_help_panel=RUNNING,
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="NAME",
        help="An arithmetic (bf16, TF32, fp16, int8, Winograd, Strassen, FFT) whose errors the "
        "network may make large: precision, where it would be precision lost; or an unstable "
        'algorithm ("variance by difference of squares") that may lose digits.',
        rich_help_panel=JUDGING,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="The longest that one run of the subject may take, and judging beside it. "
        "Without: 300 for a subject in a process of its own, no limit for one in this process; 600 "
        "for judging, which then answers with what it knows.",
        rich_help_panel=JUDGING,
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        help="What judging may take (8G, 512M); half of what is free by default. What does not "
        "fit is judged in pieces or called unchecked.",
        rich_help_panel=JUDGING,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        "--steps",
        metavar="N",
        min=1,
        help="Consecutive runs, on the same inputs, that are judged of a model that remembers; 2 "
        "when not given. Values of run N are called NAME@N.",
        rich_help_panel=INPUTS,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        help="For inputs that are drawn: 64 bits.",
        min=0,
        max=(1 << 64) - 1,  # as records hold; verax.records would take its time to import
        rich_help_panel=INPUTS,
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="NAME=FILE",
        help="An input: .npy, .npz (NAME=FILE.npz:KEY for one array of it), .png or .jpg. "
        "Without NAME=, an .npz gives arrays by their names, anything else the only input.",
        rich_help_panel=INPUTS,
    ),
]
Photo = Annotated[
    Path | None,
    typer.Option(
        "--image", help="A photo for the only input that can take one.", rich_help_panel=INPUTS
    ),
]
ImageLayout = Annotated[
    str | None,
    typer.Option(
        "--image-layout", help="One of NCHW, NHWC, CHW, HWC, NHW, HW.", rich_help_panel=PHOTOS
    ),
]
ImageOrder = Annotated[
    str | None, typer.Option("--image-order", help="One of RGB, BGR, GRAY.", rich_help_panel=PHOTOS)
]
ImageRange = Annotated[
    str | None,
    typer.Option(
        "--image-range",
        metavar="LOW,HIGH",
        help="What black and white become (0,1).",
        rich_help_panel=PHOTOS,
    ),
]
ImageMean = Annotated[
    str | None,
    typer.Option(
        "--image-mean", metavar="R,G,B", help="Subtracted, in the range.", rich_help_panel=PHOTOS
    ),
]
ImageStd = Annotated[
    str | None,
    typer.Option("--image-std", metavar="R,G,B", help="Divided by.", rich_help_panel=PHOTOS),
]
ImageFit = Annotated[
    str, typer.Option("--image-fit", help="One of stretch, crop, pad.", rich_help_panel=PHOTOS)
]
Passes = Annotated[
    list[str] | None,
    typer.Option(
        "--passes",
        metavar="A,B",
        help="Only these passes and decisions run (see `verax passes`).",
        rich_help_panel=RUNNING,
    ),
]
Disable = Annotated[
    list[str] | None,
    typer.Option(
        "--disable",
        metavar="A,B",
        help="Passes and decisions that do not run.",
        rich_help_panel=RUNNING,
    ),
]
Inject = Annotated[
    list[Path] | None,
    typer.Option(
        "--inject",
        metavar="FILE.py",
        help="A pass of your own: the file defines a function with a docstring and a line such as "
        "PASS = Pass(function, PassClass.reassociates, after=('fold_constants',)), and runs behind "
        "those passes. This RUNS the code in that file.",
        rich_help_panel=RUNNING,
    ),
]
