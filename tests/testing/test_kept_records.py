"""Records of tests: a file for each judgement, under names that no two tests share."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from verax.base.errors import UsageError
from verax.records.verdict import Kind, Verdict
from verax.testing.assertions import assert_correct
from verax.testing.drawn_inputs import draw
from verax.testing.failures import BlindCheckError, IncorrectError
from verax.testing.judgement import BLIND, NOT_JUDGED, Judgement
from verax.testing.kept_records import error_over_allowed, judgement_of, keep, stem_of

FACTS = {"test": "t.py::test_it", "called at": "t.py:3"}


@pytest.fixture(scope="module")
def right() -> Verdict:
    inputs = draw(None, {"a": (3, 50), "b": (50, 7)}, seed=11)
    return assert_correct(np.matmul, "MatMul", inputs)


@pytest.fixture(scope="module")
def failure() -> Any:
    inputs = draw(None, {"a": (3, 50), "b": (50, 7)}, seed=12)
    with pytest.raises(AssertionError) as caught:
        assert_correct(lambda a, b: a[:, :48] @ b[:48], "MatMul", inputs)
    return caught.value


def test_a_record_is_whole_and_says_whose_it_is(right: Verdict, tmp_path: Path) -> None:
    path = keep(tmp_path / "new", right, "t.py::test_it", 1, FACTS)
    record = Verdict.from_json(path.read_text())
    assert record.subject == {**right.subject, **FACTS}
    assert dataclasses.replace(record, subject=right.subject) == right


def test_a_test_that_runs_again_replaces_what_it_left_and_nothing_else(
    right: Verdict, tmp_path: Path
) -> None:
    (tmp_path / "notes.json").write_text("mine")
    for test, count in (("t.py::test_a", 3), ("t.py::test_ab", 2), ("t.py::test_a", 1)):
        for index in range(1, count + 1):
            keep(tmp_path, right, test, index, FACTS)
    names = [p.name for p in tmp_path.iterdir()]
    assert len(names) == 4 and (tmp_path / "notes.json").read_text() == "mine"
    assert not (tmp_path / ".gitignore").exists()  # the folder was there before


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
@example(["t.py::test[a/b]", "t.py::test[a-b]"])
@example([f"t.py::test_{c}[{'x' * 100}]" for c in "pq"])
def test_names_are_plain_and_differ_where_tests_do(tests: list[str]) -> None:
    first, second = map(stem_of, tests)
    assert first != second and len(first) < 100
    assert all(c.isascii() and (c.isalnum() or c in "._-") for c in first)


def test_a_folder_that_cannot_be_made_is_an_error_with_the_next_step(
    right: Verdict, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--verax-records"):
        keep(tmp_path / "file" / "folder", right, "t", 1, FACTS)


def test_rows_say_what_was_found(right: Verdict, failure: Any) -> None:
    row = judgement_of(failure.verdict, "t", ("t.py", 3), failure)
    assert (row.verdict, row.accepted, row.file, row.line) == ("mistake", False, "t.py", 3)
    assert row.used > 1 and "last 2 of 50" in row.cause and row.message == str(failure)
    row = judgement_of(right, "t", ("t.py", 3), None)
    assert row.accepted and 0 < row.used < 1 and (row.cause, row.message) == ("", "")
    assert Judgement.from_dict(row.to_dict()) == row


def test_right_numbers_on_inputs_that_show_nothing_are_blind(right: Verdict) -> None:
    row = judgement_of(right, "t", ("t.py", 3), BlindCheckError("all zeros", right))
    assert (row.verdict, row.accepted) == (BLIND, False)
    row = judgement_of(right, "t", ("t.py", 3), IncorrectError("not reproducible", right))
    assert (row.verdict, row.accepted) == ("rounding", False)
    assert judgement_of(None, "t", ("t.py", 3), AssertionError()).verdict == NOT_JUDGED


def test_the_error_is_the_worst_of_all_values_that_have_one(right: Verdict) -> None:
    (node,) = right.nodes
    values = [dataclasses.replace(node, statistic=s, bound_ratio=None) for s in (0.5, math.nan, 3)]
    assert error_over_allowed(dataclasses.replace(right, nodes=tuple(values))) == 3
    assert error_over_allowed(dataclasses.replace(right, nodes=(), outputs=())) is None
    assert right.kind is Kind.rounding
