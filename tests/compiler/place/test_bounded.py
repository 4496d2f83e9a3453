"""Expressions of quantised numbers are shortened within bounds, and every bit stays."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.compiler.plan.bounded import EXACT, Bounds, in_bounds
from verax.compiler.plan.expressions import Chain, _fold_constants
from verax.numerics.arith import Arith
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Apply, Expr, evaluate, nodes, trace
from verax.ops.quantized.per_element import MAGIC, MAGIC_BITS, dequantized, quantized

SUMS = (-70_000, 70_000)
SCALE = (np.float32(-0.011), np.float32(0.013))
BIAS = (np.float32(-250.0), np.float32(300.0))
BOUNDS: dict[int, Bounds] = {0: SUMS, 1: SCALE, 2: BIAS}


def _folded(expr: Expr) -> Expr:
    return _fold_constants(Chain(expr, ("a", "b", "c", "d")), 4).expr


def _requantised(to: str, zero: int) -> Expr:
    def meaning(m: Arith[Any], total: Any, scale: Any, bias: Any) -> Any:
        x = m.add(m.mul(m.convert(total, "float32"), scale), bias)
        return quantized(m, x, None, m.const(zero, to), to, "float32", "even")

    return _folded(trace(meaning, ["int32", "float32", "float32"]))


def _with_residual(first: int, factor: float) -> Expr:
    """Quantised, dequantised, added to other bytes and quantised again."""

    def meaning(m: Arith[Any], total: Any, scale: Any, bias: Any, other: Any) -> Any:
        x = m.add(m.mul(m.convert(total, "float32"), scale), bias)
        zero = m.const(first, "uint8")
        narrow = quantized(m, x, None, zero, "uint8", "float32", "even")
        left = dequantized(m, narrow, m.const(factor, "float32"), zero, "float32")
        right = dequantized(m, other, m.const(0.75, "float32"), None, "float32")
        return quantized(m, m.add(left, right), None, None, "uint8", "float32", "even")

    return _folded(trace(meaning, ["int32", "float32", "float32", "uint8"]))


def _functions(expr: Expr) -> list[str]:
    return [n.function for n in nodes(expr) if isinstance(n, Apply)]


def _same(expr: Expr, short: Expr, inputs: list[np.ndarray]) -> None:
    want, got = (evaluate(e, NumpyArith(), inputs) for e in (expr, short))
    assert want.dtype == got.dtype
    assert want.tobytes() == got.tobytes()


def _drawn(seed: int, bounds: dict[int, Bounds] = BOUNDS) -> list[np.ndarray]:
    """Numbers from end to end, the ends among them, and halves of integers after the bias."""
    rng = np.random.default_rng(seed)
    sums = rng.integers(bounds[0][0], bounds[0][1] + 1, 4000).astype(np.int32)
    sums[:2] = bounds[0]
    scale = rng.uniform(*bounds[1], 4000).astype(np.float32)
    scale[:4], scale[4:400] = np.repeat(bounds[1], 2), np.float32(2.0**-7)
    bias = rng.uniform(*bounds[2], 4000).astype(np.float32)
    bias[4:400] = np.rint(bias[4:400])
    return [sums, scale, bias, rng.integers(0, 256, 4000).astype(np.uint8)]


@pytest.mark.parametrize(("to", "zero"), [("uint8", 0), ("uint8", 131), ("int8", -7)])
def test_a_clip_becomes_one_of_the_integer(to: str, zero: int) -> None:
    expr = _requantised(to, zero)
    short = in_bounds(expr, BOUNDS)
    assert _functions(expr).count("select") == 3
    assert "select" not in _functions(short)
    assert sorted(_functions(short))[-2:] == ["min", "mul"]
    assert len(_functions(short)) == 9  # two of them are the conversions at both ends
    for seed in range(5):
        _same(expr, short, _drawn(seed))


@given(
    first=st.integers(0, 255), factor=st.sampled_from([0.5, 1.54, -3.0]), seed=st.integers(0, 99)
)
def test_a_residual_stays_a_float(first: int, factor: float, seed: int) -> None:
    expr = _with_residual(first, factor)
    short = in_bounds(expr, BOUNDS)
    assert [f for f in _functions(short) if f in ("bitcast", "eq")] == ["bitcast"]
    assert _functions(short).count("convert") == 4  # of the sum, the bytes twice, the result
    _same(expr, short, _drawn(seed))


def test_nothing_goes_where_a_nan_or_a_far_number_may_be() -> None:
    expr = _requantised("uint8", 3)
    assert "eq" in _functions(in_bounds(expr, {0: SUMS, 1: SCALE}))  # the bias may be NaN
    huge = {**BOUNDS, 1: (np.float32(0), np.float32(3e38))}
    assert "eq" in _functions(in_bounds(expr, huge))  # infinite, and no number minus it
    far = {**BOUNDS, 1: (np.float32(0), np.float32((EXACT - 250) / SUMS[1]))}
    short = in_bounds(expr, far)
    assert "eq" not in _functions(short)
    assert _functions(short).count("select") == 2  # MAGIC would not round what is not clipped
    inputs = _drawn(1, far)
    _same(expr, short, inputs)


@pytest.mark.parametrize("over", [False, True])
def test_bounds_decide_to_the_last_number(over: bool) -> None:
    """An integer of 8 bits is widened again: what fits was never cut, what is one more was."""
    expr = trace(lambda m, x: m.convert(m.convert(x, "uint8"), "int32"), ["int32"])
    short = in_bounds(expr, {0: (0, 256 if over else 255)})
    assert _functions(short) == (["convert", "convert"] if over else [])


def test_clips_that_contradict_each_other_leave_the_outer_one() -> None:
    def meaning(m: Arith[Any], x: Any) -> Any:
        low, high = m.const(9.0, "float32"), m.const(4.0, "float32")
        y = m.select(m.gt(x, low), x, low)
        y = m.select(m.lt(y, high), y, high)
        bits = m.bitcast(m.add(y, m.const(MAGIC, "float32")), "int32")
        return m.sub(bits, m.const(MAGIC_BITS, "int32"))

    short = in_bounds(trace(meaning, ["float32"]), {0: (np.float32(-20), np.float32(20))})
    assert evaluate(short, NumpyArith(), [np.float32(0)]) == 4


def test_integers_wrap_as_before() -> None:
    expr = trace(
        lambda m, x: m.sub(m.add(x, m.const(120, "int8")), m.const(-100, "int8")), ["int8"]
    )
    short = in_bounds(expr, {})
    assert _functions(short) == ["add"]
    _same(expr, short, [np.arange(-128, 128).astype(np.int8)])
