"""Inputs that expose errors of approximate arithmetic: zeros beside numbers, equal numbers, and
the largest.

They are derived from ordinary inputs, so that they fit the same types, tables and masks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from verax.ir.graph import Graph
from verax.judge.inputs import MASK
from verax.records.certificate import UNCHANGED

Arrays = Mapping[str, np.ndarray]
Change = Callable[[str, np.ndarray], tuple[np.ndarray, str] | None]
BORDER = 0.3
"""Part of each axis that is border or padding."""


def stressed_inputs(graph: Graph, inputs: Arrays) -> list[tuple[dict[str, np.ndarray], Any]]:
    """Sets of inputs made of `inputs`, each with its origins in words by name; sets that would
    change nothing are left out. State stays as it is."""
    sets = []
    for change in (_bordered, _constant, _one_hot, _saturated):
        arrays, origins = dict(inputs), dict.fromkeys(inputs, UNCHANGED)
        changed = False
        for name in graph.inputs:
            if name in graph.initial or name not in inputs:
                continue
            replacement = change(name, inputs[name])
            if replacement is not None and not np.array_equal(replacement[0], inputs[name]):
                arrays[name], origins[name] = replacement
                changed = True
        if changed:
            sets.append((arrays, origins))
    return sets


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _length(size: int) -> int:
    """Number of unchanged indices of an axis."""
    return size - max(1, int(BORDER * size))


def _bordered(name: str, array: np.ndarray) -> tuple[np.ndarray, str] | None:
    """Images with a zero border below and to the right, sequences that end in zero rows."""
    if array.ndim < 2 or array.shape[1] < 2:
        return None
    result = array.copy()
    if _is_float(array) and array.ndim >= 4:
        axes = [a for a in range(2, array.ndim) if array.shape[a] > 2]
        for axis in axes:
            np.moveaxis(result, axis, 0)[_length(array.shape[axis]) :] = 0
        return (result, "a zero border below and to the right") if axes else None
    if _is_float(array):
        rows = array.ndim - 2
        if array.shape[rows] < 2:
            result[..., _length(array.shape[-1]) :] = 0
            return result, "zeros at the end of each row"
        np.moveaxis(result, rows, 0)[_length(array.shape[rows]) :] = 0
        return result, "padded: zero rows at the end"
    result[:, _length(array.shape[1]) :] = 0
    return result, "padded: zeros at the end" + (" of the mask" if MASK.search(name) else "")


def _constant(name: str, array: np.ndarray) -> tuple[np.ndarray, str] | None:
    if not array.size or array.dtype.kind == "b" or MASK.search(name):
        return None
    value = array.mean(dtype=np.float64) if _is_float(array) else array.ravel()[0]
    if _is_float(array) and abs(value) < np.abs(array).mean() / 16:
        value = np.abs(array).mean()
    return np.full_like(array, value), f"the constant {float(value):.3g}"


def _one_hot(name: str, array: np.ndarray) -> tuple[np.ndarray, str] | None:
    if not array.size or not _is_float(array):
        return None
    result = np.zeros_like(array)
    for i, (row, own) in (
        enumerate(zip(result, array)) if array.ndim > 1 else [(0, (result, array))]
    ):
        position = (row.size // 2 + i) % max(1, row.size)
        row.flat[position] = np.abs(own).max()
    return result, "one-hot: zeros but for one place of each"


def _saturated(name: str, array: np.ndarray) -> tuple[np.ndarray, str] | None:
    if not array.size or not _is_float(array):
        return None
    low, high = array.min(), array.max()
    middle = (low.astype(np.float64) + high) / 2
    return np.where(array < middle, low, high), "saturated: the smallest and the largest alone"
