"""What `verax compile` does: a model as a .vx program for this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer
from rich.text import Text

from verax.base.errors import UsageError
from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.option_groups.options import InputOptions, ModelOptions
from verax.cli.console import can_write, output, write_json, write_text
from verax.cli.inputs import read_inputs
from verax.cli.models import load_file, require_model
from verax.compiler.artifacts.save import signer
from verax.compiling import compile
from verax.frontends.model import Model
from verax.images import ImageOptions
from verax.records.codec import to_plain


def perform(
    *,
    model: Path,
    to: Path,
    open_sizes: list[str] | None,
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
    sizes = _sizes(open_sizes or (), loaded) if loaded.graph.symbols() or open_sizes else None
    if sizes is not None and compiling.certify:
        raise UsageError(
            "a certificate is for one set of sizes", next_step="leave --certify or --open out"
        )
    begin = time.perf_counter()
    given = (
        read_inputs(inputs, loaded.inputs, ImageOptions(), loaded.pixels).arrays if is_fed else None
    )
    exe = compile(loaded, samples=given or None, options=compiling)
    seconds = time.perf_counter() - begin
    exe.save(to, sign=sign, sizes=sizes)
    specialized = exe.specialized if sizes is None else exe.open_program(sizes)
    compiled_plan, is_cached = specialized.plan, specialized.cached_notes is not None
    compiled_recipe = None if sizes is not None else exe.recipe
    if compiled_recipe is not None:
        write_text(write_recipe, compiled_recipe.to_json())
    elif write_recipe is not None:
        raise UsageError("a recipe is for one set of sizes", next_step="leave --write-recipe out")
    if plan:
        output.print(Text(str(compiled_plan)), soft_wrap=True)
    output.print(
        Text(
            f"{to}: {'found in the cache' if is_cached else 'compiled'} in {seconds:.2f} s, "
            f"{to.stat().st_size / 1e6:.2f} MB; arena {compiled_plan.arena_bytes / 1e6:.2f} MB"
            f"; target {specialized.binary.target}"
            + (f"; signed by the key {signed_by}" if signed_by else "")
        )
    )
    if sizes is not None:
        output.print(
            Text(f"for {_named(sizes)} and all sizes that decide alike"),
            style="dim",
        )
    if compiled_recipe is not None:
        output.print(
            Text(f"recipe {compiled_recipe.sha256}, O{compiled_recipe.opt_level}"), style="dim"
        )
    if compiled_recipe is not None and compiled_recipe.algorithms and not compiling.certify:
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
        "target": specialized.binary.target,
        "weight_bytes": compiled_plan.weight_bytes,
        "on_reference": list(compiled_plan.on_reference),
        "refused": list(compiled_plan.refused),
        "signed_by": signed_by,
        "plan": list(compiled_plan.lines),
        "options": compiling.to_notes(),
        "open": sizes,
        "recipe": None if compiled_recipe is None else to_plain(compiled_recipe),
        "recipe_sha256": None if compiled_recipe is None else compiled_recipe.sha256,
    }
    judged = exe.certificate
    if judged is not None:
        output.print(Text(str(judged)), soft_wrap=True)
        write_text(certificate, judged.to_markdown())
        facts["certificate"] = to_plain(judged)
    write_json(json, "verax.compile/1", facts)
    if judged is not None and not judged.holds:
        raise typer.Exit(1)


def _sizes(texts: Sequence[str], model: Model) -> dict[str, int]:
    """The sizes that `--open` names, which are all that the model leaves open."""
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, digits = text.rpartition("=")
        if not name or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
            raise UsageError(
                f"--open {text!r} is no size", next_step="write NAME=SIZE, for instance batch=2"
            )
        sizes[name] = int(digits)
    symbols = sorted(model.graph.symbols())
    unknown = [name for name in sizes if name not in symbols]
    if unknown:
        raise UsageError(
            f"the model has no open size {unknown[0]!r}",
            next_step=f"it leaves {', '.join(symbols) or 'none'} open",
        )
    left = [name for name in symbols if name not in sizes]
    if left:
        raise UsageError(
            f"the model leaves {', '.join(left)} open",
            place=", ".join(f"{n}: {t}" for n, t in model.inputs.items()),
            next_step="give them, for instance "
            + " ".join(f"--shape {s}=1" for s in left)
            + ", or leave them open with "
            + " ".join(f"--open {s}=1" for s in left),
        )
    return sizes


def _named(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())
