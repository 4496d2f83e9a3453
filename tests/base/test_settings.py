"""Settings refuse what does not exist and count threads."""

from __future__ import annotations

import dataclasses

import pytest

from verax.base.errors import UsageError
from verax.base.machine.cores import deciding
from verax.base.option_groups.settings import LEVELS, Settings


def test_every_level_that_exists_is_accepted() -> None:
    assert [Settings(opt_level=n).opt_level for n in LEVELS] == list(LEVELS)


@pytest.mark.parametrize("level", [-1, max(LEVELS) + 1, 7])
def test_other_levels_are_refused_with_the_ones_that_exist(level: int) -> None:
    with pytest.raises(UsageError, match="unknown opt_level") as caught:
        Settings(opt_level=level)
    assert all(str(n) in caught.value.next_step for n in LEVELS)


def test_zero_threads_means_what_the_machine_gives() -> None:
    assert Settings(threads=0).thread_count == deciding().threads
    assert Settings(threads=3).thread_count == 3


def test_negative_threads_are_refused() -> None:
    with pytest.raises(UsageError):
        Settings(threads=-1)


def test_settings_are_frozen_and_hashable() -> None:
    settings = Settings(disable=("fold_constants",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.threads = 2  # type: ignore[misc]
    assert hash(settings) == hash(Settings(disable=("fold_constants",)))
