"""What `verax run` does: a model or a .vx program on arrays and photos.

A model file holds data, whoever made it. A .vx file is machine code: running one is trusting its
sender, and `--trust-key` says whom.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from verax.base.errors import UsageError
from verax.base.gpu.targets import GPU_ARCHITECTURES, card_of
from verax.base.option_groups.options import InputOptions, ModelOptions, PhotoOptions
from verax.base.option_groups.settings import MAX_PROGRAMS
from verax.base.storage.files import atomic_write
from verax.cli.console import can_write, output, write_json
from verax.cli.groups import split_names
from verax.cli.inputs import image_options, read_inputs
from verax.cli.models import load_file
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiling import compile
from verax.ir.graph import Builder, Graph
from verax.ir.stored import storable
from verax.ir.types import TensorType
from verax.judge import draw_inputs
from verax.records.environment import array_hash
from verax.report.tables import Column, FittingTable

TOP = 5
"""Largest elements shown of an output that looks like class scores."""


def perform(
    *,
    model: Path,
    inputs: InputOptions,
    photo: PhotoOptions,
    to: Path | None,
    opt_level: int | None,
    disable: list[str] | None,
    threads: int,
    target: str,
    memory: str | None,
    programs: int,
    reading: ModelOptions,
    trust_key: Path | None,
    steps: int,
    seed: int,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.run`."""
    can_write(to, json)
    options = image_options(photo)
    loaded = load_file(model, reading, trust_key=trust_key)
    stated_pixels = {} if isinstance(loaded, SavedExecutable) else loaded.pixels
    prepared = read_inputs(inputs, loaded.inputs, options, stated_pixels)
    arrays, origins = dict(prepared.arrays), dict(prepared.steps)
    if any(name not in arrays for name in loaded.inputs):
        graph = _inputs_alone(loaded) if isinstance(loaded, SavedExecutable) else loaded.graph
        drawn, words = draw_inputs(
            graph, seed, _sizes_of(arrays, loaded.inputs), pixels=stated_pixels
        )
        arrays = {name: arrays.get(name, drawn[name]) for name in loaded.inputs}
        origins = {name: origins.get(name, (words[name],)) for name in loaded.inputs}
    for name, done in origins.items():
        output.print(
            Text.assemble("input ", (name, "cyan"), ": " + "; ".join(done)), soft_wrap=True
        )
    begin = time.perf_counter()
    if isinstance(loaded, SavedExecutable):
        exe: Any = loaded
        if disable:
            raise UsageError(
                "a compiled program has run its passes",
                place=str(model),
                next_step="give --disable to `verax compile`",
            )
        if memory is not None:
            raise UsageError(
                "a compiled program's buffers are as large as they are",
                place=str(model),
                next_step="leave --memory out, or compile for smaller sizes",
            )
        if programs != MAX_PROGRAMS:
            raise UsageError(
                "a compiled program is one",
                place=str(model),
                next_step="leave --programs out",
            )
        if target != "host":
            loaded.use_card(_card_of(target, loaded, model))
        if threads:
            loaded.use_threads(threads)
    else:
        exe = compile(
            loaded,
            opt_level=opt_level,
            threads=threads,
            target=target,
            memory=memory or 0,
            programs=programs,
            disable=split_names("disable", disable),
        )
    for _ in range(steps - 1):
        exe.run(arrays)
    before = exe.state
    results = exe.run(arrays)
    seconds = time.perf_counter() - begin
    state = exe.state
    output.print(_table({**results, **{f"state {n}": a for n, a in state.items()}}))
    for name, array in results.items():
        _show_largest(name, array)
    output.print(
        f"{'loaded' if isinstance(loaded, SavedExecutable) else 'compiled'} and run in "
        f"{seconds:.3f} s",
        style="dim",
    )
    if to is not None:
        if to.suffix != ".npz":
            raise UsageError("outputs are written as .npz", place=str(to))
        stored = dict(results)
        if state:  # what the answers belong to, so that `verax check` can judge them
            stored |= {exe.updates[n]: a for n, a in state.items()}
            stored |= {f"in:{n}": np.asarray(a) for n, a in {**arrays, **before}.items()}
        with atomic_write(to) as stream:
            np.savez(stream, **{n: storable(np.asarray(a)) for n, a in stored.items()})  # type: ignore[arg-type]
        output.print(Text(f"written: {to}"))
    facts = {
        "model": str(model),
        "inputs": {
            n: {"sha256": array_hash(np.asarray(a)), "steps": origins[n]} for n, a in arrays.items()
        },
        "outputs": {n: _facts(a) for n, a in results.items()},
        "state": {n: _facts(a) for n, a in state.items()},
        "steps": steps,
        "seconds": seconds,
    }
    write_json(json, "verax.run/1", facts)


