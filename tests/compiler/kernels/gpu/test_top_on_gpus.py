"""TopK by counting on a GPU: the elements and places of the CPU's kernel, in every order."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels.gpu.emulation import ORDERS, SPECIAL, Emulated, aligned, ptx

from verax.compiler.kernels import registry
from verax.compiler.kernels.gpu import top
from verax.compiler.kernels.gpu.top import _Ranked
from verax.compiler.kernels.llvm.gpu import BlockBuilder
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.kernels.sizes import entry
from verax.compiler.kernels.target import Target

DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int32", "int64")


@dataclasses.dataclass(frozen=True)
class Top:
    """k of `length` elements of 2 x 3 rows; step: elements apart. is_open: sizes come from a table
    when the kernel runs."""

    length: int
    k: int
    dtype: str = "float32"
    largest: bool = True
    step: int = 1
    is_open: bool = False

    @property
    def table(self) -> tuple[int, ...]:
        return (self.length, self.k) if self.is_open else ()

    def spec(self) -> TopSpec:
        length, k = (entry(0), entry(1)) if self.is_open else (self.length, self.k)
        if self.step == 1:
            x, to = (3 * length, length), 1
            return TopSpec((2, 3), length, k, x, (3 * k, k), 1, to, self.largest, self.dtype)
        x, y = (self.step * length, 1), (self.step * k, 1)  # 3 rows side by side
        return TopSpec((2, 3), length, k, x, y, self.step, self.step, self.largest, self.dtype)

    def data(self) -> np.ndarray:
        """Many equal ones."""
        rng, count = np.random.default_rng(self.length), 2 * max(3, self.step) * self.length
        if self.dtype.startswith("float"):
            values = np.round(rng.standard_normal(count) * 4).astype(self.dtype)
            with np.errstate(over="ignore"):
                special = rng.choice(SPECIAL.astype(self.dtype), count)
            return aligned(np.where(rng.random(count) < 0.1, special, values))
        info = np.iinfo(self.dtype)
        values = rng.integers(max(info.min, -9), 9, count)
        ends = rng.choice(np.array([info.min, info.max], self.dtype), count)
        return aligned(np.where(rng.random(count) < 0.1, ends, values).astype(self.dtype))

    def expected(self) -> np.ndarray:
        """Places [2, 3, k], by NumPy's stable sort; NaN is above all."""
        x = self.data()
        if self.step == 1:
            rows = x.reshape(2, 3, self.length)
        else:
            rows = x.reshape(2, self.length, self.step).transpose(0, 2, 1)[:, :3]
        if self.dtype.startswith("float"):
            filled = np.where(np.isnan(rows), np.inf, rows).astype(np.float64)
            order = np.lexsort((filled, np.isnan(rows)), axis=-1)
            if self.largest:
                order = np.lexsort((-filled, ~np.isnan(rows)), axis=-1)
            return order[..., : self.k]
        wide = rows.astype(object)
        return np.argsort(-wide if self.largest else wide, axis=-1, kind="stable")[..., : self.k]

    def run(self) -> list[tuple[np.ndarray, np.ndarray]]:
        spec = self.spec()
        kernel = Emulated(spec, registry.schedules(spec, Target.emulated_gpu())[0])
        assert kernel.kernel.threads == top.THREADS
        results = []
        for order in ORDERS:
            count = 2 * max(3, self.step) * self.k
            values, places = np.zeros(count, self.dtype), np.full(count, -1)
            scratch = np.zeros(8, np.uint8)
            kernel.run([self.data(), scratch, values, places], order, self.table)
            results.append((self._rows(values), self._rows(places)))
        return results

    def _rows(self, results: np.ndarray) -> np.ndarray:
        if self.step == 1:
            return results.reshape(2, 3, self.k)
        return results.reshape(2, self.k, self.step).transpose(0, 2, 1)[:, :3]

    def is_right(self) -> bool:
        """Whether places, and the bits of values, are right in all orders."""
        places = self.expected()
        x = self.data()
        if self.step == 1:
            rows = x.reshape(2, 3, self.length)
        else:
            rows = x.reshape(2, self.length, self.step).transpose(0, 2, 1)[:, :3]
        values = np.take_along_axis(rows, places, axis=-1)
        return all(
            np.array_equal(p, places) and v.tobytes() == values.tobytes() for v, p in self.run()
        )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_places_are_those_of_a_stable_sort(data: Any) -> None:
    length = data.draw(st.integers(1, 90))
    one = Top(
        length, data.draw(st.integers(1, length)), data.draw(st.sampled_from(DTYPES)),
        data.draw(st.booleans()), data.draw(st.sampled_from([1, 1, 5])), data.draw(st.booleans()),
    )  # fmt: skip
    assert one.is_right()


LONG = (Top(1025, 300), Top(2600, 7, "int64", False, 5), Top(1300, 1300, "float16", is_open=True))


@pytest.mark.parametrize("one", LONG, ids=str)
def test_rows_of_several_tiles(one: Top) -> None:
    assert one.is_right()


@pytest.mark.parametrize("fault", ["no barrier", "ties", "guard"])
def test_a_fault_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "no barrier":
        monkeypatch.setattr(BlockBuilder, "barrier", lambda self: None)
    elif fault == "ties":
        monkeypatch.setattr(
            _Ranked, "_precedes", lambda self, r, i, own: self.f.b.icmp_unsigned("<", r, own)
        )
    else:
        counted = _Ranked._counted
        monkeypatch.setattr(
            _Ranked,
            "_counted",
            lambda self, first, *more: counted(self, self.n.add(first, 1), *more),
        )
    assert not LONG[0].is_right()


def test_very_long_rows_are_the_cpu_s() -> None:
    short, long = (Top(n, 5).spec() for n in (top.MAX_LENGTH, top.MAX_LENGTH + 1))
    assert "bar" in ptx(short, None) and "bar" not in ptx(long, None)
