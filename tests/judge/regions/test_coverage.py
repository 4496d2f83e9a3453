"""What a check could see is said; a blind place does not undo what was seen elsewhere."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.comparison import Equal
from verax.ops.pointwise.rounding import Round
from verax.ops.pointwise.transcendental import Log
from verax.ops.pointwise.where import Where
from verax.ops.sums.arg import TopK
from verax.ops.sums.layer_normalization import RMSNormalization
from verax.ops.sums.linear import MatMul
from verax.ops.sums.response_normalization import LpNormalization
from verax.records.verdict import Kind
from verax.reference.evaluate import promised


def numbers(seed: int, *shape: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


class Honest:
    """Our promised bits; `changed` outputs are what the subject gives instead."""

    stored_inputs = None

    def __init__(self, watches: bool = False, **changed: np.ndarray) -> None:
        self.name, self.changed = "honest", changed
        self.capabilities = Capabilities(watches=watches)

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        found = promised(graph, inputs, keep=[*graph.outputs, *(keep or ())])
        return {**found, **{k: v for k, v in self.changed.items() if k in found}}


def normalised(op: LpNormalization | RMSNormalization) -> Graph:
    b = Builder("normalised")
    x = b.input("x", TensorType.parse("float32[1, 37]"))
    h = b.add(MatMul(), [x, b.constant(numbers(0, 37, 128), "w")], ["h"], "h")
    h = b.add(Relu(), [h], ["r"], "r")
    more = [b.constant(1 + numbers(3, 128), "gain")] if isinstance(op, RMSNormalization) else []
    return b.graph([b.add(op, [h, *more], ["y"], "norm")])


@pytest.mark.parametrize("op", [LpNormalization(axis=1), RMSNormalization(axis=1)])
@pytest.mark.parametrize("seed", range(6))
def test_all_zeros_are_no_rounding(op: LpNormalization | RMSNormalization, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((1, 37)).astype(np.float32)
    zeros = Honest(y=np.zeros((1, 128), np.float32))
    assert check(normalised(op), zeros, {"x": x}, explain=False).kind is Kind.mistake
    assert check(normalised(op), Honest(), {"x": x}).kind in (Kind.rounding, Kind.identical)


def half_hidden(scale: float) -> Graph:
    """Two layers of which the second hardly hears the first: y = b + scale * (a @ w)."""
    b = Builder("half")
    x = b.input("x", TensorType.parse("float32[5, 17]"))
    a = b.add(MatMul(), [x, b.constant(numbers(0, 17, 23), "w0")], ["a"], "a")
    c = b.add(MatMul(), [x, b.constant(numbers(1, 17, 23), "w1")], ["c"], "c")
    r = b.add(Relu(), [c], ["r"], "r")
    s = b.add(Mul(), [a, b.constant(np.float32(scale), "scale")], ["s"], "s")
    t = b.add(Add(), [s, r], ["t"], "t")
    return b.graph([b.add(MatMul(), [t, b.constant(numbers(2, 23, 9), "w2")], ["y"], "y")])


X = np.random.default_rng(4).standard_normal((5, 17)).astype(np.float32)


def test_blind_places_are_listed_beside_what_was_seen() -> None:
    verdict = check(half_hidden(1e-8), Honest(), {"x": X})
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert verdict.coverage is not None
    assert set(verdict.coverage.blind) == {"a", "s"}
    assert (verdict.coverage.seen, verdict.coverage.tried) == (4, 6)
    assert any("4 of 6 nodes; blind: a, s" in reason for reason in verdict.reasons)


def test_power_can_be_required() -> None:
    weak = check(half_hidden(1e-8), Honest(), {"x": X}, require_power=1e-3)
    assert (weak.kind, weak.exit_code) == (Kind.undecided, 3)
    assert "0.001 was required" in weak.reasons[0] and " a" in weak.reasons[0]
    strong = check(half_hidden(1.0), Honest(), {"x": X}, require_power=1e-3)
    assert strong.kind in (Kind.rounding, Kind.identical)
    watched = check(half_hidden(1e-8), Honest(watches=True), {"x": X}, require_power=1e-3)
    assert watched.kind in (Kind.rounding, Kind.identical)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_blindness_is_measured_in_units_of_the_type(dtype: str) -> None:
    b = Builder("coarse")
    x = b.input("x", TensorType.parse(f"{dtype}[4, 19]"))
    kind = b.types["x"].dtype.numpy
    for i, (m, n) in enumerate([(19, 31), (31, 29), (29, 23), (23, 11)]):
        x = b.add(MatMul(), [x, b.constant(numbers(i, m, n).astype(kind), f"w{i}")], [f"h{i}"])
        x = b.add(Relu(), [x], [f"r{i}"])
    graph = b.graph([x])
    data = np.random.default_rng(9).standard_normal((4, 19)).astype(kind)
    verdict = check(graph, Honest(), {"x": data})
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert verdict.coverage is not None and not verdict.coverage.blind
    zeros = Honest(**{graph.outputs[0]: np.zeros((4, 11), kind)})
    assert check(graph, zeros, {"x": data}, explain=False).kind is Kind.mistake


def test_the_outputs_decide_over_an_ambiguous_choice_inside() -> None:
    """Equal elements that TopK takes in another order: the values behind it are the same."""
    b = Builder("choice")
    x = b.input("x", TensorType.parse("float32[3, 12]"))
    r = b.add(Round(), [x], ["r"], "r")
    values, places = b.add_all(
        TopK(axis=1), [r, b.constant(np.array([12], np.int64), "k")], ["v", "i"], "top"
    )
    y = b.add(MatMul(), [values, b.constant(numbers(7, 12, 5), "w")], ["y"], "y")
    graph = b.graph([y])
    data = np.random.default_rng(3).uniform(-2, 2, (3, 12)).astype(np.float32)
    i = promised(graph, {"x": data}, keep=[places])[places]
    order = np.argsort(-np.round(data), axis=1, kind="stable")
    assert (i == order).all()
    other = (11 - np.argsort(-np.round(data)[:, ::-1], axis=1, kind="stable")).astype(np.int64)
    verdict = check(graph, Honest(watches=True, i=other), {"x": data})
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert any("not decided inside, at top" in note for note in verdict.notes)


def test_a_jump_is_named_only_where_there_is_one() -> None:
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal((1, 37)).astype(np.float32)
        wrong = promised(normalised(LpNormalization(axis=1)), {"x": x})["y"] * np.float32(1.01)
        verdict = check(
            normalised(LpNormalization(axis=1)), Honest(y=wrong), {"x": x}, explain=False
        )
        assert verdict.kind is Kind.mistake
        assert "jump" not in " ".join(verdict.reasons)


def casting() -> Graph:
    """x -> log -> int -> + 3 -> float, thrown away where x is 0."""
    b = Builder("casting")
    x = b.input("x", TensorType.parse("float32[2, 9]"))
    logarithm = b.add(Log(), [x], ["l"], "log")
    whole = b.add(Cast(to=DType.int64), [logarithm], ["c"], "cast")
    more = b.add(Add(), [whole, b.constant(np.array(3, np.int64), "three")], ["m"], "more")
    back = b.add(Cast(to=DType.float32), [more], ["f"], "back")
    zero = b.add(Equal(), [x, b.constant(np.float32(0), "zero")], ["z"], "is zero")
    return b.graph([b.add(Where(), [zero, x, back], ["y"], "choose")])


def test_what_a_cast_gives_for_infinity_is_nobodys_mistake() -> None:
    x = np.random.default_rng(6).uniform(0.1, 90, (2, 9)).astype(np.float32)
    x[0, 3] = x[1, 7] = 0
    shown = promised(casting(), {"x": x}, keep=["c", "m", "f"])
    other = shown["c"].copy()
    other[x == 0] = -(2**31)  # what a processor's conversion to 32 bits leaves
    wraps = other + np.where(x == 0, 2**32, 0) + 3
    honest = Honest(True, c=other, m=wraps, f=wraps.astype(np.float32))
    verdict = check(casting(), honest, {"x": x})
    assert verdict.kind in (Kind.rounding, Kind.identical)
    assert any("is not defined" in note for note in verdict.notes)
    other[1, 2] += 1
    back = (other + 3).astype(np.float32)
    wrong = Honest(True, c=other, m=other + 3, f=back, y=np.where(x == 0, x, back))
    assert [b.node for b in check(casting(), wrong, {"x": x}, explain=False).blame] == ["cast"]
