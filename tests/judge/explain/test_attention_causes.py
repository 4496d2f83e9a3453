"""Mistakes of attention kernels name themselves, in float32 and behind factors in TF32."""

from __future__ import annotations

import math

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.numerics.formats import TF32, round_to
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.arithmetic import Mul
from verax.ops.pointwise.where import Where
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind
from verax.runners.arrays import AnswerRunner

QUERIES, KEYS, FEATURES = 29, 37, 12
CAUSAL = np.tri(QUERIES, KEYS, dtype=bool)


def inputs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(8)
    sizes = {"q": QUERIES, "k": KEYS, "v": KEYS}
    return {n: random.standard_normal((2, 3, s, FEATURES), np.float32) for n, s in sizes.items()}


def network(masked: bool) -> Graph:
    b = Builder("attention")
    q, k, v = (b.input(n, TensorType.of(a)) for n, a in inputs().items())
    scaled = b.add(Mul(), [q, b.constant(np.float32(FEATURES**-0.5))])
    scores = b.add(MatMul(), [scaled, b.add(Transpose(perm=(0, 1, 3, 2)), [k])])
    if masked:
        scores = b.add(Where(), [b.constant(CAUSAL), scores, b.constant(np.float32(-np.inf))])
    return b.graph([b.add(MatMul(), [b.add(Softmax(axis=3), [scores]), v], name="y")])


def answered(
    coarse: bool,
    scale: float = FEATURES**-0.5,
    mask: np.ndarray | None = None,
    keys: slice = slice(None),
    axis: int = -1,
) -> np.ndarray:
    """Attention by a kernel. coarse: factors in TF32."""

    def factor(x: np.ndarray) -> np.ndarray:
        return round_to(x, TF32) if coarse else x

    q, k, v = (a.astype(np.float64) for a in inputs().values())
    k, v = k[..., keys, :], v[..., keys, :]
    scores = factor(q) @ factor(k).swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    p = np.exp(scores - scores.max(axis, keepdims=True))
    return np.asarray(factor(p / p.sum(axis, keepdims=True)) @ factor(v), np.float32)


LATER = np.tri(QUERIES, KEYS, 1, dtype=bool)
EARLIER = np.tri(QUERIES, KEYS, -1, dtype=bool)
EARLIER[0, 0] = True
MISTAKES = {
    "1 / features": (False, {"scale": 1 / FEATURES}, "(1 / features"),
    "features and one": (False, {"scale": 1 / math.sqrt(FEATURES + 1)}, "(1 / sqrt(features + 1)"),
    "no mask": (True, {"mask": None}, "was left out"),
    "a key too many": (True, {"mask": LATER}, "the key one later"),
    "a key too few": (True, {"mask": EARLIER}, "the key one earlier"),
    "inverted": (True, {"mask": ~CAUSAL}, "hid what it should have kept"),
    "last key": (False, {"keys": slice(0, KEYS - 1)}, "the last of 37 keys was left out"),
    "tail": (False, {"keys": slice(0, 32)}, "the last 5 of 37 keys, behind blocks of 32"),
    "axis": (False, {"axis": -2}, "computed over axis 2"),
}


@pytest.mark.parametrize("coarse", [False, True], ids=["float32", "TF32"])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_itself(name: str, coarse: bool) -> None:
    masked, changes, words = MISTAKES[name]
    arguments = {"mask": CAUSAL if masked else None, **changes}
    verdict = check(network(masked), AnswerRunner([answered(coarse, **arguments)]), inputs())
    assert verdict.kind is Kind.mistake
    (blame,) = verdict.blame
    assert any(words in e.words for e in blame.explanations)
    if coarse:
        assert all("all else in TF32" in e.words for e in blame.explanations)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("coarse", [False, True], ids=["float32", "TF32"])
def test_right_attention_is_no_mistake(coarse: bool, masked: bool) -> None:
    given = answered(coarse, mask=CAUSAL if masked else None)
    verdict = check(network(masked), AnswerRunner([given]), inputs())
    assert verdict.kind is (Kind.precision if coarse else Kind.rounding)
