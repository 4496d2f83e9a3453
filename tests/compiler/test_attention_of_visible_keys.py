"""Attention that reads visible keys alone, and few queries that read keys as they lie: the bits are
those of the operator, whatever stands in the room that nobody sees."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.base.machine.processor import runs_here
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels.products.attention_spec import AttentionSpec
from verax.compiler.place.calls import KernelCall
from verax.ir.graph import Builder, Graph
from verax.ir.operator import as_tuple
from verax.ir.types import TensorType
from verax.ops.sums.attention import Attention
from verax.reference import promised

HEADS, SHARED = 6, 2
Arrays = dict[str, np.ndarray]


def network(queries: int, room: int, features: int, values: int, **fields: Any) -> Graph:
    b = Builder("cached")
    shapes = {
        "q": f"3, {queries}, {HEADS}, {features}",
        "k": f"3, {SHARED}, {room}, {features}",
        "v": f"3, {SHARED}, {room}, {values}",
    }
    inputs = [b.input(n, TensorType.parse(f"float32[{s}]")) for n, s in shapes.items()]
    if not fields.get("causal"):
        inputs.append(b.input("mask", TensorType.parse(f"bool[3, 1, {queries}, {room}]")))
    fields = {"scale": 0.5, "ignores_hidden": True, "heads_inside": "qy"} | fields
    return b.graph([b.add(Attention(**fields), inputs)])


def arrays(graph: Graph, seen: int, seed: int) -> Arrays:
    """Query i of n sees no key from `seen` - n + i on; behind what any of them reads, nothing is
    a number."""
    random = np.random.default_rng([seed, 5])
    fed = {v: random.standard_normal(graph.types[v].shape).astype(np.float32) for v in "qkv"}
    room, edge = graph.types["k"].shape[2], -(-max(seen, 1) // 16) * 16
    if "mask" in graph.inputs:
        mask = random.random(graph.types["mask"].shape) < 0.6
        queries = mask.shape[2]
        ends = np.maximum(seen - queries + 1 + np.arange(queries), 0)
        fed["mask"] = mask & (np.arange(room) < ends[:, None])
        fed["k"][:, :, edge:], fed["v"][:, :, edge:] = np.nan, np.inf
    return fed


def spec_of(exe: Executable) -> AttentionSpec:
    calls = (c for c in exe.specialized.lowered.steps if isinstance(c, KernelCall))
    return next(c.spec for c in calls if isinstance(c.spec, AttentionSpec))


@pytest.mark.parametrize(
    ("sizes", "is_packed"),
    [
        ((1, 83, 8, 16), False),
        ((4, 96, 16, 48), False),
        ((1, 11, 24, 32), False),
        ((3, 83, 8, 17), True),
        ((13, 700, 5, 6), True),
        ((29, 130, 16, 32), True),
    ],
)
@pytest.mark.parametrize("zeros", [True, False])
def test_it_has_the_bits_of_the_operator(
    sizes: tuple[int, int, int, int], is_packed: bool, zeros: bool
) -> None:
    graph = network(*sizes, masked_to_zero=zeros)
    exe = compile(graph, Settings(threads=1, opt_level=0))
    spec = spec_of(exe)
    assert spec.is_bounded and (spec.rows_of is None) == is_packed

    @given(seen=st.integers(0, sizes[1]), seed=st.integers(0, 99))
    @settings(max_examples=10)
    def agrees(seen: int, seed: int) -> None:
        fed = arrays(graph, seen, seed)
        (value,) = graph.outputs
        found, want = exe.run(fed)[value], np.asarray(promised(graph, fed)[value])
        np.testing.assert_array_equal(found, want)
        assert np.isfinite(found).all() or not zeros

    agrees()


@pytest.mark.parametrize(
    "target", [*(t for t in ("avx2", "avx512") if runs_here(t)), "host", "cuda-emulated"]
)
@pytest.mark.parametrize("sizes", [(1, 150, 8, 16), (20, 150, 8, 16)])
def test_every_target_and_number_of_threads_gives_its_bits(
    target: str, sizes: tuple[int, int, int, int]
) -> None:
    graph = network(*sizes)
    fed, (value,) = arrays(graph, 61, 5), graph.outputs
    want = promised(graph, fed)[value]
    for threads in (1, 2):
        exe = compile(graph, Settings(threads=threads, opt_level=1, target=target))
        np.testing.assert_array_equal(exe.run(fed)[value], want)


@pytest.mark.parametrize("queries", [7, 70])
def test_causal_queries_stop_at_their_own_place(queries: int) -> None:
    graph = network(queries, 90, 8, 32, causal=True)
    exe = compile(graph, Settings(threads=1, opt_level=1))
    assert spec_of(exe).is_bounded
    fed, (value,) = arrays(graph, 0, 3), graph.outputs
    fed["v"][:, :, -(-queries // 16) * 16 :] = np.nan
    found = exe.run(fed)[value]
    np.testing.assert_array_equal(found, promised(graph, fed)[value])
    assert np.isfinite(found).all()
    fed["v"][:, :, 5] = np.nan  # within the first sixteen keys, which all queries read
    np.testing.assert_array_equal(exe.run(fed)[value], np.full_like(found, np.nan))


def test_what_is_read_decides_the_sign_of_zero() -> None:
    """The smallest product rounds to -0, to which another zero must not be added."""
    op = Attention(ignores_hidden=True)
    q, k, v = np.zeros((1, 8), np.float32), np.zeros((40, 8), np.float32), np.ones((40, 16), "f4")
    v[0], mask = -1e-45, np.arange(40)[None] < 2
    v[1] = -1e-45
    b = Builder("zeros")
    given = {"q": q, "k": k, "v": v, "mask": mask}
    inputs = [b.input(n, TensorType.parse(f"{a.dtype}{list(a.shape)}")) for n, a in given.items()]
    graph = b.graph([b.add(op, inputs)])
    found = compile(graph, Settings(threads=1, opt_level=0)).run(given)[graph.outputs[0]]
    assert found.tobytes() == np.asarray(promised(graph, given)[graph.outputs[0]]).tobytes()


@pytest.mark.parametrize("fields", [{"ignores_hidden": False}, {"hidden": -100.0}])
def test_all_keys_are_read_where_they_count(fields: dict[str, Any]) -> None:
    graph = network(2, 40, 8, 16, **fields)
    exe = compile(graph, Settings(threads=1, opt_level=1))
    assert not spec_of(exe).is_bounded
    fed, (value,) = arrays(graph, 16, 4), graph.outputs
    assert not np.isfinite(exe.run(fed)[value]).any()


def test_heads_that_share_keys_are_rows_of_one_product() -> None:
    graph = network(1, 50, 8, 16)
    spec = spec_of(compile(graph, Settings(threads=1, opt_level=1)))
    assert (spec.inner, spec.n) == (SHARED, HEADS // SHARED)
    different = dataclasses.replace(graph.types["mask"], dims=(3, HEADS, 1, 50))
    b = Builder("masks of heads")
    types = {v: graph.types[v] for v in "qkv"} | {"mask": different}
    inputs = [b.input(n, t) for n, t in types.items()]
    masked = b.graph([b.add(graph.nodes[0].op, inputs)])
    exe = compile(masked, Settings(threads=1, opt_level=1))
    assert (spec_of(exe).inner, spec_of(exe).n) == (HEADS, 1)
    fed = arrays(graph, 33, 2)
    fed["mask"] = np.random.default_rng(8).random((3, HEADS, 1, 50)) < 0.5
    (value,) = masked.outputs
    np.testing.assert_array_equal(exe.run(fed)[value], promised(masked, fed)[value])


def test_the_reference_reads_no_hidden_value() -> None:
    op = Attention(ignores_hidden=True, causal=True)
    random = np.random.default_rng(6)
    q, k, v = (random.standard_normal((37, 5)).astype(np.float32) for _ in range(3))
    visible = op.visible_keys((37, 37), None)
    assert visible[:17].tolist() == [16] * 16 + [32] and visible[-1] == 37
    plain = as_tuple(Attention(causal=True).canonical(None, q, k, v))[0]  # type: ignore[arg-type]
    v[32:] = np.nan
    found = as_tuple(op.canonical(None, q, k, v))[0]  # type: ignore[arg-type]
    np.testing.assert_array_equal(found[:32], plain[:32])
    assert np.isnan(found[32:]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(70, 90), (90, 70), (33, 33)])
@pytest.mark.parametrize("unusual", ["", "nan", "inf", "zero"])
def test_causal_queries_that_stop_early_have_the_bits_of_all_keys(
    dtype: str, sizes: tuple[int, int], unusual: str
) -> None:
    """Where a later value is no number, where all sums are -0, and where neither is so."""
    (n, m), random = sizes, np.random.default_rng(15)
    shapes = {"q": (2, 4, n, 8), "k": (2, 2, m, 8), "v": (2, 2, m, 21)}
    fed = {v: random.standard_normal(s).astype(dtype) for v, s in shapes.items()}
    if unusual == "zero":
        fed["v"][..., ::3] = -np.finfo(dtype).smallest_subnormal
        fed["v"][:, :, -2:, ::2] *= -1
    elif unusual:
        fed["v"][1, 0, -1, 20] = float(unusual)
    b = Builder("early")
    inputs = [b.input(v, TensorType.parse(f"{dtype}{list(s)}")) for v, s in shapes.items()]
    graph = b.graph([b.add(Attention(causal=True, scale=0.5), inputs)])
    (value,) = graph.outputs
    want = np.asarray(promised(graph, fed)[value])
    zeros = (want == 0) & np.signbit(want)
    assert np.isnan(want).any() == (unusual in ("nan", "inf"))
    assert zeros.any() == (unusual == "zero")
    for threads, target in ((1, "host"), (2, "avx2")):
        exe = compile(graph, Settings(threads=threads, opt_level=1, target=target))
        assert spec_of(exe).skips_later
        found = exe.run(fed)[value]
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found)[want == 0], np.signbit(want)[want == 0])
