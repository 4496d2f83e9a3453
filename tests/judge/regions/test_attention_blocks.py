"""Fused attention rounds its weights over the largest of the keys so far, block by block: judged by
its numbers, and not where a key is missing."""

import numpy as np
import pytest

import verax
from verax.judge.regions.exceptional import largest_so_far
from verax.records.verdict import Kind, Verdict

torch = pytest.importorskip("torch", reason="torch is not installed")
HEADS, ROWS, SIZE = 3, 75, 24


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, block: int, seen: int) -> np.ndarray:
    """Causal attention in float64 with weights and values in float16; every row sees `seen` keys
    beside itself, at most."""
    scores = np.einsum("hid,hjd->hij", q, k) / np.sqrt(SIZE)
    away = np.arange(ROWS)[:, None] - np.arange(ROWS)
    weights = np.where((away >= 0) & (away <= seen), np.exp(scores), 0.0)
    sizes = largest_so_far(weights, block)
    rounded = (weights / sizes).astype(np.float16) * sizes
    return rounded @ v.astype(np.float16).astype(np.float64) / weights.sum(-1, keepdims=True)


def judged(block: int, seen: int = ROWS) -> Verdict:
    rng = np.random.default_rng(362)
    q, k, v = (rng.standard_normal((HEADS, ROWS, SIZE)).astype(np.float32) for _ in "qkv")
    wide = [a.astype(np.float64) for a in (q * 2, k, v)]
    y = attention(wide[0], wide[1], wide[2], block, seen).astype(np.float32)

    def causal(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)

    return verax.check(causal, y, tuple(torch.from_numpy(a) for a in (q * 2, k, v)))


def test_weights_that_are_rounded_by_blocks_are_named() -> None:
    verdict = judged(32)
    assert verdict.kind is Kind.precision, verdict.reasons
    assert "weights rounded by blocks of 32 keys" in verdict.reasons[0]


def test_few_keys_behind_a_block_need_no_words() -> None:
    verdict = judged(64)
    assert verdict.kind is Kind.precision, verdict.reasons


def test_a_missing_key_is_still_a_mistake() -> None:
    assert judged(32, seen=ROWS - 3).kind is Kind.mistake


def test_largest_so_far_ends_with_its_block() -> None:
    weights = np.array([[1.0, 3.0, 2.0, 5.0, 4.0, 0.0, 9.0], [0.0] * 7])
    expected = [[3.0, 3.0, 5.0, 5.0, 5.0, 5.0, 9.0], [1.0] * 7]
    np.testing.assert_array_equal(largest_so_far(weights, 2), expected)
    np.testing.assert_array_equal(largest_so_far(weights, None), [[9.0], [1.0]])
