"""Records to JSON and back: one codec for every frozen dataclass in this room.

Only the types that records need: dataclasses, enums, numbers, text, tuples, mappings from text,
and None. Numbers that JSON lacks are written as the texts "nan", "inf" and "-inf".
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from verax.base.errors import UsageError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, text, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(v) for v in value]
    raise TypeError(f"a record cannot hold a {type(value).__name__}")


def from_plain(kind: Any, data: Any) -> Any:
    """The value of type `kind` that `to_plain` turned into `data`. Raises `UsageError`."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if data is None:
            return None
        return from_plain(next(a for a in get_args(kind) if a is not type(None)), data)
    if origin is tuple:
        items = get_args(kind)
        each = [items[0]] * len(data) if len(items) == 2 and items[1] is Ellipsis else items
        return tuple(from_plain(k, v) for k, v in zip(each, data, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: from_plain(get_args(kind)[1], v) for k, v in data.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        missing = [f.name for f in dataclasses.fields(kind) if f.name not in data]
        if missing:
            raise UsageError(
                f"the record has no {', '.join(missing)}",
                place=f"record {kind.__name__}",
                next_step="use the version of Verax that wrote it",
            )
        names = [f.name for f in dataclasses.fields(kind)]
        return kind(**{name: from_plain(hints[name], data[name]) for name in names})
    if isinstance(kind, type) and issubclass(kind, enum.Enum | float):
        return kind(data)
    return data


def write_json(record: Any, schema: str) -> str:
    """JSON text of `record`, opened by its schema name and version."""
    return json.dumps({"schema": schema, **to_plain(record)}, indent=1, allow_nan=False)


def read_json(kind: type[T], text: str, schema: str) -> T:
    """The record that `write_json` wrote. Raises `UsageError` for anything else."""
    try:
        data = json.loads(text)
        found = data.pop("schema")
        if found != schema:
            raise UsageError(
                f"the record is {found!r}, this version reads {schema!r}",
                next_step="use the version of Verax that wrote it",
            )
        return from_plain(kind, data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"this is not a record of Verax ({error})") from error
