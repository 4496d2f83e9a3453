"""The canonical elementary functions: written once over `Arith`, hence the same bits everywhere.

FUNCTIONS maps each name to `(m, *args) -> value` on float32; ULPS states the largest error of
each, in ulps of the exact result, as measured over dense samples of all binades (tests hold it).
The functions in this file run in float32, branch-free, by FMA polynomials fitted by Remez
exchange (tests/numerics/remez.py); the rarer ones are in `functions_double`.

float16 and bfloat16 arguments are computed in float32 and rounded. Those of float64 are a room of
their own (`numerics.float64`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from verax.numerics import functions_double as double
from verax.numerics.arith import Arith
from verax.numerics.float64 import functions as float64

V = TypeVar("V")

_EXP = (0.5, 0.166665181517601, 0.04166658967733383, 0.008369061164557934, 0.001392076606862247)
_EXPM1 = (0.5, 0.1666654348373413, 0.04166661202907562, 0.008366584777832031,
          0.0013919515768066049)  # fmt: skip
_LOG = (0.33333316445350647, -0.2500075101852417, 0.20002345740795135, -0.16626374423503876,
        0.14180141687393188, -0.13111859560012817, 0.1289776712656021,
        -0.07938945293426514)  # fmt: skip
_TANH = (-0.3333328366279602, 0.1333148330450058, -0.053742773830890656, 0.020648062229156494,
         -0.005714063532650471)  # fmt: skip
_ERF = (0.12837916612625122, -0.3761262893676758, 0.11283624172210693, -0.0268555860966444,
        0.005191936623305082, -0.0008043629350140691, 7.968411227921024e-05)  # fmt: skip
_LOG_ERFC = (0.00017587300681043416, -1.1295207738876343, -0.6333348155021667,
             -0.10829375684261322, 0.025128550827503204, -0.004174661356955767,
             0.0004352400719653815, -2.1166310034459457e-05)  # fmt: skip
_EXP2 = (1.0, 0.6931471824645996, 0.24022650718688965, 0.05550361052155495, 0.009618106298148632,
         0.0013390848180279136, 0.0001544083934277296)  # fmt: skip
_LOG2_NORMAL = (-1.0, -1.1511051654815674, -0.45920851826667786, -0.05249525606632233,
                0.007062156684696674, -0.00013602132094092667, -0.0001865365484263748,
                3.944756826967932e-05, -2.840278057192336e-06)  # fmt: skip

_ROUND = 12582912.0  # 1.5 * 2**23: adding it rounds to an integer, kept in the low bits
_ROUND_BITS = 0x4B400000
_LOG2E = math.log2(math.e)
_LN2_HIGH = 0.693145751953125  # 16 bits, so that its product with an exponent is exact
_LN2_LOW = math.log(2.0) - _LN2_HIGH
_LARGEST = 3.4028234663852886e38  # of float32


def _f(m: Arith[V], value: float) -> V:
    return m.const(value, "float32")


def _i(m: Arith[V], value: int) -> V:
    return m.const(value, "int32")


def polynomial(m: Arith[V], x: V, coefficients: tuple[float, ...]) -> V:
    """c[0] + c[1] x + ... in float32 by Horner's rule with FMA; lowest order first."""
    acc = _f(m, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        acc = m.fma(acc, x, _f(m, c))
    return acc


def relu(m: Arith[V], x: V) -> V:
    """x where not x < 0, else +0; NaN passes, -0 stays."""
    zero = m.like(0, x)
    return m.select(m.lt(x, zero), zero, x)


def _negative(m: Arith[V], x: V) -> V:
    """Whether the sign is set: of -0 and NaN too, where whoever asks does not care."""
    return m.lt(m.bitcast(x, "int32"), _i(m, 0))


def _reduce_exp(m: Arith[V], x: V, carried: V) -> tuple[V, V]:
    """(t, r): x = n ln2 + r, |r| <= ln2/2; the low bits of t's representation hold n + an even
    number, where `carried` is `_ROUND` + that number."""
    t = m.fma(x, _f(m, _LOG2E), carried)
    n = m.sub(t, carried)
    r = m.fma(n, _f(m, -_LN2_HIGH), x)
    return t, m.fma(n, _f(m, -_LN2_LOW), r)


def _exp_polynomial(m: Arith[V], r: V) -> V:
    p = polynomial(m, r, _EXP)
    p = m.fma(p, r, _f(m, 1.0))
    return m.fma(p, r, _f(m, 1.0))


def _power_of_two(m: Arith[V], n: V) -> V:
    """2**n as float32 for an int32 n in [-126, 127]; high garbage bits of n shift out."""
    return m.bitcast(m.add(m.shift_left(n, _i(m, 23)), _i(m, 0x3F800000)), "float32")


def _scaled(m: Arith[V], p: V, t: V) -> V:
    """p 2**n for the n in the low bits of t's representation, where the result is normal."""
    exponent = m.shift_left(m.bitcast(t, "int32"), _i(m, 23))
    return m.bitcast(m.add(m.bitcast(p, "int32"), exponent), "float32")


def exp_normal(m: Arith[V], x: V) -> V:
    """exp, with its bits, for arguments in [-87, 88], whose result is normal; of NaN anything."""
    t, r = _reduce_exp(m, x, _f(m, _ROUND))
    return _scaled(m, _exp_polynomial(m, r), t)


def exp(m: Arith[V], x: V) -> V:
    high, low = _f(m, 89.0), _f(m, -104.0)
    x = m.select(m.gt(x, high), high, x)
    x = m.select(m.lt(x, low), low, x)
    # The scale is applied in two steps, so that results may be subnormal or overflow.
    negative = _negative(m, x)
    t, r = _reduce_exp(m, x, m.select(negative, _f(m, _ROUND + 64), _f(m, _ROUND - 64)))
    p = m.mul(_exp_polynomial(m, r), _power_of_two(m, m.bitcast(t, "int32")))
    return m.mul(p, m.select(negative, _f(m, 2.0**-64), _f(m, 2.0**64)))


def expm1(m: Arith[V], x: V) -> V:
    high, low = _f(m, 89.0), _f(m, -18.0)
    y = m.select(m.gt(x, high), high, x)
    y = m.select(m.lt(y, low), low, y)
    t, r = _reduce_exp(m, y, _f(m, _ROUND))
    q = m.fma(m.mul(r, r), polynomial(m, r, _EXPM1), r)
    half = _power_of_two(m, m.sub(m.bitcast(t, "int32"), _i(m, 1)))  # 2**(n - 1)
    value = m.fma(half, q, m.sub(half, _f(m, 0.5)))
    tiny = m.lt(m.abs(x), _f(m, 2.0**-25))
    return m.select(tiny, x, m.add(value, value))


def _log_core(m: Arith[V], f: V, exponent: V) -> V:
    """log(1 + f) + exponent ln2 for f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    z = m.mul(f, f)
    p = m.mul(m.mul(f, z), polynomial(m, f, _LOG))
    p = m.fma(exponent, _f(m, _LN2_LOW), p)
    p = m.fma(z, _f(m, -0.5), p)
    return m.fma(exponent, _f(m, _LN2_HIGH), m.add(f, p))


def log(m: Arith[V], x: V) -> V:
    subnormal = m.lt(x, _f(m, 2.0**-126))
    scaled = m.select(subnormal, m.mul(x, _f(m, 2.0**23)), x)
    bits = m.bitcast(scaled, "int32")
    k = m.shift_right(m.sub(bits, _i(m, 0x3F3504F3)), _i(m, 23))  # mantissa in [sqrt(1/2), ...)
    mantissa = m.bitcast(m.sub(bits, m.shift_left(k, _i(m, 23))), "float32")
    k = m.sub(k, m.select(subnormal, _i(m, 23), _i(m, 0)))
    value = _log_core(m, m.sub(mantissa, _f(m, 1.0)), m.convert(k, "float32"))
    infinity = _f(m, math.inf)
    value = m.select(m.eq(x, infinity), infinity, value)
    outside = m.select(m.eq(x, _f(m, 0.0)), _f(m, -math.inf), _f(m, math.nan))
    return m.select(m.gt(x, _f(m, 0.0)), value, outside)


def _exp_of_minus_abs(m: Arith[V], x: V) -> V:
    """exp(-|x|), the same number as `exp` gives."""
    x, low = m.neg(m.abs(x)), _f(m, -104.0)
    x = m.select(m.lt(x, low), low, x)
    t, r = _reduce_exp(m, x, _f(m, _ROUND + 64))
    p = m.mul(_exp_polynomial(m, r), _power_of_two(m, m.bitcast(t, "int32")))
    return m.mul(p, _f(m, 2.0**-64))


def sigmoid(m: Arith[V], x: V) -> V:
    e, one = _exp_of_minus_abs(m, x), _f(m, 1.0)
    return m.div(m.select(_negative(m, x), e, one), m.add(one, e))


def _with_sign_of(m: Arith[V], size: V, x: V) -> V:
    """`size`, which is not negative or has the sign of x already, with the sign of x."""
    sign = m.and_(m.bitcast(x, "int32"), _i(m, -(1 << 31)))
    return m.bitcast(m.or_(m.bitcast(size, "int32"), sign), "float32")


def tanh(m: Arith[V], x: V) -> V:
    z = m.mul(x, x)
    near = m.fma(m.mul(x, z), polynomial(m, z, _TANH), x)
    t = m.abs(x)
    u = m.add(t, t)
    u = m.select(m.lt(u, _f(m, 20.0)), u, _f(m, 20.0))
    e = exp_normal(m, u)
    far = m.sub(_f(m, 1.0), m.div(_f(m, 2.0), m.add(e, _f(m, 1.0))))
    # NaN is `near`
    return _with_sign_of(m, m.select(m.ge(t, _f(m, 0.625)), far, near), x)


def erf(m: Arith[V], x: V) -> V:
    near = m.fma(x, polynomial(m, m.mul(x, x), _ERF), x)
    t = m.abs(x)
    four = _f(m, 4.0)
    log_erfc = polynomial(m, m.select(m.lt(t, four), t, four), _LOG_ERFC)
    far = m.sub(_f(m, 1.0), exp_normal(m, log_erfc))
    return _with_sign_of(m, m.select(m.ge(t, _f(m, 0.9277)), far, near), x)


def softplus(m: Arith[V], x: V) -> V:
    e, one = _exp_of_minus_abs(m, x), _f(m, 1.0)
    # 1 + e is in [1, 2]; above sqrt(2) it is halved. Either way f needs no rounded 1 + e.
    large = m.gt(e, _f(m, math.sqrt(2.0) - 1.0))
    f = m.select(large, m.mul(m.sub(e, one), _f(m, 0.5)), e)
    log1p_e = _log_core(m, f, m.select(large, one, _f(m, 0.0)))
    return m.add(m.select(m.gt(x, _f(m, 0.0)), x, _f(m, 0.0)), log1p_e)


def mish(m: Arith[V], x: V) -> V:
    """x tanh(softplus(x)), by its rational form in e = exp(-|x|)."""
    e, two = _exp_of_minus_abs(m, x), _f(m, 2.0)
    negative = m.lt(x, _f(m, 0.0))
    # x < 0: e(e + 2) / (e(e + 2) + 2);  x >= 0: (1 + 2e) / (1 + 2e + 2e^2)
    numerator = m.select(negative, m.mul(e, m.add(e, two)), m.fma(e, two, _f(m, 1.0)))
    denominator_excess = m.select(negative, two, m.mul(m.mul(e, e), two))
    return m.mul(x, m.div(numerator, m.add(numerator, denominator_excess)))


def gelu(m: Arith[V], x: V) -> V:
    """x Phi(x): below 0 the product, above it x - x Phi(-x), where Phi(-|x|) is two to the power of
    a polynomial in |x|, or 0 below 2**-126."""
    log2 = polynomial(m, m.abs(x), _LOG2_NORMAL)
    t = m.add(log2, _f(m, _ROUND))
    tail = _scaled(m, polynomial(m, m.sub(log2, m.sub(t, _f(m, _ROUND))), _EXP2), t)
    tail = m.select(m.lt(log2, _f(m, -126.0)), _f(m, 0.0), tail)
    largest = _f(m, _LARGEST)
    finite = m.select(m.lt(x, largest), x, largest)  # inf times 0 is no 0
    above = m.fma(m.neg(finite), tail, x)
    return m.select(m.lt(_f(m, 0.0), x), above, m.mul(x, tail))


def gelu_tanh(m: Arith[V], x: V) -> V:
    """x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    c = 2.0 * math.sqrt(2.0 / math.pi)
    inner = m.fma(m.mul(x, x), _f(m, c * 0.044715), _f(m, c))
    return _times_sigmoid(m, x, m.mul(x, inner))


def silu(m: Arith[V], x: V) -> V:
    return _times_sigmoid(m, x, x)


def _times_sigmoid(m: Arith[V], x: V, z: V) -> V:
    """x sigmoid(z) = x / (1 + 2**(-z log2(e))): NaN for infinities of which one is negative.

    The power is made 2**64 times too small, so that the sum with 1 may overflow to infinity. One
    product with log2(e) is exact enough where the result is not small against x.
    """
    high, low = _f(m, 40.0), _f(m, -90.0)
    z = m.select(m.gt(z, high), high, z)
    z = m.select(m.lt(z, low), low, z)
    carried, minus = _f(m, _ROUND - 64), _f(m, -_LOG2E)
    t = m.fma(z, minus, carried)
    fraction = m.fma(z, minus, m.sub(carried, t))
    power = _scaled(m, polynomial(m, fraction, _EXP2), t)
    return m.div(x, m.fma(power, _f(m, 2.0**64), _f(m, 1.0)))


def reciprocal(m: Arith[V], x: V) -> V:
    return m.div(_f(m, 1.0), x)


def rsqrt(m: Arith[V], x: V) -> V:
    return m.div(_f(m, 1.0), m.sqrt(x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": exp, "expm1": expm1, "log": log, "sigmoid": sigmoid, "tanh": tanh, "erf": erf,
    "softplus": softplus, "mish": mish, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu,
    "reciprocal": reciprocal, "rsqrt": rsqrt, **double.FUNCTIONS,
}  # fmt: skip

#: Largest error in ulps of the exact result. Measured on every float32 for exp, expm1, log,
#: sigmoid, tanh, erf and softplus, on every sixteenth or more for the others
#: (benchmarks/function_errors.py); pow on random pairs.
ULPS: dict[str, float] = {
    "exp": 1.0, "expm1": 1.6, "log": 1.0, "sigmoid": 2.5, "tanh": 1.4, "erf": 1.1,
    "softplus": 1.8, "reciprocal": 0.5, "rsqrt": 1.5, **dict.fromkeys(double.FUNCTIONS, 0.501),
}  # fmt: skip

#: Largest error in units of 2**-24 |x| for functions of the form x g(x) with |g| about <= 1,
#: which are small for negative x: there the error is not small against the result.
ERROR_PER_ARGUMENT: dict[str, float] = {
    "mish": 4.0, "gelu": 2.0, "gelu_tanh": 2.2, "silu": 2.2,
}  # fmt: skip


def call(m: Arith[V], name: str, args: tuple[V, ...]) -> V:
    """Apply the function `name`, to float64 by `numerics.float64`; halves go through float32.

    Raises KeyError for an unknown name and TypeError for other dtypes.
    """
    dtype = m.dtype(args[0])
    if dtype == "float64":
        return float64.FUNCTIONS[name](m, *args)
    function = FUNCTIONS[name]
    if dtype == "float32":
        return function(m, *args)
    if dtype in ("float16", "bfloat16"):
        return m.convert(function(m, *(m.convert(a, "float32") for a in args)), dtype)
    raise TypeError(f"{name} is not defined on {dtype}")
