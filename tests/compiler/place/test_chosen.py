"""NonZero, Compress and Unique natively: as many rows as kernels count, with promised values."""

from __future__ import annotations

import zlib
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from tests.compiler.test_bits import bits

import verax
import verax.ops
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.registry import EMITTERS
from verax.compiler.kernels.search.chosen import KeptSpec
from verax.compiler.kernels.search.hash_table import MAX_DISTINCT
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import TensorType
from verax.numerics.formats import numpy_dtype
from verax.reference import promised

assert verax.ops
TYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)


def network(op: Operator, *arrays: np.ndarray) -> tuple[Graph, dict[str, np.ndarray]]:
    b = Builder("net")
    fed = {f"x{i}": a for i, a in enumerate(arrays)}
    return b.graph(b.add_all(op, [b.input(n, TensorType.of(a)) for n, a in fed.items()])), fed


def drawn(dtype: str, shape: tuple[int, ...], seed: int, kinds: int = 9) -> np.ndarray:
    """Few different numbers, zeros of both signs, NaN, infinities and the ends of the type."""
    rng = np.random.default_rng([seed, zlib.crc32(dtype.encode())])
    made = rng.integers(0 if dtype[0] in "ub" else -kinds, kinds + 1, shape)
    array = made.astype(numpy_dtype(dtype))
    flat = array.reshape(-1)
    if "float" in dtype:
        odd = [np.nan, -0.0, 0.0, np.inf, -np.inf, 3e-8, -3e-8]
    elif dtype == "bool":
        odd = [True, False]
    else:
        odd = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    for value in odd:
        if flat.size:
            flat[rng.integers(flat.size, size=max(1, flat.size // 16))] = value
    return array


def check(op: Operator, *arrays: np.ndarray, threads: int = 1) -> None:
    graph, fed = network(op, *arrays)
    exe = compile(graph, Settings(opt_level=1, threads=threads, require_native=True))
    for _ in range(2):
        got, want = exe.run(fed), promised(graph, fed)
        for value, array in want.items():
            assert got[value].shape == np.shape(array)
            assert bits(got[value]) == bits(np.asarray(array)), (op, value)


@pytest.mark.checkered
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("rises", [True, False])
def test_unique_of_every_type(dtype: str, rises: bool) -> None:
    check(REGISTRY["Unique"](sorted=rises), drawn(dtype, (5, 7, 11), 11))


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(["float32", "int64", "float64", "uint8"]),
    st.integers(1, 700),
    st.integers(0, 2**30),
    st.booleans(),
    st.integers(0, 99),
)
def test_unique_of_every_size(dtype: str, size: int, kinds: int, rises: bool, seed: int) -> None:
    check(REGISTRY["Unique"](axis=-1, sorted=rises), drawn(dtype, (size,), seed, kinds % 256))


@pytest.mark.checkered
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint16", "float64"])
@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize(
    "values", [1, 2, MAX_DISTINCT - 1, MAX_DISTINCT, MAX_DISTINCT + 1, 3 * MAX_DISTINCT]
)
def test_unique_around_as_many_values_as_a_table_holds(
    values: int, rises: bool, dtype: str
) -> None:
    """The last one comes late, when the table has been in use for long."""
    rng = np.random.default_rng(values)
    seen = rng.choice(30_000, values, replace=False).astype(dtype)
    x = np.concatenate([rng.choice(seen[:-1], 700) if values > 1 else seen, seen, seen[:3]])
    check(REGISTRY["Unique"](sorted=rises), x)


def test_unique_of_numbers_that_differ_in_every_byte() -> None:
    rng = np.random.default_rng(12)
    for dtype in ("int64", "float64", "float32"):
        width = np.dtype(dtype).itemsize
        array = np.frombuffer(rng.bytes(width * 999), dtype)
        check(REGISTRY["Unique"](), np.concatenate([array, array[::3]]))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("axis", "k"), [(1, 3), (-1, 40)])
def test_the_first_of_64_bit_types(dtype: str, largest: bool, axis: int, k: int) -> None:
    x = drawn(dtype, (3, 5, 41), 20)
    b = Builder("net")
    given = [b.input("x0", TensorType.of(x)), b.constant(np.array([k]))]
    graph = b.graph(b.add_all(REGISTRY["TopK"](axis=axis, largest=largest), given))
    exe = compile(graph, Settings(opt_level=1, threads=2, require_native=True))
    got = exe.run({"x0": x})
    for value, array in promised(graph, {"x0": x}).items():
        assert bits(got[value]) == bits(np.asarray(array))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(37,), (3, 19), (2, 5, 4, 3)])
def test_places_of_every_type_and_rank(dtype: str, shape: tuple[int, ...]) -> None:
    check(REGISTRY["NonZero"](), drawn(dtype, shape, 13, kinds=1))


@pytest.mark.parametrize("held", [0, 1])
def test_none_and_all(held: int) -> None:
    """0 rows, and as many as there is room for."""
    check(REGISTRY["NonZero"](), np.full((3, 5), held, np.int32))
    check(REGISTRY["Compress"](axis=1), drawn("float32", (3, 5, 2), 14), np.full(5, held, bool))


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(1, 40), min_size=1, max_size=3),
    st.integers(-3, 3),
    st.integers(0, 5),
    st.integers(1, 2),
    st.integers(0, 99),
)
def test_rows_where_a_condition_holds(
    dtype: str, shape: list[int], axis: int, missing: int, threads: int, seed: int
) -> None:
    """Along every axis and over all, also of fewer conditions than rows."""
    x = drawn(dtype, tuple(shape), seed)
    over = axis if -len(shape) <= axis < len(shape) else None
    length = x.size if over is None else shape[over]
    holds = np.random.default_rng(seed + 15).random(max(1, length - missing)) < 0.5
    check(REGISTRY["Compress"](axis=over), x, holds, threads=threads)


def test_deleting_the_kernel_of_computed_conditions_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(EMITTERS, (KeptSpec, ""))
    with pytest.raises(KeyError, match="KeptSpec"):
        check(REGISTRY["Compress"](axis=0), drawn("float32", (3, 5), 19), np.ones(3, bool))


def test_what_has_no_kernel_says_why() -> None:
    for op, arrays, why in (
        (REGISTRY["Unique"](axis=0), [drawn("int64", (4, 3), 16)], "rows are compared"),
        (REGISTRY["NonZero"](), [np.array(2.0, np.float32)], "a scalar has no places"),
        (
            REGISTRY["Compress"](axis=0),
            [drawn("int8", (3, 2), 17), np.zeros(4, bool)],
            "more conditions than rows",
        ),
    ):
        graph, fed = network(op, *arrays)
        exe = compile(graph, Settings(threads=1))
        got = exe.run(fed)
        assert why in str(exe.plan)
        for value, array in promised(graph, fed).items():
            assert bits(got[value]) == bits(np.asarray(array))


def test_a_saved_program_counts_along_the_same_axis(tmp_path: Path) -> None:
    graph, fed = network(REGISTRY["NonZero"](), drawn("float32", (4, 9), 18, kinds=2))
    exe = verax.compile(graph, threads=1)
    want = exe.run(fed)
    exe.save(tmp_path / "net.vx")
    got = verax.load(tmp_path / "net.vx").run(fed)
    assert [a.tolist() for a in got.values()] == [a.tolist() for a in want.values()]
