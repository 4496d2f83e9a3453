"""What a lowering asks of a convolution's integer weights, found once for each array."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np

from verax.compiler.kernels.products.paired_bytes import safe_share


def centered(weights: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """Weights minus their zero points, int64. zero: one, or one for each filter (axis 0)."""
    wide = weights.astype(np.int64)
    return wide - (zero.reshape(-1, *(1,) * (weights.ndim - 1)) if zero.ndim else zero)


@dataclasses.dataclass(frozen=True)
class WeightFacts:
    """lowest, highest: of the centered weights, 0 if there are none. max_sum: the largest sum of
    a filter's magnitudes. share: of neighboring channels that are a safe pair (`safe_share`), 0
    where they do not fit into signed bytes or not into blocks."""

    lowest: int
    highest: int
    max_sum: int
    share: float


_facts_by_weights: dict[tuple[int, bytes, int], WeightFacts] = {}
"""By the array's identity, the zero points and the axis of filters, while the array lives."""


def facts_of(weights: np.ndarray, zero: np.ndarray, filters: int) -> WeightFacts:
    """filters: the axis of the filters."""
    key = id(weights), zero.tobytes(), filters
    facts = _facts_by_weights.get(key)
    if facts is None:
        facts = _facts_by_weights[key] = _compute_facts(centered(weights, zero), filters)
        weakref.finalize(weights, _facts_by_weights.pop, key, None)
    return facts


def _compute_facts(w: np.ndarray, filters: int) -> WeightFacts:
    if not w.size:
        return WeightFacts(0, 0, 0, 0.0)
    low, high = int(w.min()), int(w.max())
    max_sum = int(np.abs(w).sum(axis=tuple(a for a in range(w.ndim) if a != filters)).max())
    can_pair = low >= -128 and high < 128 and filters == 0 and w.shape[1] % 16 == 0
    return WeightFacts(low, high, max_sum, safe_share(w) if can_pair else 0.0)
