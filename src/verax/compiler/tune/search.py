"""The search for one kernel's schedule: respect by respect, each candidate proved before its time.

The bits that a candidate writes are compared with those of the schedule chosen by rule, on the same
numbers. One that writes others is a fault of the compiler: it is told of, and never timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from verax.base.errors import VeraxError
from verax.compiler.kernels.registry import Schedule, Spec, admits, schedules, stages
from verax.compiler.kernels.target import Target
from verax.compiler.tune.kernel_bench import Bench
from verax.compiler.tune.successive_halving import DUEL_TURNS, Duel, duel, successive_halving

AT_ONCE = 4
"""Candidates that are made and raced together."""
LAST_TURNS = 2 * DUEL_TURNS + 1
OTHER_BITS = "it writes other bits"


@dataclasses.dataclass(frozen=True)
class Trial:
    """A candidate. bits: whether it wrote those of the rule's schedule; refused: why it was not
    timed; seconds: of each turn."""

    schedule: Schedule
    bits: bool
    seconds: tuple[float, ...] = ()
    refused: str = ""


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found. rule, best: schedules; last: the duel between them, None if it is the
    same; trials: all candidates, the rule's aside."""

    spec: Spec
    rule: Schedule
    best: Schedule
    last: Duel | None
    trials: tuple[Trial, ...]

    @property
    def faults(self) -> tuple[Trial, ...]:
        """Candidates with other bits."""
        return tuple(t for t in self.trials if t.refused == OTHER_BITS)


def search(
    spec: Spec,
    target: Target,
    bench: Bench,
    *,
    first: Sequence[Schedule] = (),
    trials: int = 1 << 30,
    stop: Callable[[], bool] = lambda: False,
) -> SearchResult:
    """The best schedule of `spec` on `bench` that `trials` candidates gave.

    first: candidates to begin with, as far as the kernel admits them. stop: asked between turns and
    before each candidate is made; what was found by then counts.
    """
    rule = schedules(spec, target)[0]
    state = _Search(spec, target, bench, rule, trials, stop)
    state.stage(first)
    for stage in stages(spec, target):
        state.stage(stage(state.best))
        if state.is_over:
            break
    return state.result()


class _Search:
    def __init__(
        self,
        spec: Spec,
        target: Target,
        bench: Bench,
        rule: Schedule,
        trials: int,
        stop: Callable[[], bool],
    ) -> None:
        self._spec, self._target, self._bench = spec, target, bench
        self._rule, self.best = rule, rule
        self._left, self._stop = trials, stop
        self._expected = bench.result(rule)
        self._trials: dict[Schedule, Trial] = {}
        self._samples: dict[Schedule, list[float]] = {}

    @property
    def is_over(self) -> bool:
        return self._left < 1 or self._stop()

    def stage(self, candidates: Iterable[Schedule]) -> None:
        """Race candidates that were not raced yet, a few at a time."""
        new = [
            s
            for s in dict.fromkeys(candidates)
            if s != self._rule and s not in self._trials and admits(self._spec, self._target, s)
        ]
        for at in range(0, len(new), AT_ONCE):
            if self.is_over:
                return
            batch = new[at : at + min(AT_ONCE, self._left)]
            self._left -= len(batch)
            self._race(batch)

    def _race(self, candidates: Sequence[Schedule]) -> None:
        self._bench.prepare(candidates)
        proved = [s for s in candidates if self._is_proved(s)]
        best = self.best
        fastest = successive_halving(self._bench.turn, best, proved, self._stop, self._samples)
        if fastest is not None and duel(self._bench.turn, best, fastest).is_won:
            self.best = fastest
        for schedule in (*candidates, best):
            if schedule not in (self.best, self._rule):
                self._bench.drop(schedule)

    def _is_proved(self, schedule: Schedule) -> bool:
        """Whether it writes the bits that it has to."""
        if self._stop():
            return False
        try:
            bits, refused = self._bench.result(schedule) == self._expected, ""
        except VeraxError as error:
            bits, refused = False, error.cause
        else:
            refused = "" if bits else OTHER_BITS
        self._trials[schedule] = Trial(schedule, bits, refused=refused)
        return bits

    def result(self) -> SearchResult:
        """After a last duel with the rule's."""
        last = None
        if self.best != self._rule:
            last = duel(self._bench.turn, self._rule, self.best, LAST_TURNS)
            if not last.is_won:
                self.best, last = self._rule, None
        trials = tuple(
            dataclasses.replace(trial, seconds=tuple(self._samples.get(schedule, ())))
            for schedule, trial in self._trials.items()
        )
        return SearchResult(self._spec, self._rule, self.best, last, trials)
