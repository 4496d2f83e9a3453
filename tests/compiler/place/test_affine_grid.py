"""AffineGrid natively: the promised bits for every rank and size, and fit for GridSample behind."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

SIZES = st.lists(st.integers(1, 37), min_size=1, max_size=3)


def grid(theta: np.ndarray, size: list[int], align_corners: bool) -> Graph:
    b = Builder("net")
    x = b.input("theta", TensorType.of(theta))
    op = REGISTRY["AffineGrid"](align_corners=align_corners)
    return b.graph([b.add(op, [x, b.constant(np.array(size))])])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 3), SIZES, st.booleans(), st.integers(1, 3), st.integers(0, 99))
def test_every_bit_is_the_promised_one(
    batch: int, space: list[int], align_corners: bool, threads: int, seed: int
) -> None:
    rank = len(space)
    theta = np.random.default_rng([seed, 7]).normal(size=(batch, rank, rank + 1))
    theta = theta.astype(np.float32)
    if seed % 5 == 0:
        theta[0, 0, rank] = np.nan
        theta[-1, rank - 1, 0] = np.inf
    graph = grid(theta, [batch, 4, *space], align_corners)
    exe = compile(graph, Settings(opt_level=1, threads=threads, require_native=True))
    (got,), (want,) = (f(theta).values() for f in (
        lambda t: exe.run({"theta": t}), lambda t: promised(graph, {"theta": t})))  # fmt: skip
    assert got.shape == (batch, *space, rank)
    assert np.array_equal(got.view(np.int32)[~np.isnan(want)], want.view(np.int32)[~np.isnan(want)])
    assert np.array_equal(np.isnan(got), np.isnan(want))


def test_the_promise_is_the_meaning_rounded_once() -> None:
    """The float64 meaning, by NumPy's product, differs from it by at most the last bit."""
    theta = np.random.default_rng(8).normal(size=(2, 2, 3)).astype(np.float32)
    size = np.array([2, 1, 31, 29])
    op = REGISTRY["AffineGrid"]()
    graph = grid(theta, size.tolist(), False)
    (want,) = promised(graph, {"theta": theta}).values()
    assert np.abs(op.reference(None, theta.astype(np.float64), size) - want).max() < 2e-7


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [[2, 3, 4, 5], [2, 1, 3, 6, 2], [2, 5, 1]])
def test_float64_keeps_its_bits(size: list[int], align_corners: bool) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(9).normal(size=(2, rank, rank + 1))
    graph = grid(theta, size, align_corners)
    (want,) = promised(graph, {"theta": theta}).values()
    exe = compile(graph, Settings(threads=2, require_native=True))
    (got,) = exe.run({"theta": theta}).values()
    assert got.dtype == np.float64 and np.array_equal(got, want)
    assert not np.array_equal(got, got.astype(np.float32))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_spatial_transformer_runs_natively(threads: int) -> None:
    rng = np.random.default_rng(10)
    image = rng.normal(size=(2, 3, 9, 11)).astype(np.float32)
    theta = rng.normal(size=(2, 2, 3), scale=0.5).astype(np.float32)
    b = Builder("net")
    x, t = (b.input(n, TensorType.of(a)) for n, a in (("x", image), ("theta", theta)))
    made = b.add(REGISTRY["AffineGrid"](), [t, b.constant(np.array([2, 3, 7, 5]))])
    graph = b.graph([b.add(REGISTRY["GridSample"](), [x, made])])
    given = {"x": image, "theta": theta}
    exe = compile(graph, Settings(opt_level=1, threads=threads, require_native=True))
    (got,), (want,) = exe.run(given).values(), promised(graph, given).values()
    assert got.tobytes() == want.tobytes()
