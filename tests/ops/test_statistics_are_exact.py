"""Sums, means and normalizations of float32 are as exact as their algorithm says, on data whose
mean is many deviations from zero and on axes of half a million elements.

u = 2^-24. A mean is a sum of blocks, whose errors average out, and two roundings. A normalization
takes the rounding of the mean off again: what it gives is within a few roundings of the size of
the result, wherever the mean lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.ops.sums.moments import promised_moments
from verax.reference import evaluate, promised

U = 2.0**-24
ROUNDINGS = 8
"""Of the inverse of the deviation (a division, a sum, a root, a division), and of the result."""


def errors(kind: str, x: np.ndarray, *constants: np.ndarray, **attributes: Any) -> tuple[Any, Any]:
    """(what is promised less the reference, the reference)."""
    b = Builder("net")
    names = [b.input("x", TensorType.of(x)), *map(b.constant, constants)]
    graph = b.graph([b.add(REGISTRY[kind](**attributes), names)])
    ((_, got),) = promised(graph, {"x": x}).items()
    ((_, want),) = evaluate(graph, {"x": x}).items()
    assert np.asarray(got).dtype == np.float32 and np.asarray(want).dtype == np.float64
    return np.asarray(got).astype(np.float64) - want, want


def drawn(mean: float, deviation: float, *shape: int) -> np.ndarray:
    rng = np.random.default_rng([len(shape), shape[-1], int(abs(mean))])
    return (mean + deviation * rng.standard_normal(shape)).astype(np.float32)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


OFFSETS = ((0.0, 1.0), (40.0, 0.1), (1000.0, 1.0), (-7.0, 1e-3))


@pytest.mark.parametrize("mean,deviation", OFFSETS)
@pytest.mark.parametrize(
    "kind,shape,parameters,attributes",
    [
        ("LayerNormalization", (7, 96), (96,), {}),
        ("LayerNormalization", (5, 768), (768,), {}),
        ("LayerNormalization", (2, 3, 5000), (3, 5000), {"axis": 1}),
        ("InstanceNormalization", (2, 3, 250, 190), (3,), {}),
        ("GroupNormalization", (2, 6, 31, 53), (6,), {"num_groups": 2}),
        ("MeanVarianceNormalization", (2, 3, 70, 61), (), {"axes": (0, 2, 3)}),
    ],
)
def test_normalizations_know_no_offset(
    mean: float,
    deviation: float,
    kind: str,
    shape: tuple[int, ...],
    parameters: tuple[int, ...],
    attributes: dict[str, Any],
) -> None:
    x = drawn(mean, deviation, *shape)
    constants = [ones(*parameters), 0 * ones(*parameters)] if parameters else []
    error, want = errors(kind, x, *constants, **attributes)
    assert np.abs(error).max() <= ROUNDINGS * U * np.abs(want).max()


@pytest.mark.parametrize("first,rest", [(0.0, 1.0), (100.0, 0.0), (-1.0, 1.0)])
@pytest.mark.parametrize("n", [96, 768, 5000])
def test_parts_of_a_row_may_differ(first: float, rest: float, n: int) -> None:
    """An image whose sky is black: the number near the mean is not of one part alone."""
    x = drawn(0, 0.1, 5, n)
    x[:, : n // 4] += np.float32(first)
    x[:, n // 4 :] += np.float32(rest)
    error, want = errors("LayerNormalization", x, ones(n), 0 * ones(n))
    assert np.abs(error).max() <= 4 * U * np.abs(want).max()


def test_the_inverse_of_the_deviation_is_rounded_once() -> None:
    """What follows from the sum of squares is computed in float64: half a unit of the last place
    and what the sum has lost."""
    x = drawn(3, 1, 400, 96)
    inverse = promised_moments(x, (1,)).inverse(1e-5)
    exact = 1 / np.sqrt(x.astype(np.float64).var(axis=1, keepdims=True) + 1e-5)
    assert (np.abs(inverse - exact) / np.spacing(inverse)).max() < 1.5


@pytest.mark.parametrize("value", [40.1, 1e-3, -123456.7])
def test_a_constant_row_has_no_deviation(value: float) -> None:
    """Its mean is rounded, and every difference to it is the same: the result is the bias."""
    x = np.full((2, 3, 3000), value, np.float32)
    x[1, 2, 17] += np.float32(1)
    for kind, attributes in (
        ("InstanceNormalization", {}),
        ("GroupNormalization", {"num_groups": 3}),
    ):
        error, _ = errors(kind, x, ones(3), 2 * ones(3), **attributes)
        assert np.abs(error).max() <= 64 * ROUNDINGS * U
    got, want = errors("MeanVarianceNormalization", x[:1], axes=(2,))
    assert not want.any() and not got.any()


@pytest.mark.parametrize("mean,deviation", OFFSETS)
def test_means_of_half_a_million(mean: float, deviation: float) -> None:
    """Two roundings, and a hundredth of one of the sizes: blocks of 1024 err by some roundings
    each, and in different directions."""
    x = drawn(mean, deviation, 2, 1 << 19)
    size = np.abs(x).astype(np.float64).mean(axis=1, keepdims=True)
    axes = np.array([1])
    for kind in ("ReduceMean", "ReduceSum", "ReduceL1"):
        error, want = errors(kind, x, axes)
        scale = 1 if kind == "ReduceMean" else x.shape[1]
        assert (np.abs(error) <= 2 * U * np.abs(want) + 0.01 * U * scale * size).all(), kind
    error, want = errors("ReduceL2", x, axes)
    assert (np.abs(error) <= 2 * U * want).all()
    error, want = errors("GlobalAveragePool", x.reshape(1, 2, 512, 1024))
    assert (np.abs(error).ravel() <= 2 * U * np.abs(want).ravel() + 0.01 * U * size.ravel()).all()


def test_shares_of_a_long_line_add_up() -> None:
    """Softmax over 65,536: the sum of exponentials errs by two roundings."""
    error, want = errors("Softmax", drawn(0, 1e-3, 2, 1 << 16))
    assert np.abs(error / want).max() <= 6 * U
