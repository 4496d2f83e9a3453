"""Formats know their own spacing, and rounding agrees with NumPy's and ml_dtypes' casts."""

import ml_dtypes
import numpy as np
import pytest

from verax.numerics.formats import (
    BFLOAT16,
    DTYPES,
    FLOAT16,
    FLOAT32,
    FORMATS,
    TF32,
    dtype_name,
    numpy_dtype,
    round_to,
    ulp,
    ulp_error,
)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "bfloat16"])
def test_constants_agree_with_finfo(name: str) -> None:
    info, fmt = ml_dtypes.finfo(numpy_dtype(name)), FORMATS[name]
    assert fmt.largest == float(info.max)
    assert fmt.smallest_normal == float(info.smallest_normal)
    assert fmt.smallest_subnormal == float(info.smallest_subnormal)
    assert fmt.unit_roundoff == float(info.eps) / 2


@pytest.mark.parametrize("fmt", [FLOAT16, BFLOAT16, FLOAT32])
def test_rounding_agrees_with_casts(fmt) -> None:
    rng = np.random.default_rng(1)
    # float32 start values: casts to bfloat16 from float64 round twice in ml_dtypes.
    x = rng.integers(0, 2**32, 50_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(numpy_dtype(fmt.name)).astype(np.float64)
        got = round_to(x.astype(np.float64), fmt)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(expected)[got == 0])


def test_tf32_keeps_eleven_bits() -> None:
    assert round_to(1 + 2.0**-10, TF32) == 1 + 2.0**-10
    assert round_to(1 + 2.0**-11, TF32) == 1.0
    assert round_to(1e-30, TF32) != 0.0


def test_ulp_is_the_distance_to_the_next_number() -> None:
    x = np.array([1.0, 1.5, 3e-42, 2.0**100, 0.0], np.float32)
    np.testing.assert_array_equal(ulp(x, FLOAT32), np.spacing(x).astype(np.float64))
    assert np.isnan(ulp(np.inf, FLOAT32))


def test_ulp_error_of_non_finite_values() -> None:
    value = np.array([np.nan, np.inf, 1.0, np.nan, np.inf, 3.4028235e38])
    exact = np.array([np.nan, np.inf, np.nan, 1.0, 1.0, 3.5e38])
    error = ulp_error(value, exact)
    assert error[:2].tolist() == [0.0, 0.0] and np.isinf(error[2:]).all()
    assert ulp_error(np.float32(1.0) + np.spacing(np.float32(1.0)), 1.0) == 1.0


def test_dtype_names_round_trip() -> None:
    assert [dtype_name(numpy_dtype(d)) for d in DTYPES] == list(DTYPES)
    with pytest.raises(KeyError, match="complex64"):
        dtype_name(np.complex64)
