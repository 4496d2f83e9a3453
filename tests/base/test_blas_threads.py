"""The limit on NumPy's threads holds whoever sets it, and is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import ThreadpoolController

from verax.base.machine.blas import one_blas_thread


def counts() -> list[int]:
    """Threads of each BLAS library of this process."""
    return [
        lib.num_threads for lib in ThreadpoolController().select(user_api="blas").lib_controllers
    ]


@pytest.fixture
def usual() -> Iterator[list[int]]:
    controller = ThreadpoolController()
    if not any(hasattr(lib, "clear_controlling_thread") for lib in controller.lib_controllers):
        pytest.skip("this threadpoolctl lets every thread set the limit, or NumPy has no OpenBLAS")
    with controller.limit(limits=3, user_api="blas"):
        yield [3] * len(counts())


def within() -> list[int]:
    with one_blas_thread():
        return counts()


def test_threads_that_take_turns_all_get_the_limit(usual: list[int]) -> None:
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for pool in (first, second, first):
            assert pool.submit(within).result() == [1] * len(usual)
            assert counts() == usual
    assert within() == [1] * len(usual)
    assert counts() == usual


def test_who_leaves_last_need_not_be_who_came_first(usual: list[int]) -> None:
    limit = one_blas_thread()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(limit.__enter__).result()
        with one_blas_thread():
            pool.submit(limit.__exit__, None, None, None).result()
            assert counts() == [1] * len(usual)
        assert counts() == usual
