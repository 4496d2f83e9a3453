"""What the header of a .vx file says of sizes that a program leaves open.

The expressions of a file are looked at one by one. An entry of a cache is Verax's own, whole and in
place, when its checksum and its name hold: it has code of them, which is believed as its machine
code is (`runtime.size_code`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verax.ir.assumptions import RELATIONS
from verax.runtime.header_values import (
    HeaderError,
    flag,
    integer,
    items,
    members,
    one_of,
    text,
)
from verax.runtime.open_sizes import ArenaBuffer, CountedSize, OpenSizes
from verax.runtime.program_binary import Signature
from verax.runtime.size_code import use_record


def open_sizes_of(
    value: object,
    location: str,
    inputs: Sequence[Signature],
    outputs: Sequence[Signature],
    code: Any,
) -> OpenSizes | None:
    """Those of a program for many sizes, which has as many dimensions as its arrays. code: of an
    entry of a cache, as `size_code.record_of` gives it."""
    if value is None:
        return None
    names = {f.name for f in dataclasses.fields(OpenSizes)}
    fields = members(value, location, names)

    if code is not None:
        return _own_open_sizes(fields, code)

    def shapes(name: str, arrays: Sequence[Signature]) -> tuple[tuple[str, ...], ...]:
        dims = items(fields[name], f"{location}.{name}", lambda v, p: items(v, p, text))
        if list(map(len, dims)) != [len(a.shape) for a in arrays]:
            raise HeaderError(f"{location}.{name} are other shapes than those of the arrays")
        return dims

    sizes = OpenSizes(
        symbols=items(fields["symbols"], f"{location}.symbols", text),
        conditions=items(fields["conditions"], f"{location}.conditions", _condition),
        entries=items(fields["entries"], f"{location}.entries", text),
        buffers=items(fields["buffers"], f"{location}.buffers", _arena_buffer),
        start=integer(fields["start"], f"{location}.start"),
        inputs=shapes("inputs", inputs),
        outputs=shapes("outputs", outputs),
        unknown=integer(fields["unknown"], f"{location}.unknown", maximum=1 << 16),
        counted=items(fields["counted"], f"{location}.counted", _counted_size),
        count_conditions=items(
            fields["count_conditions"], f"{location}.count_conditions", _count_condition
        ),
    )
    for i, buffer in enumerate(sizes.buffers):
        if any(j >= i for j in buffer.conflicts):
            raise HeaderError(f"{location}.buffers[{i}] conflicts with one that follows it")
    try:
        sizes.require_readable()
    except ValueError as error:
        raise HeaderError(f"{location}: {error}") from error
    return sizes


def _own_open_sizes(fields: dict[str, Any], code: Mapping[str, str]) -> OpenSizes:
    """Those of an entry of a cache, as they were written."""
    fields["buffers"] = [
        ArenaBuffer(b["nbytes"], tuple(b["conflicts"]), b["keeps_zeros"]) for b in fields["buffers"]
    ]
    fields["counted"] = [CountedSize(**counted) for counted in fields["counted"]]
    for name in ("conditions", "count_conditions", "inputs", "outputs"):
        fields[name] = map(tuple, fields[name])
    values: dict[str, Any] = {n: v if isinstance(v, int) else tuple(v) for n, v in fields.items()}
    sizes = OpenSizes(**values)
    try:
        use_record(sizes, code)
    except (LookupError, TypeError, ValueError, EOFError) as error:
        raise HeaderError(f"the code for its open sizes is none ({error})") from error
    return sizes


def _condition(value: object, location: str) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise HeaderError(f"{location} is no pair")
    return text(value[0], location), one_of(value[1], location, tuple(RELATIONS))


def _count_condition(value: object, location: str) -> tuple[str, str, str]:
    if not isinstance(value, list) or len(value) != 3:
        raise HeaderError(f"{location} is not three of them")
    return (*_condition(value[:2], location), text(value[2], location))


def _counted_size(value: object, location: str) -> CountedSize:
    fields = members(value, location, {f.name for f in dataclasses.fields(CountedSize)})
    return CountedSize(
        integer(fields["symbol"], f"{location}.symbol"),
        text(fields["name"], f"{location}.name"),
        text(fields["limit"], f"{location}.limit"),
        integer(fields["entry"], f"{location}.entry"),
    )


def _arena_buffer(value: object, location: str) -> ArenaBuffer:
    fields = members(value, location, {f.name for f in dataclasses.fields(ArenaBuffer)})
    return ArenaBuffer(
        text(fields["nbytes"], f"{location}.nbytes"),
        items(fields["conflicts"], f"{location}.conflicts", integer),
        flag(fields["keeps_zeros"], f"{location}.keeps_zeros"),
    )
