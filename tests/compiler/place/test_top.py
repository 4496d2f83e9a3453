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


@pytest.mark.checkered
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


WORST = {"float32": np.nan, "int32": np.iinfo(np.int32).max, "uint8": 255, "int64": 2**63 - 1}


@pytest.mark.parametrize("dtype", WORST)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("length, k", [(75, 5), (75, 16), (300, 20), (300, 37)])
def test_the_worst_element_is_found_where_there_is_nothing_better(
    length: int, k: int, largest: bool, dtype: str
) -> None:
    """Rows of one value, of two, and of a few that are better than all others."""
    rng = np.random.default_rng([length, k])
    worst = np.array(WORST[dtype], dtype)
    if largest:
        worst = np.array(-np.inf if dtype == "float32" else np.iinfo(dtype).min, dtype)
    rows = np.full((7, length), worst)
    for row in range(1, 7):
        where = rng.choice(length, row * (row > 3) + k // 2 * (row <= 3), replace=False)
        rows[row, where] = rng.integers(0, 3, len(where)).astype(dtype)
    agree(TopK(largest=largest), rows, np.array([k]), constant=(1,))


@pytest.mark.parametrize("length, k", [(64, 3), (129, 16), (400, 31)])
def test_of_equal_elements_the_first_are_given(length: int, k: int) -> None:
    x = np.random.default_rng(k).integers(0, 4, (5, length)).astype(np.float32)
    agree(TopK(), x, np.array([k]), constant=(1,))
    agree(TopK(largest=False), x, np.array([k]), constant=(1,))
