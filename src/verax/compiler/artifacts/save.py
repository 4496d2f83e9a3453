"""Saving an executable's program as a .vx file, and reading the recipe that such a file holds.

A .vx file is machine code, and as trustworthy as its sender: a signature says who that is.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

from verax.base.errors import UnsupportedError, UsageError
from verax.base.option_groups.compile_options import CompilationOptions
from verax.base.storage.reading import plain_bytes
from verax.compiler.artifacts.open_inputs import is_readable
from verax.compiler.executable import Executable
from verax.records.recipe import Recipe
from verax.runtime.signature import fingerprint, signing_key
from verax.runtime.vx import load_binary, save_binary


def save(
    executable: Executable,
    path: str | os.PathLike[str],
    sign: str | os.PathLike[str] | None = None,
    options: CompilationOptions | None = None,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Write the program that `executable` used last to `path` (.vx).

    sizes: of all symbols: the program for many sizes that serves these is written in its place.
    sign: a PEM file with the Ed25519 private key to sign it with. options: that it was compiled
    with, for the notes. The program's state begins with the initial values again. Raises
    `InputError` when shapes are symbolic and nothing was run yet, `UnsupportedError` when the
    program holds for one value of its state only, `UsageError` when the file cannot be written or
    there is no such key.
    """
    key = None if sign is None else signing_key(sign)
    specialized = executable.specialized if sizes is None else executable.open_program(sizes)
    if sizes is not None and (executable.graph.state or not is_readable(specialized.open_sizes)):
        raise UnsupportedError(
            "it remembers something, or has sizes that no axis of an input is",
            next_step="give all sizes, and save a program for these",
        )
    fixed = [v for v in executable.graph.state if v not in specialized.inputs]
    if fixed:
        raise UnsupportedError(
            "its value decides the sizes of other tensors, so every value needs a program of its "
            "own, and a .vx file holds one",
            place=f"state {fixed[0]!r}",
            next_step="keep the model, and compile it where it is run",
        )
    notes = dict(specialized.notes(executable.settings))
    if options is not None:
        notes["options"] = json.dumps(options.to_notes())
    if executable.certificate is not None and sizes is None:
        notes["certificate"] = executable.certificate.to_json()
    if sizes is not None:
        notes["open_names"] = sorted(sizes)
    code = specialized.program.code_to_save()
    save_binary(path, dataclasses.replace(specialized.binary, object_code=code), notes, key)


def read_recipe(source: Recipe | str | os.PathLike[str] | None) -> Recipe | None:
    """The recipe in a JSON file or in a .vx file, whose code is not run; a recipe is handed on.

    Raises `UsageError` when the file cannot be read or holds none, `ModelError` for a damaged .vx.
    """
    if source is None or isinstance(source, Recipe):
        return source
    path = Path(source)
    try:
        if path.suffix == ".vx":
            text = load_binary(path)[1].get("recipe")
        else:
            text = plain_bytes(path, "recipe").decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read the recipe: {error}", place=str(path)) from error
    if text is None:
        raise UsageError(
            "the program does not say its recipe",
            place=str(path),
            next_step="compile the model with this version",
        )
    return Recipe.from_json(str(text))


def signer(sign: str | os.PathLike[str]) -> str:
    """How a file that is signed with this private key names its signer. Raises as `save` does."""
    return fingerprint(signing_key(sign).public)
