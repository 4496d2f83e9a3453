"""The model files that one command names, and the sizes that it gives for what they leave open."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from verax.api import load
from verax.base.errors import UnknownNameError, UsageError
from verax.cli.console import parse_shapes, parse_values
from verax.compiler.saved import SavedExecutable
from verax.frontends.model import Model

Sizes: TypeAlias = Mapping[str, Sequence[int | None] | int]
Place: TypeAlias = str | os.PathLike[str]


def load_file(
    file: Place,
    shape: list[str] | None = None,
    value: list[str] | None = None,
    params: Place | None = None,
    *,
    evaluation: bool = False,
    trust_key: Place | None = None,
) -> Model | SavedExecutable:
    """What a command is given to work on, by its options as they were typed: --shape, --value,
    --params, --eval and --trust-key. Raises what `verax.load` does."""
    return load(
        file,
        shapes=parse_shapes(shape) or None,
        values=parse_values(value),
        params=params,
        evaluation=evaluation,
        trust_key=trust_key,
    )


def require_model(
    found: Model | SavedExecutable, file: Place, cause: str, next_step: str = ""
) -> Model:
    """What was loaded from `file`; `UsageError` of `cause` if that is a compiled program."""
    if isinstance(found, SavedExecutable):
        raise UsageError(cause, place=str(file), next_step=next_step)
    return found


def load_model(
    file: str,
    sizes: Sizes,
    params: Place | None = None,
    *,
    command: str,
    evaluation: bool = False,
) -> Model:
    """A model that says what is right. command: what to type with a model before `file`, for the
    error's text. Raises `UsageError` for a compiled program."""
    found = load(file, shapes=dict(sizes) or None, params=params, evaluation=evaluation)
    return require_model(
        found,
        file,
        "a compiled program does not say what is right",
        f"give the model first: {command} MODEL {file}",
    )


def load_models(
    files: Sequence[str],
    sizes: Sizes,
    params: Place | None = None,
    *,
    command: str,
    evaluation: bool = False,
) -> list[Model]:
    """The models of several files: each is given the sizes of those inputs and dimensions that it
    has. params, evaluation: of the first.

    Raises `UsageError` for a name that none of them has.
    """
    models, missing = [], set(sizes)
    first: dict[str, UnknownNameError] = {}
    for i, file in enumerate(files):
        given = dict(sizes)
        model = None
        while model is None:
            try:
                own = not i
                model = load_model(
                    file,
                    given,
                    params if own else None,
                    command=command,
                    evaluation=evaluation and own,
                )
            except UnknownNameError as error:
                for name in error.names:
                    first.setdefault(name, error)
                    del given[name]
        models.append(model)
        missing -= set(given)
    if missing:
        raise first[min(missing)]
    return models
