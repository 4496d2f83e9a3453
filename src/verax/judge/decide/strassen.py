"""Runs one node by Strassen's algorithm, as a further test, and gives how it spreads errors.

Libraries take it for large products of matrices and for 1x1 convolutions, whose pixels are rows.
Our own compiler scales rows and columns before, and takes each item of a batch by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.numerics import strassen
from verax.numerics.arith_numpy import NumpyArith
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv

LEVELS = (1, 2)
"""How often libraries halve: products of halves may be divided again."""
LEAST = 32
"""Rows, columns and terms from which on somebody may gain by it."""


def strassen_applies(node: Node, inputs: Sequence[Any]) -> bool:
    """True if Strassen's algorithm can compute the node and is likely to be used."""
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


@dataclass(frozen=True)
class Variant:
    """A variant of the algorithm. levels: how often factors are halved. by_item: for each item of a
    batch; otherwise all rows together. scaled: rows and columns are scaled to one size before."""

    levels: int = 1
    by_item: bool = False
    scaled: bool = False


OURS = Variant(by_item=True, scaled=True)


def variants(node: Node, inputs: Sequence[Any], levels: Sequence[int] = LEVELS) -> list[Variant]:
    """The variants that may have been used, ours first."""
    batch = (False, True) if is_batch(node, inputs) else (False,)
    return [OURS, *(Variant(count, by_item) for by_item in batch for count in levels)]


def strassen_runs(
    node: Node, inputs: Sequence[Any], sigma: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`strassen_run` for all variants."""
    for variant in variants(node, inputs):
        yield strassen_run(node, inputs, sigma, variant)


def is_batch(node: Node, inputs: Sequence[Any]) -> bool:
    """Whether its left factor has items that may be multiplied one by one."""
    return inputs[0].ndim > 2 and len(inputs[0]) > 1


def strassen_run(
    node: Node, inputs: Sequence[Any], sigma: np.ndarray, variant: Variant = OURS
) -> tuple[np.ndarray, np.ndarray]:
    """An own run in float32, where `strassen_applies`, and the largest `sigma` (of the output's
    shape) among the places that share products, in units of their scales where these are used."""
    x, w, b = (*inputs, None)[:3]
    if variant.by_item and is_batch(node, inputs):
        items = zip(np.split(x, len(x)), np.split(sigma, len(x)), strict=True)
        runs = [strassen_run(node, (one, w, b), s, variant) for one, s in items]
        run, wide = (np.concatenate(arrays) for arrays in zip(*runs, strict=True))
        return run, wide
    a, right = _factors(node, x, w)
    back: tuple[Any, Any] = (None, None)
    with np.errstate(all="ignore"):
        if variant.scaled:
            (a, rows), (right, columns) = strassen.scaled_left(a), strassen.scaled_right(right)
            back = rows, columns
        y = _product(a, right, variant.levels)
        if variant.scaled:
            y = strassen.unscaled(y, *back)
        mixed = _mixed(_as_rows(node, sigma), variant.levels, *back)
        run, wide = (_as_output(node, m, sigma.shape) for m in (y, mixed))
        if isinstance(node.op, Conv) and b is not None:
            run = run + b.astype(np.float32).reshape(-1, *(1,) * (sigma.ndim - 2))
    return run, wide


def quarters_maximum(node: Node, inputs: Sequence[Any], sizes: np.ndarray) -> np.ndarray:
    """The largest among the four places of a result that share products in our own compiler, in
    units of the scales of their rows and columns. sizes: of the result's shape."""
    x, w = inputs[:2]
    if is_batch(node, inputs):
        maxima = [
            quarters_maximum(node, (one, w), size)
            for one, size in zip(np.split(x, len(x)), np.split(sizes, len(x)), strict=True)
        ]
        return np.concatenate(maxima)
    a, right = _factors(node, x, w)
    scales = strassen.scaled_left(a)[1], strassen.scaled_right(right)[1]
    return _as_output(node, _mixed(_as_rows(node, sizes), 1, *scales), sizes.shape)


def _factors(node: Node, x: Any, w: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the left factor, and the right one, in float32."""
    if isinstance(node.op, Conv):
        windows = node.op.geometry(w.shape[2:]).windows(x.shape[2:])
        seen = np.moveaxis(windows.padded(x).tap((0,) * windows.rank), 1, -1)
        factors = seen.reshape(-1, seen.shape[-1]), w.reshape(w.shape[:2]).T
    else:
        factors = x.reshape(-1, x.shape[-1]), w
    a, right = (np.asarray(f, np.float32) for f in factors)
    return a, right


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
    products = [
        _product(strassen.left_factor(arith, p, left), right[p], levels - 1)
        for p in range(strassen.PRODUCTS)
    ]
    return strassen.combined_products(products)[:m, :n]


def _mixed(
    sizes: np.ndarray,
    levels: int,
    rows: np.ndarray | None = None,
    columns: np.ndarray | None = None,
) -> np.ndarray:
    """The largest of the places that share products, at each of them. rows [m, 1], columns [n]: the
    scales in whose units they are compared."""
    if rows is not None and columns is not None:
        scale = np.where(np.isfinite(rows), rows, 0).astype(np.float64) * columns
        with np.errstate(all="ignore"):
            units = np.where(scale > 0, sizes / scale, 0)
        return _mixed(units, levels) * scale
    if not levels:
        return sizes
    largest = _mixed(np.max(strassen.quarters(_even(sizes)), axis=0), levels - 1)
    return np.tile(largest, (2, 2))[: sizes.shape[0], : sizes.shape[1]]
