"""Which route gives an output bit for bit: the strongest word on the arithmetic of a product.

A few outputs are simulated first for every route; only routes that give all of them are simulated
in full. Where outputs are rounded to 16 bits, most routes give most of them: many equal numbers are
then no proof of one route against another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from verax.numerics.matrix_units.routes import ADDED, FIRST, Route, predicted, sums

SAMPLES = 64
"""Outputs that are tried first."""
Candidate = TypeVar("Candidate")


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

    outputs: (..., M, N), in the type that the library stored; the route's sums are rounded to it.
    bias: broadcast to outputs, added as the route says. share: of the sampled outputs, how many a
    route must give to be tried in full. Stops at a route that gives all. Where no route gives its
    samples, `of` counts samples.
    """
    outputs, a, b = np.asarray(outputs), np.asarray(a), np.asarray(b)
    at = sampled_places(outputs.shape, samples)
    batch = outputs.shape[:-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    left = np.ascontiguousarray(a[at[:-1]].T)
    right = np.ascontiguousarray(np.swapaxes(b, -1, -2)[(*at[:-2], at[-1])].T)
    added = None if bias is None else np.broadcast_to(bias, outputs.shape)

    def some(route: Route) -> np.ndarray:
        start = None if added is None else added[at]
        return finished(sums, route, left, right, start, outputs.dtype)

    def all_of(route: Route) -> np.ndarray:
        return finished(predicted, route, a, b, added, outputs.dtype)

    return Reproduction(*best(routes, outputs, at, some, all_of, share))


def sampled_places(shape: tuple[int, ...], samples: int) -> tuple[np.ndarray, ...]:
    """Indices of so many different elements of an array of that shape, always the same ones."""
    size = int(np.prod(shape))
    picked = np.random.default_rng(0).permutation(size)[:samples]
    return tuple(np.unravel_index(picked, shape))


def best(
    candidates: Iterable[Candidate],
    outputs: np.ndarray,
    at: tuple[np.ndarray, ...],
    some: Callable[[Candidate], np.ndarray],
    all_of: Callable[[Candidate], np.ndarray],
    share: float,
) -> tuple[Candidate | None, int, int]:
    """The candidate with the most equal outputs, their number, and how many were compared. some:
    the outputs at `at` as a candidate gives them. all_of: all outputs."""
    expected = outputs[at]
    found: tuple[Candidate | None, int, int] = (None, 0, expected.size)
    for candidate in candidates:
        hits = int(equal_bits(some(candidate), expected).sum())
        survives = hits >= share * expected.size
        if not survives:
            if found[0] is None:
                found = (None, max(found[1], hits), expected.size)
            continue
        if outputs.size > expected.size:
            hits = int(equal_bits(all_of(candidate), outputs).sum())
        if found[0] is None or hits > found[1]:
            found = (candidate, hits, outputs.size)
        if hits == outputs.size:
            break
    return found


def finished(
    simulated: Callable[..., np.ndarray], route: Route, a: Any, b: Any, bias: Any, dtype: Any
) -> np.ndarray:
    """What the route stores in `dtype`: its sums (`simulated` is `sums` or `predicted`), with the
    bias (of the shape of the sums) where the route adds it."""
    if bias is None:
        return np.asarray(simulated(route, a, b, dtype=dtype))
    if route.epilogue == FIRST:
        return np.asarray(simulated(route, a, b, bias, dtype=dtype))
    narrow = np.dtype(route.sums if route.epilogue == ADDED else dtype)
    total = simulated(route, a, b, dtype=narrow)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = total.astype(np.dtype(route.sums)) + np.asarray(bias).astype(np.dtype(route.sums))
        return np.asarray(wide.astype(dtype))
