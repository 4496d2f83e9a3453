"""SAME follows from the operators: what ordinary inputs do not show is looked for, or said."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from tests.judge.align.mutations import (
    Piece,
    batch_norm,
    binary,
    clip,
    folded_norm,
    honest,
    mutated,
    network,
    op,
    scaled,
    then,
    unary,
)

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.align import networks, verdict
from verax.judge.align.corners import interval
from verax.judge.align.drives import of_inputs
from verax.judge.align.inputs import InputConversions
from verax.judge.align.networks import align
from verax.judge.align.search import Run
from verax.judge.align.values import Side, Values
from verax.records.alignment import Alignment, Relation

RELU, IDENTITY = unary("Relu"), unary("Identity")


def compared(first: Piece, second: Piece, near: str = "small", seed: int = 11) -> Alignment:
    """Both in one network, the second's values by other names."""
    return align(network(first, near, seed), network(second, near, seed, "q"))


@pytest.mark.parametrize(
    ("first", "second", "near"),
    [
        (clip(0, 6), RELU, "small"),
        (RELU, IDENTITY, "positive"),
        (clip(0, 6), clip(0, 600), "small"),
        (unary("LeakyRelu", alpha=0.1), unary("LeakyRelu", alpha=0.2), "positive"),
        (unary("ThresholdedRelu", alpha=0.5), unary("ThresholdedRelu", alpha=1.0), "positive"),
    ],
    ids=["ReLU6", "Identity", "bounds", "slope", "threshold"],
)
def test_what_ordinary_inputs_hide_is_found_by_search(
    first: Piece, second: Piece, near: str
) -> None:
    found = compared(first, second, near)
    assert found.relation is Relation.different and found.exit_code == 1
    assert "part on others, found by search: " in found.reasons[0]
    assert found.divergences and "part at" in found.reasons[1]


def test_the_input_that_was_found_tells_them_apart() -> None:
    first, second = (network(p, "small", 3) for p in (clip(0, 6), RELU))
    words = align(first, second).reasons[0]
    factor = float(words.rpartition("times ")[2])
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 7)).astype(np.float32)
    assert align(first, second, {"x": x * np.float32(factor)}).outputs[0].reason


def bounded_norm(bound: float) -> Piece:
    """LayerNormalization of 7 numbers is below 2.5 times its scale: no input reaches far."""
    norm = scaled("LayerNormalization", (7,), epsilon=1e-5)
    return then(norm, clip(-bound, bound), unary("Tanh"))


def test_what_no_input_reaches_is_no_difference_and_says_what_would_show_it() -> None:
    found = compared(bounded_norm(9.0), bounded_norm(90.0), "wide")
    assert found.relation is Relation.no_difference and found.exit_code == 3
    assert "no difference on these inputs, nor on" in found.reasons[0]
    said = found.reasons[1]
    assert "9" in said and "90" in said and "clip" in said
    without = then(scaled("LayerNormalization", (7,), epsilon=1e-5), unary("Tanh"))
    found = compared(bounded_norm(9.0), without, "wide")
    assert found.relation is Relation.no_difference
    said = found.reasons[1]
    assert "would tell them apart" in said
    assert "brought a number above 9 to 'clip': the nearest was" in said
    assert Alignment.from_json(found.to_json()) == found


def squashed_sum(bound: float) -> Piece:
    """Sums of 252 squashed numbers: those of random inputs are below 4, the largest above 10."""

    def summed(b: Builder, h: str) -> str:
        w = np.random.default_rng(9).standard_normal((252, 3)).astype(np.float32)
        flat = b.add(op("Flatten", axis=1), [h])
        return b.add(op("MatMul"), [flat, b.constant(w / np.float32(np.sqrt(252)))])

    return then(unary("Tanh"), summed, clip(-bound, bound))


def test_inputs_are_pushed_along_the_derivative() -> None:
    found = compared(squashed_sum(5.5), squashed_sum(50.0), "wide", 5)
    assert found.relation is Relation.different
    assert "pushed so that" in found.reasons[0], found.reasons


def test_an_epsilon_within_rounding_is_not_the_same() -> None:
    found = compared(batch_norm(epsilon=1e-5), batch_norm(epsilon=1.1e-5))
    assert found.relation is not Relation.same
    assert any("epsilon is 1e-05" in r for r in found.reasons)


@pytest.mark.parametrize(
    ("first", "second", "values"),
    [
        [*(then(RELU, unary("LeakyRelu", alpha=a)) for a in (0.1, 0.2)), ("0.1", "0.2")],
        [*(then(unary("Sigmoid"), clip(0, h)) for h in (6, 7)), ("6", "7")],
    ],
    ids=["slope after Relu", "bound after Sigmoid"],
)
def test_what_differs_in_text_is_not_the_same_even_where_nothing_comes(
    first: Piece, second: Piece, values: tuple[str, str]
) -> None:
    found = compared(first, second, "wide")
    assert found.relation is Relation.no_difference
    assert all(f in found.divergences[0].reason for f in values)


@pytest.mark.parametrize("resize_first", [True, False])
def test_rounding_of_weights_changes_no_sizes(resize_first: bool) -> None:
    """A normalization behind the Resize in one network, folded before it in the other."""

    def enlarged(b: Builder, h: str) -> str:
        twice = b.constant(np.array([1, 1, 2, 3], np.float32))
        return b.add(op("Resize", mode="nearest"), [h, None, twice])

    pair = [then(enlarged, batch_norm()), then(folded_norm, enlarged)]
    found = compared(*(pair if resize_first else pair[::-1]))
    assert found.relation is Relation.same, found.reasons


