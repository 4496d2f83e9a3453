"""The largest of row-major windows: the promised bits at every border, of every type, in parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h
from tests.compiler.native import agree

import verax.ops
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.planar_pooling import (
    KEYS,
    PlanarMaxSpec,
    blocked_cost,
    emit_planar_max,
)
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.ops.windows.pooling import MaxPool, larger
from verax.ops.windows.windows import lowest

assert verax.ops
GUARD = 12


def expected(x: np.ndarray, spec: PlanarMaxSpec) -> np.ndarray:
    """Window by window, in plain Python."""
    y = np.full((spec.planes, *spec.output), lowest(x.dtype), x.dtype)
    for place in itertools.product(*map(range, spec.output)):
        for taps in itertools.product(*map(range, spec.kernel)):
            at = tuple(
                o * s - p + k * d
                for o, s, p, k, d in zip(place, spec.strides, spec.pads, taps, spec.dilations)
            )
            if all(0 <= i < e for i, e in zip(at, spec.size)):
                y[(..., *place)] = larger(y[(..., *place)], x[(..., *at)])
    return y


@st.composite
def pools(draw: st.DrawFn) -> tuple[np.ndarray, PlanarMaxSpec]:
    def triple(depth: int, rows: int, columns: int, least: int = 1) -> tuple[int, int, int]:
        return tuple(draw(st.integers(least, most)) for most in (depth, rows, columns))

    dtype = draw(st.sampled_from(sorted(KEYS)))
    size, kernel = triple(3, 20, 70), triple(2, 9, 11)
    strides, dilations = triple(2, 3, 4), triple(2, 2, 3)
    pads, after = triple(1, 3, 19, least=0), triple(1, 3, 19, least=0)
    output = h.output_size(size, kernel, strides, dilations, pads, after)
    assume(min(output) > 0)
    planes = draw(st.sampled_from([1, 3, 67]))
    spec = PlanarMaxSpec(planes, size, tuple(output), kernel, strides, dilations, pads, dtype)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shape = (planes, *size)
    if np.dtype(dtype).kind != "f":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True), spec
    x = rng.standard_normal(shape)
    for share, value in ((0.3, 0.0), (0.1, -np.inf), (0.05, np.inf), (0.03, np.nan)):
        x[rng.random(shape) < share] = value
    return np.copysign(x, rng.standard_normal(shape)).astype(dtype), spec


def compute(x: np.ndarray, spec: PlanarMaxSpec, target: Target, parts: int) -> np.ndarray:
    count = spec.planes * int(np.prod(spec.output))
    memory = np.full(count + 2 * GUARD, 77, spec.dtype)
    scratch = np.full(spec.scratch_bytes + 64, 0xA5, np.uint8)
    module = ModuleBuilder("test", target)
    kernel = emit_planar_max(module, spec)
    start = memory.ctypes.data + GUARD * memory.itemsize
    h.run(module, kernel, x.ctypes.data, scratch.ctypes.data, start, parts=min(parts, kernel.items))
    assert (memory[:GUARD] == 77).all() and (memory[GUARD + count :] == 77).all()
    assert (scratch[spec.scratch_bytes :] == 0xA5).all()
    return memory[GUARD:-GUARD].reshape(spec.planes, *spec.output)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, but any NaN for any NaN."""
    nan = (a != a) & (b != b)
    bits = f"i{a.itemsize}"
    return bool((nan | (a.view(bits) == b.view(bits))).all())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(pool=pools(), parts=st.integers(1, 3))
@pytest.mark.parametrize("target", h.TARGETS, ids=lambda t: t.name)
def test_the_promised_bits(
    target: Target, pool: tuple[np.ndarray, PlanarMaxSpec], parts: int
) -> None:
    x, spec = pool
    assert same(compute(x, spec, target, parts), expected(x, spec))


def test_large_planes_keep_few_rows() -> None:
    """A plane in chunks whose rows stay in cache, with windows across them."""
    spec = PlanarMaxSpec(1, (1, 90, 700), (1, 45, 349), (1, 3, 4), (1, 2, 2), (1, 1, 1),
                         (0, 1, 0), "float32")  # fmt: skip
    assert spec.units > 1 and spec.item_elements * 4 <= 80_000
    x = np.random.default_rng(1).standard_normal((1, *spec.size)).astype(np.float32)
    assert same(compute(x, spec, h.TARGETS[0], 2), expected(x, spec))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32"])
def test_the_operator(dtype: str) -> None:
    x = (np.random.default_rng(3).standard_normal((2, 3, 21, 40)) * 20).astype(dtype)
    op = MaxPool(kernel_shape=(3, 4), strides=(2, 2), pads=((1, 1), (2, 0)), dilations=(2, 1),
                 ceil_mode=True)  # fmt: skip
    agree(op, x)


def planar(channels: int, side: int, kernel: int, between: bool) -> bool:
    """Whether the pool of a network reads rows; between: it is behind a convolution."""
    b = Builder("net")
    x = b.input("x", TensorType.of(np.zeros((1, channels, side, side), np.float32)))
    if between:
        w = b.constant(np.ones((channels, channels, 1, 1), np.float32))
        x = b.add(REGISTRY["Conv"](), [x, w])
    y = b.add(MaxPool(kernel_shape=(kernel, kernel)), [x])
    plan = compile(b.graph([y]), Settings(opt_level=1, threads=1)).plan
    return any("row-major" in line and "max pool" in line for line in str(plan).splitlines())


def test_who_reads_rows() -> None:
    assert planar(3, 40, 3, between=False) and planar(64, 112, 3, between=False)
    assert planar(256, 13, 7, between=False)
    assert not planar(512, 8, 2, between=False)
    assert not planar(64, 112, 3, between=True)


def test_costs_grow_with_their_own_trouble() -> None:
    wide, narrow = (
        PlanarMaxSpec(32, (1, 30, n), (1, 28, n - 2), (1, 3, 3), (1,) * 3, (1,) * 3, (0,) * 3,
                      "float32")
        for n in (130, 5)
    )  # fmt: skip
    assert wide.cost < blocked_cost(wide, 32) and narrow.cost > blocked_cost(narrow, 32)
    assert blocked_cost(wide, 1) > blocked_cost(wide, 16)
