"""What a program launches on a GPU, as data: kernels with their grids and addresses.

A number is known, or an entry of the table of a program of open sizes (`open_sizes`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

KNOWN = -1
"""Entry of a number that is known."""


@dataclasses.dataclass(frozen=True)
class Amount:
    """constant, and what entry `entry` of the table holds more, unless it is `KNOWN`."""

    constant: int
    entry: int = KNOWN

    def value(self, table: Sequence[int] | np.ndarray) -> int:
        """The number, for the table of some sizes."""
        return self.constant if self.entry == KNOWN else self.constant + int(table[self.entry])


@dataclasses.dataclass(frozen=True)
class Address:
    """A pointer on the device. region: "arena", "weights", "sizes" or "io"; slot: of the caller's
    array, or of the block of weights; base: bytes from its start, to which `offset` is added, and
    `step` for each run of the loop around that has been."""

    region: str
    slot: int
    base: Amount
    offset: Amount = Amount(0)
    step: Amount = Amount(0)


@dataclasses.dataclass(frozen=True)
class Launch:
    """One kernel. shared: bytes of memory of each block; elements: where one of them is 0, nothing
    is launched; reads_table: whether its last pointer is the table of sizes."""

    kernel: str
    items: Amount
    blocks: Amount
    threads: int
    shared: int
    args: tuple[Address, ...]
    elements: tuple[Amount, ...] = ()
    reads_table: bool = False


@dataclasses.dataclass(frozen=True)
class DeviceBranch:
    """One of two lists, by a bool on the device; where one is None, `flag` (int32) is set."""

    condition: Address
    then: tuple[DeviceStep, ...] | None
    orelse: tuple[DeviceStep, ...] | None
    flag: Address


@dataclasses.dataclass(frozen=True)
class DeviceLoop:
    """Steps that are repeated, as `place.calls.LoopCall` says."""

    limit: Address | None
    first: Address | None
    max_trips: int
    trip_index: Address
    going: Address
    body: tuple[DeviceStep, ...]
    flag: Address


@dataclasses.dataclass(frozen=True)
class DeviceRepeat:
    """Steps that are repeated so many times."""

    times: Amount
    body: tuple[DeviceStep, ...]


DeviceStep = Launch | DeviceBranch | DeviceLoop | DeviceRepeat
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Launch, DeviceBranch, DeviceLoop, DeviceRepeat)
}


def launches(steps: Iterable[DeviceStep]) -> Iterator[Launch]:
    """Every launch, those inside of others too."""
    for step in steps:
        if isinstance(step, Launch):
            yield step
        elif isinstance(step, DeviceBranch):
            yield from launches((*(step.then or ()), *(step.orelse or ())))
        else:
            yield from launches(step.body)


def as_json(steps: Sequence[DeviceStep]) -> list[dict[str, Any]]:
    """Steps as JSON has them."""
    return [_described(step) for step in steps]


def _described(value: Any) -> Any:
    if isinstance(value, Amount):
        return value.constant if value.entry == KNOWN else [value.constant, value.entry]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _described(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple):
        return [_described(item) for item in value]
    return value


def from_json(steps: Sequence[Mapping[str, Any]]) -> tuple[DeviceStep, ...]:
    """What `as_json` described. Raises `KeyError`, `TypeError` or `ValueError` for all else."""
    return tuple(_step(step) for step in steps)


def _step(value: Mapping[str, Any]) -> DeviceStep:
    fields = dict(value)
    kind = fields.pop("kind")
    parsed = {name: PARSERS[name](content) for name, content in fields.items()}
    return _KINDS[kind](**parsed)  # type: ignore[no-any-return]


def _amount(value: Any) -> Amount:
    return Amount(int(value)) if isinstance(value, int) else Amount(int(value[0]), int(value[1]))


def _address(value: Mapping[str, Any]) -> Address:
    amounts = (_amount(value[name]) for name in ("base", "offset", "step"))
    return Address(str(value["region"]), int(value["slot"]), *amounts)


def _address_or_none(value: Any) -> Address | None:
    return None if value is None else _address(value)


def _steps_or_none(value: Any) -> tuple[DeviceStep, ...] | None:
    return None if value is None else from_json(value)


def _amounts(value: Any) -> tuple[Amount, ...]:
    return tuple(map(_amount, value))


def _addresses(value: Any) -> tuple[Address, ...]:
    return tuple(map(_address, value))


PARSERS: Mapping[str, Any] = {
    **{"kernel": str, "items": _amount, "blocks": _amount, "threads": int, "shared": int},
    **{"args": _addresses, "elements": _amounts, "reads_table": bool, "condition": _address},
    **{"then": _steps_or_none, "orelse": _steps_or_none, "flag": _address},
    **{"limit": _address_or_none, "first": _address_or_none, "max_trips": int},
    **{"trip_index": _address, "going": _address, "body": from_json, "times": _amount},
}
"""How each field is read."""
