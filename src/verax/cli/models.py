"""The model files that one command names, and the sizes that it gives for what they leave open."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from verax.api import load
from verax.base.errors import UnknownNameError, UsageError
from verax.base.option_groups.options import ModelOptions
from verax.cli.console import parse_shapes, parse_values
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.frontends.model import Model

Sizes: TypeAlias = Mapping[str, Any]
"""As `verax.load` takes them."""
PathText: TypeAlias = str | os.PathLike[str]


def load_file(
    file: PathText, reading: ModelOptions, *, trust_key: PathText | None = None
) -> Model | SavedExecutable:
    """The model or compiled program in `file`. Raises what `verax.load` does."""
    return load(
        file,
        shapes=parse_shapes(reading.shape) or None,
        values=parse_values(reading.value),
        params=reading.params,
        evaluation=reading.evaluation,
        trust_key=trust_key,
    )


def require_model(
    loaded: Model | SavedExecutable, file: PathText, cause: str, next_step: str = ""
) -> Model:
    """What was loaded from `file`; `UsageError` of `cause` if that is a compiled program."""
    if isinstance(loaded, SavedExecutable):
        raise UsageError(cause, place=str(file), next_step=next_step)
    return loaded


def _load_model(file: str, sizes: Sizes, reading: ModelOptions, command: str) -> Model:
    """A model whose reference the judge can evaluate. command: what to type with a model before
    `file`, for the error's text. Raises `UsageError` for a compiled program."""
    loaded = load(
        file,
        shapes=dict(sizes) or None,
        values=parse_values(reading.value),
        params=reading.params,
        evaluation=reading.evaluation,
    )
    return require_model(
        loaded,
        file,
        "a compiled program does not say what is right",
        f"give the model first: {command} MODEL {file}",
    )


def load_models(files: Sequence[str], reading: ModelOptions, *, command: str) -> list[Model]:
    """The models of several files: each is given the sizes of those inputs and dimensions that it
    has; the rest of `reading` is of the first.

    Raises `UsageError` for a name that none of them has.
    """
    sizes: Sizes = parse_shapes(reading.shape)
    models, missing = [], set(sizes)
    first: dict[str, UnknownNameError] = {}
    for i, file in enumerate(files):
        sizes_here = dict(sizes)
        model = None
        while model is None:
            try:
                model = _load_model(file, sizes_here, ModelOptions() if i else reading, command)
            except UnknownNameError as error:
                for name in error.names:
                    first.setdefault(name, error)
                    del sizes_here[name]
        models.append(model)
        missing -= set(sizes_here)
    if missing:
        name = min(missing)
        raise UnknownNameError(
            f"the model has no input or dimension {name!r}",
            (name,),
            place=first[name].place or "",
            next_step=first[name].next_step,
        )
    return models
