"""Attention against its parts, PyTorch and exact bits; its type rule, error model and rivals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from witness import DOUBLE, agree, errors, evaluation, meaning

from verax.base.errors import GraphError
from verax.ir.graph import Node
from verax.ir.operator import REGISTRY, Case, Inference, as_tuple
from verax.ir.types import TensorType
from verax.judge.decide.criterion import decide
from verax.judge.explain.hypotheses.library import hypotheses
from verax.judge.explain.node import fits, suspect_of
from verax.numerics.error_model import U
from verax.ops.sums.attention import Attention
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind


def cases() -> list[Case]:
    return list(REGISTRY["Attention"].cases(np.random.default_rng(31)))


def drawn(seed: int, *shapes: tuple[int, ...], size: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, 77])
    return [(rng.standard_normal(s) * size).astype(np.float32) for s in shapes]


def canonical(op: Attention, *inputs: np.ndarray) -> np.ndarray:
    return np.asarray(as_tuple(op.canonical(evaluation(op, inputs), *inputs))[0])


def test_the_meaning_is_that_of_pytorch_in_double() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    attend = torch.nn.functional.scaled_dot_product_attention
    tried = 0
    for case in cases():
        op, mask = case.op, case.inputs[3] if len(case.inputs) > 3 else None
        assert isinstance(op, Attention)
        plain = mask is None or mask.dtype != bool or op.hidden == -math.inf
        if case.inputs[0].dtype != np.float32 or not plain or op.nan_to_zero:
            continue
        q, k, v = (torch.from_numpy(x.astype(np.float64)) for x in op.operands(*case.inputs[:3]))
        extra = None if mask is None else torch.from_numpy(
            mask if mask.dtype == bool else mask.astype(np.float64)
        )  # fmt: skip
        scale = float(np.float32(op.scale)) / float(np.float32(op.divisor))
        found = attend(q, k, v, extra, is_causal=op.causal, scale=scale)
        agree(op, case.inputs, [op.result(found.numpy())], DOUBLE)
        tried += 1
    assert tried >= 6


def test_the_promised_bits_are_those_of_the_parts() -> None:
    q, k, v, mask = drawn(3, (2, 3, 7, 5), (2, 3, 37, 5), (2, 3, 37, 4), (2, 1, 7, 37), size=3)
    turned = np.swapaxes(k, -1, -2)
    scores = MatMul().canonical(evaluation(MatMul(), (q, turned)), q, turned)
    scores = scores * np.float32(0.3) / np.float32(0.7) + mask
    shares = Softmax().canonical(evaluation(Softmax(), (scores,)), scores)
    wanted = MatMul().canonical(evaluation(MatMul(), (shares, v)), shares, v)
    np.testing.assert_array_equal(
        canonical(Attention(scale=0.3, divisor=0.7), q, k, v, mask), wanted
    )


def test_shared_heads_are_neighbours() -> None:
    q, k, v = drawn(4, (2, 6, 3, 5), (2, 2, 9, 5), (2, 3, 9, 4))
    wide = np.repeat(k, 3, axis=1), np.repeat(v, 2, axis=1)
    np.testing.assert_array_equal(canonical(Attention(), q, k, v), canonical(Attention(), q, *wide))


def test_a_query_that_sees_nothing_takes_nan_or_nothing() -> None:
    q, k, v = drawn(5, (3, 5), (4, 5), (4, 2))
    mask = np.array([[True, False, True, False], [False] * 4, [True] * 4])
    found = canonical(Attention(), q, k, v, mask)
    assert np.isnan(found[1]).all() and np.isfinite(found[[0, 2]]).all()
    filled = canonical(Attention(nan_to_zero=True), q, k, v, mask)
    np.testing.assert_array_equal(filled, np.where([[0], [1], [0]], np.float32(0), found))
    safe = canonical(Attention(masked_to_zero=True), q, k, v, mask)
    np.testing.assert_array_equal(safe, filled)
    q[2, 1] = np.nan  # that of a NaN stays NaN, unless all of them are to be zeros
    assert np.isnan(canonical(Attention(masked_to_zero=True), q, k, v, mask)[2]).all()
    assert not canonical(Attention(nan_to_zero=True), q, k, v, mask)[2].any()
    q[2, 1] = 0.5
    even = canonical(Attention(hidden=-1e9), q, k, v, mask)
    np.testing.assert_allclose(even[1], v.mean(axis=0), rtol=8 * U, atol=8 * U)


def test_no_key_and_no_query() -> None:
    q, k, v = drawn(6, (2, 3, 5), (2, 0, 5), (2, 0, 4))
    np.testing.assert_array_equal(canonical(Attention(), q, k, v), np.zeros((2, 3, 4)))
    none = canonical(Attention(), q[:, :0], *drawn(7, (2, 6, 5), (2, 6, 4)))
    assert none.shape == (2, 0, 4)


@pytest.mark.parametrize(
    ("op", "shapes", "said"),
    [
        (Attention(), ("2, 3, 5", "2, 4, 6", "2, 4, 7"), "the sizes 5 and 6"),
        (Attention(), ("2, 3, 5", "2, 4, 5", "2, 6, 7"), "the sizes 4 and 6"),
        (Attention(), ("2, 3, 5", "4, 5", "4, 7"), "equal ranks"),
        (Attention(), ("6, 3, 5", "4, 4, 5", "2, 4, 7"), "6 heads of queries cannot share 4"),
        (Attention(), ("2, 3, 5", "6, 4, 5", "6, 4, 7"), "2 heads of queries cannot share 6"),
        (Attention(heads_inside="x"), ("2, 3, 5", "2, 4, 5", "2, 4, 7"), "letters of 'qkvy'"),
        (Attention(heads_inside="qq"), ("2, 3, 5", "2, 4, 5", "2, 4, 7"), "letters of 'qkvy'"),
        (Attention(heads_inside="y"), ("3, 5", "4, 5", "4, 7"), "equal ranks, 3 at least"),
        (Attention(), ("2, 3, 5", "2, 4, 5", "2, 4, 7", "3, 5"), "does not broadcast"),
        (Attention(), ("2, 3, 5", "2, 4, 5", "2, 4, 7", "9, 2, 3, 4"), "does not broadcast"),
    ],
)
def test_what_does_not_fit_is_refused(op: Attention, shapes: tuple[str, ...], said: str) -> None:
    types = tuple(TensorType.parse(f"float32[{s}]") for s in shapes)
    with pytest.raises(GraphError, match=said):
        op.infer(Inference(types))


def test_a_mask_of_another_type_is_refused() -> None:
    types = [TensorType.parse(f"float32[{s}]") for s in ("3, 5", "4, 5", "4, 7")]
    for dtype in ("float64", "int32"):
        with pytest.raises(GraphError, match="a mask is float32 or bool"):
            Attention().infer(Inference((*types, TensorType.parse(f"{dtype}[3, 4]"))))


# --- the judge


def online(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, block: int) -> np.ndarray:
    """As flash attention has it: blocks of keys, a running maximum and sum, one division."""
    q = q * np.float32(scale)
    top = np.full((*q.shape[:-1], 1), -np.inf, np.float32)
    total, y = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]), np.float32)
    for first in range(0, k.shape[-2], block):
        part = slice(first, first + block)
        scores = np.matmul(q, np.swapaxes(k[..., part, :], -1, -2))
        higher = np.maximum(top, scores.max(axis=-1, keepdims=True))
        e, shrunk = np.exp(scores - higher), np.exp(top - higher)
        total = total * shrunk + e.sum(axis=-1, keepdims=True)
        y, top = y * shrunk + np.matmul(e, v[..., part, :]), higher
    return np.asarray(y / total)


@pytest.mark.parametrize("size", [0.5, 3.0])
def test_other_orders_are_judged_to_round_and_small_mistakes_are_not(size: float) -> None:
    inputs = drawn(8, (2, 3, 24, 32), (2, 3, 95, 32), (2, 3, 95, 17), size=size)
    op = Attention(scale=1 / math.sqrt(32))
    want, error = meaning(op, *inputs)[0], errors(op, *inputs)[0]
    answers = {"promised": canonical(op, *inputs), "blocks": online(*inputs, op.scale, 16)}  # type: ignore[call-arg]
    for who, given in answers.items():
        decision = decide(given, want, error)
        assert decision.kind in (Kind.identical, Kind.rounding), (who, decision)
    wrong = want.astype(np.float32)
    wrong[:, 1] *= np.float32(1.0002)
    assert decide(wrong, want, error).kind is Kind.mistake
    for rival in (Attention(scale=op.scale * 1.0005), Attention(scale=op.scale, causal=True)):
        assert decide(canonical(rival, *inputs), want, error).kind is Kind.mistake


RIVALS = {
    "scale: 1 / sqrt(features)": lambda q, k, v: canonical(
        Attention(scale=1 / math.sqrt(8)), q, k, v
    ),
    "causal True": lambda q, k, v: canonical(Attention(scale=0.5, causal=True), q, k, v),
    "keys and values exchanged": lambda q, k, v: canonical(Attention(scale=0.5), q, v, k),
    "heads shared in turn": lambda q, k, v: canonical(
        Attention(scale=0.5), q, np.tile(k, (1, 3, 1, 1)), np.tile(v, (1, 3, 1, 1))
    ),
    "Softmax over the queries": lambda q, k, v: over_queries(q, k, v),
}


def over_queries(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    k, v = np.repeat(k, 3, axis=1), np.repeat(v, 3, axis=1)
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * np.float32(0.5)
    e = np.exp(scores - scores.max(axis=-2, keepdims=True))
    return np.asarray(np.matmul(e / e.sum(axis=-2, keepdims=True), v))


@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_is_named(name: str) -> None:
    inputs = drawn(9, (2, 6, 11, 8), (2, 2, 13, 8), (2, 2, 13, 8))
    op, given = Attention(scale=0.5), RIVALS[name](*inputs)
    node = Node(op, ("q", "k", "v"), ("y",), "attention")
    suspect = suspect_of(node, tuple(inputs), given, evaluation(op, inputs).outputs)
    assert suspect is not None
    names = [h.name for h in hypotheses(suspect)]
    assert len(names) == len(set(names))
    assert [f.hypothesis.name for f in fits(suspect)][:1] == [name]


def test_a_mask_left_out_or_inverted_is_named() -> None:
    q, k, v = drawn(10, (2, 3, 11, 8), (2, 3, 13, 8), (2, 3, 13, 5))
    mask = np.random.default_rng(10).random((2, 1, 1, 13)) < 0.5
    mask[..., 0], mask[..., 1] = True, False
    op = Attention(scale=0.25)
    node = Node(op, ("q", "k", "v", "m"), ("y",), "attention")
    inputs = (q, k, v, mask)
    for name, others in (("mask missing", (q, k, v)), ("mask inverted", (q, k, v, ~mask))):
        given = canonical(op, *others)
        suspect = suspect_of(node, inputs, given, evaluation(op, inputs).outputs)
        assert suspect is not None
        assert [f.hypothesis.name for f in fits(suspect)][:1] == [name]
