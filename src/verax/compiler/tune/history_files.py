"""Histories as files that people handle: lines selected, files merged, the best exported, two
machines compared. Lines stay as they are, byte for byte; what is damaged is counted and left out.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from verax.base.errors import UsageError
from verax.base.storage.files import atomic_write
from verax.compiler.place.schedule_words import schedule_text, schedule_words, words_beside
from verax.compiler.tune.history import (
    LINE,
    ChosenSchedule,
    History,
    chosen_of,
    is_later,
    kernel_of,
    parsed_line,
)
from verax.compiler.tune.host import Host, LineOrigin


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a history. text: as it stands in the file, without its end. word: the schedule
    that it chooses, if it is of that kind."""

    text: bytes
    kind: str
    kernel: str
    host: Host
    schedule: tuple[str, Mapping[str, Any]]
    origin: LineOrigin
    entry: Mapping[str, Any]

    @property
    def word(self) -> ChosenSchedule | None:
        return chosen_of(self.entry) if self.kind == "chosen" else None

    @property
    def schedule_words(self) -> str:
        """The schedule in short words, with the rule's where the line says it."""
        rule = self.entry.get("rule")
        try:
            kind, fields = rule if rule is not None else self.schedule
            return schedule_words(self.schedule, None if rule is None else (kind, dict(fields)))
        except (TypeError, ValueError):  # a damaged member that decides nothing
            return schedule_words(self.schedule)

    @property
    def ratio(self) -> float:
        """Of a measured candidate: its time by that of the schedule by rule; 0 if not said."""
        ratio = self.entry.get("ratio")
        is_said = isinstance(ratio, int | float) and not isinstance(ratio, bool)
        return float(ratio) if is_said and ratio and self.kind == "measured" else 0.0


@dataclasses.dataclass(frozen=True)
class Lines:
    """The lines of one or more files, in order. skipped: lines of later versions; damaged: of
    none."""

    lines: tuple[Line, ...]
    skipped: int = 0
    damaged: int = 0


@dataclasses.dataclass(frozen=True)
class Selection:
    """Lines that people ask for; "" for any. kernel: the beginning of its digest, or a part of its
    text. machine: a part of the computer's name, the device's label, the processor or its family.
    target: its name, as `--target` has it. network: a part of its name. threads: 0 for any."""

    kernel: str = ""
    machine: str = ""
    target: str = ""
    network: str = ""
    threads: int = 0

    def takes(self, line: Line) -> bool:
        """True if all that is asked for holds for the line."""
        return (
            (line.kernel.startswith(self.kernel) or _within(self.kernel, line.origin.spec))
            and is_of_machine(line, self.machine)
            and self.target in ("", line.host.target.partition(" ")[0])
            and _within(self.network, line.origin.network)
            and self.threads in (0, line.host.threads)
        )


def is_of_machine(line: Line, text: str) -> bool:
    """True if the computer, the device or the processor of a line is called so, in part."""
    names = (line.origin.machine, line.origin.device, line.host.processor, line.host.family)
    return any(_within(text, name) for name in names)


def _within(text: str, name: str) -> bool:
    return text.lower() in name.lower()


def read_lines(paths: Sequence[str | os.PathLike[str]]) -> Lines:
    """The lines of these files, one file after the other, each distinct line once.

    Raises `UsageError` for a file that is not there, cannot be read or is no history.
    """
    lines: dict[bytes, Line] = {}
    skipped = damaged = 0
    for path in paths:
        if not Path(path).exists():
            raise UsageError(
                "there is no such tuning history",
                place=str(path),
                next_step="`verax tune MODEL --history FILE` makes one",
            )
        History(path).read()  # tells what is wrong with it
        for text in Path(path).read_bytes().split(b"\n"):
            if not text.strip() or text in lines:
                continue
            entry = parsed_line(text)
            if entry is not None and entry.get("schema") != LINE:
                skipped += 1
                continue
            named = None if entry is None else kernel_of(entry)
            if entry is None or named is None or type(entry.get("kind")) is not str:
                damaged += 1
                continue
            lines[text] = Line(text, entry["kind"], *named, LineOrigin.of(entry), entry)
    return Lines(tuple(lines.values()), skipped, damaged)


def write_lines(path: str | os.PathLike[str], lines: Iterable[Line]) -> int:
    """Write a history of these lines, whole or not at all; how many there were."""
    texts = [line.text + b"\n" for line in lines]
    with atomic_write(path) as stream:
        stream.writelines(texts)
    return len(texts)


