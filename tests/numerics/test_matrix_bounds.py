"""Simulated errors of matrix units stay within their bound, and bias and sigma give their size."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.numerics.error_model import U
from verax.numerics.matrix_units import units
from verax.numerics.matrix_units.bounds import (
    bias,
    bound,
    conversion_bias,
    conversion_bound,
    conversion_sigma,
    sigma,
)
from verax.numerics.matrix_units.conversions import CONVERSIONS, TF32_CUT, TF32_EVEN
from verax.numerics.matrix_units.routes import LANES, ROUTES, Route, sums
from verax.numerics.matrix_units.units import EXACT, PAIRWISE, STAGED

DTYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
}
UNITS = [Route(f"{u.generation} {u.name}", u) for u in (*units.MEASURED, *units.PUBLISHED)]
SPLIT = [
    route.with_part(part, addition)
    for route in ROUTES.values()
    for part, addition in ((route.part, route.addition), (8, LANES), (24, None))
    if not (route.head and part)
]


def dtype_of(route: Route) -> Any:
    if route.unit is None or route.conversion.format is not None:
        return np.float32
    if route.unit.scheme == EXACT:
        return np.int8
    if route.order:
        return ml_dtypes.float8_e4m3fn
    return DTYPES.get(route.unit.factors[0], np.float32)


def converted(route: Route, x: np.ndarray) -> np.ndarray:
    """What the bound refers to: factors as multiplied, or as given (three products)."""
    if route.low is not None:
        return x.astype(float)
    x = route.conversion(x)
    return (x if route.unit is None else route.unit.conversion(x)).astype(float)


def errors(route: Route, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Of sums over the first axis: error, y, T and R."""
    dtype = np.float16 if route.sums == "float16" else np.float32
    x, w = converted(route, a), converted(route, b)
    y = (x * w).sum(axis=0)
    return (
        sums(route, a, b, dtype=dtype).astype(float) - y,
        y,
        np.abs(x * w).sum(axis=0),
        np.sqrt(((x * w) ** 2).sum(axis=0)),
    )


