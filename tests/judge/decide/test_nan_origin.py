"""Ordinary numbers where the meaning is NaN: whose mistake that is, and where nobody can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.nan_origin import TEST
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.arithmetic import Div, Mul, Sub
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Finding, Kind
from verax.reference.evaluate import evaluate, promised

ROWS, KEYS, VALUES = 5, 7, 3


class Subject:
    """Answers that were worked out before; of `shown` values too, where there are any."""

    stored_inputs, name = None, "subject"

    def __init__(self, answers: Mapping[str, np.ndarray]) -> None:
        self.answers, self.capabilities = answers, Capabilities(watches=len(answers) > 1)

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return {v: a for v, a in self.answers.items() if v in (*graph.outputs, *(keep or ()))}


def judged(graph: Graph, inputs: dict[str, np.ndarray], **answers: np.ndarray) -> Finding:
    verdict = check(graph, Subject(answers), inputs)
    (found,) = [f for f in verdict.nodes if np.isnan(f.plain.max_abs) or f.kind not in (
        Kind.identical, Kind.rounding)] or verdict.nodes[:1]  # fmt: skip
    assert verdict.kind is found.kind
    return found


def weighted(masked_to_zero: bool = False, after: str = "") -> Graph:
    """Softmax of scores times values, and one more operator where that is told."""
    b = Builder("weighted")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {KEYS}]"))
    values = np.random.default_rng(40).standard_normal((KEYS, VALUES)).astype(np.float32)
    p = b.add(Softmax(axis=1, masked_to_zero=masked_to_zero), [x], ["p"], "shares")
    y = b.add(MatMul(), [p, b.constant(values)], ["m" if after else "y"], "sum")
    if after:
        y = b.add(REGISTRY[after](), [y], ["y"], "last")
    return b.graph([y])


def scores() -> np.ndarray:
    x = np.random.default_rng(41).standard_normal((ROWS, KEYS)).astype(np.float32)
    x[1, 2:4] = x[2:4] = -np.inf
    return x


def test_zeros_for_a_masked_line_are_a_mistake_that_is_named() -> None:
    feeds = {"x": scores()}
    given = promised(weighted(True), feeds)["y"]
    assert np.isfinite(given).all() and np.isnan(evaluate(weighted(), feeds)["y"][2:4]).all()
    found = judged(weighted(), feeds, y=given)
    assert (found.kind, found.test) == (Kind.mistake, TEST)
    assert "a line that is -inf throughout, so 0 / 0, in 'shares' (Softmax)" in found.reason
    assert "safe softmax" in found.reason and "the file was read wrongly" in found.reason
    assert judged(weighted(True), feeds, y=given).kind in (Kind.identical, Kind.rounding)


def test_the_same_where_the_softmax_is_shown() -> None:
    feeds = {"x": scores()}
    given = {v: promised(cut, feeds)[v] for v, cut in (("y", weighted(True)), ("p", shares()))}
    found = judged(weighted(), feeds, **given)
    assert (found.kind, found.test, found.node) == (Kind.mistake, TEST, "shares")
    assert "safe softmax" in found.reason


def shares() -> Graph:
    b = Builder("shares")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {KEYS}]"))
    return b.graph([b.add(Softmax(axis=1, masked_to_zero=True), [x], ["p"], "shares")])


def test_other_numbers_for_a_masked_line_are_a_mistake_too() -> None:
    feeds = {"x": scores()}
    even = {"x": np.maximum(feeds["x"], np.finfo(np.float32).min)}
    found = judged(weighted(), feeds, y=promised(weighted(), even)["y"])
    assert (found.kind, found.test) == (Kind.mistake, TEST)
    assert "Rounding never does this" in found.reason and "safe softmax" not in found.reason


def test_a_nan_that_was_read_proves_nothing() -> None:
    x = scores()
    x[2:4, 1] = np.nan
    given = np.nan_to_num(promised(weighted(), {"x": x})["y"])
    found = judged(weighted(), {"x": x}, y=given)
    assert (found.kind, found.test) == (Kind.undecided, "non-finite")
    assert "NaN was read" in found.reason


def test_nan_in_both_proves_nothing() -> None:
    feeds = {"x": scores()}
    found = judged(weighted(), feeds, y=promised(weighted(), feeds)["y"])
    assert found.kind is Kind.undecided and "a NaN proves nothing" in found.reason


@pytest.mark.parametrize(("after", "kind"), [("Relu", Kind.undecided), ("Tanh", Kind.mistake)])
def test_where_runtimes_lose_nan_on_the_way_it_depends(after: str, kind: Kind) -> None:
    """After Relu, a subject that has 0 for NaN is no other than one that loses it there."""
    feeds = {"x": scores()}
    given = promised(weighted(after=after), feeds)["y"]
    given = np.where(np.isnan(given), np.float32(0.25), given)
    found = judged(weighted(after=after), feeds, y=given)
    assert found.kind is kind, found
    if kind is Kind.undecided:
        assert "passes 'last' (Relu), where runtimes differ" in found.reason


def test_zeros_are_found_behind_what_loses_nan() -> None:
    """The second Softmax, in which OpenVINO loses some NaN."""

    def layers(safe: bool) -> Graph:
        b = Builder("layers")
        x = b.input("x", TensorType.parse(f"float32[{ROWS}, {KEYS}]"))
        for i in range(2):
            weights = np.random.default_rng([44, i]).standard_normal((KEYS, KEYS))
            p = b.add(Softmax(axis=1, masked_to_zero=safe), [x], [f"p{i}"], f"shares {i}")
            x = b.add(MatMul(), [p, b.constant(weights.astype(np.float32))], [f"y{i}"], f"sum {i}")
        return b.graph([x])

    feeds = {"x": scores()}
    found = judged(layers(False), feeds, y1=promised(layers(True), feeds)["y1"])
    assert (found.kind, found.test) == (Kind.mistake, TEST)
    assert "in 'shares 0' (Softmax)" in found.reason and "safe softmax" in found.reason


def test_what_rounding_makes_a_number_accuses_nobody() -> None:
    """3 x - 2 x - x is 0 exactly, and a few units of roundoff in float32."""
    b = Builder("noise")
    x = b.input("x", TensorType.parse("float32[4, 50]"))
    three, two = (
        b.add(Mul(), [x, b.constant(np.float32(k))], [name]) for k, name in ((3, "t"), (2, "d"))
    )
    rest = b.add(Sub(), [b.add(Sub(), [three, two], ["u"]), x], ["r"])
    graph = b.graph([b.add(Div(), [rest, rest], ["y"], "quotient")])
    feeds = {"x": np.random.default_rng(42).standard_normal((4, 50)).astype(np.float32)}
    given = promised(graph, feeds)["y"]
    assert np.isnan(evaluate(graph, feeds)["y"]).all() and np.isfinite(given).any()
    found = judged(graph, feeds, y=np.where(np.isnan(given), np.float32(1), given))
    assert (found.kind, found.test) == (Kind.undecided, "non-finite")
    assert "rounding decides" in found.reason and "0 / 0 in 'quotient' (Div)" in found.reason


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_overflow_of_16_bits_may_be_finite_inside(dtype: str) -> None:
    b = Builder("difference")
    x, z = (b.input(n, TensorType.parse(f"{dtype}[2, 3]")) for n in "xz")
    graph = b.graph([b.add(Sub(), [x, z], ["y"], "apart")])
    a = np.array([[1, np.inf, 2], [3, 4, 5]], dtype)
    found = judged(graph, {"x": a, "z": a}, y=np.zeros((2, 3), dtype))
    assert found.kind is (Kind.mistake if dtype == "float32" else Kind.undecided)
    if dtype == "float32":
        assert "inf - inf in 'apart' (Sub)" in found.reason


def masked(kind: str, zero: float = 0.0) -> Graph:
    """A mask of minus infinity on scores, and their sum behind it; or 1 / (scores * zero)."""
    b = Builder("masked")
    x = b.input("x", TensorType.parse(f"float32[{ROWS}, {KEYS}]"))
    mask = np.where(np.arange(KEYS) > 3, -np.inf, 0.25).astype(np.float32)
    if kind == "Reciprocal":
        x = b.add(Mul(), [x, b.constant(np.float32(zero))], ["a"], "zeros")
        return b.graph([b.add(REGISTRY[kind](), [x], ["y"], "last")])
    a = b.add(REGISTRY[kind](), [x, b.constant(mask)], ["a"], "mask")
    return b.graph([b.add(REGISTRY["Neg"](), [a], ["y"], "last")])


@pytest.mark.parametrize("shown", [True, False], ids=["watched", "outputs"])
def test_infinities_of_the_other_sign_are_a_mistake(shown: bool) -> None:
    feeds = {"x": np.random.default_rng(45).standard_normal((ROWS, KEYS)).astype(np.float32)}
    given = promised(masked("Sub"), feeds, keep=("a", "y") if shown else ("y",))
    found = judged(masked("Add"), feeds, **{v: given[v] for v in (("a", "y") if shown else "y")})
    assert (found.kind, found.test) == (Kind.mistake, "sign of infinity"), found
    assert f"{3 * ROWS} of {ROWS * KEYS} elements" in found.reason


def test_the_sign_of_a_zero_accuses_nobody() -> None:
    feeds = {"x": np.ones((ROWS, KEYS), np.float32)}
    given = promised(masked("Reciprocal", -0.0), feeds)["y"]
    assert np.isneginf(given).all()
    assert judged(masked("Reciprocal"), feeds, y=given).kind is Kind.undecided
