"""Attention by blocks of threads has the bits of the CPU's kernel, in every order."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels.gpu.emulation import ORDERS, Edit, Emulated, aligned, numbers
from tests.compiler.kernels.native import Native, assert_same_bits

from verax.compiler.kernels import registry
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.gpu.attention import ROWS, HeadSchedule, takes
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.products.attention import panels
from verax.compiler.kernels.products.attention_spec import AttentionSpec, Mask, Shared
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b
from verax.compiler.kernels.target import Target


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention to be made. mask: "", "bool", "float32" or "column", one value for all keys of a
    query; repeats: heads that share keys; special: share of special values in keys and values."""

    queries: int
    keys: int
    features: int
    columns: int
    outer: int = 1
    heads: int = 1
    repeats: int = 1
    mask: str = ""
    causal: bool = False
    masked_to_zero: bool = False
    nan_to_zero: bool = False
    skips_later: bool = False
    special: float = 0.0
    large: float = 1.0

    def spec(self) -> AttentionSpec:
        n, m, d, e, h = self.queries, self.keys, self.features, self.columns, self.heads
        mask = None
        if self.mask == "column":
            mask = Mask(Matrix(1, 0), "float32")
        elif self.mask:
            row = -(-m // 16) * 16
            mask = Mask(Matrix(row, 1, n * row), self.mask)
        shared = Shared(h // self.repeats, self.repeats)
        return AttentionSpec(
            self.outer, h, n, m, d, e, Matrix(d, 1, h * n * d, n * d),
            Matrix(h * e, 1, n * h * e, e), shared, shared, scale=0.37, divisor=1.7, mask=mask,
            causal=self.causal, masked_to_zero=self.masked_to_zero, nan_to_zero=self.nan_to_zero,
            skips_later=self.skips_later,
        )  # fmt: skip

    def compare(self, rows: int) -> None:
        expected, results = self.run(rows)
        for y in results:
            assert_same_bits(y, expected)

    def run(self, rows: int, edit: Edit | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
        """What the CPU's kernel gives, and the GPU's in every order."""
        rng = np.random.default_rng(self.keys)
        n, m, d, e = self.queries, self.keys, self.features, self.columns
        matrices = self.outer * self.heads // self.repeats
        q = numbers(rng, self.outer, self.heads, n, d) * np.float32(self.large)
        k = numbers(rng, matrices, d, m, special=self.special)
        v = numbers(rng, matrices, m, e, special=self.special)
        spec, extra = self.spec(), list[np.ndarray]()
        if spec.mask is not None:
            shape = (self.outer, n) if self.mask == "column" else (self.outer, n, -(-m // 16) * 16)
            if self.mask == "bool":
                extra.append(rng.random(shape) < 0.6)
            else:
                hidden = np.where(rng.random(shape) < 0.3, -math.inf, 0.0)
                extra.append((hidden + rng.standard_normal(shape)).astype(np.float32))
        if self.skips_later:
            unusual = ~np.isfinite(v.reshape(matrices, -1)).all(axis=1)
            extra.append(unusual.astype(np.int64))

        def arguments(schedule: Any, y: np.ndarray) -> list[np.ndarray]:
            packing = panels(schedule)
            keys = GemmSpec(1, m, d, Matrix(d, 1), Matrix(m, 1), types=FLOAT32)
            values = GemmSpec(1, e, m, Matrix(m, 1), Matrix(e, 1), types=FLOAT32)
            packed = [
                aligned(np.concatenate([pack_b(x, product, packing) for x in factor]))
                for factor, product in ((k, keys), (v, values))
            ]
            scratch = np.zeros(schedule.scratch_bytes(spec) // 4 + 16, np.float32)
            return [q, *packed, *extra, scratch, y]

        def result() -> np.ndarray:
            return np.full((self.outer * n * self.heads * e) + 16, 12345.0, np.float32)

        host = Target.host()
        schedule = registry.schedules(spec, host)[0]
        module = ModuleBuilder("test", host)
        kernel = registry.emit(module, spec, schedule)
        expected = result()
        Native(module).run(kernel, arguments(schedule, expected))
        assert takes(spec, Target.emulated_gpu())
        heads = HeadSchedule(rows)
        emulated = Emulated(spec, heads, edit)
        results = [result() for _ in ORDERS]
        for order, y in zip(ORDERS, results, strict=True):
            emulated.run(arguments(heads, y), order)
        return expected, results


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    repeats = draw(st.sampled_from([1, 1, 2]))
    causal = draw(st.booleans())
    return Attention(
        draw(st.integers(1, 21)), draw(st.integers(1, 90)), draw(st.integers(1, 21)),
        draw(st.integers(1, 37)), draw(st.integers(1, 2)), repeats * draw(st.integers(1, 2)),
        repeats, draw(st.sampled_from(["", "bool", "float32", "column"])), causal,
        draw(st.booleans()), draw(st.booleans()), False, draw(st.sampled_from([0.0, 0.0, 0.03])),
        draw(st.sampled_from([1.0, 1.0, 40.0])),
    )  # fmt: skip


@settings(max_examples=12, deadline=None, suppress_health_check=SLOW)
@given(attentions(), st.sampled_from(ROWS))
def test_attention_has_the_bits_of_the_cpu(attention: Attention, rows: int) -> None:
    attention.compare(rows)


@pytest.mark.parametrize("keys", [31, 32, 1024, 1043, 2100])
def test_sums_of_many_keys_have_the_bits_of_the_cpu(keys: int) -> None:
    Attention(5, keys, 8, 20, mask="bool").compare(8)


@pytest.mark.parametrize("special", [0.0, 0.02])
def test_causal_queries_have_the_bits_of_those_that_stop_early(special: float) -> None:
    Attention(75, 75, 8, 16, 2, 2, causal=True, skips_later=True, special=special).compare(16)


@pytest.mark.parametrize("barrier", range(1, 7))
def test_a_missing_barrier_is_noticed(barrier: int) -> None:
    name = rf"%co\.barrier{barrier} = call i8 @llvm\.coro\.suspend\(token none, i1 false\)"
    expected, results = Attention(19, 53, 12, 20, heads=2).run(
        8, lambda text: re.sub(name, f"%co.barrier{barrier} = add i8 0, 0", text)
    )
    assert any(y.tobytes() != expected.tobytes() for y in results)
