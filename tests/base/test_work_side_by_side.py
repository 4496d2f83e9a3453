"""Parts on several threads: in order, with their context, and never more than were asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from verax.base.process.side_by_side import Behind, in_turn, sharing, threads

SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


@pytest.mark.parametrize("count", [1, 3])
def test_results_come_in_the_order_of_their_parts(count: int) -> None:
    with sharing(count):
        assert list(in_turn(lambda n: n * n, range(17))) == [n * n for n in range(17)]


def test_no_more_parts_are_taken_than_there_are_threads() -> None:
    taken: list[int] = []

    def parts() -> Iterator[int]:
        for n in range(9):
            taken.append(n)
            yield n

    with sharing(2):
        results = in_turn(str, parts())
        assert next(results) == "0" and len(taken) == 2
        assert next(results) == "1" and len(taken) == 3
        assert list(results) == [*"2345678"]


def test_a_part_knows_its_context_and_has_one_thread() -> None:
    SEEN.set("this")
    with sharing(2):
        found = list(in_turn(lambda _: (SEEN.get(), threads(), threading.get_ident()), range(4)))
        assert threads() == 2
    assert {f[:2] for f in found} == {("this", 1)}
    assert threading.get_ident() not in {f[2] for f in found}
    assert threads() == 1


def test_an_error_of_a_part_is_raised_at_its_turn() -> None:
    with sharing(2):
        results = in_turn(lambda n: 12 // n, [3, 4, 0, 6])
        assert [next(results), next(results)] == [4, 3]
        with pytest.raises(ZeroDivisionError):
            next(results)


@pytest.mark.parametrize("count", [1, 2])
def test_what_follows_is_done_in_order_and_before_the_end(count: int) -> None:
    done: list[tuple[int, str, bool]] = []
    here = threading.get_ident()

    def then(part: int, result: str) -> None:
        done.append((part, result, threading.get_ident() == here))

    with sharing(count), Behind(str, then) as behind:
        for n in range(7):
            behind.add(n)
            assert len(done) >= n + 1 - count - (count > 1)
        behind.finish()
        assert len(done) == 7
        behind.add(7)
    assert done == [(n, str(n), True) for n in range(8)]


def test_an_error_behind_is_raised_and_ends_the_rest() -> None:
    done: list[int] = []
    with (
        pytest.raises(ZeroDivisionError),
        sharing(2),
        Behind(lambda n: 12 // n, lambda n, r: done.append(r)) as behind,
    ):
        for n in (3, 0, 4, 6):
            behind.add(n)
    assert done == [4]
