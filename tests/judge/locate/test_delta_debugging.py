"""Delta debugging finds the fewest steps that bring a mistake together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.base.errors import UsageError
from verax.judge.locate.delta_debugging import MOST, minimal_failing_subset
from verax.judge.locate.optimization_search import StepSelection, faulty_optimization
from verax.records.bisection import Optimizations, Step
from verax.records.verdict import Kind


@given(st.sets(st.integers(0, 39), min_size=1, max_size=4))
def test_exactly_the_needed_ones_are_found(needed: set[int]) -> None:
    tried: list[tuple[int, ...]] = []

    def fails(some: tuple[int, ...]) -> bool:
        tried.append(some)
        return needed <= {*some}

    assert minimal_failing_subset(range(40), fails) == tuple(sorted(needed))
    assert len(tried) == len(set(tried)) <= 8 * len(needed) + 4 <= MOST


def test_one_of_many_is_found_in_few_tries() -> None:
    tried: list[tuple[int, ...]] = []

    def fails(some: tuple[int, ...]) -> bool:
        tried.append(some)
        return 137 in some

    assert minimal_failing_subset(range(200), fails) == (137,)
    assert len(tried) <= 10


def test_what_fails_without_any_needs_none() -> None:
    assert minimal_failing_subset(range(9), lambda some: True) == ()


def test_nothing_more_can_be_left_out_of_what_is_found() -> None:
    def fails(some: tuple[int, ...]) -> bool:  # two ways to fail
        return {2, 3, 11} <= {*some} or {5, 7} <= {*some}

    found = minimal_failing_subset(range(13), fails)
    assert fails(found)
    assert not any(fails(tuple(t for t in found if t != left)) for left in found)


# --- within the search for the guilty optimization

NAMES = ["plain", *(f"part{i % 3}: step {i}" for i in range(1, 21))]


def outputs(value: float) -> Mapping[str, np.ndarray]:
    return {"y": np.array([value], np.float32)}


def kind(found: Mapping[str, np.ndarray]) -> Kind:
    return Kind.mistake if found["y"][0] >= 5 else Kind.rounding


def search(
    wrong: set[int], needs: Mapping[int, int] | None = None, refused: int = 0
) -> Optimizations:
    """Steps in `wrong` are a mistake together; step i is done behind step needs[i] only."""
    needs = needs or {}

    def value(some: Sequence[int]) -> Mapping[str, np.ndarray]:
        if refused in some and len(some) < refused:
            raise UsageError("it cannot be had without its neighbours")
        return outputs(9 if wrong <= {*some} else len(some) / 100)

    chosen = StepSelection(
        value,
        lambda some: [NAMES[i] for i in some if needs.get(i, i) in some],
        lambda i: Step(NAMES[i], NAMES[i].partition(":")[0], "O2", i),
    )
    return faulty_optimization(NAMES, lambda i: value(range(1, i + 1)), kind, None, chosen)


def test_a_step_that_is_wrong_alone_has_no_partner() -> None:
    found = search({7})
    assert (found.guilty, found.partners) == (NAMES[7], ())
    assert [s.number for s in found.steps] == [7]
    assert found.words == f"the mistake appears with {NAMES[7]!r}; without 'part1' it is right"
    assert found.cured is True


def test_two_steps_that_are_wrong_together_are_both_named() -> None:
    found = search({4, 17})
    assert (found.guilty, found.partners) == (NAMES[17], (NAMES[4],))
    assert [s.number for s in found.steps] == [17, 4]
    assert f"together with {NAMES[4]!r}: without one of them it is right" in found.words


def test_a_step_that_another_makes_possible_is_told_from_one_that_interferes() -> None:
    found = search({4, 17}, {17: 4})
    assert found.guilty == NAMES[17]
    assert f"which is possible behind {NAMES[4]!r} only" in found.words


def test_steps_that_cannot_be_left_out_leave_the_answer_open() -> None:
    found = search({3, 9}, refused=9)
    assert found.guilty == NAMES[9]
    assert NAMES[3] in found.partners
    assert "and 5 more" in found.words


@pytest.mark.parametrize("wrong", [{1}, {20}, {1, 20}, {1, 2, 3}])
def test_at_the_ends(wrong: set[int]) -> None:
    found = search(wrong)
    assert found.guilty == NAMES[max(wrong)]
    assert found.partners == tuple(NAMES[i] for i in sorted(wrong)[:-1])
