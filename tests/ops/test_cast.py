"""Cast: rounding, saturation and truncation, on every pair of types."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness import evaluation, exactly, meaning

from verax.ir.types import DType
from verax.ops.common import FLOATS, INTEGERS
from verax.ops.pointwise.cast import Cast, holds

torch = pytest.importorskip("torch", reason="torch is not installed")

TORCH = {DType.float16: torch.float16, DType.bfloat16: torch.bfloat16, DType.float32: torch.float32}


def cast(x: np.ndarray, to: DType | str) -> np.ndarray:
    """The promised result, which is the meaning too."""
    op = Cast(to=to)  # type: ignore[arg-type]
    found = np.asarray(op.canonical(evaluation(op, (x,)), x))
    with np.errstate(all="ignore"):
        meant = np.asarray(meaning(op, x)[0])
        np.testing.assert_array_equal(found.astype(meant.dtype), meant)
    return found


@pytest.mark.parametrize("to", TORCH)
def test_floats_are_rounded_as_in_pytorch(to: DType) -> None:
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 20000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.array([65520, -65519.9, 0, -0.0], np.float32)])
    expected = torch.from_numpy(x).to(TORCH[to]).to(torch.float64).numpy()
    np.testing.assert_array_equal(cast(x, to).astype(np.float64), expected)


def test_ties_go_to_even_through_a_double_rounding() -> None:
    """A float64 just above a tie of bfloat16 that float32 cannot tell from it."""
    tie = 1 + 2.0**-8
    x = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, 3 * 2.0**-8 + 1 - 2.0**-40])
    expected = [1.0, 1 + 2.0**-7, 1.0, 1 + 2.0**-7]
    np.testing.assert_array_equal(cast(x, "bfloat16").astype(np.float64), expected)


@pytest.mark.parametrize("to", INTEGERS)
def test_floats_become_integers_by_truncation_and_saturation(to: DType) -> None:
    info = np.iinfo(to.numpy)
    x = np.array([2.9, -2.9, 0.5, -0.5, np.nan, np.inf, -np.inf, 1e30, -1e30], np.float32)
    low = max(-2, int(info.min))
    expected = [2, low, 0, 0, 0, info.max, info.min, info.max, info.min]
    np.testing.assert_array_equal(cast(x, to), np.array(expected, to.numpy))


@given(value=st.integers(-(2**63), 2**63 - 1), to=st.sampled_from(INTEGERS))
def test_integers_keep_their_low_bits(value: int, to: DType) -> None:
    info = np.iinfo(to.numpy)
    expected = (value - int(info.min)) % 2**info.bits + int(info.min)
    assert int(cast(np.array([value], np.int64), to)[0]) == expected


def test_everything_but_zero_is_true() -> None:
    x = np.array([0.0, -0.0, 1e-45, np.nan, -3.0], np.float32)
    np.testing.assert_array_equal(cast(x, "bool"), [False, False, True, True, True])
    np.testing.assert_array_equal(cast(np.array([True, False]), "float16"), [1.0, 0.0])


@pytest.mark.parametrize(("wide", "narrow"), itertools.product(FLOATS, DType))
def test_a_format_holds_another_if_all_its_numbers_come_back(wide: DType, narrow: DType) -> None:
    if narrow.is_narrow:
        every = np.arange(256, dtype=np.uint8).view(narrow.numpy)
        samples = every[np.isfinite(every.astype(np.float64))]
    elif narrow.is_float:
        samples = {
            DType.float16: np.float16([65504, 6e-8, 1 + 2**-10]),
            DType.bfloat16: np.array([3e38, 1e-40, 1 + 2**-7]).astype(ml_dtypes.bfloat16),
            DType.float32: np.float32([3e38, 1e-45, 1 + 2**-23]),
            DType.float64: np.float64([1e300, 5e-324, 1 + 2**-52]),
        }[narrow]
    elif narrow is DType.bool_:
        samples = np.array([True, False])
    else:
        info = np.iinfo(narrow.numpy)
        samples = np.array([info.min, info.max, info.max - 1], narrow.numpy)
    with np.errstate(all="ignore"):
        there = samples.astype(wide.numpy).astype(np.float64)
    exact = [Fraction(float(v)) if narrow.is_float else Fraction(int(v)) for v in samples]
    survives = all(np.isfinite(b) and Fraction(b) == a for a, b in zip(exact, there.tolist()))
    assert holds(wide, narrow) == survives


def test_rational_arithmetic_keeps_exact_values() -> None:
    x = np.array([1 / 3, 2.5], np.float32)
    assert list(exactly(Cast(to=DType.float8_e5m2), x)) == [0.3125, 2.5]
    assert list(exactly(Cast(to=DType.float64), x)) == [float(v) for v in x]
    assert list(exactly(Cast(to=DType.float16), x)) == [float(np.float16(v)) for v in x]
