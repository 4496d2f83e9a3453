"""TopK by a heap and by sorting: promised bits, ties by position, NaN as the largest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, shapes, values

from verax.compiler.kernels.search.sorting import SORTED
from verax.ops.sums.arg import TopK

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
TYPES = [t for t in SORTED if t != "bfloat16"]


@FEW
@given(shapes(1, 3), st.data(), st.booleans(), seeds)
def test_a_few_of_a_row(
    shape: tuple[int, ...], data: st.DataObject, largest: bool, seed: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    k, dtype = data.draw(st.integers(1, shape[axis])), data.draw(st.sampled_from(TYPES))
    op = TopK(axis=axis, largest=largest)
    agree(op, values(seed, shape, dtype), np.array([k]), constant=(1,))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [3, 300, 1001])
def test_long_rows(dtype: str, k: int) -> None:
    for largest, seed in ((True, 6), (False, 3)):
        x = values(seed, (2, 1001), dtype)
        agree(TopK(largest=largest), x, np.array([k]), constant=(1,))
    agree(TopK(axis=1), values(2, (2, 1001, 3), dtype), np.array([k]), constant=(1,))


@pytest.mark.parametrize("largest", [True, False])
def test_ties_and_zeros_and_nan(largest: bool) -> None:
    row = np.array([0.0, -0.0, np.nan, 1, np.inf, -np.inf, np.nan, -0.0, 0.0, 1e-45, -1e-45])
    x = np.stack([row, row[::-1], np.zeros_like(row)]).astype(np.float32)
    for k in (1, 4, 11):
        agree(TopK(largest=largest), x, np.array([k]), constant=(1,))


def test_more_rows_than_items() -> None:
    agree(TopK(), values(5, (7, 11, 13)), np.array([4]), constant=(1,))
