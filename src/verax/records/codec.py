"""Records to JSON and back: one codec for every frozen dataclass in this room.

Only the types that records need: dataclasses, enums, numbers, text, tuples, mappings from text,
and None. Numbers that JSON lacks are written as the texts "nan", "inf" and "-inf". Whoever hands
over a record may have made it to do harm: every leaf is held against its declared type.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import sys
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from verax.base.errors import UsageError

T = TypeVar("T")
MOST = 1 << 64
"""No whole number in a record is as large: neither when it is written nor when it is read."""
NO_NUMBERS = ("nan", "inf", "-inf")
"""Texts for what JSON has no number for."""
LONGEST_PLACE = 200
"""Characters of a place that errors show."""


def to_plain(value: Any) -> Any:
    """`value` as dicts, lists, text, numbers, booleans and None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        if abs(value) >= MOST:
            raise UsageError(
                f"a record holds whole numbers of at most 64 bits, not one of {value.bit_length()}"
            )
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(v) for v in value]
    raise TypeError(f"a record cannot hold a {type(value).__name__}")


def from_plain(kind: Any, data: Any, path: str = "") -> Any:
    """The value of type `kind` that `to_plain` turned into `data`, checked down to its leaves.

    place: of `data` in the record, for errors. Raises `UsageError` when anything is of another
    type, is missing or is out of range. Members that `kind` does not have are not looked at.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        kinds = [a for a in inner if a is not type(None)]
        return from_plain(type(data) if type(data) in kinds else kinds[0], data, path)
    if origin is tuple:
        items = _expected(data, list, "a list", path)
        kinds = [inner[0]] * len(items) if inner[1:] == (Ellipsis,) else list(inner)
        if len(items) != len(kinds):
            raise _strange(f"has {len(items)} items, not {len(kinds)}", path)
        return tuple(from_plain(k, v, f"{path}[{i}]") for i, (k, v) in enumerate(zip(kinds, items)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        members = _expected(data, dict, "an object", path)
        return {k: from_plain(inner[1], v, _member(path, k)) for k, v in members.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, _expected(data, dict, "an object", path), path)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        if data not in [member.value for member in kind]:
            raise _strange(f"is none of {', '.join(str(m.value) for m in kind)}", path)
        return kind(data)
    return _leaf(kind, data, path)


def _dataclass(kind: type, data: dict[str, Any], path: str) -> Any:
    names = [f.name for f in dataclasses.fields(kind)]
    missing = [name for name in names if name not in data]
    if missing:
        raise UsageError(
            f"the record has no {', '.join(missing)}",
            place=path or f"record {kind.__name__}",
            next_step="use the version of Verax that wrote it",
        )
    hints = _hints(kind)
    return kind(**{n: from_plain(hints[n], data[n], _member(path, n)) for n in names})


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _leaf(kind: Any, data: Any, path: str) -> Any:
    """Text, a truth value or a number."""
    if kind is str:
        return _expected(data, str, "text", path)
    if kind is bool:
        return _expected(data, bool, "true or false", path)
    if kind is int:
        if type(data) is not int or abs(data) >= MOST:
            raise _strange("is no whole number of at most 64 bits", path)
        return data
    if kind is float:
        if type(data) is str and data in NO_NUMBERS:
            return float(data)
        if type(data) not in (int, float) or abs(data) > sys.float_info.max:
            raise _strange("is no number", path)
        return float(data)
    raise TypeError(f"a record cannot hold a {kind}")


def _expected(data: Any, kind: type[T], words: str, path: str) -> T:
    if type(data) is not kind:
        raise _strange(f"is not {words}", path)
    return data


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _strange(problem: str, path: str) -> UsageError:
    text = path if len(path) <= LONGEST_PLACE else f"{path[:LONGEST_PLACE]}..."
    return UsageError(
        f"this is not a record of Verax: {ascii(text or 'the whole')[1:-1]} {problem}",
        next_step="use the record as Verax wrote it",
    )


def read_plain(text: str | bytes) -> Any:
    """The JSON in `text`. Raises `UsageError` when it is none, or is nested too deeply."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        problem = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"this is not a record of Verax ({problem})") from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def write_json(record: Any, schema: str) -> str:
    """JSON text of `record`, opened by its schema name and version."""
    return json.dumps({"schema": schema, **to_plain(record)}, indent=1, allow_nan=False)


def read_json(
    kind: type[T],
    text: str | bytes,
    schema: str,
    older: Mapping[str, Callable[[Any], Any]] = types.MappingProxyType({}),
) -> T:
    """The record that `write_json` wrote. older: schemas of before, and what makes the plain form
    of this one out of theirs. Raises `UsageError` for anything else."""
    data = _expected(read_plain(text), dict, "an object", "")
    written_schema = data.pop("schema", None)
    if isinstance(written_schema, str) and written_schema in older:
        data, written_schema = older[written_schema](data), schema
    if written_schema != schema:
        raise UsageError(
            f"the record is {str(written_schema)[:LONGEST_PLACE]!a}, this version reads {schema!r}",
            next_step="use the version of Verax that wrote it",
        )
    record: T = from_plain(kind, data)
    return record