def hostile(rng: np.random.Generator, shape: tuple[int, int], kind: str) -> np.ndarray:
    x = rng.standard_normal(shape)
    if kind == "wide":
        x *= 2.0 ** rng.integers(-8, 8, shape)
    elif kind == "positive":
        x = np.abs(x)
    elif kind == "cancelling":
        x[shape[0] // 2 :] = x[: shape[0] - shape[0] // 2]
    elif kind == "tiny":
        x *= 2.0**-12
    elif kind == "vanishing":
        x *= 2.0**-72
    return x


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([*UNITS, *SPLIT]),
    st.sampled_from(["normal", "wide", "positive", "cancelling", "tiny", "vanishing"]),
    st.integers(1, 130),
    st.integers(0, 2**32 - 1),
)
def test_no_simulated_error_passes_the_bound(route: Route, kind: str, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (hostile(rng, (k, 6), kind).astype(dtype_of(route)) for _ in range(2))
    if kind == "cancelling":
        b[k // 2 :] = -b[: k - k // 2]
    with np.errstate(all="ignore"):
        error, _, t, _ = errors(route, a, b)
    largest = np.maximum(np.abs(a.astype(float)).max(axis=0), np.abs(b.astype(float)).max(axis=0))
    within = bound(route, t, k, largest)
    finite = np.isfinite(error)
    assert within.shape == (6,) and (np.abs(error) <= within)[finite].all()


@pytest.mark.parametrize("name", ["Triton, e4m3", "Triton, e5m2"])
def test_a_step_may_lose_almost_all_that_the_bound_allows(name: str) -> None:
    """Every product but one is just below the last place that is kept, and so lost."""
    route = ROUTES[name]
    assert route.unit is not None
    group, kept = route.unit.products_per_step, route.unit.kept_bits
    a = np.full((group, 1), 1.75 * 2.0**-7)
    b = np.full((group, 1), 2.0 ** (6 - kept))
    a[0] = b[0] = 1.0
    error, _, t, _ = errors(route, a.astype(dtype_of(route)), b.astype(dtype_of(route)))
    assert 0.75 < np.abs(error)[0] / bound(route, t, group)[0] <= 1


def test_subnormal_factors_need_the_largest_factor() -> None:
    """They count with the least normal exponent, so that more is cut than the magnitudes tell."""
    route = ROUTES["Triton, fp16"]
    a, b = np.full((16, 1), 2.0**-21), np.full((16, 1), 0.9 * 2.0**-19)
    a[0], b[0] = 2.0**-24, 1.0
    error, _, t, _ = errors(route, a.astype(np.float16), b.astype(np.float16))
    assert np.abs(error) > bound(route, t, 16)
    assert np.abs(error) <= bound(route, t, 16, largest=1.0)


def test_flushed_factors_are_lost_within_the_bound() -> None:
    route = next(r for r in UNITS if r.unit in units.published("CDNA2"))
    a, b = np.full((3, 1), 2.0**-15, np.float16), np.full((3, 1), 2.0, np.float16)
    error, _, t, _ = errors(route, a, b)
    assert bound(route, t, 3) < -error[0] == 3 * 2.0**-14 <= bound(route, t, 3, largest=2.0)


def data(route: Route, kind: str, k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((k, n)) for _ in range(2))
    if kind == "positive":
        a, b = np.abs(a), np.abs(b)
    elif kind == "shifted":
        a, b = a + 0.5, b + 0.4
    dtype = dtype_of(route)
    return a.astype(dtype), b.astype(dtype)


ROUTES_WITH_SIGMA = [
    ROUTES["cuBLAS, float32"].with_part(64),
    ROUTES["Triton, ieee"],
    ROUTES["cuBLAS, TF32 allowed"].with_part(96),
    ROUTES["Triton, tf32"],
    ROUTES["Triton, tf32x3"],
    ROUTES["JAX, default"].with_part(16, LANES),
    ROUTES["JAX, BF16_BF16_F32_X3"],
    ROUTES["Triton, bf16"],
    ROUTES["Triton, fp16"],
    ROUTES["Triton, fp16 accumulation"],
    ROUTES["scaled_mm e4m3"],
    ROUTES["Triton, e5m2"],
]


@pytest.mark.parametrize("route", ROUTES_WITH_SIGMA, ids=lambda r: r.name)
@pytest.mark.parametrize("kind", ["normal", "positive", "shifted"])
def test_errors_are_as_large_as_bias_and_sigma_say(route: Route, kind: str) -> None:
    for k, seed in ((64, 1), (512, 2), (2048, 3)):
        a, b = data(route, kind, k, 160, seed)
        error, y, t, r = errors(route, a, b)
        z = (error - bias(route, y, t, r, k)) / sigma(route, y, t, r, k)
        rms = float(np.sqrt(np.mean(z * z)))
        # narrow factors have a bias that depends on how sizes are spread
        low, high = (0.1, 2.2) if kind != "normal" else (0.4, 1.6)
        assert low < rms < high, f"K = {k}: {rms}"
        # a running sum may stray far from where it ends: few, and not in the middle of the data
        assert np.quantile(np.abs(z), 0.97) < 4, f"K = {k}"


def one_sign(route: Route, k: int, n: int = 60) -> tuple[float, float]:
    """Mean error over T of positive data, found and predicted, in U."""
    error, y, t, r = errors(route, *data(route, "positive", k, n, 4))
    predicted = bias(route, y, t, r, k)
    return float(np.mean(error / t) / U), float(np.mean(predicted / t) / U)


@pytest.mark.parametrize(
    ("name", "k", "recorded"),
    [
        ("Triton, tf32", 512, -55),
        ("Triton, tf32", 2048, -243),
        ("Triton, fp16", 2048, -207),
        ("Triton, bf16", 8192, -550),
        ("Triton, e4m3", 2048, -5.9e5),
        ("scaled_mm e4m3", 512, -8.6e3),
    ],
)
def test_the_bias_is_that_of_the_recorded_products(name: str, k: int, recorded: float) -> None:
    """Figures of an H100 on positive data."""
    found, predicted = one_sign(ROUTES[name], k)
    assert abs(found / recorded - 1) < 0.25
    assert abs(predicted / found - 1) < (0.65 if "scaled" in name else 0.25)


def test_the_bias_goes_towards_zero_and_only_where_something_is_cut() -> None:
    y, t, r = np.array([3.0, -3.0, 0.0]), np.full(3, 4.0), np.full(3, 0.7)
    for name, k in (("Triton, tf32", 96), ("Triton, e4m3", 700)):
        b = bias(ROUTES[name], y, t, r, k)
        assert b[0] < 0 < b[1] and b[0] == -b[1] and b[2] == 0
    for name in ("cuBLAS, float32", "Triton, ieee", "int8"):
        assert not bias(ROUTES[name], y, t, r, 96).any()
    chain = ROUTES["Triton, tf32"]
    one, eight = (bias(chain, y, t, 5 / np.sqrt(k), k)[0] for k in (1024, 8192))
    assert 6 < eight / one < 10  # not the root of K
    parts = ROUTES["Triton, tf32"].with_part(64)
    ends = [bias(parts, y, t, 5 / np.sqrt(k), k)[0] for k in (1024, 8192)]
    assert 0.8 < ends[1] / ends[0] < 1.25  # chains that end do not add up


def test_arguments_are_arrays_of_any_shape() -> None:
    t = np.linspace(1, 2, 6).reshape(2, 3)
    route = ROUTES["cuBLAS, TF32 allowed"].with_part(32)
    assert bound(route, t, 64).shape == (2, 3)
    assert sigma(route, t / 3, t, t[:1] / 5, 64).shape == (2, 3)
    assert bias(route, 0.3, t, 0.2, 64).shape == (2, 3)
    assert sigma(route, 0.0, 0.0, 0.0, 64) == 0 and bound(route, 0.0, 64) < 2.0**-140
    assert not bound(ROUTES["int8"], t, 64).any()
    np.testing.assert_allclose(bound(route, 2 * t, 64), 2 * bound(route, t, 64), rtol=1e-9)


@pytest.mark.parametrize("unit", units.PUBLISHED, ids=lambda u: f"{u.generation} {u.name}")
def test_every_published_unit_has_a_sigma(unit: units.MatrixUnit) -> None:
    assert unit.scheme in (units.FUSED, PAIRWISE, STAGED)
    y, t, r = np.array(1.0), np.array(2.0), np.array(0.3)
    low, high = (sigma(Route("of a test", unit), y, t, r, k) for k in (32, 1024))
    assert 0 < low < high < bound(Route("of a test", unit), t, 1024)


@pytest.mark.parametrize("name", [n for n in CONVERSIONS if n != "none"])
def test_conversions_change_sums_as_stated(name: str) -> None:
    conversion = CONVERSIONS[name]
    rng = np.random.default_rng(12)
    a, b = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))
    exact = a.astype(float) * b
    y, t = exact.sum(axis=0), np.abs(exact).sum(axis=0)
    r = np.sqrt((exact**2).sum(axis=0))
    change = (conversion(a).astype(float) * conversion(b)).sum(axis=0) - y
    z = (change - conversion_bias(conversion, y)) / conversion_sigma(conversion, r)
    assert 0.85 < np.sqrt(np.mean(z * z)) < 1.15
    assert (np.abs(change) <= conversion_bound(conversion, t)).all()


def test_conversions_to_tf32_change_what_was_recorded() -> None:
    """Nearest: sigma 4,900 u R. Cut: 13,000 u R of normal data, -12,000 u T of one sign."""
    assert abs(conversion_sigma(TF32_EVEN, 1.0) / U - 4900) < 100
    of_y, of_r = conversion_bias(TF32_CUT, 1.0) / U, conversion_sigma(TF32_CUT, 1.0) / U
    assert abs(of_y + 12000) < 500 and abs(np.hypot(of_y, of_r) - 13000) < 500
    assert conversion_bias(TF32_EVEN, 1.0) == 0
