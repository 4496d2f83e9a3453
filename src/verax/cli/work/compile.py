"""What `verax compile` does: a model as a .vx program for this machine."""

from __future__ import annotations

import time
from pathlib import Path

import typer
from rich.text import Text

from verax.base.compile_options import CompilationOptions
from verax.base.errors import UsageError
from verax.base.options import InputOptions, ModelOptions
from verax.cli.console import can_write, output, write_json, write_text
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.compiler.artifacts.save import signer
from verax.compiling import compile
from verax.images import ImageOptions
from verax.records.codec import to_plain


def perform(
    *,
    model: Path,
    to: Path,
    compiling: CompilationOptions,
    inputs: InputOptions,
    reading: ModelOptions,
    sign: Path | None,
    write_recipe: Path | None,
    certificate: Path | None,
    plan: bool,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.compile`."""
    can_write(to, json, write_recipe, certificate)
    is_fed = inputs != InputOptions()
    if (is_fed or certificate) and not compiling.certify:
        raise UsageError("inputs are for a certificate", next_step="add --certify")
    if to.suffix != ".vx":
        raise UsageError("programs are .vx files", place=str(to), next_step="name it .vx")
    signed_by = None if sign is None else signer(sign)  # a bad key is said before the work
    loaded = require_model(
        load_file(model, reading),
        model,
        "this is a compiled program already",
    )
    open_sizes = sorted(loaded.graph.symbols())
    if open_sizes:
        raise UsageError(
            f"the model leaves {', '.join(open_sizes)} open; a program has fixed shapes",
            place=", ".join(f"{n}: {t}" for n, t in loaded.inputs.items()),
            next_step="give them, for instance " + " ".join(f"--shape {s}=1" for s in open_sizes),
        )
    begin = time.perf_counter()
    given = (
        read_inputs(inputs, loaded.inputs, ImageOptions(), loaded.pixels).arrays if is_fed else None
    )
    exe = compile(loaded, samples=given or None, options=compiling)
    seconds = time.perf_counter() - begin
    exe.save(to, sign=sign)
    compiled_plan, compiled_recipe, is_cached = (
        exe.plan,
        exe.recipe,
        exe.specialized.cached_notes is not None,
    )
    write_text(write_recipe, compiled_recipe.to_json())
    if plan:
        output.print(Text(str(compiled_plan)), soft_wrap=True)
    output.print(
        Text(
            f"{to}: {'found in the cache' if is_cached else 'compiled'} in {seconds:.2f} s, "
            f"{to.stat().st_size / 1e6:.2f} MB; arena {compiled_plan.arena_bytes / 1e6:.2f} MB"
            f"; target {exe.specialized.binary.target}"
            + (f"; signed by the key {signed_by}" if signed_by else "")
        )
    )
    output.print(
        Text(f"recipe {compiled_recipe.sha256}, O{compiled_recipe.opt_level}"), style="dim"
    )
    if compiled_recipe.algorithms and not compiling.certify:
        output.print(
            f"{len(compiled_recipe.algorithms)} layers are approximate "
            f"({', '.join(sorted(set(compiled_recipe.algorithms.values())))}); --certify judges "
            "them against float64"
        )
    if compiled_plan.refused:
        output.print(
            f"{len(compiled_plan.refused)} layers stay exact, for an operator behind them would "
            "amplify errors (--plan lists them)"
        )
    if compiled_plan.on_reference:
        output.print(
            Text(f"no kernel yet, run on the reference: {', '.join(compiled_plan.on_reference)}"),
            style="yellow",
        )
    facts = {
        "model": str(model),
        "output": str(to),
        "seconds": seconds,
        "from_cache": is_cached,
        "bytes": to.stat().st_size,
        "arena_bytes": compiled_plan.arena_bytes,
        "target": exe.specialized.binary.target,
        "weight_bytes": compiled_plan.weight_bytes,
        "on_reference": list(compiled_plan.on_reference),
        "refused": list(compiled_plan.refused),
        "signed_by": signed_by,
        "plan": list(compiled_plan.lines),
        "options": compiling.to_notes(),
        "recipe": to_plain(compiled_recipe),
        "recipe_sha256": compiled_recipe.sha256,
    }
    judged = exe.certificate
    if judged is not None:
        output.print(Text(str(judged)), soft_wrap=True)
        write_text(certificate, judged.to_markdown())
        facts["certificate"] = to_plain(judged)
    write_json(json, "verax.compile/1", facts)
    if judged is not None and not judged.holds:
        raise typer.Exit(1)
