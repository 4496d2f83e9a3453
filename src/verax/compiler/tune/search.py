"""The search for one kernel's schedule: respect by respect, then combinations; each candidate is
proved before its time.

The bits that a candidate writes are compared with those of the schedule chosen by rule, on the same
numbers. One that writes others is a fault of the compiler: it is told of, and never timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from verax.compiler.kernels.registry import Schedule, Spec, admits, schedules, stages
from verax.compiler.kernels.target import Target
from verax.compiler.tune.combinations import combinations
from verax.compiler.tune.kernel_bench import Bench
from verax.compiler.tune.racing import BenchRacer, Racer, Trial, faults_of
from verax.compiler.tune.successive_halving import MARGIN, Duel

AT_ONCE = 4
"""Candidates that are made and raced together."""
POOLED = 32
"""Combinations of steps that a model ranks at a time, to race those that it likes most."""
FUTILE = 40
"""Races of combinations that nothing wins, behind which a kernel's search ends before its time."""
Rank: TypeAlias = Callable[[Spec, Sequence[Schedule]], Sequence[Schedule]]
"""Candidates, those that are likely to be fast first."""


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found. rule, best: schedules; last: the duel between them, None if it is the
    same; trials: all candidates, the rule's aside; earlier: of them, those that an earlier run
    measured; noise: the largest of its duels."""

    spec: Spec
    rule: Schedule
    best: Schedule
    last: Duel | None
    trials: tuple[Trial, ...]
    earlier: int = 0
    noise: float = 0.0

    @property
    def faults(self) -> tuple[Trial, ...]:
        """Candidates with other bits."""
        return faults_of(self.trials)


def search(
    spec: Spec,
    target: Target,
    bench: Bench,
    *,
    first: Sequence[Schedule] = (),
    trials: int = 1 << 30,
    stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """The best schedule of `spec` on `bench`, which is in this process: see `search_on`."""
    racer = BenchRacer(bench, schedules(spec, target)[0], stop)
    return search_on(spec, target, racer, first=first, trials=trials, stop=stop)


def search_on(
    spec: Spec,
    target: Target,
    racer: Racer,
    *,
    first: Sequence[Schedule] = (),
    trials: int = 1 << 30,
    stop: Callable[[], bool] = lambda: False,
    earlier: Mapping[Schedule, Trial] | None = None,
    rank: Rank | None = None,
    measured: Callable[[Sequence[Trial]], None] = lambda trials: None,
) -> SearchResult:
    """The best schedule of `spec` that `trials` candidates gave in `racer`'s races.

    first: candidates to begin with, as far as the kernel admits them. stop: asked between turns and
    before each candidate is made; what was found by then counts. earlier: what an earlier run
    measured of this kernel, which is not raced again. rank: orders the candidates of each respect.
    measured: gets the trials of each race as soon as it has ended.
    """
    state = _Search(spec, target, racer, trials, stop, earlier or {}, rank, measured)
    state.stage(first, ranked=False)
    respects = stages(spec, target)
    for stage, *later in (respects[i:] for i in range(len(respects))):
        state.stage(stage(state.best), following=[s for after in later for s in after(state.best)])
        if state.is_over:
            break
    if respects:
        state.combine()
    return state.result()


class _Search:
    def __init__(
        self,
        spec: Spec,
        target: Target,
        racer: Racer,
        trials: int,
        stop: Callable[[], bool],
        earlier: Mapping[Schedule, Trial],
        rank: Rank | None,
        measured: Callable[[Sequence[Trial]], None],
    ) -> None:
        self._spec, self._target, self._racer = spec, target, racer
        self._rule = self.best = schedules(spec, target)[0]
        self._left, self._stop = trials, stop
        self._earlier, self._rank, self._measured = earlier, rank, measured
        self._standing, self._noise, self._earlier_count = 1.0, 0.0, 0
        self._trials: dict[Schedule, Trial] = {}

    @property
    def is_over(self) -> bool:
        return self._left < 1 or self._stop()

    def stage(
        self,
        candidates: Iterable[Schedule],
        ranked: bool = True,
        following: Sequence[Schedule] = (),
    ) -> None:
        """Race candidates that were not raced yet, a few at a time. following: those of later
        respects if nothing wins in this one, which may be made while these are raced."""
        new = self._new(candidates)
        if ranked and self._rank is not None:
            new = list(self._rank(self._spec, new))
        new = new[: max(0, self._left)]
        self._left -= len(earlier := [s for s in new if s in self._earlier])
        self._recall(earlier)
        new = [s for s in new if s not in self._earlier]
        later = [s for s in self._new(following) if s not in self._earlier and s not in new]
        self._racer.ahead([*new, *later][: max(0, self._left)])
        for at in range(0, len(new), AT_ONCE):
            if self.is_over:
                return
            batch = new[at : at + min(AT_ONCE, self._left)]
            self._left -= len(batch)
            self._race(batch)

    def combine(self) -> None:
        """Race combinations of steps, in turns far from the rule's schedule and near the best,
        until all are raced, or nothing has won for long."""
        futile, far = 0, combinations(self._spec, self._target)
        center, near = self.best, combinations(self._spec, self._target, self.best)
        pools: tuple[list[Schedule], list[Schedule]] = [], []
        raced = 1
        while raced and futile < FUTILE and not self.is_over:
            if self.best != center:
                center, near = self.best, combinations(self._spec, self._target, self.best)
                pools[1].clear()
            raced = 0
            for pool, drawn in zip(pools, (far, near), strict=True):
                self._fill(pool, drawn)
                batch, pool[:] = pool[:AT_ONCE], pool[AT_ONCE:]
                before = self.best
                self.stage(batch, ranked=False, following=pool[:AT_ONCE])
                raced += len(batch)
                futile = 0 if self.best != before else futile + 1

    def _fill(self, pool: list[Schedule], drawn: Iterator[Schedule]) -> None:
        """Have enough in a pool for its next race, those first that the model likes most."""
        count = AT_ONCE if self._rank is None else POOLED
        pool[:] = self._new(pool)
        while len(pool) < count and (more := list(islice(drawn, count - len(pool)))):
            pool += self._new(more)
        if self._rank is not None:
            pool[:] = self._rank(self._spec, pool)

    def _new(self, candidates: Iterable[Schedule]) -> list[Schedule]:
        """Those that the kernel admits and that were not raced yet."""
        return [
            s
            for s in dict.fromkeys(candidates)
            if s != self._rule and s not in self._trials and admits(self._spec, self._target, s)
        ]

    def _recall(self, schedules: Sequence[Schedule]) -> None:
        """Take what an earlier run measured; the last duel proves whether it still holds."""
        for schedule in schedules:
            trial = self._trials[schedule] = self._earlier[schedule]
            self._earlier_count += 1
            if trial.bits and 0 < trial.ratio < self._standing * (1 - MARGIN):
                self.best, self._standing = schedule, trial.ratio

    def _race(self, candidates: Sequence[Schedule]) -> None:
        race = self._racer.race(self.best, candidates, self._standing)
        self._trials.update({trial.schedule: trial for trial in race.trials})
        if race.duel is not None:
            self._noise = max(self._noise, race.duel.noise)
        if race.winner is not None and race.duel is not None:
            self.best, self._standing = race.winner, self._standing * race.duel.ratio
        self._measured(race.trials)

    def result(self) -> SearchResult:
        """After a last duel with the rule's."""
        last = None
        if self.best != self._rule:
            last = self._racer.last(self.best)
            self._noise = max(self._noise, last.noise)
            if not last.is_won:
                self.best, last = self._rule, None
        return SearchResult(
            self._spec,
            self._rule,
            self.best,
            last,
            tuple(self._trials.values()),
            self._earlier_count,
            self._noise,
        )
