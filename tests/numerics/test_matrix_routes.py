"""Routes split K and add parts as libraries do, and a product's bits tell its route."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verax.numerics.matrix_units import reproduction, routes
from verax.numerics.matrix_units.conversions import BF16_EVEN, TF32_CUT, TF32_EVEN
from verax.numerics.matrix_units.reproduction import equal_bits, reproduces
from verax.numerics.matrix_units.routes import (
    LANES,
    RECORDED_PARTS,
    ROUNDED,
    ROUTES,
    UNKNOWN_PARTS,
    Route,
    candidate_parts,
    candidate_routes,
    predicted,
    recorded,
    sums,
)
from verax.numerics.matrix_units.simulate import chain, fma_chain
from verax.numerics.matrix_units.units import BF16, FP16, TF32


def factors(m: int, k: int, n: int, seed: int, dtype: Any = np.float32) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n))]


def exact_same(x: Any, y: Any) -> bool:
    return bool(equal_bits(np.asarray(x), np.asarray(y)).all())


def test_parts_start_from_zero_and_are_added_in_float32() -> None:
    a, b = factors(3, 76, 5, 1)
    route = ROUTES["cuBLAS, TF32 allowed"].with_part(32)
    x, y = TF32_EVEN(a).T[:, :, None], TF32_EVEN(b)[:, None, :]
    parts = [chain(TF32, x[i : i + 32], y[i : i + 32]).astype("f") for i in (0, 32, 64)]
    expected = (parts[0] + parts[1]) + parts[2]
    assert exact_same(predicted(route, a, b), expected)
    assert not exact_same(predicted(route.with_part(None), a, b), expected)
    assert not exact_same(parts[0] + (parts[1] + parts[2]), expected)
    c = np.full((3, 5), 0.3, np.float32)
    assert exact_same(predicted(route, a, b, c), ((c + parts[0]) + parts[1]) + parts[2])


def test_lanes_are_added_by_halves() -> None:
    a, b = factors(2, 35 * 4, 3, 2)
    route = Route("of a test", None, part=4, addition=LANES)
    parts = [fma_chain(a.T[i : i + 4, :, None], b[i : i + 4, None, :]) for i in range(0, 140, 4)]
    lanes = [parts[i] + parts[32 + i] if i < 3 else parts[i] for i in range(32)]
    for half in (16, 8, 4, 2, 1):
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    assert exact_same(predicted(route, a, b), lanes[0])
    three = Route("of a test", None, part=4, addition=LANES)
    expected = (parts[0] + parts[2]) + parts[1]  # an odd number: the middle one waits
    assert exact_same(predicted(three, a[:, :12], b[:12]), expected)


def test_a_head_takes_the_remainder_of_k_first() -> None:
    a, b = factors(3, 100, 5, 3, np.float16)
    route = ROUTES["cuBLAS, fp16, rows not of 16 bytes"]
    x, y = a.T[:, :, None], b[:, None, :]
    expected = chain(FP16, x[36:], y[36:], chain(FP16, x[:36], y[:36])).astype(np.float32)
    assert exact_same(predicted(route, a, b), expected)
    assert not exact_same(predicted(ROUTES["cuBLAS, fp16"], a, b), expected)


def test_three_products_carry_the_low_parts() -> None:
    a, b = factors(4, 24, 6, 4)
    plain, split = (predicted(ROUTES[n], a, b) for n in ("JAX, default", "Triton, tf32x3"))
    exact = a.astype(float) @ b
    assert np.abs(plain - exact).max() > 100 * np.abs(split - exact).max()
    a[1, 3], b[5, 2] = np.inf, -np.inf
    y = predicted(ROUTES["Triton, tf32x3"], a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(y), np.isnan(a @ b))
    np.testing.assert_array_equal(y[1, 0], np.inf * np.sign(b[3, 0]))


def test_fp8_by_mma_sync_takes_pairs_of_each_word_and_pads_k() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.float8_e4m3fn) for s in ((3, 40), (40, 5)))
    first = [k for k in range(32) if k % 4 < 2]
    second = [k for k in range(32) if k % 4 >= 2]
    x, y = (np.concatenate([f, np.zeros((24, f.shape[1]), f.dtype)]) for f in (a.T, b))
    total: Any = 0.0
    for start in (0, 32):
        for half in (first, second):
            at = start + np.array(half)
            total = chain(FP16, x[at][:, :, None], y[at][:, None, :], total)
    assert exact_same(predicted(ROUTES["Triton, e4m3 by mma.sync"], a, b), total.astype("f"))


def test_outputs_are_the_same_however_they_are_cut_into_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(6)
    a = rng.standard_normal((2, 1, 5, 41)).astype(np.float32)
    b = rng.standard_normal((3, 41, 7)).astype(np.float32)
    c = rng.standard_normal((3, 5, 7)).astype(np.float32)
    route = ROUTES["Triton, tf32"].with_part(16)
    whole = predicted(route, a, b, c, np.float16)
    assert whole.shape == (2, 3, 5, 7) and whole.dtype == np.float16
    monkeypatch.setattr(routes, "_BLOCK", 8)
    assert exact_same(predicted(route, a, b, c, np.float16), whole)
    one = sums(route, a[1, 0, 4], b[2, :, 6], c[2, 4, 6], np.float16)
    assert exact_same(one, whole[1, 2, 4, 6])


def test_recorded_parts_are_those_of_routes_and_among_the_candidates() -> None:
    for name, sizes in RECORDED_PARTS.items():
        for k, (part, addition) in sizes.items():
            route = recorded(name, k)
            assert route is not None and (route.part, route.addition) == (part, addition)
            assert part == k or part in candidate_parts(k), (name, k, part)
    assert recorded("Triton, tf32x3", 2048) == ROUTES["Triton, tf32x3"]
    assert all(recorded(name, k) is None for name, k in UNKNOWN_PARTS)
    assert all(p is None or 0 < p < 100 for p in candidate_parts(100))
    assert candidate_parts(3) == (None,)


def test_candidates_are_distinct_and_begin_with_the_likely() -> None:
    found = list(candidate_routes("float32", 200))
    assert found[0] == ROUTES["cuBLAS, TF32 allowed"]
    keys = [(r.unit, r.conversion, r.low, r.part, r.addition) for r in found]
    assert len(set(keys)) == len(keys)
    assert list(candidate_routes("float64", 8)) == []
    assert [r.name for r in candidate_routes("int8", 64)] == ["int8"]


@pytest.mark.parametrize(
    ("route", "dtype", "words"),
    [
        (ROUTES["Triton, tf32"], "float32", "TF32 in matrix units (factors cut)"),
        (
            ROUTES["cuBLAS, TF32 allowed"].with_part(56),
            "float32",
            "TF32 in matrix units (factors nearest even)",
        ),
        (
            ROUTES["JAX, default"].with_part(64),
            "float32",
            "TF32 in matrix units (factors nearest, ties away)",
        ),
        (ROUTES["cuBLAS, float32"].with_part(40), "float32", "float32 FMA"),
        (ROUTES["Triton, tf32x3"], "float32", "three TF32 products in matrix units"),
        (
            ROUTES["cuBLAS, bf16"].with_part(96),
            "bfloat16",
            "bf16 factors, float32 sums in matrix units",
        ),
        (ROUTES["Triton, fp16 accumulation"], "float16", "fp16 accumulation in matrix units"),
        (ROUTES["scaled_mm e4m3"], "float8_e4m3fn", "fp8 e4m3 in matrix units, chains of 128"),
        (
            ROUTES["scaled_mm e4m3, fast accumulation"],
            "float8_e4m3fn",
            "fp8 e4m3 in matrix units, one chain",
        ),
    ],
    ids=lambda v: v.name if isinstance(v, Route) else "",
)
def test_a_products_bits_tell_its_route(route: Route, dtype: str, words: str) -> None:
    """At a K that nobody recorded; the sizes of parts are found among candidates."""
    a, b = factors(11, 200, 13, 7, getattr(ml_dtypes, dtype, None) or dtype)
    a[0, 0] = 1 + 2.0**-11  # tells ties
    b[0, 0] = 64
    outputs = predicted(route, a, b)
    found = reproduces(outputs, a, b, candidate_routes(dtype, 200))
    assert (found.equal, found.of) == (143, 143) and found.route is not None
    assert (found.route.part, found.route.arithmetic) == (route.part, words)


def test_bias_and_rounded_outputs_are_reproduced() -> None:
    a, b = factors(9, 48, 10, 8, ml_dtypes.bfloat16)
    bias = np.linspace(-1, 1, 10).astype(np.float32)
    outputs = (predicted(ROUTES["cuBLAS, bf16"], a, b) + bias).astype(ml_dtypes.bfloat16)
    assert reproduces(outputs, a, b, [ROUTES["cuBLAS, bf16"]], bias).equal == 90
    assert reproduces(outputs, a, b, [ROUTES["cuBLAS, bf16"]]).route is None


def test_a_bias_may_cancel_sums_that_were_rounded() -> None:
    """Then outputs are far from the exact ones, and yet every bit is right."""
    a, b = (1 + 0.01 * f for f in factors(9, 48, 10, 8))
    a, b = a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)
    route = ROUTES["cuBLAS, bf16"].with_bias(ROUNDED)
    total = predicted(route, a, b, dtype=ml_dtypes.bfloat16).astype(np.float32)
    bias = (-total.mean(axis=0)).astype(np.float32)
    outputs = (total + bias).astype(ml_dtypes.bfloat16)
    assert reproduces(outputs, a, b, [route], bias) == (route, 90, 90)


def test_what_no_route_gives_has_none_and_costs_only_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = factors(20, 160, 21, 9)
    outputs = (a.astype(float) @ b).astype(np.float32)
    full = []
    monkeypatch.setattr(reproduction, "predicted", lambda *a, **k: full.append(a))
    tried = [Route("one", TF32, TF32_CUT), Route("other", BF16, BF16_EVEN)]
    found = reproduces(outputs, a, b, tried)
    assert found.route is None and found.of == 64 and found.equal < 10 and not full


def test_the_route_with_the_most_equal_numbers_is_named() -> None:
    a, b = factors(20, 160, 21, 10)
    outputs = predicted(ROUTES["Triton, tf32"], a, b)
    outputs[3, 5:9] = np.nextafter(outputs[3, 5:9], np.float32(9))
    tried = [ROUTES["cuBLAS, TF32 allowed"], ROUTES["Triton, tf32"]]
    found = reproduces(outputs, a, b, tried, share=0.9)
    assert found.route == ROUTES["Triton, tf32"] and (found.equal, found.of) == (416, 420)
    with pytest.raises(TypeError, match="float32 and float64 cannot be compared"):
        equal_bits(outputs, outputs.astype(float))