def best(lines: Sequence[Line]) -> list[Line]:
    """For each kernel and host one line: of the last words of all its machines, the one with the
    largest gain. What `compile` takes from these alone is what it takes from all."""
    last: dict[tuple[str, Host, str, str], tuple[Line, ChosenSchedule]] = {}
    for line in lines:
        word = line.word
        if word is None:
            continue
        key = line.kernel, line.host, line.origin.machine, line.origin.device
        if key not in last or is_later(word, last[key][1]):
            last[key] = line, word
    largest: dict[tuple[str, Host], tuple[Line, ChosenSchedule]] = {}
    for (kernel, host, *_), pair in last.items():
        if (kernel, host) not in largest or pair[1].gain > largest[kernel, host][1].gain:
            largest[kernel, host] = pair
    return [line for line, _ in largest.values()]


@dataclasses.dataclass(frozen=True)
class MachineSummary:
    """What a history has of one device. kernels: with a schedule that is taken now; gain: the
    geometric mean of these; measured, faults: candidates; networks: their names; last: when it was
    written to, "" where no line says so; quarantines: how often it gave other bits."""

    machine: str
    device: str
    host: Host
    kernels: int
    gain: float
    measured: int
    faults: int
    networks: tuple[str, ...]
    last: str
    quarantines: int


def machines(lines: Sequence[Line]) -> list[MachineSummary]:
    """The devices of a history, in the order of their first line."""
    groups: dict[tuple[str, str, Host], list[Line]] = {}
    for line in lines:
        groups.setdefault((line.origin.machine, line.origin.device, line.host), []).append(line)
    return [_summary(*key, group) for key, group in groups.items()]


def _summary(machine: str, device: str, host: Host, lines: Sequence[Line]) -> MachineSummary:
    gains = [word.gain for line in best(lines) if (word := line.word) and word.gain > 0]
    return MachineSummary(
        machine,
        device,
        host,
        len(gains),
        statistics.geometric_mean(gains) if gains else 1.0,
        sum(line.kind == "measured" for line in lines),
        sum(line.kind == "fault" for line in lines),
        tuple(sorted({line.origin.network for line in lines} - {""})),
        max(line.origin.when for line in lines),
        sum(line.kind == "quarantine" for line in lines),
    )


@dataclasses.dataclass(frozen=True)
class Compared:
    """A kernel that was tuned on two machines. first, second: what won there, with its gain,
    and the same in short words.
    first_on_second: gain of the first's schedule where it was measured on the second (0: it was
    not), and the reverse."""

    kernel: str
    spec: str
    first: str
    second: str
    first_words: str
    second_words: str
    first_gain: float
    second_gain: float
    first_on_second: float
    second_on_first: float

    @property
    def is_same(self) -> bool:
        """True if the same schedule won."""
        return self.first == self.second


def compared(lines: Sequence[Line], first: str, second: str) -> list[Compared]:
    """The kernels that both machines have a word for. first, second: as `Selection.machine`, or as
    its target. Raises `UsageError` when one of them has no line, or both are the same."""
    sides = [[line for line in lines if _is_side(line, name)] for name in (first, second)]
    for name, side in zip((first, second), sides, strict=True):
        if not side:
            raise UsageError(
                f"the history has nothing of {name!r}",
                next_step="`verax history list` says which machines it has",
            )
    if sides[0] == sides[1]:
        raise UsageError(
            f"{first!r} and {second!r} are the same lines",
            next_step="name two machines, devices or targets that differ",
        )
    words = [{line.kernel: line for line in best(side)} for side in sides]
    compared_kernels = []
    for kernel, mine in words[0].items():
        theirs = words[1].get(kernel)
        if theirs is not None:
            compared_kernels.append(
                Compared(
                    kernel,
                    mine.origin.spec,
                    schedule_text(*mine.schedule),
                    schedule_text(*theirs.schedule),
                    words_beside(mine.schedule, theirs.schedule),
                    words_beside(theirs.schedule, mine.schedule),
                    float(mine.entry["gain"]),
                    float(theirs.entry["gain"]),
                    _measured_gain(sides[1], kernel, mine.schedule),
                    _measured_gain(sides[0], kernel, theirs.schedule),
                )
            )
    return compared_kernels


def _is_side(line: Line, name: str) -> bool:
    target = line.host.target.partition(" ")[0]
    return target == name or is_of_machine(line, name)


def _measured_gain(
    lines: Sequence[Line], kernel: str, schedule: tuple[str, Mapping[str, Any]]
) -> float:
    """Gain of a schedule where it was measured, the median of all times; 0 if it was not."""
    ratios = [
        line.ratio
        for line in lines
        if line.kernel == kernel and line.ratio > 0 and line.schedule == schedule
    ]
    return 1 / statistics.median(ratios) if ratios else 0.0


def plain(value: Any) -> Any:
    """What a summary or comparison holds, for JSON."""
    return json.loads(json.dumps(dataclasses.asdict(value)))
