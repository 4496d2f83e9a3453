"""Which of several schedules is faster, on a machine that does other things as well.

Everybody takes turns with the best so far, so that whatever else the machine does meets both: what
is compared is the ratio of neighboring turns, by its median. The noise is measured too: the same
schedule is timed against itself. Only who wins beyond it has won.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence

from verax.compiler.kernels.registry import Schedule

Turn = Callable[[Schedule], float]
"""Seconds of one call with a schedule, timed now."""
ROUNDS = (3, 4, 6)
"""Turns in each round of a race; the slower half leaves after each."""
HOPELESS = 1.3
"""Times the best's time: a schedule that slow in its first two turns leaves at once."""
DUEL_TURNS = 11
MARGIN = 0.01
"""The least gain that counts."""
NOISES = 2.5
"""Standard errors that a gain must be above."""
NOISY = 0.02
"""Standard error of the median between equals: a duel that is noisier takes more turns."""
MOST_TURNS = 4
"""Times as many, at most."""


@dataclasses.dataclass(frozen=True)
class Duel:
    """ratio: time of the challenger by that of the defender, the median over turns. noise: standard
    error of such a median between equals. defender, challenger: seconds of each turn."""

    ratio: float
    noise: float
    defender: tuple[float, ...]
    challenger: tuple[float, ...]

    @property
    def is_won(self) -> bool:
        """Whether the challenger is faster beyond the noise."""
        return self.ratio < 1 - max(MARGIN, NOISES * self.noise)

    @property
    def is_lost(self) -> bool:
        """Whether the challenger is slower beyond the noise."""
        return self.ratio > 1 + max(MARGIN, NOISES * self.noise)

    @property
    def is_noisy(self) -> bool:
        """True if the noise hides gains that would count."""
        return self.noise > NOISY


def duel(turn: Turn, defender: Schedule, challenger: Schedule, turns: int = DUEL_TURNS) -> Duel:
    """Both in turns: defender, challenger, defender, and so on. Where the machine is noisy and
    nobody has won, as many turns again, up to MOST_TURNS times as many."""
    mine: list[float] = [turn(defender)]
    theirs: list[float] = []
    for _ in range(MOST_TURNS):
        for _ in range(turns):
            theirs.append(turn(challenger))
            mine.append(turn(defender))
        fought = judged(mine, theirs)
        if not fought.is_noisy or fought.is_won or fought.is_lost:
            break
    return fought


def judged(mine: Sequence[float], theirs: Sequence[float]) -> Duel:
    """The duel of turns taken: the defender's (one more) around the challenger's."""
    between = [math.sqrt(a * b) for a, b in itertools.pairwise(mine)]
    ratios = [t / m for t, m in zip(theirs, between, strict=True)]
    equals = [b / a for a, b in itertools.pairwise(mine)]
    return Duel(statistics.median(ratios), error(equals), tuple(mine), tuple(theirs))


def error(ratios: Sequence[float]) -> float:
    """Standard error of the median of ratios of equals, from their median distance to 1: outliers
    are what else the machine did."""
    spread = 1.4826 * statistics.median(abs(math.log(r)) for r in ratios)
    return 1.2533 * spread / math.sqrt(len(ratios))


def successive_halving(
    turn: Turn,
    best: Schedule,
    candidates: Sequence[Schedule],
    stop: Callable[[], bool] = lambda: False,
    samples: dict[Schedule, list[float]] | None = None,
    ratios: dict[Schedule, list[float]] | None = None,
) -> Schedule | None:
    """The fastest of `candidates` as far as a few turns tell, if it may be faster than `best`.

    samples: gets the seconds of all turns; ratios: of each candidate's turns, by those of `best`
    before them. stop: asked between turns.
    """
    samples = {} if samples is None else samples
    ratios = {} if ratios is None else ratios
    ratios.update({s: [] for s in candidates})
    alive = list(candidates)

    def take(schedule: Schedule) -> float:
        seconds = turn(schedule)
        samples.setdefault(schedule, []).append(seconds)
        return seconds

    for round_index, turns in enumerate(ROUNDS):
        for _ in range(turns):
            for schedule in list(alive):
                if stop():
                    return _fastest(alive, ratios)
                before = take(best)
                ratios[schedule].append(take(schedule) / before)
                early = round_index == 0 and len(ratios[schedule]) == 2
                if early and min(ratios[schedule]) > HOPELESS:
                    alive.remove(schedule)
        middle = {s: statistics.median(ratios[s]) for s in alive}
        alive.sort(key=middle.__getitem__)
        alive = [s for s in alive[: max(1, len(alive) // 2)] if middle[s] < 1 + 2 * MARGIN]
        if not alive:
            return None
    return _fastest(alive, ratios)


def _fastest(alive: Sequence[Schedule], ratios: dict[Schedule, list[float]]) -> Schedule | None:
    """Of those that took a turn, the one with the least ratio, if that is below 1."""
    timed = [s for s in alive if ratios[s]]
    if not timed:
        return None
    fastest = min(timed, key=lambda s: statistics.median(ratios[s]))
    return fastest if statistics.median(ratios[fastest]) < 1 else None
