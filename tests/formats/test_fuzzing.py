"""Mutated files of every format are a model or a clear error, in bounded time and memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.formats.confined import MEMORY, SECONDS
from tests.formats.fuzzing import fuzzed
from tests.formats.small_files import SMALL


def hold(kinds: Sequence[str], each: int, seed: int) -> None:
    for kind, tally in fuzzed(kinds, each, seed).items():
        assert not tally.unclear, (kind, tally.unclear[:3])
        assert tally.slowest < SECONDS and tally.largest < MEMORY, kind
        assert tally.kinds.total() > tally.kinds["model"], f"some damage of {kind} shows"
        assert each < 1000 or tally.kinds["model"], f"some damage of {kind} is harmless"


def test_some_mutations() -> None:
    hold(list(SMALL), 15, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_a_thousand_mutations_of_each_seed(kind: str) -> None:
    hold([kind], 1000, 100_000)
