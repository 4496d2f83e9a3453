"""Requantize in the arithmetic of kernels: the integers of the fixed-point meaning, at the edges of
every rounding."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verax.ir.operator import Evaluation
from verax.ir.types import TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import evaluate
from verax.numerics.fixed_point import scaled
from verax.ops.quantized.requantization import Requantize

INT32 = np.iinfo(np.int32)


def edges(multiplier: int, shift: int) -> np.ndarray:
    """Numbers around those at which the result grows by one, around 0 and at the ends of int32."""
    step = 2.0 ** (31 - shift) / multiplier
    wholes = np.arange(-260, 261) - 0.5
    about = np.clip(np.rint(wholes * step), INT32.min, INT32.max).astype(np.int64)
    near = (about[:, None] + np.arange(-2, 3)).ravel()
    some = [-3, -2, -1, 0, 1, 2, 3, INT32.min, INT32.min + 1, INT32.max]
    return np.clip(np.concatenate([near, some]), INT32.min, INT32.max).astype(np.int32)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2**30, 2**31 - 1), st.integers(-30, 0)), min_size=1, max_size=3),
    st.integers(-128, 127),
    st.booleans(),
)
@example([(2**30, -2), (2**31 - 1, -30)], 5, True)
@example([(2**30, -2), (2**31 - 1, -30)], 5, False)
@example([(2**30, -1), (2**30, 0)], 0, True)
@example([(0, 0), (2**31 - 1, -9)], 0, False)
def test_the_steps_of_kernels_give_the_integers_of_the_meaning(
    factors: list[tuple[int, int]], zero: int, relu: bool
) -> None:
    x = np.stack([edges(max(m, 1), s) for m, s in factors])
    multiplier, shift = (np.array(part, np.int32) for part in zip(*factors))
    op = Requantize(axis=0, zero_point=zero, low=zero if relu else None)
    given_ = (x, multiplier, shift)
    types = tuple(TensorType.of(a) for a in given_)
    y = TensorType.parse(f"int8{list(x.shape)}")
    want = op.reference(Evaluation(types, (y,)), *given_)
    expr = op.expression(["int32"] * 3, "int8", (None, multiplier, shift))
    assert expr is not None
    spread = [x, *(op.spread(p, x.shape) for p in (multiplier, shift))]
    np.testing.assert_array_equal(evaluate(expr, NumpyArith(), spread), want)
    ends = op.ends()
    each = [scaled(row, m, s) + zero for row, (m, s) in zip(x.astype(np.int64), factors)]
    np.testing.assert_array_equal(want, np.clip(np.stack(each), *ends))


def test_known_factors_below_a_quarter_take_the_upper_half_of_one_product() -> None:
    multiplier, shift = np.array(1623821475, np.int32), np.array(-7, np.int32)
    for low in (None, 3):
        op = Requantize(zero_point=3, low=low)
        expr = op.expression(["int32"] * 3, "int8", (None, multiplier, shift))
        assert "multiply_high" in repr(expr) and "int64" not in repr(expr)
