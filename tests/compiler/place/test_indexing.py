"""Gathers and scatters by computed indices: promised bits, duplicates in order, bad ones named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, shapes, values
from tests.compiler.test_operators import graph_of

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.operator import Case, Operator
from verax.ops.movement.gather import GatherElements, GatherND
from verax.ops.movement.generation import EyeLike, Trilu
from verax.ops.movement.scatter import ScatterElements, ScatterND

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
MOVED = ["float32", "float16", "int8", "int64", "bool"]
COMBINED = ["float32", "float64", "int8", "uint8", "int64"]
INDICES = [np.int32, np.int64]


def smaller(data: st.DataObject, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """A shape that is nowhere larger, but on `axis`."""
    return tuple(data.draw(st.integers(1, 21 if a == axis else n)) for a, n in enumerate(shape))


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_elements_are_gathered(shape: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    size, dtype = shape[axis], data.draw(st.sampled_from(MOVED))
    rng = np.random.default_rng(seed)
    indices = rng.integers(-size, size, smaller(data, shape, axis))
    indices = indices.astype(data.draw(st.sampled_from(INDICES)))
    named = axis - len(shape) if data.draw(st.booleans()) else axis
    agree(GatherElements(axis=named), values(seed, shape, dtype), indices)


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_slices_are_gathered(shape: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    rng, rank = np.random.default_rng(seed), len(shape)
    batch = data.draw(st.integers(0, rank - 1))
    depth = data.draw(st.integers(1, rank - batch))
    middle = data.draw(shapes(0, 2))
    limits = np.array(shape[batch : batch + depth])
    indices = rng.integers(-limits, limits, (*shape[:batch], *middle, depth))
    indices = indices.astype(data.draw(st.sampled_from(INDICES)))
    dtype = data.draw(st.sampled_from(MOVED))
    agree(GatherND(batch_dims=batch), values(seed, shape, dtype), indices)


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_elements_are_scattered(shape: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "min", "max"]))
    dtype = data.draw(st.sampled_from(MOVED if reduction == "none" else COMBINED))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng, size = np.random.default_rng(seed), shape[axis]
    indices = rng.integers(-size, size, smaller(data, shape, axis))
    indices = indices.astype(data.draw(st.sampled_from(INDICES)))
    op = ScatterElements(axis=axis, reduction=reduction)
    agree(op, values(seed, shape, dtype), indices, values(seed + 3, indices.shape, dtype))


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_slices_are_scattered(shape: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    reduction = data.draw(st.sampled_from(["none", "add", "mul", "min", "max"]))
    dtype = data.draw(st.sampled_from(MOVED if reduction == "none" else COMBINED))
    rng, depth = np.random.default_rng(seed), data.draw(st.integers(1, len(shape)))
    limits = np.array(shape[:depth])
    indices = rng.integers(-limits, limits, (*data.draw(shapes(0, 2)), depth))
    indices = indices.astype(data.draw(st.sampled_from(INDICES)))
    updates = values(seed + 3, (*indices.shape[:-1], *shape[depth:]), dtype)
    agree(ScatterND(reduction=reduction), values(seed, shape, dtype), indices, updates)


def test_long_slices_are_shared_out() -> None:
    x, indices = values(1, (5, 8192)), np.array([[3], [-2], [3], [0]])
    for reduction in ("none", "add"):
        agree(ScatterND(reduction=reduction), x, indices, values(2, (4, 8192)))


X = np.ones((4, 3), np.float32)
BAD: list[tuple[Operator, Any, Any]] = [
    (GatherElements(axis=1), np.array([[0, 3]]), None),
    (GatherND(), np.array([[0, 1], [-5, 0]]), None),
    (ScatterElements(), np.array([[4]]), np.ones((1, 1), np.float32)),
    (ScatterND(reduction="add"), np.array([[1, 2], [1, -4]]), np.ones(2, np.float32)),
]


@pytest.mark.parametrize(("op", "indices", "updates"), BAD, ids=lambda x: type(x).__name__)
def test_a_bad_index_is_named(op: Operator, indices: Any, updates: Any) -> None:
    graph, fed = graph_of(Case(op, (X, indices, *(() if updates is None else (updates,)))), False)
    exe = compile(graph, Settings(opt_level=1, threads=1, require_native=True))
    with pytest.raises(InputError, match="an index lies outside") as caught:
        exe.run(fed)
    assert op.kind in str(caught.value)
    fed["x1"] = np.zeros_like(indices)
    exe.run(fed)


@FEW
@given(shapes(2, 4), st.data(), st.booleans(), seeds)
def test_triangles(shape: tuple[int, ...], data: st.DataObject, upper: bool, seed: int) -> None:
    k = data.draw(st.none() | st.integers(-9, 9) | st.sampled_from([2**62, -(2**63)]))
    x = values(seed, shape, data.draw(st.sampled_from(MOVED)))
    agree(Trilu(upper=upper), x, *(() if k is None else (np.array(k),)), constant=(1,))


@FEW
@given(st.integers(1, 40), st.integers(1, 9), st.integers(-50, 50), seeds)
def test_identity_matrices(rows: int, columns: int, k: int, seed: int) -> None:
    for dtype in (None, "float32", "int64", "bool", "float16"):
        agree(EyeLike(k=k, dtype=dtype), values(seed, (rows, columns), "int32"))