def test_what_sums_and_products_keep_numbers_within_is_known() -> None:
    """ReLU6 written as -max(-x, -6), as CoreML files have it: no number is below 0 behind it."""
    b = Builder("chain")
    h = RELU(b, b.input("x", TensorType.parse("float32[2, 3]")))
    steps = [("Mul", -1.0), ("Add", 0.0), ("Max", -6.0), ("Mul", -1.0), ("Sub", -2.0)]
    limits = []
    for kind, number in steps:
        h = binary(kind, number)(b, h)
        limits.append(h)
    h = b.add(op("Mul"), [h, limits[2]])
    graph = b.graph([b.add(op("Neg"), [h])])
    inf = np.inf
    expected = [(-inf, 0), (-inf, 0), (-6, 0), (0, 6), (2, 8)]
    assert [interval(graph, v) for v in limits] == expected
    assert interval(graph, graph.outputs[0]) == (0, 48)
    assert interval(graph, "x") == (-inf, inf)


def test_what_is_not_compared_in_time_is_said_to_be_open() -> None:
    first, second = network(RELU, "wide", 7), network(then(RELU, RELU), "wide", 7, "q")
    assert align(first, second, timeout=600).relation is Relation.same
    found = align(first, second, timeout=1e-9)
    assert found.relation is Relation.no_difference and found.exit_code == 3
    assert any("--timeout" in n for n in found.notes) and "--timeout" in " ".join(found.reasons)


def test_inputs_are_tried_before_operators_where_these_differ_in_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large networks take minutes to compare operator by operator, and seconds to run."""

    def never(*args: object, **options: object) -> None:
        raise AssertionError("the operators were compared first")

    monkeypatch.setattr(verdict, "prove", never)
    found = compared(clip(0, 0.2), RELU)
    assert found.relation is Relation.different and "found by search" in found.reasons[0]


def test_no_input_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where operators differ in kind, inputs are tried before these are compared and after, and
    operators are compared either way round."""
    tried: list[bytes] = []

    def judge_operators(
        first: Side, second: Side, ways: InputConversions, outputs: Any, run: Run, **more: Any
    ):
        def counted(arrays: Values) -> tuple[Side, Side]:
            tried.append(b"".join(map(np.ndarray.tobytes, arrays.values())))
            return run(arrays)

        return verdict.judge_operators(first, second, ways, outputs, counted, **more)

    monkeypatch.setattr(networks, "judge_operators", judge_operators)
    norm = scaled("LayerNormalization", (7,), epsilon=1e-5)
    found = compared(bounded_norm(9.0), then(norm, unary("Tanh")), "wide")
    assert found.relation is Relation.no_difference
    inputs = list(of_inputs())
    assert len(tried) >= len(inputs) and len(set(tried)) == len(tried)
    assert f"nor on {len(tried)} others" in found.reasons[0]


def test_the_note_says_what_the_same_rests_on() -> None:
    found = compared(clip(0, 6), then(unary("Relu"), clip(None, 6)))
    assert found.relation is Relation.same
    assert any("by trial on both sides of every corner" in n for n in found.notes)


def test_a_constant_input_is_warned_of() -> None:
    pair = network(RELU, "wide", 1), network(RELU, "wide", 1, "q", extra=True)
    (note, *_) = align(*pair, {"x": np.ones((2, 3, 9, 7), np.float32)}).notes
    assert "'x' is one number everywhere" in note


def test_an_input_that_is_the_same_in_two_orders_is_warned_of() -> None:
    pair = network(RELU, "wide", 1), network(RELU, "wide", 1, "q", extra=True)
    gray = np.random.default_rng(2).standard_normal((2, 1, 9, 7)).astype(np.float32)
    (note, *_) = align(*pair, {"x": np.repeat(gray, 3, axis=1)}).notes
    assert "the same array as it is and channels reversed" in note
    assert not any("cannot tell" in n for n in align(*pair).notes)


def pooled(ceil: bool, free: bool) -> Graph:
    """Windows of 2 that divide the drawn 64 x 96 evenly, and not every other size."""
    b = Builder("pooled")
    x = b.input("x", TensorType.parse("float32[1, 2, h, w]" if free else "float32[1, 2, 8, 6]"))
    h = b.add(op("MaxPool", kernel_shape=(2, 2), strides=(2, 2), ceil_mode=ceil), [x])
    return b.graph([b.add(op("Tanh"), [h])])


def test_windows_that_divide_these_sizes_evenly_are_tried_at_others() -> None:
    found = align(pooled(True, True), pooled(False, True))
    assert found.relation is Relation.different
    assert "agree at these sizes and differ at others (h = 65, w = 97)" in found.reasons[0]
    assert align(pooled(True, False), pooled(False, False)).relation is Relation.same


def counted(pairs: int, honest_pairs: int, seed: int) -> tuple[collections.Counter, list[str]]:
    """How often each relation was said, hidden and shown; honest pairs that are not the same."""
    said: collections.Counter = collections.Counter()
    for pair in mutated(pairs, seed):
        said[align(pair.first, pair.second).relation, pair.hidden] += 1
    wrong = []
    for pair in honest(honest_pairs, seed):
        found = align(pair.first, pair.second)
        if found.relation is not Relation.same:
            wrong.append(f"{pair.label}: {found.relation}: {found.reasons}")
    return said, wrong


def test_no_pair_that_differs_by_one_attribute_is_the_same() -> None:
    said, wrong = counted(26, 22, seed=71)
    assert said[Relation.same, True] == said[Relation.same, False] == 0, said
    assert said[Relation.different, True] >= 9
    assert not wrong


@pytest.mark.slow
def test_no_pair_of_300_that_differs_by_one_attribute_is_the_same() -> None:
    said, wrong = counted(300, 88, seed=7)
    assert said[Relation.same, True] == said[Relation.same, False] == 0, said
    assert said[Relation.different, True] >= 120
    assert not wrong
