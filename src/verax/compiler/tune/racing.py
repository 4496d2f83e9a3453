"""A race of candidates on one device: bits first, then successive halving, then a duel.

Whoever searches asks a `Racer` and does not know where it runs: in this process on a bench
(`BenchRacer`), or on a device elsewhere. What a race gives is plain data.
"""

from __future__ import annotations

import dataclasses
import hashlib
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from verax.base.errors import VeraxError
from verax.compiler.kernels.registry import Schedule
from verax.compiler.tune.kernel_bench import Bench
from verax.compiler.tune.successive_halving import DUEL_TURNS, Duel, duel, successive_halving

LAST_TURNS = 2 * DUEL_TURNS + 1
OTHER_BITS = "it writes other bits"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate. bits: whether it wrote those of the rule's schedule; refused: why it was not
    timed; seconds: of each turn; ratio: its time by that of the rule's schedule, as far as a few
    turns tell, 0 if it took none; written: SHA-256 of what it wrote."""

    schedule: Schedule
    bits: bool
    seconds: tuple[float, ...] = ()
    refused: str = ""
    ratio: float = 0.0
    written: str = ""


@dataclasses.dataclass(frozen=True)
class Race:
    """What a race gives. trials: the candidates, in order; winner: who won the duel with the best
    so far, None if nobody did; duel: that, None if there was none."""

    trials: tuple[Trial, ...]
    winner: Schedule | None = None
    duel: Duel | None = None


class Racer(Protocol):
    """Whoever races schedules of one kernel, all against one rule."""

    def ahead(self, candidates: Sequence[Schedule]) -> None:
        """These will be raced next, unless something wins before: they may be made now."""

    def race(self, best: Schedule, candidates: Sequence[Schedule], standing: float) -> Race:
        """Race `candidates` against `best`. standing: time of `best` by that of the rule's."""

    def last(self, best: Schedule) -> Duel:
        """A long duel between the rule's schedule and `best`."""

    def close(self) -> None:
        """No more races of this kernel."""


class BenchRacer:
    """Races on a bench of this process. stop: asked between turns."""

    def __init__(self, bench: Bench, rule: Schedule, stop: Callable[[], bool]) -> None:
        self._bench, self._rule, self._stop = bench, rule, stop
        self.expected = bench.result(rule)
        self.prepared: set[Schedule] = {rule}

    def ahead(self, candidates: Sequence[Schedule]) -> None:
        """Nothing: who measures alone makes candidates when their turn has come."""

    def race(self, best: Schedule, candidates: Sequence[Schedule], standing: float) -> Race:
        """See `Racer`."""
        bench = self._bench
        bench.prepare(candidates)
        self._require(best)
        trials = {s: self._trial(s) for s in candidates if not self._stop()}
        proved = [s for s, trial in trials.items() if trial.bits]
        samples: dict[Schedule, list[float]] = {}
        ratios: dict[Schedule, list[float]] = {}
        fastest = successive_halving(bench.turn, best, proved, self._stop, samples, ratios)
        fought = None if fastest is None else duel(bench.turn, best, fastest)
        winner = fastest if fought is not None and fought.is_won else None
        staying = best if winner is None else winner
        for schedule in (*candidates, best):
            if schedule not in (staying, self._rule):
                bench.drop(schedule)
                self.prepared.discard(schedule)
        if winner is not None:
            self.prepared.add(winner)
        timed = (
            dataclasses.replace(
                trial,
                seconds=tuple(samples.get(s, ())),
                ratio=standing * statistics.median(ratios[s]) if ratios.get(s) else 0.0,
            )
            for s, trial in trials.items()
        )
        return Race(tuple(timed), winner, fought)

    def last(self, best: Schedule) -> Duel:
        """See `Racer`."""
        self._require(best)
        return duel(self._bench.turn, self._rule, best, LAST_TURNS)

    def close(self) -> None:
        """End the bench's threads."""
        close = getattr(self._bench, "close", None)
        if close is not None:
            close()

    def _require(self, best: Schedule) -> None:
        """The best so far is on the bench, also one that an earlier run measured."""
        if best not in self.prepared:
            self._bench.result(best)
            self.prepared.add(best)

    def _trial(self, schedule: Schedule) -> Trial:
        """What it writes, before any time."""
        try:
            result = self._bench.result(schedule)
        except VeraxError as error:
            return Trial(schedule, False, refused=error.cause)
        bits = result == self.expected
        return Trial(schedule, bits, refused="" if bits else OTHER_BITS, written=digest_of(result))


def digest_of(result: bytes) -> str:
    """SHA-256 of what a kernel wrote, in hexadecimal."""
    return hashlib.sha256(result).hexdigest()


def faults_of(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Candidates with other bits."""
    return tuple(t for t in trials if t.refused == OTHER_BITS)
