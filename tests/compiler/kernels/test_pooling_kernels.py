"""Pooling kernels give the canonical bits, at every border, with NaN and both zeros."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h

from verax.compiler.kernels.convolution.pooling import PoolSpec, emit_pool
from verax.compiler.kernels.layout import Epilogue
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.target import Target
from verax.numerics.expr import trace


def expected(x: np.ndarray, spec: PoolSpec) -> np.ndarray:
    """Output by output, in plain Python."""
    y = np.zeros((*x.shape[:2], *spec.output), np.float32)
    for place in itertools.product(*map(range, spec.output)):
        largest = np.full(x.shape[:2], -np.inf, np.float32)
        total = np.zeros(x.shape[:2], np.float32)
        number = 0
        for taps in itertools.product(*map(range, spec.kernel)):
            at = [
                o * s - p + k * d
                for o, s, p, k, d in zip(place, spec.strides, spec.pads, taps, spec.dilations)
            ]
            counted = all(i < e + a for i, e, a in zip(at, spec.size, spec.pads_after))
            inside = all(0 <= i < e for i, e in zip(at, spec.size))
            number += counted if spec.count_include_pad else inside
            if inside:
                value = x[(slice(None), slice(None), *at)]
                total = total + value
                both = (value == 0) & (largest == 0)
                plus = np.where(np.signbit(value) & np.signbit(largest), -0.0, 0.0)
                largest = np.where(both, plus, np.maximum(largest, value)).astype(np.float32)
        with np.errstate(invalid="ignore"):
            mean = total / np.float32(number)
        y[(slice(None), slice(None), *place)] = largest if spec.kind == "max" else mean
    return y


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, PoolSpec]:
    axes = draw(st.sampled_from([1, 2, 2, 3]))

    def triple(low: int, high: int, missing: int) -> tuple[int, int, int]:
        some = [draw(st.integers(low, high)) for _ in range(axes)]
        return tuple([missing] * (3 - axes) + some)

    size, kernel = triple(1, 21 if axes < 3 else 5, 1), triple(1, 4, 1)
    strides, dilations, pads, after = (
        triple(1, 3, 1),
        triple(1, 2, 1),
        triple(0, 2, 0),
        triple(0, 2, 0),
    )
    output = list(h.output_size(size, kernel, strides, dilations, pads, after))
    assume(min(output) > 0)
    hang = draw(st.booleans())  # ceil mode: a last window beyond the end padding
    if hang and output[2] * strides[2] < size[2] + pads[2]:
        output[2] += 1
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    channels = draw(st.sampled_from([3, 16, 37]))
    x = h.random(rng, draw(st.integers(1, 2)), channels, *size)
    x[rng.random(x.shape) < 0.3] = 0.0
    x[rng.random(x.shape) < 0.3] *= -1
    x[rng.random(x.shape) < 0.05] = np.nan
    nothing = h.blocked_strides(1, (1, 1, 1))
    return x, PoolSpec(
        draw(st.sampled_from(["max", "average"])), x.shape[0], channels, size, tuple(output),
        kernel, nothing, nothing, strides, dilations, pads, after, draw(st.booleans()),
        dtype="float32",
    )  # fmt: skip


def compute(x: np.ndarray, spec: PoolSpec, target: Target, parts: int) -> np.ndarray:
    border = ((0, 1), (1, 0), (2, 1))
    source = h.tensor(x, border)
    y = h.empty((*x.shape[:2], *spec.output), border)
    spec = PoolSpec(**{**vars(spec), "x": source.strides, "y": y.strides})
    module = ModuleBuilder("test", target)
    h.run(module, emit_pool(module, spec), source.address, y.address, parts=parts)
    assert h.untouched_outside(y)
    return y.read()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, but any NaN for any NaN."""
    return h.same_bits(np.nan_to_num(a, nan=777.0, posinf=np.inf, neginf=-np.inf),
                       np.nan_to_num(b, nan=777.0, posinf=np.inf, neginf=-np.inf))  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pool=pools(), parts=st.integers(1, 3))
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_pools_give_canonical_bits(
    target: Target, pool: tuple[np.ndarray, PoolSpec], parts: int
) -> None:
    x, spec = pool
    assert same(compute(x, spec, target, parts), expected(x, spec))


def test_the_epilogue_is_applied_once_to_the_result() -> None:
    rng = np.random.default_rng(5)
    x = h.random(rng, 2, 19, 1, 9, 12)
    double = trace(lambda m, acc: m.mul(acc, m.like(2.0, acc)), ["float32"])
    strides = h.blocked_strides(1, (1, 1, 1))
    spec = PoolSpec("average", 2, 19, (1, 9, 12), (1, 3, 4), (1, 3, 3), strides, strides, (1, 3, 3),
                    dtype="float32")  # fmt: skip
    plain = compute(x, spec, h.TARGETS[0], 1)
    spec = PoolSpec(**{**vars(spec), "epilogue": Epilogue(double)})
    assert h.same_bits(compute(x, spec, h.TARGETS[0], 1), plain * 2)
