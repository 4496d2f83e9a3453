"""`Benchmark`: times of several engines on one network, measured side by side, and where."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.base.option_groups.compile_options import BenchOptions
from verax.base.printing import Reported, first_few
from verax.records.codec import read_json, write_json

SCHEMA = "verax.benchmark/3"
WITHOUT_OPTIONS = "verax.benchmark/2"
"""The record of before, which had no options."""


@dataclass(frozen=True)
class Timing:
    """One engine at one thread count.

    rounds: median time of a call in each round, milliseconds, in order; best: fastest single call,
    milliseconds; prepare: seconds to import the runtime, load and compile the model; imports: the
    first part of that; first: seconds of the first run; memory: resident megabytes afterwards;
    peak_memory: at most; calls: calls timed; difference: largest absolute difference of the outputs
    from those of the first engine, relative to its largest output (a figure, not a verdict);
    failure: why the engine has no times, in words.
    """

    engine: str
    threads: int
    version: str = ""
    rounds: tuple[float, ...] = ()
    best: float = 0.0
    prepare: float = 0.0
    imports: float = 0.0
    first: float = 0.0
    memory: float = 0.0
    peak_memory: float = 0.0
    calls: int = 0
    difference: float = 0.0
    failure: str = ""

    @property
    def median(self) -> float:
        """Median over rounds, milliseconds."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> float:
        """Half of the range that holds the middle half of the rounds, relative to the median."""
        if len(self.rounds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return (high - low) / 2 / self.median

    @property
    def start_up(self) -> float:
        """Seconds from a started interpreter to the first result."""
        return self.prepare + self.first


@dataclass(frozen=True, repr=False)
class Benchmark(Reported):
    """All engines on one network. load: 1-minute load averages of the machine before and after.
    options: of `bench`, where it made the record."""

    model: str
    inputs: Mapping[str, str]
    timings: tuple[Timing, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    load: tuple[float, ...] = ()
    seed: int = 0
    notes: tuple[str, ...] = ()
    options: BenchOptions | None = None

    def _brief(self) -> str:
        engines = first_few(dict.fromkeys(t.engine for t in self.timings))
        return f"{self.model}; {engines or 'no engine'} timed"

    def timing(self, engine: str, threads: int) -> Timing | None:
        """The timing of `engine`, or None when it has none."""
        for row in self.timings:
            if (row.engine, row.threads) == (engine, threads) and row.rounds:
                return row
        return None

    @property
    def thread_counts(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(t.threads for t in self.timings))

    def speed(self, engine: str, against: tuple[str, ...], threads: int) -> tuple[float, str]:
        """Speed of `engine` relative to the fastest of `against`, and that engine's name.

        Above 1 means faster. It is the median over rounds of the ratio of times within a round,
        so that what slows the machine down for a while slows both. (nan, "") when one is missing.
        """
        mine = self.timing(engine, threads)
        peers = [p for name in against if (p := self.timing(name, threads)) and name != engine]
        if mine is None or not peers:
            return float("nan"), ""
        peer = min(peers, key=lambda t: t.median)
        return statistics.median(p / m for p, m in zip(peer.rounds, mine.rounds)), peer.engine

    def to_json(self) -> str:
        """The record as JSON text; `from_json` gives an equal record."""
        return write_json(self, SCHEMA)

    @staticmethod
    def from_json(text: str) -> Benchmark:
        """Read `to_json`'s text. Raises `UsageError` when it is something else."""
        return read_json(
            Benchmark, text, SCHEMA, {WITHOUT_OPTIONS: lambda d: {**d, "options": None}}
        )
