"""Names that are spelled otherwise are brought together where that is clear, and it is said."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import bare, matched_names, renamed_answers, stored_for
from verax.ops.movement.reshaping import Flatten
from verax.ops.pointwise.activation import Relu
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner

X = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
Y = np.maximum(X, 0)


def network() -> Graph:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[n, 5, 2]"))
    y = b.add(Relu(), [x], ["y"], "relu")
    return b.graph([y, b.add(Flatten(), [y], ["flat:0"], "flat")])


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        ({"x": (2, 3)}, {"x": (2, 3)}, {"x": "x"}),
        ({"x:0": None}, {"serving_default_x": (2,)}, {"serving_default_x": "x:0"}),
        ({"x": (2, None)}, {"other": (2, 7)}, {"other": "x"}),
        ({"x": (2, 3, 4)}, {"other": (2, 4, 3)}, {"other": "x"}),
        ({"x": (2, 3)}, {"other": (2, 4)}, None),
        ({"x": (2,), "y": (3,)}, {"a": (3,), "b": (2,)}, {"a": "y", "b": "x"}),
        ({"x": (2,), "y": (2,)}, {"a": (2,), "b": (2,)}, None),
        ({"x": (2,)}, {"x": (2,), "more": (5,)}, None),
        ({}, {}, {}),
    ],
)
def test_names_are_matched_where_it_is_clear(
    wanted: dict[str, tuple[int | None, ...] | None],
    given: dict[str, tuple[int, ...]],
    expected: dict[str, str] | None,
) -> None:
    assert matched_names(wanted, given) == expected


def test_order_decides_only_when_it_may_and_shapes_agree() -> None:
    wanted = {"x": (2, 3), "y": (2, 3)}
    assert matched_names(wanted, {"a": (2, 3), "b": (2, 3)}, by_order=True) == {"a": "x", "b": "y"}
    assert matched_names(wanted, {"a": (2, 3), "b": (3, 3)}, by_order=True) is None
    assert matched_names(wanted, {"a": (2, 3)}, by_order=True) is None


def test_tensorflow_spelling_is_taken_off() -> None:
    assert [bare(n) for n in ("x", "x:0", "serving_default_x:0", "x:1")] == ["x", "x", "x", "x:1"]


def test_answers_are_renamed_and_it_is_said() -> None:
    given, notes = renamed_answers(network(), {"y:0": Y, "flat": Y.reshape(3, 10)})
    assert sorted(given) == ["flat:0", "y"]
    assert notes == ("'y:0' was taken for 'y'", "'flat' was taken for 'flat:0'")
    given, notes = renamed_answers(network(), {"a": Y.reshape(3, 10), "b": Y})
    assert (given["flat:0"].shape, given["y"].shape) == ((3, 10), (3, 5, 2))
    assert len(notes) == 2


def test_what_is_not_clear_stays_strange() -> None:
    given, notes = renamed_answers(network(), {"a": X[0], "b": Y})
    assert (sorted(given), notes) == (["a", "b"], ())
    given, notes = renamed_answers(network(), {"y": Y, "a": X[0], "b": X})
    assert (sorted(given), notes) == (["a", "b", "y"], ())


def test_recorded_inputs_are_renamed_and_it_is_said() -> None:
    found, notes = stored_for(network(), {"x:0": X})
    assert (list(found), notes) == (["x"], ("'x:0' was taken for the input 'x'",))
    assert stored_for(network(), {"image": X})[0].keys() == {"x"}
    assert stored_for(network(), {"y": Y, "flat:0": Y}) == ({}, ())


def test_the_verdict_tells_what_was_assumed() -> None:
    arrays = {"in:image": X, "out:scores:0": Y, "out:flat": Y.reshape(3, 10)}
    verdict = check(network(), ArraysRunner(arrays))
    assert verdict.kind is Kind.identical
    assert len(verdict.notes) == 3
