"""Reductions in every type, and where extremes are: promised bits on drawn shapes and axes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, shapes, values

from verax.ir.operator import REGISTRY

FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
WHOLE = ["int8", "uint8", "int32", "int64", "uint16"]
FLOATING = ["float16", "float32"]
KINDS = {
    "ReduceSum": [*FLOATING, *WHOLE],
    "ReduceMean": [*FLOATING, *WHOLE],
    "ReduceProd": [*FLOATING, *WHOLE],
    "ReduceMax": [*FLOATING, *WHOLE, "bool"],
    "ReduceMin": [*FLOATING, *WHOLE, "bool"],
    "ReduceL1": [*FLOATING, *WHOLE],
    "ReduceSumSquare": [*FLOATING, *WHOLE],
    "ReduceL2": FLOATING,
    "ReduceLogSumExp": FLOATING,
    "ReduceLogSum": FLOATING,
}


@pytest.mark.parametrize("kind", sorted(KINDS))
@FEW
@given(shapes(0, 4), st.data(), st.booleans(), seeds)
def test_reductions(
    kind: str, shape: tuple[int, ...], data: st.DataObject, keepdims: bool, seed: int
) -> None:
    rank = len(shape)
    dtype = data.draw(st.sampled_from(KINDS[kind]))
    axes = data.draw(st.lists(st.sampled_from(range(rank)), unique=True)) if rank else []
    axes = [a - rank if data.draw(st.booleans()) else a for a in axes]
    op = REGISTRY[kind](keepdims=keepdims, noop_with_empty_axes=data.draw(st.booleans()))
    agree(op, values(seed, shape, dtype), np.array(axes, np.int64), constant=(1,))


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@FEW
@given(shapes(1, 4), st.data(), st.booleans(), st.booleans(), seeds)
def test_places_of_extremes(
    kind: str, shape: tuple[int, ...], data: st.DataObject, keepdims: bool, last: bool, seed: int
) -> None:
    dtype = data.draw(st.sampled_from([*FLOATING, "float64", *WHOLE]))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    op = REGISTRY[kind](axis=axis, keepdims=keepdims, select_last_index=last)
    agree(op, values(seed, shape, dtype))


@FEW
@given(shapes(1, 4), st.data(), st.booleans(), seeds)
def test_hardmax(shape: tuple[int, ...], data: st.DataObject, flatten: bool, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from([*FLOATING, "float64"]))
    agree(REGISTRY["Hardmax"](axis=axis, flatten=flatten), values(seed, shape, dtype))


@pytest.mark.parametrize("kind", ["CumSum", "CumProd"])
@FEW
@given(shapes(1, 4), st.data(), st.booleans(), st.booleans(), seeds)
def test_running_sums(
    kind: str, shape: tuple[int, ...], data: st.DataObject, exclusive: bool, back: bool, seed: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    dtype = data.draw(st.sampled_from([*FLOATING, "float64", *WHOLE]))
    op = REGISTRY[kind](exclusive=exclusive, reverse=back)
    agree(op, values(seed, shape, dtype), np.array(axis), constant=(1,))


@pytest.mark.checkered
@pytest.mark.parametrize("shape", [(3, 2, 17), (5, 3, 37), (2, 3, 2, 21), (4, 2, 3, 9)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "int64"])
def test_lines_that_are_no_multiple_of_a_vector(shape: tuple[int, ...], dtype: str) -> None:
    """Sixteen elements in a row begin in one line of the last axis and end in the next."""
    x, axes = values(9, shape, dtype), np.array([0, *range(2, len(shape))])
    for kind in ("ReduceSum", "ReduceProd", "ReduceMax"):
        agree(REGISTRY[kind](), x, axes, constant=(1,))
    if dtype == "float32":
        agree(REGISTRY["MeanVarianceNormalization"](axes=tuple(axes.tolist())), x)
