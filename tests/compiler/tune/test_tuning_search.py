"""The search by a clock of its own: who is faster wins, noise does not, other bits never."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.compiler.tune.test_tuning_lookup import SPEC, TARGET

from verax.base.errors import CompileError
from verax.compiler.kernels import registry
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.registry import Schedule
from verax.compiler.tune.racing import OTHER_BITS, BenchRacer
from verax.compiler.tune.search import AT_ONCE, FUTILE, POOLED, search, search_on
from verax.compiler.tune.successive_halving import (
    DUEL_TURNS,
    MARGIN,
    MOST_TURNS,
    duel,
    successive_halving,
)

RULE: Any = registry.schedules(SPEC, TARGET)[0]


class Fake:
    """A machine on which a call takes as long as `cost` says, times noise."""

    def __init__(
        self,
        cost: Callable[[Any], float],
        noise: float = 0.0,
        bits: Callable[[Any], bytes] = lambda schedule: b"right",
        seed: int = 5,
    ) -> None:
        self.cost, self.noise, self.bits = cost, noise, bits
        self.random = random.Random(seed)
        self.turns: dict[Schedule, int] = {}
        self.alive: set[Schedule] = set()
        self.now = 0.0

    def prepare(self, schedules: Sequence[Schedule]) -> None:
        pass

    def result(self, schedule: Schedule) -> bytes:
        self.alive.add(schedule)
        return self.bits(schedule)

    def turn(self, schedule: Schedule) -> float:
        assert schedule in self.alive, "it was dropped, or never proved"
        self.turns[schedule] = self.turns.get(schedule, 0) + 1
        seconds = self.cost(schedule) * (1 + self.noise * abs(self.random.gauss(0, 1)))
        if self.noise and self.random.random() < 0.1:
            seconds *= 5  # something else ran
        self.now += seconds
        return seconds

    def drop(self, schedule: Schedule) -> None:
        self.alive.discard(schedule)


def cost(schedule: ConvSchedule) -> float:
    """Cheapest with an unrolling of 8, 32 steps ahead and one row in an item."""
    price = 1e-3
    price *= 1 + 0.2 * abs(schedule.unroll - 8) / 8
    price *= 1 + 0.1 * abs(schedule.near - 32) / 32
    return price * (1 + 0.02 * (schedule.chunk - 1))


def test_respects_are_searched_one_after_the_other() -> None:
    found = search(SPEC, TARGET, Fake(cost))
    assert isinstance(found.best, ConvSchedule)
    assert (found.best.unroll, found.best.near, found.best.chunk) == (8, 32, 1)
    assert found.last is not None
    assert found.last.ratio == pytest.approx(cost(found.best) / cost(RULE))
    assert not found.faults


def test_the_faster_one_is_found_through_noise() -> None:
    """The first round is short, so that the fastest may leave in it; who wins is faster always."""
    gains = []
    for seed in range(20):
        found = search(SPEC, TARGET, Fake(cost, noise=0.03, seed=seed))
        assert found.last is not None and found.last.is_won
        gains.append(cost(found.best) / cost(RULE))  # type: ignore[arg-type]
    possible = 1e-3 / cost(RULE)
    assert max(gains) < 1
    assert sum(gain <= possible * 1.001 for gain in gains) >= 12


@pytest.mark.parametrize("seed", range(12))
def test_nobody_wins_among_equals(seed: int) -> None:
    found = search(SPEC, TARGET, Fake(lambda schedule: 1e-3, noise=0.05, seed=seed))
    assert found.best == RULE
    assert found.last is None


def test_a_gain_below_the_margin_does_not_count() -> None:
    slightly = Fake(lambda s: 1e-3 * (1 if s == RULE else 1 - MARGIN / 2))
    assert search(SPEC, TARGET, slightly).best == RULE


def test_other_bits_are_a_fault_and_are_never_timed() -> None:
    def bits(schedule: ConvSchedule) -> bytes:
        return b"wrong" if schedule.unroll == 8 else b"right"

    fake = Fake(cost, bits=bits)
    found = search(SPEC, TARGET, fake)
    assert found.faults
    assert {t.schedule.unroll for t in found.faults} == {8}  # type: ignore[attr-defined]
    assert all(t.refused == OTHER_BITS and not t.seconds for t in found.faults)
    assert not any(s.unroll == 8 for s in fake.turns if s != RULE)  # type: ignore[attr-defined]
    assert found.best.unroll != 8  # type: ignore[attr-defined]


def test_what_cannot_be_made_is_told_of_and_is_no_fault() -> None:
    def bits(schedule: ConvSchedule) -> bytes:
        if schedule.near == 32:
            raise CompileError("LLVM refused it")
        return b"right"

    found = search(SPEC, TARGET, Fake(cost, bits=bits))
    refused = [t for t in found.trials if t.refused]
    assert refused
    assert {t.refused for t in refused} == {"LLVM refused it"}
    assert not found.faults
    assert found.best.unroll == 8  # type: ignore[attr-defined]


@pytest.mark.parametrize("trials", [1, 5, 11])
def test_no_more_candidates_than_asked_for(trials: int) -> None:
    assert len(search(SPEC, TARGET, Fake(cost), trials=trials).trials) == trials


def test_when_the_time_is_over_what_was_found_counts() -> None:
    fake = Fake(cost)
    found = search(SPEC, TARGET, fake, stop=lambda: fake.now > 0.1)
    whole = search(SPEC, TARGET, Fake(cost))
    assert 0 < len(found.trials) < len(whole.trials)
    assert fake.now < 0.1 + 60 * cost(RULE)
    assert cost(found.best) <= cost(RULE)  # type: ignore[arg-type]


def test_what_was_known_is_tried_first() -> None:
    known = ConvSchedule(**{**RULE.__dict__, "unroll": 8, "near": 32, "chunk": 1})
    nonsense = ConvSchedule(**{**RULE.__dict__, "rows": 10**6})
    found = search(SPEC, TARGET, Fake(cost), first=[nonsense, known], trials=1)
    assert found.best == known
    assert [t.schedule for t in found.trials] == [known]


def test_the_hopeless_leave_after_two_turns() -> None:
    names: list[Schedule] = ["slow", "fine", "fast"]
    times = {"best": 1.0, "slow": 9.0, "fine": 1.01, "fast": 0.8}
    taken: list[Any] = []

    def turn(schedule: Any) -> float:
        taken.append(schedule)
        return times[schedule]

    assert successive_halving(turn, "best", names) == "fast"
    assert taken.count("slow") == 2
    assert successive_halving(turn, "best", ["slow", "fine"]) is None


def test_load_that_comes_and_goes_decides_nothing() -> None:
    """Half of the time everything takes three times as long."""
    now = [0]

    def turn(schedule: Any) -> float:
        now[0] += 1
        return {"a": 1.0, "b": 0.9}[schedule] * (3 if now[0] % 14 < 7 else 1)

    found = duel(turn, "a", "b")
    assert found.ratio == pytest.approx(0.9)
    assert duel(turn, "a", "a").ratio == pytest.approx(1.0)
    assert not duel(turn, "a", "a").is_won
    assert duel(turn, "b", "a").is_lost


def test_a_noisy_duel_takes_more_turns_until_somebody_wins() -> None:
    quiet, loud = Fake(cost), Fake(cost, noise=0.6, seed=9)
    slow, fast = RULE, registry.candidates(SPEC, TARGET)[1]
    for bench in (quiet, loud):
        bench.alive |= {slow, fast}
    quiet.cost = loud.cost = lambda schedule: 1e-3 if schedule == slow else 0.995e-3
    assert len(duel(quiet.turn, slow, fast).challenger) == DUEL_TURNS
    fought = duel(loud.turn, slow, fast)
    assert fought.is_noisy
    assert len(fought.challenger) == MOST_TURNS * DUEL_TURNS


def test_combinations_are_tried_where_no_single_step_gains() -> None:
    def price(schedule: Any) -> float:
        both = schedule.unroll != RULE.unroll and schedule.near != RULE.near
        return 0.8e-3 if both else 1e-3 if schedule == RULE else 1.1e-3

    found = search(SPEC, TARGET, Fake(price))
    assert isinstance(found.best, ConvSchedule)
    assert found.best.unroll != RULE.unroll and found.best.near != RULE.near


def test_combinations_go_on_until_nothing_wins_for_long() -> None:
    """Of equals, without a model: all races of combinations are there, and then it ends."""
    tried = search(SPEC, TARGET, Fake(lambda schedule: 1e-3)).trials
    single = set(registry.candidates(SPEC, TARGET))
    combined = [t.schedule for t in tried if t.schedule not in single]
    assert 0.5 * AT_ONCE * FUTILE < len(combined) <= AT_ONCE * FUTILE
    assert len(set(combined)) == len(combined)


def test_combinations_near_the_best_are_tried() -> None:
    """A gain of several steps beside what was tried first."""

    tiles: list[Any] = list(registry.candidates(SPEC, TARGET))
    tile = next(
        s for s in tiles if (s.rows, s.cols, s.blocks) != (RULE.rows, RULE.cols, RULE.blocks)
    )
    start = dataclasses.replace(tile, unroll=8)

    def price(s: Any) -> float:
        is_near = (s.rows, s.cols, s.blocks, s.unroll) == (tile.rows, tile.cols, tile.blocks, 8)
        changed = s.near != tile.near, not s.filters_outer, s.pass_blocks != tile.pass_blocks
        return 1e-3 * (1 - 0.3 * is_near - 0.3 * (is_near and all(changed)))

    found = search(SPEC, TARGET, Fake(price), first=[start])
    assert price(found.best) == pytest.approx(0.4e-3)


def test_a_model_orders_combinations_and_what_it_likes_is_raced_first() -> None:
    ranked: list[int] = []

    def rank(spec: Any, several: Sequence[Any]) -> list[Any]:
        ranked.append(len(several))
        return sorted(several, key=lambda s: -s.near)

    racer = BenchRacer(Fake(lambda schedule: 1e-3), RULE, lambda: False)
    tried = search_on(SPEC, TARGET, racer, rank=rank).trials
    assert max(ranked) == POOLED
    single = set(registry.candidates(SPEC, TARGET))
    combined = [t.schedule.near for t in tried if t.schedule not in single]  # type: ignore[attr-defined]
    assert combined[:AT_ONCE] == [64] * AT_ONCE
    assert min(combined) < 64