def _card_of(target: str, program: SavedExecutable, model: Path) -> int:
    """The card on which a compiled program shall run. Raises `UsageError` for another target."""
    card = card_of(target)
    if card is None or program.binary.target not in GPU_ARCHITECTURES:
        raise UsageError(
            f"the program was compiled for {program.binary.target}",
            place=str(model),
            next_step="leave --target out; for a GPU's program it names the card: cuda:1",
        )
    return card


def _inputs_alone(program: SavedExecutable) -> Graph:
    """A graph with the program's inputs and no nodes, for `draw_inputs`."""
    builder = Builder("a compiled program")
    return builder.graph([builder.input(name, type_) for name, type_ in program.inputs.items()])


def _sizes_of(arrays: Mapping[str, np.ndarray], types: Mapping[str, TensorType]) -> dict[str, int]:
    """Sizes of the symbols that the given inputs decide."""
    sizes: dict[str, int] = {}
    for name, array in arrays.items():
        open_ = types[name].symbols()
        sizes |= {str(d): n for d, n in zip(types[name].dims, array.shape) if str(d) in open_}
    return sizes


def _facts(array: np.ndarray) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha256": array_hash(array),
    }
    if array.size and array.dtype.kind != "b":
        wide = array.astype(np.float64)
        for name, value in (("min", wide.min()), ("mean", wide.mean()), ("max", wide.max())):
            facts[name] = float(value) if np.isfinite(value) else str(value)
        facts["non_finite"] = int((~np.isfinite(wide)).sum())
    return facts


def _table(results: dict[str, np.ndarray]) -> FittingTable:
    columns = (
        Column("output", unbroken=True),
        *(Column("type", rank=2), Column("min"), Column("mean"), Column("max")),
        Column("NaN or inf", rank=1),
    )
    rows: list[tuple[str, ...]] = []
    for name, array in results.items():
        facts = _facts(array)
        type_ = f"{array.dtype.name}{list(array.shape)}"
        if "mean" in facts:
            figures = [f"{float(facts[key]):.6g}" for key in ("min", "mean", "max")]
            rows.append((name, type_, *figures, str(facts["non_finite"])))
        else:
            rows.append((name, type_, "", "", "", ""))
    return FittingTable("", columns, rows)


def _show_largest(name: str, array: np.ndarray) -> None:
    """The largest elements per row of what looks like class scores (bytes if quantized)."""
    is_score = array.dtype.kind == "f" or (array.dtype.kind in "iu" and array.dtype.itemsize == 1)
    if array.ndim not in (1, 2) or not 2 <= array.shape[-1] <= 100_000 or not is_score:
        return
    for index, row in enumerate(np.atleast_2d(array)[:4]):
        order = np.argsort(row)[::-1][:TOP]
        listed = ", ".join(f"[{i}] {row[i]:.4g}" for i in order)
        label = f"{name}, row {index}" if array.ndim == 2 and len(array) > 1 else name
        output.print(Text(f"largest of {label}: {listed}"))
