"""Delta debugging: finds a minimal set of items that causes a fault together.

Each is isolated by halving (Zeller and Hildebrandt, Simplifying and isolating failure-inducing
input, 2002): the shortest prefix that fails ends with one that is needed; with that one kept, what
stands before it is searched again. About log2(n) tries for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST = 96
"""Tests of subsets; what is found by then is returned."""


def minimal_failing_subset(
    things: Sequence[int], fails: Callable[[tuple[int, ...]], bool]
) -> tuple[int, ...]:
    """A subset of `things`, in their order, that fails while it does not without any one of them.

    All of `things` must fail. A subset that cannot be tried does not fail. At most `MOST` subsets
    are tried, each once.
    """
    results = {tuple(things): True}

    def wrong(subset: tuple[int, ...]) -> bool:
        if subset not in results:
            results[subset] = len(results) <= MOST and fails(subset)
        return results[subset]

    needed, before = tuple[int, ...](), tuple(things)
    while not wrong(needed):
        low, high = 0, len(before)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong((*before[:middle], *needed)) else (middle, high)
        needed, before = (before[high - 1], *needed), before[: high - 1]
    return _needed(needed, wrong)


def _needed(things: tuple[int, ...], wrong: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """`things` without those that are not needed: a longer prefix may fail for another reason."""
    for thing in things:
        without = tuple(t for t in things if t != thing)
        if wrong(without):
            return _needed(without, wrong)
    return things
