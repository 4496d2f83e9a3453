"""Lines of a history about what was measured, written and read: candidates with their samples, and
kernels as numbers, from which a model of cost is fitted."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from verax.base.errors import UsageError
from verax.compiler.kernels.canonical import digest
from verax.compiler.kernels.registry import Schedule, Spec, schedules
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import LINE, kernel_of, parsed_line
from verax.compiler.tune.host import Host, LineOrigin
from verax.compiler.tune.lookup import encoded
from verax.compiler.tune.racing import Trial, faults_of

Entry: TypeAlias = "tuple[str, tuple[tuple[str, Any], ...]]"
"""A schedule of a history as something that can be hashed: its type's name, its fields."""
EQUAL = "equal"


def workload_line(spec: Spec, target: Target, host: Host, origin: LineOrigin) -> dict[str, Any]:
    """A kernel that is about to be searched: its sizes, and the schedule that rules choose."""
    return {
        "kind": "workload",
        "kernel": digest(spec),
        "host": dataclasses.asdict(host),
        "schedule": list(encoded(schedules(spec, target)[0])),
        "numbers": dict(numbers_of(spec)),
        **origin.members(),
    }


def measured_lines(
    spec: Spec, host: Host, origin: LineOrigin, trials: Sequence[Trial]
) -> list[Mapping[str, Any]]:
    """A line for each candidate of a race."""
    common = {"kernel": digest(spec), "host": dataclasses.asdict(host), **origin.members()}
    faults = faults_of(trials)
    return [
        {
            "kind": "fault" if trial in faults else "measured",
            **common,
            "schedule": list(encoded(trial.schedule)),
            "bits": EQUAL if trial.bits else trial.refused,
            "ratio": float(f"{trial.ratio:.5g}"),
            "microseconds": [float(f"{1e6 * s:.4g}") for s in trial.seconds],
        }
        for trial in trials
    ]


def entry_of(schedule: tuple[str, Mapping[str, Any]]) -> Entry:
    """The schedule of a line, to be hashed."""
    kind, fields = schedule
    return kind, tuple(sorted(fields.items()))


def earlier_trials(
    path: str | os.PathLike[str], host: Host, device: str, machine: str
) -> dict[str, dict[tuple[str, tuple[tuple[str, Any], ...]], Trial]]:
    """By kernel and schedule, what the history at `path` measured on exactly `host`, by the device
    of that label on the computer `machine`: those that took turns, and those that were refused.
    Their `schedule` is the history's."""
    trials: dict[str, dict[Entry, Trial]] = {}
    for entry in entries(path):
        named = kernel_of(entry) if entry.get("kind") in ("measured", "fault") else None
        if named is None or named[1] != host:
            continue
        origin = LineOrigin.of(entry)
        if (origin.device, origin.machine) != (device, machine):
            continue
        bits, ratio, times = entry.get("bits"), entry.get("ratio"), entry.get("microseconds")
        if not isinstance(bits, str) or not is_number(ratio) or not isinstance(times, list):
            continue
        if not all(map(is_number, times)) or (bits == EQUAL and not float(ratio) > 0):
            continue  # damaged, or interrupted before its turn
        kernel, _, schedule = named
        trials.setdefault(kernel, {})[entry_of(schedule)] = Trial(
            schedule=schedule[0],
            bits=bits == EQUAL,
            seconds=tuple(float(t) / 1e6 for t in times),
            refused="" if bits == EQUAL else bits,
            ratio=float(ratio),
        )
    return trials


def is_number(value: Any) -> TypeGuard[float]:
    """True for a number of JSON that is no truth value."""
    return type(value) in (int, float)


def entries(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of this version in the history at `path`, one after the other; damaged ones are
    left out. Nothing where there is no file. Raises `UsageError` when it cannot be read."""
    try:
        with Path(path).open("rb") as stream:
            for text in stream:
                entry = parsed_line(text) if text.endswith(b"\n") else None
                if entry is not None and entry.get("schema") == LINE:
                    yield entry
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            f"the tuning history cannot be read: {error.strerror or error}", place=str(path)
        ) from error


def numbers_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Whole numbers and flags of a spec by the path of their field, in order: `kernel.1`. Sizes
    that are read at run time, texts and expressions are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            name = f"{path}.{field.name}" if path else field.name
            yield from numbers_of(getattr(value, field.name), name)
    elif isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from numbers_of(item, f"{path}.{i}")
    elif isinstance(value, bool | int):
        yield path, int(value)


def quarantine_line(
    spec: Spec, host: Host, origin: LineOrigin, schedule: Schedule, repro: str
) -> dict[str, Any]:
    """That a device gave other bits with a schedule. repro: the file that shows it."""
    return {
        "kind": "quarantine",
        "kernel": digest(spec),
        "host": dataclasses.asdict(host),
        "schedule": list(encoded(schedule)),
        "repro": repro,
        **origin.members(),
    }
