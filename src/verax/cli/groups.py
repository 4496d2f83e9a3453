"""From groups of options (`base.option_groups.options`) to parameters of a command, and back.

Nothing slow may be imported here: `--help` needs it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import typer

from verax.base.errors import UsageError
from verax.base.option_groups.options import Flag, flags_of

Groups: TypeAlias = Mapping[str, type]
"""Groups by the name under which the work takes them."""


def with_flags(function: Callable[..., None], groups: Groups) -> Callable[..., None]:
    """`function`, whose signature has the flags of the groups behind its own parameters.

    It must not have a parameter of the name of one of them.
    """
    own = inspect.signature(function, eval_str=True)
    more = [p for group in groups.values() for p in _parameters(group)]
    function.__signature__ = own.replace(  # type: ignore[attr-defined]
        parameters=[*own.parameters.values(), *more]
    )
    return function


def gathered(groups: Groups, values: Mapping[str, Any]) -> dict[str, Any]:
    """What a command was given, with the fields of each group in one object of it.

    Raises `UsageError` for values that an option cannot have.
    """
    left, collected = dict(values), {}
    for name, group in groups.items():
        flags = flags_of(group)
        options = {field: _value(field, flag, left.pop(field)) for field, flag in flags.items()}
        collected[name] = group(**{field: v for field, v in options.items() if v is not None})
    return {**left, **collected}


def _parameters(group: type) -> Iterator[inspect.Parameter]:
    hints, defaults = get_type_hints(group), {f.name: f.default for f in dataclasses.fields(group)}
    for field, flag in flags_of(group).items():
        several = tuple in (hints[field], *map(_origin, (hints[field], *get_args(hints[field]))))
        yield inspect.Parameter(
            field,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if several else defaults[field],
            annotation=Annotated[_typed(hints[field], flag, several), typer_option(group, field)],
        )


def _origin(hint: Any) -> Any:
    return getattr(hint, "__origin__", None)


def _typed(hint: Any, flag: Flag, several: bool) -> Any:
    """The type that typer reads."""
    if several:
        return list[Path] | None if flag.files else list[str] | None
    if flag.files:
        return Path | None
    return str | None if str in get_args(hint) else hint


def typer_option(group: type, field: str) -> Any:
    """The flag of one field, for commands that do not take the whole group."""
    flag = flags_of(group)[field]
    # A truth value has two flags, --watch and --no-watch, which typer makes where none is named.
    names = flag.names or ((f"--{field.replace('_', '-')}",) if flag.metavar else ())
    return typer.Option(
        *names,
        metavar=flag.metavar,
        help=flag.help,
        min=flag.minimum,
        max=flag.maximum,
        rich_help_panel=flag.panel,
    )


def _value(field: str, flag: Flag, value: Any) -> Any:
    """A value as a group holds it: lists as tuples, paths as texts. None for what was not given."""
    if isinstance(value, Path):
        return str(value)
    if not isinstance(value, list):
        return value
    return split_names(field, value) if flag.commas else tuple(map(str, value))


def split_names(field: str, values: list[str] | None) -> tuple[str, ...]:
    """Names given with commas, with several options, or both. Raises `UsageError`."""
    names = [name.strip() for text in values or () for name in text.split(",")]
    if not all(names):
        raise UsageError("an empty name of a pass", next_step=f"give names, as in --{field} A,B")
    return tuple(dict.fromkeys(names))
