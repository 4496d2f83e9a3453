"""Sparse constants are made dense as LiteRT's DENSIFY makes them; empty ones need no bytes."""

from __future__ import annotations

import numpy as np
import pytest
from tests.frontends.from_tflite.resource_cases import SPARSE, densified
from tests.frontends.from_tflite.tflite_peer import litert
from tests.frontends.from_tflite.tflite_writer import Op, Sparsity, T, const, model

import verax
from verax.base.errors import ModelError
from verax.frontends.tflite import load_tflite


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_weights_are_those_of_litert(name: str, dtype: str) -> None:
    right, values, sparsity = SPARSE[name]
    right = np.trunc(right) / 2 if dtype == "int8" else right
    data = densified(right.shape, np.array(values, dtype), sparsity)
    x = np.random.default_rng(61).standard_normal(right.shape).astype(np.float32)
    (made,) = verax.compile(load_tflite(data), opt_level=1, threads=1).run({"x": x}).values()
    assert np.array_equal(made, x + right)
    if sparsity.index == "int32" and values:  # the optimized kernel takes no others
        assert np.array_equal(litert(data, {"x": x})["y"], made)


@pytest.mark.parametrize(
    ("values", "sparsity"),
    [
        ([3, 5, -4], SPARSE["rows"][2]),
        ([3, 5, -4, 7], Sparsity([0, 0], [4, ([0, 1, 1, 3, 4], [1, 0, 2, 2])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 1, 3, 4], [1, 0, 2, 3])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 1, 3, 4], [1, 0, 2, -1])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 0, 3, 4], [1, 0, 2, 2])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 1, 3], [1, 0, 2, 2])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 1, 3, 9], [1, 0, 2, 2])])),
        ([3, 5, -4, 7], Sparsity([0, 1], [1 << 30, 1 << 30])),
        ([3, 5, -4, 7], Sparsity([0, 1], [4])),
        ([3, 5, -4, 7], Sparsity([0, 1, 2], [4, 3, 2], [5])),
    ],
)
def test_levels_that_contradict_the_shape_are_damage(values: list, sparsity: Sparsity) -> None:
    with pytest.raises(ModelError, match="sparsity contradicts"):
        load_tflite(densified((4, 3), np.array(values, np.float32), sparsity))


def test_a_shape_without_sizes_needs_no_bytes() -> None:
    """RESHAPE to a number: the list of sizes is empty, and the file has no bytes for it."""
    w = const(np.full((1, 1), 2.5, np.float32))
    sizes = T((0,), "int32")
    tensors = [T((1, 1), name="x"), w, T((1, 1)), sizes, T((), name="y")]
    data = model(tensors, [Op("MUL", [0, 1], [2]), Op("RESHAPE", [2, 3], [4])], [0], [4])
    x = np.full((1, 1), -1.5, np.float32)
    (made,) = verax.compile(load_tflite(data), threads=1).run({"x": x}).values()
    assert made.shape == () and made == -3.75 == litert(data, {"x": x})["y"]
