"""NumpyArith keeps the rules that the module states, also where NumPy alone would not."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics.arith import PRIMITIVES, result_dtype
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.formats import numpy_dtype

M = NumpyArith()
F = np.float32


def arr(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, numpy_dtype(dtype))


def test_min_and_max_let_nan_win_and_order_the_zeros() -> None:
    a, b = arr(np.nan, 1, 0.0, -0.0, 3), arr(1, np.nan, -0.0, 0.0, 2)
    low, high = M.min(a, b), M.max(a, b)
    assert np.isnan(low[:2]).all() and np.isnan(high[:2]).all()
    assert np.signbit(low[2:4]).all() and not np.signbit(high[2:4]).any()
    assert (low[4], high[4]) == (2, 3)


def test_integer_division_truncates_and_never_fails() -> None:
    a = arr(7, -7, 7, -7, 5, -(2**31), dtype="int32")
    b = arr(2, 2, -2, -2, 0, -1, dtype="int32")
    assert M.div(a, b).tolist() == [3, -3, -3, 3, 0, -(2**31)]
    assert M.rem(a, b).tolist() == [1, -1, 1, -1, 5, 0]
    assert M.div(arr(7, dtype="uint8"), arr(0, dtype="uint8")).tolist() == [0]


@settings(max_examples=200, deadline=None)
@given(st.integers(-128, 127), st.integers(-128, 127).filter(bool))
def test_quotient_and_remainder_make_up_the_dividend(a: int, b: int) -> None:
    q = int(M.div(arr(a, dtype="int64"), arr(b, dtype="int64"))[0])
    r = int(M.rem(arr(a, dtype="int64"), arr(b, dtype="int64"))[0])
    assert q * b + r == a and abs(r) < abs(b) and (r == 0 or (r < 0) == (a < 0))


def test_conversion_to_integers_truncates_saturates_and_maps_nan_to_zero() -> None:
    x = arr(1.9, -1.9, np.nan, np.inf, -np.inf, 300, -300)
    assert M.convert(x, "int8").tolist() == [1, -1, 0, 127, -128, 127, -128]
    assert M.convert(x, "uint8").tolist() == [1, 0, 0, 255, 0, 255, 0]
    assert M.convert(x, "int64").tolist()[3:5] == [2**63 - 1, -(2**63)]
    assert M.convert(x, "uint64").tolist()[3:5] == [2**64 - 1, 0]
    assert M.convert(arr(0, -0.0, np.nan, 1e-45), "bool").tolist() == [False, False, True, True]
    assert M.convert(arr(300, -1, dtype="int32"), "uint8").tolist() == [44, 255]


@settings(max_examples=300, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_rounded_once_into_short_floats(value: int) -> None:
    for dtype in ("bfloat16", "float32"):
        got = float(M.convert(np.array([value]), dtype)[0])
        info = ml_dtypes.finfo(numpy_dtype(dtype))
        spacing = Fraction(2) ** max(value.__abs__().bit_length() - info.nmant - 1, -info.nmant)
        assert Fraction(got) == round(Fraction(value) / spacing) * spacing


def test_float64_is_rounded_once_into_bfloat16() -> None:
    # Just above a tie of bfloat16, by less than float32 can see.
    assert float(M.convert(np.array([1 + 2.0**-8 + 2.0**-40]), "bfloat16")[0]) == 1 + 2.0**-7
    assert float(M.convert(np.array([1 + 2.0**-8]), "bfloat16")[0]) == 1.0


def test_shifts_take_their_count_modulo_the_width() -> None:
    a, n = arr(-8, -8, 1, dtype="int32"), arr(1, 33, 32, dtype="int32")
    assert M.shift_right(a, n).tolist() == [-4, -4, 1]
    assert M.shift_left(a, n).tolist() == [-16, -16, 1]
    u = arr(2**31, dtype="uint32")
    assert M.shift_right(u, arr(31, dtype="uint32")).tolist() == [1]


def test_rounding_and_sign_operations() -> None:
    x = arr(0.5, 1.5, 2.5, -0.5, -1.2)
    assert M.rint(x).tolist() == [0, 2, 2, -0.0, -1]
    assert M.floor(x).tolist() == [0, 1, 2, -1, -2]
    assert M.ceil(x).tolist() == [1, 2, 3, -0.0, -1]
    assert M.trunc(x).tolist() == [0, 1, 2, -0.0, -1]
    assert np.signbit(M.neg(arr(0.0))) and np.signbit(M.copysign(arr(2.0), arr(-0.0)))
    assert M.copysign(np.array([2.0]), np.array([-3.0])).tolist() == [-2.0]


def test_comparisons_with_nan() -> None:
    nan, one = arr(np.nan), arr(1.0)
    assert M.ne(nan, nan) and M.is_nan(nan) and not M.is_nan(one)
    for name in ("eq", "lt", "le", "gt", "ge"):
        assert not M.primitive(name, (nan, one)), name


def test_short_floats_round_each_operation() -> None:
    a = arr(1, dtype="bfloat16")
    b = arr(2**-8 + 2**-9, dtype="bfloat16")
    assert M.add(a, b).dtype == numpy_dtype("bfloat16")
    assert float(M.add(a, b)[0]) == 1 + 2**-7


def test_dtypes_are_checked() -> None:
    with pytest.raises(TypeError, match=r"add is not defined on .float32, int32."):
        M.add(arr(1), arr(1, dtype="int32"))
    with pytest.raises(TypeError, match="fma"):
        M.fma(*[arr(1, dtype="float16")] * 3)
    with pytest.raises(TypeError, match="needs a target"):
        result_dtype("convert", ("float32",))
    with pytest.raises(TypeError, match="bitcast"):
        M.bitcast(arr(1), "int64")
    with pytest.raises(TypeError, match="unknown primitive"):
        result_dtype("median", ("float32",))
    with pytest.raises(TypeError, match="expected float32"):
        M.bind(np.ones(2), "float32")


def test_every_primitive_has_a_method() -> None:
    for name in PRIMITIVES:
        assert callable(getattr(M, name)), name
