"""An own run of one node by Strassen's algorithm, as a second opinion, and how it spreads errors.

Libraries take it for large products of matrices and for 1x1 convolutions, whose pixels are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.numerics import strassen
from verax.numerics.arith_numpy import NumpyArith
from verax.ops.sums.linear import MatMul
from verax.ops.sums.strassen import items
from verax.ops.windows.convolution import Conv

LEVELS = (1, 2)
"""How often libraries halve: products of halves may be divided again."""
LEAST = 32
"""Rows, columns and terms from which on somebody may gain by it."""


def strassen_applies(node: Node, inputs: Sequence[Any]) -> bool:
    """Whether Strassen's algorithm can compute the node, and somebody might."""
    op = node.op
    if not isinstance(op, MatMul | Conv) or any(x is None for x in inputs[:2]):
        return False
    x, w = inputs[:2]
    if isinstance(op, MatMul):
        if x.ndim < 2 or w.ndim != 2:
            return False
        sizes = x.size // max(1, x.shape[-1]), *w.shape
    else:
        if op.groups != 1 or x.ndim < 3 or any(n != 1 for n in w.shape[2:]):
            return False
        if any(a or b for a, b in op.geometry(w.shape[2:]).windows(x.shape[2:]).pads):
            return False
        sizes = x.size // max(1, x.shape[1]), *w.shape[:2]
    return min(sizes) >= LEAST


def strassen_runs(
    node: Node, inputs: Sequence[Any], sigma: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`strassen_run` for all levels, the first one first; of a batch also item by item."""
    for each in (False, True) if is_batch(node, inputs) else (False,):
        for levels in LEVELS:
            yield strassen_run(node, inputs, sigma, levels, each)


def is_batch(node: Node, inputs: Sequence[Any]) -> bool:
    """Whether its left factor has items that may be multiplied one by one."""
    return inputs[0].ndim > 2 and len(inputs[0]) > 1


def strassen_run(
    node: Node, inputs: Sequence[Any], sigma: np.ndarray, levels: int = 1, each: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """An own run in float32, where `strassen_applies`, halved `levels` times, and the largest
    `sigma` (of the output's shape) among the places that share products. each: item by item of a
    batch, as our own compiler does; otherwise all rows together."""
    x, w, b = (*inputs, None)[:3]
    if each:
        parts = zip(np.split(x, len(x)), np.split(sigma, len(x)), strict=True)
        runs = [strassen_run(node, (one, w, b), s, levels) for one, s in parts]
        run, wide = (np.concatenate(found) for found in zip(*runs, strict=True))
        return run, wide
    if isinstance(node.op, Conv):
        windows = node.op.geometry(w.shape[2:]).windows(x.shape[2:])
        position = (0,) * windows.rank
        seen = np.moveaxis(windows.padded(x).tap(position), 1, -1)
        factors = seen.reshape(-1, seen.shape[-1]), w.reshape(w.shape[:2]).T
    else:
        factors = x.reshape(-1, x.shape[-1]), w
    a, right = (np.asarray(f, np.float32) for f in factors)
    with np.errstate(all="ignore"):
        y = _product(a, right, levels)
        mixed = _mixed(_as_rows(node, sigma), levels)
        run, wide = (_as_output(node, m, sigma.shape) for m in (y, mixed))
        if isinstance(node.op, Conv) and b is not None:
            run = run + b.astype(np.float32).reshape(-1, *(1,) * (sigma.ndim - 2))
    return run, wide


def quarters_maximum(node: Node, sizes: np.ndarray) -> np.ndarray:
    """The largest among the four places of a result that share products in our own compiler."""
    if isinstance(node.op, Conv):
        rows = np.moveaxis(sizes.reshape(*sizes.shape[:2], -1), 1, 2)
        mixed = np.stack([_mixed(image, 1) for image in rows])
        return np.moveaxis(mixed, 2, 1).reshape(sizes.shape)
    return np.stack([_mixed(one, 1) for one in items(sizes)]).reshape(sizes.shape)


def _as_rows(node: Node, array: np.ndarray) -> np.ndarray:
    if isinstance(node.op, Conv):
        array = np.moveaxis(array, 1, -1)
    return array.reshape(-1, array.shape[-1])


def _as_output(node: Node, rows: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if isinstance(node.op, Conv):
        return np.moveaxis(rows.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    return rows.reshape(shape)


def _even(matrix: np.ndarray) -> np.ndarray:
    return np.pad(matrix, [(0, n % 2) for n in matrix.shape])


def _product(a: np.ndarray, b: np.ndarray, levels: int) -> np.ndarray:
    if not levels:
        return np.matmul(a, b)
    m, n = len(a), b.shape[1]
    left, right = strassen.quarters(_even(a)), strassen.right_factors(_even(b))
    arith = NumpyArith()
    made = [
        _product(strassen.left_factor(arith, p, left), right[p], levels - 1)
        for p in range(strassen.PRODUCTS)
    ]
    return strassen.joined(made)[:m, :n]


def _mixed(sizes: np.ndarray, levels: int) -> np.ndarray:
    """The largest of the places that share products, at each of them."""
    if not levels:
        return sizes
    largest = _mixed(np.max(strassen.quarters(_even(sizes)), axis=0), levels - 1)
    return np.tile(largest, (2, 2))[: sizes.shape[0], : sizes.shape[1]]
