"""`verax generate`: token ids from a language model, as they come, and how fast they came."""

from __future__ import annotations

from typing import Annotated

import typer

from verax.base.option_groups.generation_options import CacheOptions, SamplingOptions
from verax.base.option_groups.options import COMPILING, INPUTS, RESULT
from verax.cli.late import done_in
from verax.cli.options import Json, Model, Threads


@done_in("verax.cli.work.generate", sampling=SamplingOptions, cache=CacheOptions)
def command(
    model: Model,
    prompt_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt-ids",
            metavar="1,2,3",
            help="Token ids of a prompt; several times for sequences side by side.",
            rich_help_panel=INPUTS,
        ),
    ] = None,
    tokens: Annotated[
        int,
        typer.Option("--tokens", min=1, help="The most tokens to add.", rich_help_panel=RESULT),
    ] = 64,
    stop: Annotated[
        str | None,
        typer.Option(
            "--stop",
            metavar="1,2",
            help="Token ids that end a sequence; by default those that the model's files name, "
            "none: no id does.",
            rich_help_panel=RESULT,
        ),
    ] = None,
    opt_level: Annotated[
        int,
        typer.Option(
            "-O",
            "--opt-level",
            min=0,
            max=3,
            help="As of `verax compile`; at 2 one program serves all lengths.",
            rich_help_panel=COMPILING,
        ),
    ] = 2,
    threads: Threads = 0,
    json: Json = None,
) -> None:
    """Continue a prompt of token ids with a language model, and say how fast.

    MODEL is an ONNX decoder: a file, or a folder as Optimum or ONNX Runtime GenAI's model builder
    write it. Tokenizers are yours. Ids are shown as they are chosen; at the end, tokens a second of
    the prompt (prefill) and of what follows (decode). Compiling is timed apart: a few tokens are
    made for it, and dropped.
    """
