"""What `verax generate` does: token ids from a language model, as they come."""

from __future__ import annotations

import time
from pathlib import Path

from rich.text import Text

from verax.base.errors import UsageError
from verax.base.option_groups.generation_options import CacheOptions, SamplingOptions
from verax.cli.console import can_write, output, write_json
from verax.generation import Generator
from verax.generation.generator import Generation, TokenStep

SCHEMA = "verax.generate/1"


def perform(
    *,
    model: Path,
    prompt_ids: list[str] | None,
    tokens: int,
    stop: str | None,
    opt_level: int,
    threads: int,
    sampling: SamplingOptions,
    cache: CacheOptions,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.generate`."""
    can_write(json)
    if not prompt_ids:
        raise UsageError("there is no prompt", next_step="give its ids: --prompt-ids 1,2,3")
    prompts = [_ids("--prompt-ids", text) for text in prompt_ids]
    ends = None if stop is None else [] if stop == "none" else _ids("--stop", stop)
    begin = time.perf_counter()
    generator = Generator(
        model,
        room=cache.room,
        chunk=cache.chunk,
        opt_level=opt_level,
        threads=threads,
    )
    generator.prepare(prompts, tokens)
    prepare_seconds = time.perf_counter() - begin

    def show(step: TokenStep) -> None:
        if len(prompts) == 1:
            output.print(Text(str(step.tokens[0])), end=" ", soft_wrap=True)
            output.file.flush()

    generation = generator.generate(prompts, tokens, stop=ends, sampling=sampling, on_step=show)
    if len(prompts) == 1:
        output.print()
    else:
        for index, row in enumerate(generation.tokens):
            output.print(Text(f"{index}: " + " ".join(map(str, row))), soft_wrap=True)
    output.print(_speed(generation, prepare_seconds), style="dim")
    facts = {
        "model": str(model),
        "prompts": prompts,
        "room": generator.room,
        "vocabulary": generator.vocabulary,
        "prepare_seconds": prepare_seconds,
        **generation.to_json(),
    }
    write_json(json, SCHEMA, facts)


def _speed(result: Generation, prepare_seconds: float) -> str:
    """The last line."""
    decoded = f"{result.decode_rate:.1f} tokens/s" if result.decode_rate else "no further tokens"
    return (
        f"read and compiled in {prepare_seconds:.3f} s; prefill: {result.prompt_tokens} tokens, "
        f"{result.prefill_rate:.1f} tokens/s; decode: {decoded}"
    )


def _ids(option: str, text: str) -> list[int]:
    """Raises `UsageError` for what is no list of ids."""
    try:
        ids = [int(item) for item in text.split(",")]
    except ValueError:
        ids = []
    if not ids or min(ids) < 0:
        raise UsageError(
            f"{option} {text!r} is no list of token ids",
            next_step=f"for instance {option} 1,2,3",
        )
    return ids
