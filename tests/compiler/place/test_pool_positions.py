"""MaxPool with the positions of what it found runs natively, with the promised bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, values

from verax.ir.operator import Case
from verax.ops.windows.pooling import MaxPool

CASES = [
    c
    for c in MaxPool.cases(np.random.default_rng(5))
    if isinstance(c.op, MaxPool) and c.op.with_indices and not c.op.storage_order
    and c.inputs[0].dtype != np.float64
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[c.label for c in CASES])
def test_every_case_of_the_operator(case: Case) -> None:
    agree(case.op, *case.inputs)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seeds, st.integers(1, 20), st.integers(1, 3), st.integers(1, 3), st.booleans(),
    st.sampled_from(["float32", "int8", "int32"]),
)  # fmt: skip
def test_drawn_ones(
    seed: int, channels: int, kernel: int, stride: int, ceil: bool, dtype: str
) -> None:
    """With ties, NaN, infinities, and windows in the padding alone."""
    x = values(seed, (2, channels, 6, 7), dtype)
    op = MaxPool(
        kernel_shape=(kernel, 2), strides=(stride, 2), pads=((1, 1), (2, 0)), ceil_mode=ceil,
        dilations=(1, 2), with_indices=True,
    )  # fmt: skip
    agree(op, x)
