"""Which route gives an output bit for bit: the strongest word on the arithmetic of a product.

A few outputs are simulated first for every route; only routes that give all of them are simulated
in full. Where outputs are rounded to 16 bits, most routes give most of them: many equal numbers are
then no proof of one route against another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from verax.numerics.formats import FORMATS, ulp
from verax.numerics.matrix_units.bounds import bias as bias_of
from verax.numerics.matrix_units.bounds import dropped, sigma
from verax.numerics.matrix_units.routes import ADDED, FIRST, Route, predicted, sums
from verax.numerics.matrix_units.units import EXACT

FIRST_SAMPLES, SAMPLES = 8, 64
"""Outputs that are tried first, and then."""
FAR = 6.0
"""Root mean square error, over what the arithmetic would give, beyond which it is ruled out."""
NEAR = 0.1
"""The same over what three products leave out, below which they are ruled out."""
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
    samples, `of` counts samples, and `equal` is the most that any route gave before it was dropped.
    All float32 candidates take 2 s at K = 256 and 25 s at 4096 if none fits; single chains 2 s.
    """
    outputs, a, b = np.asarray(outputs), np.asarray(a), np.asarray(b)
    at = sampled_places(outputs.shape, samples)
    batch = outputs.shape[:-2]
    a, b = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    left = np.ascontiguousarray(a[at[:-1]].T)
    right = np.ascontiguousarray(np.swapaxes(b, -1, -2)[(*at[:-2], at[-1])].T)
    added = None if bias is None else np.broadcast_to(bias, outputs.shape)
    start = None if added is None else added[at]
    likely = Plausibility(outputs[at], start)

    def some(route: Route, count: int) -> np.ndarray | None:
        x, y = left[:, :count], right[:, :count]
        if count <= FIRST_SAMPLES and not likely.holds(route, left, right):
            return None
        return finished(sums, route, x, y, None if start is None else start[:count], outputs.dtype)

    def all_of(route: Route) -> np.ndarray:
        return finished(predicted, route, a, b, added, outputs.dtype)

    return Reproduction(*best(routes, outputs, at, some, all_of, share))


class Plausibility:
    """Whether an arithmetic may have given sampled outputs, by the size of their errors: it spares
    the simulation of every split of K where factors were not converted that way at all.

    outputs, bias: of the samples. A route's error is held against `sigma` of a single chain, than
    which no split is worse, together with the outputs' own rounding.
    """

    def __init__(self, outputs: np.ndarray, bias: np.ndarray | None) -> None:
        self.outputs, self.bias = outputs, bias
        self.cached: dict[Any, bool] = {}

    def holds(self, route: Route, a: np.ndarray, b: np.ndarray) -> bool:
        """True unless the errors are far too large; a, b: factors (K, samples), in any order of the
        products (which changes nothing here)."""
        if route.unit is not None and route.unit.scheme == EXACT:
            return True
        key = route.unit, route.conversion, route.low
        if key not in self.cached:
            with np.errstate(all="ignore"):
                self.cached[key] = self._is_small(route, a, b)
        return self.cached[key]

    def _is_small(self, route: Route, a: np.ndarray, b: np.ndarray) -> bool:
        x, w = (_as_multiplied(route, f) for f in (a, b))
        total, magnitudes = (x * w).sum(axis=0), np.abs(x * w).sum(axis=0)
        root = np.sqrt(((x * w) ** 2).sum(axis=0))
        one_chain = route.with_part(None)
        expected = total + bias_of(one_chain, total, magnitudes, root, len(a)) / 2
        spread = sigma(one_chain, total, magnitudes, root, len(a)) + np.abs(expected - total)
        offset = 0.0 if self.bias is None else np.asarray(self.bias, np.float64)
        name = self.outputs.dtype.name
        larger = np.abs(expected) + np.abs(offset)  # the bias may cancel sums that were rounded
        coarse = ulp(larger, FORMATS[name]) if name in FORMATS else 0.5
        if route.sums in FORMATS:
            coarse = coarse + ulp(np.maximum(magnitudes, np.abs(offset)), FORMATS[route.sums])
        error = self.outputs.astype(np.float64) - offset - expected
        size = np.hypot(spread, coarse)
        finite = np.isfinite(error) & np.isfinite(size) & (size > 0)
        if not finite.any():
            return True
        if route.low is not None:
            threshold = dropped(route.conversion, route.low) * root[finite]
            if np.sqrt(np.mean((error[finite] / threshold) ** 2)) < NEAR:
                return False
        return float(np.sqrt(np.mean((error[finite] / size[finite]) ** 2))) < FAR


def _as_multiplied(route: Route, factor: np.ndarray) -> np.ndarray:
    """Factors as the products' errors refer to them."""
    if route.low is None:
        factor = route.conversion(factor)
        factor = factor if route.unit is None else route.unit.conversion(factor)
    return np.asarray(factor).astype(np.float64)


def sampled_places(shape: tuple[int, ...], samples: int) -> tuple[np.ndarray, ...]:
    """Indices of so many different elements of an array of that shape, always the same ones."""
    size = int(np.prod(shape))
    picked = np.random.default_rng(0).permutation(size)[:samples]
    return tuple(np.unravel_index(picked, shape))


def best(
    candidates: Iterable[Candidate],
    outputs: np.ndarray,
    at: tuple[np.ndarray, ...],
    some: Callable[[Candidate, int], np.ndarray | None],
    all_of: Callable[[Candidate], np.ndarray],
    share: float,
) -> tuple[Candidate | None, int, int]:
    """The candidate with the most equal outputs, their number, and how many were compared. some:
    the first so many of the outputs at `at` as a candidate gives them, None if it cannot have given
    them. all_of: all outputs."""
    expected = outputs[at]
    result: tuple[Candidate | None, int, int] = (None, 0, expected.size)
    for candidate in candidates:
        hits = 0
        for count in (min(FIRST_SAMPLES, expected.size), expected.size):
            outputs_given = some(candidate, count)
            hits = (
                0
                if outputs_given is None
                else int(equal_bits(outputs_given, expected[:count]).sum())
            )
            if hits < share * count:
                break
        else:
            if outputs.size > expected.size:
                hits = int(equal_bits(all_of(candidate), outputs).sum())
            if result[0] is None or hits > result[1]:
                result = (candidate, hits, outputs.size)
            if hits == outputs.size:
                break
            continue
        if result[0] is None:
            result = (None, max(result[1], hits), expected.size)
    return result


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
