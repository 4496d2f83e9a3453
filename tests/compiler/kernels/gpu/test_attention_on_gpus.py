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
from verax.compiler.kernels.gpu import attention as attention_module
from verax.compiler.kernels.gpu.attention import ROWS, HeadSchedule, head_schedule, takes
from verax.compiler.kernels.gpu.attention_block import BlockOfQueries, PackedKeys
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.products.attention import panels
from verax.compiler.kernels.products.attention_spec import AttentionSpec, Mask, Shared
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b
from verax.compiler.kernels.sizes import ceil_div, entry, value, with_dims
from verax.compiler.kernels.target import Target


@dataclasses.dataclass(frozen=True)
class Attention:
    """Attention to be made. mask: "", "bool", "float32" or "column", one value for all keys of a
    query; repeats: heads that share keys; special: share of special values in keys and values.
    as_rows: keys and values are not packed; counted: it stands how many keys each query reads, and
    keys and values that none reads are no numbers; is_open: sizes are read from a table."""

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
    as_rows: bool = False
    counted: bool = False
    ignores_hidden: bool = False
    is_open: bool = False

    @property
    def table(self) -> tuple[int, ...]:
        return (self.outer, self.queries, self.keys) if self.is_open else ()

    def spec(self) -> AttentionSpec:
        d, e, h = self.features, self.columns, self.heads
        outer, n, m = (entry(i) for i in range(3)) if self.is_open else self.sizes
        n = self.queries if self.as_rows else n
        mask = None
        if self.mask == "column":
            mask = Mask(Matrix(1, 0), "float32")
        elif self.mask:
            row = ceil_div(m, 16) * 16
            mask = Mask(Matrix(row, 1, n * row), self.mask)
        shared = Shared(h // self.repeats, self.repeats)
        pitch = m + 3  # rows of a cache with room
        rows = Matrix(d, 1, 0, pitch * d), Matrix(e, 1, 0, pitch * e)
        rows = tuple(dataclasses.replace(r, outer=r.inner * h // self.repeats) for r in rows)
        return AttentionSpec(
            outer, h, n, m, d, e, Matrix(d, 1, h * n * d, n * d),
            Matrix(h * e, 1, n * h * e, e), shared, shared, scale=0.37, divisor=1.7, mask=mask,
            causal=self.causal, masked_to_zero=self.masked_to_zero, nan_to_zero=self.nan_to_zero,
            skips_later=self.skips_later, rows_of=rows if self.as_rows else None,
            ignores_hidden=self.ignores_hidden or self.counted,
            counts=Matrix(1, 1, n) if self.counted else None,
        )  # fmt: skip

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.outer, self.queries, self.keys

    def compare(self, rows: int, stored: bool = False) -> None:
        expected, results = self.run(rows, stored=stored)
        for y in results:
            assert_same_bits(y, expected)

    def run(
        self, rows: int, edit: Edit | None = None, stored: bool = False
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """What the CPU's kernel gives, and the GPU's in every order."""
        rng = np.random.default_rng(self.keys)
        n, m, d, e = self.queries, self.keys, self.features, self.columns
        matrices = self.outer * self.heads // self.repeats
        q = numbers(rng, self.outer, self.heads, n, d) * np.float32(self.large)
        k = numbers(rng, matrices, d, m, special=self.special)
        v = numbers(rng, matrices, m, e, special=self.special)
        open_spec, extra = self.spec(), list[np.ndarray]()
        spec = with_dims(open_spec, self.table)
        counts = np.minimum(-(-rng.integers(0, m + 1, (self.outer, n)) // 16) * 16, m)
        if spec.mask is not None:
            shape = (self.outer, n) if self.mask == "column" else (self.outer, n, -(-m // 16) * 16)
            if self.mask == "bool":
                shown = rng.random(shape) < 0.6
                if self.counted:
                    shown &= np.arange(shape[-1]) < counts[..., None]
                extra.append(shown)
            else:
                hidden = np.where(rng.random(shape) < 0.3, -math.inf, 0.0)
                extra.append((hidden + rng.standard_normal(shape)).astype(np.float32))
        if self.counted:
            extra.append(counts)
        if self.counted or self.ignores_hidden:
            for i, count in enumerate(counts):
                last = int(count.max()) if self.counted else min(-(-n // 16) * 16, m)
                own = slice(i * matrices // self.outer, (i + 1) * matrices // self.outer)
                k[own, :, last:], v[own, last:] = np.nan, np.inf
                least = int(count.min()) if self.counted else 16  # which not every query reads
                v[own, least : least + 1, 0] = np.nan
        if self.skips_later:
            unusual = ~np.isfinite(v.reshape(matrices, -1)).all(axis=1)
            extra.append(unusual.astype(np.int64))

        def arguments(schedule: Any, y: np.ndarray) -> list[np.ndarray]:
            made_for = open_spec if isinstance(schedule, HeadSchedule) else spec
            nbytes = value(schedule.scratch_bytes(made_for), self.table)
            scratch = np.full(nbytes // 4 + 16, np.nan, np.float32)
            if self.as_rows:
                kt = np.ascontiguousarray(k.transpose(0, 2, 1))
                more = (0, 0), (0, 3), (0, 0)
                room = [np.pad(a, more, constant_values=np.nan) for a in (kt, v)]
                return [q, *room, *extra, aligned(scratch), y]
            packing = panels(schedule)
            keys = GemmSpec(1, m, d, Matrix(d, 1), Matrix(m, 1), types=FLOAT32)
            values = GemmSpec(1, e, m, Matrix(m, 1), Matrix(e, 1), types=FLOAT32)
            packed = [
                aligned(np.concatenate([pack_b(x, product, packing) for x in factor]))
                for factor, product in ((k, keys), (v, values))
            ]
            return [q, *packed, *extra, aligned(scratch), y]

        def result() -> np.ndarray:
            return np.full((self.outer * n * self.heads * e) + 16, 12345.0, np.float32)

        host = Target.host()
        schedule = registry.schedules(spec, host)[0]
        module = ModuleBuilder("test", host)
        kernel = registry.emit(module, spec, schedule)
        expected = result()
        Native(module).run(kernel, arguments(schedule, expected))
        assert takes(spec, Target.emulated_gpu())
        heads = HeadSchedule(rows, stored=stored)
        emulated = Emulated(open_spec, heads, edit)
        results = [result() for _ in ORDERS]
        for order, y in zip(ORDERS, results, strict=True):
            emulated.run(arguments(heads, y), order, self.table)
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


@settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
@given(attentions(), st.sampled_from(ROWS), st.sampled_from(["counts", "open", "stored", "both"]))
def test_open_and_counted_keys_have_the_bits_of_the_cpu(
    attention: Attention, rows: int, kind: str
) -> None:
    fields: dict[str, Any] = {"is_open": kind in ("open", "both")}
    if kind in ("counts", "both"):
        fields |= {"counted": True, "mask": "bool", "special": 0.0}
    dataclasses.replace(attention, **fields).compare(rows, stored=kind == "stored")


@pytest.mark.parametrize("keys", [31, 1024, 1043, 2100])
@pytest.mark.parametrize("counted", [False, True])
def test_sums_of_an_open_number_of_keys(keys: int, counted: bool) -> None:
    Attention(5, keys, 8, 20, 2, mask="bool", counted=counted, is_open=True).compare(8)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("sizes", [(37, 90), (90, 37)])
def test_causal_queries_stop_at_their_own_place(is_open: bool, sizes: tuple[int, int]) -> None:
    Attention(*sizes, 8, 21, 2, 2, causal=True, ignores_hidden=True, is_open=is_open).compare(8)


@pytest.mark.parametrize("special", [0.0, 0.02])
def test_open_causal_queries_have_the_bits_of_those_that_stop_early(special: float) -> None:
    """Of values that are not finite, and where later zeros change a sum that is -0."""
    Attention(
        75, 91, 8, 16, 2, 2, causal=True, skips_later=True, special=special, is_open=True
    ).compare(16)


ROWS_OF_KEYS = (
    Attention(1, 83, 8, 16, 2, 4, 2, as_rows=True),
    Attention(3, 1100, 16, 48, 2, 2, mask="bool", as_rows=True, is_open=True),
    Attention(4, 131, 8, 32, 1, 2, mask="bool", as_rows=True, counted=True, is_open=True),
    Attention(8, 61, 24, 144, 2, 2, mask="bool", as_rows=True, counted=True),
    Attention(12, 70, 8, 96, 2, 3, mask="float32", as_rows=True, special=0.02),
    Attention(7, 50, 8, 16, 2, 2, as_rows=True, causal=True, ignores_hidden=True),
    Attention(2, 9, 8, 16, 1, 1, as_rows=True, masked_to_zero=True, mask="bool", counted=True),
    Attention(15, 40, 8, 256, 1, 2, mask="column", as_rows=True, nan_to_zero=True),
)
"""Few queries of keys that are not packed: columns of one and of four a thread, stages and a half
of values, threads without a row."""


@pytest.mark.parametrize("attention", ROWS_OF_KEYS, ids=str)
@pytest.mark.parametrize("stored", [False, True])
def test_keys_that_are_not_packed_have_the_bits_of_the_cpu(
    attention: Attention, stored: bool
) -> None:
    schedule = head_schedule(attention.spec(), Target.emulated_gpu())
    attention.compare(schedule.rows, stored)


def test_threads_of_the_same_scores_in_memory_go_on_to_further_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attention_module, "MOST_BLOCKS", 5)
    Attention(37, 50, 7, 20, 2, 2).compare(4, stored=True)
    Attention(3, 70, 8, 16, 3, 3, as_rows=True, is_open=True).compare(4)


@pytest.mark.parametrize("barrier", range(1, 7))
def test_a_missing_barrier_of_keys_that_are_not_packed_is_noticed(
    barrier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_module, "MOST_BLOCKS", 3)
    name = rf"%co\.barrier{barrier} = call i8 @llvm\.coro\.suspend\(token none, i1 false\)"

    def without(text: str) -> str:
        return re.sub(name, f"%co.barrier{barrier} = add i8 0, 0", text)

    attention = Attention(8, 1100, 8, 48, 2, 3, mask="bool", as_rows=True, counted=True,
                          is_open=True)  # fmt: skip
    expected, results = attention.run(8, without)
    assert any(y.tobytes() != expected.tobytes() for y in results)


FAULTS: dict[str, tuple[type, str, Any, Attention]] = {
    "a query reads what others read": (
        BlockOfQueries,
        "end_of_row",
        lambda queries, row: queries.keys,
        Attention(9, 90, 8, 21, 2, 2, mask="bool", counted=True),
    ),
    "so do queries of rows": (
        BlockOfQueries,
        "end_of_row",
        lambda queries, row: queries.keys,
        Attention(4, 131, 8, 32, 1, 2, mask="bool", as_rows=True, counted=True, is_open=True),
    ),
    "what comes later is left out": (
        PackedKeys,
        "_with_later",
        lambda queries, values, sums: sums,
        Attention(75, 91, 8, 16, 2, 2, causal=True, skips_later=True, special=0.02, is_open=True),
    ),
    "the block stops as its first query does": (
        BlockOfQueries,
        "_keys_of_block",
        lambda queries: queries.end_of_row(0),
        Attention(9, 90, 8, 21, 2, 2, mask="bool", counted=True),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_guard_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, wrong, attention = FAULTS[fault]
    rows = head_schedule(attention.spec(), Target.emulated_gpu()).rows
    monkeypatch.setattr(kind, method, wrong)
    expected, results = attention.run(16 if attention.skips_later else rows)
    assert any(y.tobytes() != expected.tobytes() for y in results)


def test_a_stage_that_is_not_awaited_is_noticed() -> None:
    attention = Attention(8, 1100, 8, 48, 2, 3, mask="bool", as_rows=True)
    expected, results = attention.run(
        8, lambda text: re.sub(r"(call void @copy_wait\(ptr %\S+, i32) 1\)", r"\1 2)", text)
    )
    assert any(y.tobytes() != expected.tobytes() for y in results)


@pytest.mark.parametrize("barrier", range(1, 7))
def test_a_missing_barrier_is_noticed(barrier: int) -> None:
    name = rf"%co\.barrier{barrier} = call i8 @llvm\.coro\.suspend\(token none, i1 false\)"
    expected, results = Attention(19, 53, 12, 20, heads=2).run(
        8, lambda text: re.sub(name, f"%co.barrier{barrier} = add i8 0, 0", text)
    )
    assert any(y.tobytes() != expected.tobytes() for y in results)
