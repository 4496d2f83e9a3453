"""A transform by a chirp whose angles are float32 numbers is named, and nothing else is taken for
it."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.explain.node import explain
from verax.ops.sums.linear import MatMul

NAME = "chirp with angles in float32"
ROWS = 3


def matrix(length: int, bins: int, pair: bool) -> np.ndarray:
    """Of the transform with a negative sign, real and imaginary parts interleaved, float32."""
    angles = -2 * np.pi * (np.outer(np.arange(length), np.arange(bins)) % length) / length
    e = np.exp(1j * angles)
    rows = np.stack([e, 1j * e], 1).reshape(2 * length, bins) if pair else e
    return np.stack([rows.real, rows.imag], 2).reshape(len(rows), 2 * bins).astype(np.float32)


def by_chirp(z: np.ndarray, bins: int, angles: np.ndarray) -> np.ndarray:
    """Transform of the rows of z by Bluestein's algorithm, given the chirp's angles."""
    n = z.shape[1]
    k = np.abs(np.arange(bins) - np.arange(n)[:, None])
    chirp = np.exp(-1j * angles)
    y = (z * chirp) @ np.exp(1j * angles)[k] * chirp[:bins]
    return np.stack([y.real, y.imag], 2).reshape(len(z), 2 * bins).astype(np.float32)


def names(length: int, bins: int, pair: bool, angles: np.ndarray) -> list[str]:
    random = np.random.default_rng(length)
    x = random.standard_normal((ROWS, length * (2 if pair else 1))).astype(np.float32)
    z = x.astype(np.float64)
    z = z[:, 0::2] + 1j * z[:, 1::2] if pair else z
    y = by_chirp(z, bins, angles.astype(np.float64))
    node = Node(MatMul(), ("x", "w"), ("y",), "dft")
    found = explain(node, [x, matrix(length, bins, pair)], y, (TensorType.of(y),))
    return [e.hypothesis for e in found]


def in_float32(length: int) -> np.ndarray:
    k = np.arange(length, dtype=np.float32)
    return np.float32(np.pi) * k * k / np.float32(length)


@pytest.mark.parametrize(("length", "bins", "pair"), [(360, 181, False), (300, 300, True)])
def test_angles_in_float32_are_named(length: int, bins: int, pair: bool) -> None:
    assert names(length, bins, pair, in_float32(length)) == [NAME]


def test_other_angles_are_not_taken_for_them() -> None:
    length = 360
    noise = np.random.default_rng(3).standard_normal(length)
    exact = np.pi * np.arange(length) ** 2.0 / length
    assert NAME not in names(length, 181, False, exact + 1e-5 * noise)
    assert NAME not in names(length, 181, False, exact.astype(np.float16))


def test_a_power_of_two_has_no_chirp() -> None:
    assert NAME not in names(256, 129, False, in_float32(256))
