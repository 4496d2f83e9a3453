"""What `--quick` (that is `make quick`) runs: a sample of every room.

Where `make durations` has written how long functions take (`out/durations.txt`, from the last
`make test`; it is made, not committed), the sample is chosen by that: every case of a function that
takes no time, the first case of one that takes some, none of one that takes long, nor of those that
share with it what a module makes once. A function that is new to the file is always taken.

Without the file (a fresh clone) nobody knows what takes long, and the clock chooses: the first case
of every function, a file of each room in turn, until a file or the whole has had its seconds. What
is left then is skipped, and says so.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import pytest

DURATIONS = Path(__file__).parents[1] / "out" / "durations.txt"
LONG = 0.12
"""Seconds of a case; functions that take longer are not in the sample."""
WHOLE, OF_A_FILE = 60.0, 1.5
"""Seconds of a process, and of one file, where the clock chooses."""


def read(file: Path = DURATIONS) -> dict[str, float]:
    """Seconds of the first case by function; nothing where the file is not there."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {function: float(seconds) for seconds, function in (x.split(maxsplit=1) for x in lines)}


def function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def chosen(items: Sequence[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """The items to run, in order. seconds: by function; with none the clock is to end the run."""
    if not seconds:
        first = {function_of(item): item for item in reversed(items)}
        return list(rooms_in_turn([item for item in items if first[function_of(item)] is item]))
    seen, kept = set(), []
    long = [seconds.get(function_of(item), 0.0) > LONG for item in items]
    heavy = {made for item, is_long in zip(items, long) if is_long for made in _made_once(item)}
    for item, is_long in zip(items, long):
        function = function_of(item)
        again = function in seen and function in seconds
        seen.add(function)
        if not (is_long or again or heavy & _made_once(item)):
            kept.append(item)
    return kept


def rooms_in_turn(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """The first file of every room, then the second of each, ...; a file's items stay together."""
    rooms: dict[Path, dict[Path, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        rooms[item.path.parent][item.path].append(item)
    for files in zip_longest(*(room.values() for room in rooms.values()), fillvalue=[]):
        yield from chain(*files)


def _made_once(item: pytest.Item) -> set[tuple[str, str]]:
    """What the tests of a module make once for all of them: whoever comes first takes the time."""
    found = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return {
        (one.baseid, name)
        for name, definitions in found.items()
        for one in definitions
        if one.scope == "module"
    }


class Clock:
    """Ends a sample that nobody measured: a plugin of one process."""

    def __init__(self, whole: float = WHOLE, of_a_file: float = OF_A_FILE) -> None:
        self.whole, self.of_a_file = whole, of_a_file
        self.spent: dict[Path, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if sum(self.spent.values()) > self.whole or self.spent[item.path] > self.of_a_file:
            pytest.skip("the sample's seconds are spent (`make durations` knows what takes long)")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begin = time.monotonic()
        done = yield
        self.spent[item.path] += time.monotonic() - begin
        return done
