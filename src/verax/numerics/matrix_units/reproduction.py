"""Which route gives an output bit for bit: the strongest word on the arithmetic of a product.

A few outputs are simulated first for every route; only routes that give all of them are simulated
in full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from verax.numerics.matrix_units.routes import Route, predicted, sums

SAMPLES = 64
"""Outputs that are tried first."""


class Reproduction(NamedTuple):
    """route: that with the most equal numbers, None if none gave the samples. equal: how many
    numbers of the output it gives bit for bit. of: how many were compared."""

    route: Route | None
    equal: int
    of: int


def equal_bits(x: Any, y: Any) -> np.ndarray:
    """Mask of numbers of equal bits, for arrays of one dtype and shape. Any two NaN are equal."""
    x, y = (np.ascontiguousarray(v).reshape(np.shape(v)) for v in (x, y))
    if x.dtype != y.dtype:
        raise TypeError(f"bits of {x.dtype} and {y.dtype} cannot be compared; convert one of them")
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    same = x.view(unsigned) == y.view(unsigned)
    if np.issubdtype(x.dtype, np.integer):
        return same
    return same | (np.isnan(x) & np.isnan(y))


def reproduces(
    outputs: Any,
    a: Any,
    b: Any,
    routes: Iterable[Route],
    bias: Any = None,
    share: float = 1.0,
    samples: int = SAMPLES,
) -> Reproduction:
    """The route that gives the most of `outputs` = a (..., M, K) times b (..., K, N) bit for bit.

    outputs: (..., M, N), in the type that the library stored; the route's sums are rounded
    to it. bias: broadcast to outputs, added to the sums in their type before. share: of the sampled
    outputs, how many a route must give to be tried in full. Stops at a route that gives all.
    Where no route gives its samples, `of` counts samples.
    """
    outputs, a, b = np.asarray(outputs), np.asarray(a), np.asarray(b)
    size = outputs.size
    picked = np.random.default_rng(0).permutation(size)[:samples]
    at = np.unravel_index(picked, outputs.shape)
    batch = outputs.shape[:-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    left = np.ascontiguousarray(a[at[:-1]].T)
    right = np.ascontiguousarray(np.swapaxes(b, -1, -2)[(*at[:-2], at[-1])].T)
    expected = outputs[at]
    added = None if bias is None else np.broadcast_to(bias, outputs.shape)
    best, sampled = Reproduction(None, 0, size), 0
    for route in routes:
        found = _finished(sums, route, left, right, None if added is None else added[at], outputs)
        hits = int(equal_bits(found, expected).sum())
        sampled = max(sampled, hits)
        if hits < share * len(picked):
            continue
        if size > len(picked):
            hits = int(equal_bits(_finished(predicted, route, a, b, added, outputs), outputs).sum())
        if best.route is None or hits > best.equal:
            best = Reproduction(route, hits, size)
        if hits == size:
            break
    return best if best.route is not None else Reproduction(None, sampled, len(picked))


def _finished(
    simulated: Any, route: Route, a: np.ndarray, b: np.ndarray, bias: Any, outputs: np.ndarray
) -> np.ndarray:
    """What the route stores: its sums, with the bias, in the type of the outputs."""
    if bias is None:
        return np.asarray(simulated(route, a, b, dtype=outputs.dtype))
    total = simulated(route, a, b, dtype=np.dtype(route.sums))
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray((total + np.asarray(bias).astype(total.dtype)).astype(outputs.dtype))
