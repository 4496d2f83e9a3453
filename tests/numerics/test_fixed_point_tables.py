"""Interpolated tables stay near the functions that they stand for."""

from __future__ import annotations

import numpy as np

from verax.numerics.fixed_point import (
    interpolated,
    interpolation_table,
    inverse_root,
    nearest,
    sigmoid,
    tanh,
)

WORDS = np.arange(-(2**15), 2**15)
QUANTUM = 2.0**-15


def test_an_interpolated_table_is_within_a_step_of_the_input_and_two_quanta() -> None:
    """The table's steps divide 2^16 - 1 positions, not 2^16, so that it drifts by one."""
    scale = np.float32(4.0) / 2**15
    ends = (scale * -(2**15), scale * (2**15 - 1))
    table = interpolation_table(np.sin, ends, (-1.0, 1.0 - QUANTUM), np.float64)
    found = interpolated(WORDS, table)
    wrong = np.abs(found * QUANTUM - np.sin(WORDS * np.float64(scale)))
    assert wrong.max() < 2 * QUANTUM + scale


def test_sigmoid_and_tanh_are_within_their_tables_step() -> None:
    x = WORDS * 4
    assert np.abs(sigmoid(x) * QUANTUM - 1 / (1 + np.exp(-x / (24 * 2**9)))).max() < 3 * QUANTUM
    assert np.abs(tanh(x) * QUANTUM - np.tanh(x / (12 * 2**10))).max() < 4 * QUANTUM
    assert sigmoid(np.array([2**17, -(2**17)])).tolist() == [2**15 - 1, 1]


def test_an_inverse_root_is_a_multiplier_and_a_shift() -> None:
    x = np.array([1, 2, 3, 17, 1000, 65_025, 2**20 + 7, 2**28, 2**29, 2**31 - 1])
    multiplier, shift = inverse_root(x)
    found = multiplier * 2.0 ** (shift - 31)
    assert (np.abs(found * np.sqrt(x) - 1) < 2.0**-19).all()
    assert [int(v) for v in inverse_root(np.array(0))] == [2**31 - 1, 0]


def test_halves_are_rounded_away_from_zero() -> None:
    assert nearest([0.5, 1.5, -0.5, -2.5, 0.49999997]).tolist() == [1, 2, -1, -3, 0]
