"""Delta debugging: the fewest of many things that bring a fault together.

Each is isolated by halving (Zeller and Hildebrandt, Simplifying and isolating failure-inducing
input, 2002): the shortest prefix that fails ends with one that is needed; with that one kept, what
stands before it is searched again. About log2(n) tries for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST = 96
"""Tests of subsets; what is found by then is returned."""


def fewest(things: Sequence[int], fails: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """A part of `things`, in their order, that fails while it does not without any one of them.

    All of `things` must fail. A subset that cannot be tried does not fail. At most `MOST` subsets
    are tried, each once.
    """
    known = {tuple(things): True}

    def wrong(some: tuple[int, ...]) -> bool:
        if some not in known:
            known[some] = len(known) <= MOST and fails(some)
        return known[some]

    kept, before = tuple[int, ...](), tuple(things)
    while not wrong(kept):
        low, high = 0, len(before)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if wrong((*before[:middle], *kept)) else (middle, high)
        kept, before = (before[high - 1], *kept), before[: high - 1]
    return _needed(kept, wrong)


def _needed(things: tuple[int, ...], wrong: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Without those that turn out not to be needed: a longer prefix may fail for another reason."""
    for thing in things:
        without = tuple(t for t in things if t != thing)
        if wrong(without):
            return _needed(without, wrong)
    return things
