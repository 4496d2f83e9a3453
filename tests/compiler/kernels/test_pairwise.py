"""Sums of float64 have NumPy's own bits, whatever the sizes and axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds

import verax.ops
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.reduce.pairwise import PairwiseSpec, blocks
from verax.compiler.kernels.registry import EMITTERS
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

assert verax.ops
SUMS = ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare")


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Of very different sizes, so that every other order of adding shows; zeros of both signs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-4, 5, shape)
    x[rng.random(shape) < 0.1] = -0.0
    if seed % 7 == 0:
        x[rng.random(shape) < 0.01] = rng.choice([np.nan, np.inf])
    return x


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    seeds,
    st.lists(st.sampled_from([1, 2, 3, 5, 7, 8, 9, 17, 40, 130]), min_size=1, max_size=4),
    st.integers(1, 15), st.sampled_from(SUMS), st.booleans(),
)  # fmt: skip
def test_drawn_ones(seed: int, shape: list[int], chosen: int, name: str, keepdims: bool) -> None:
    while np.prod(shape) > 20_000:
        shape = shape[:-1]
    axes = [a for a in range(len(shape)) if chosen >> a & 1] or [len(shape) - 1]
    agree(
        REGISTRY[name](keepdims=keepdims), numbers(seed, tuple(shape)), np.array(axes),
        constant=(1,),
    )  # fmt: skip


@pytest.mark.parametrize(
    "length", [6, 8, 127, 128, 129, 136, 511, 512, 513, 520, 1031, 8193, 70001]
)
def test_long_rows(length: int) -> None:
    agree(REGISTRY["ReduceSum"](), numbers(3, (3, length)), np.array([1]), constant=(1,))


def test_many_rows_and_zeros() -> None:
    agree(REGISTRY["ReduceSum"](), numbers(4, (211, 33)), np.array([1]), constant=(1,))
    agree(REGISTRY["ReduceSum"](), np.full((5, 1, 3), -0.0), np.array([1]), constant=(1,))
    agree(REGISTRY["ReduceMean"](), np.full((1, 1), -0.0))


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("shape", [(3, 5, 37), (211, 2)])
def test_extremes_of_float64_know_nan_and_zeros(name: str, shape: tuple[int, ...]) -> None:
    for seed in (7, 8):
        x = numbers(seed, shape)
        x[0] = np.resize([0.0, -0.0], x[0].shape)
        agree(REGISTRY[name](), x, np.array([len(shape) - 1]), constant=(1,))
        agree(REGISTRY[name](keepdims=False), x, np.array([0]), constant=(1,))
        agree(REGISTRY["GlobalMaxPool"](), x.reshape(1, *x.shape))


def test_deleting_the_emitter_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EMITTERS, (PairwiseSpec, ""))
    with pytest.raises(KeyError, match="PairwiseSpec"):
        agree(REGISTRY["ReduceSum"](), numbers(4, (3, 5)))


@pytest.mark.parametrize("length", [1, 100, 129, 1000, 4099])
def test_blocks_cover_a_row_and_join_to_one_sum(length: int) -> None:
    found = blocks(length)
    assert [first for first, _, _ in found] == list(np.cumsum([0, *(n for _, n, _ in found)])[:-1])
    assert sum(n for _, n, _ in found) == length
    assert sum(joined for _, _, joined in found) == len(found) - 1
    assert all(n % 8 == 0 and 0 < n <= 128 for _, n, _ in found[:-1])


@pytest.mark.parametrize("name", [*SUMS, "Softmax"])
def test_a_promise_does_not_depend_on_how_its_input_lies_in_memory(name: str) -> None:
    x = numbers(5, (300, 70))
    b = Builder("net")
    turned = b.add(REGISTRY["Transpose"](perm=(1, 0)), [b.input("x", TensorType.of(x))])
    if name == "Softmax":
        x /= 1e5
        y = b.add(REGISTRY[name](axis=1), [turned])
    else:
        y = b.add(REGISTRY[name](), [turned, b.constant(np.array([1]))])
    graph = b.graph([y])
    wanted = promised(graph, {"x": x})[y]
    np.testing.assert_array_equal(promised(graph, {"x": np.asfortranarray(x)})[y], wanted)
    for level in (0, 1):
        exe = compile(graph, Settings(opt_level=level, threads=1))
        np.testing.assert_array_equal(exe.run({"x": x})[y], wanted)
