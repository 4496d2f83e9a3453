"""Routes of products of matrices: unit, conversion, split of K and order in which parts are added.

A library chooses a kernel by shape. What carries over from shape to shape is the unit, the
conversion of factors and that parts of K are summed from zero and added in float32 (or fp16),
rounded to nearest. The size of the parts does not: `RECORDED_PARTS` has the sizes found on recorded
shapes of one H100, and `candidate_parts` lists what is worth trying for others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.numerics.matrix_units import simulate
from verax.numerics.matrix_units.conversions import (
    AS_IS,
    BF16_EVEN,
    TF32_AWAY,
    TF32_CUT,
    TF32_EVEN,
    FactorConversion,
)
from verax.numerics.matrix_units.units import (
    BF16,
    E4M3,
    E4M3_BY_FP16,
    E5M2,
    E5M2_BY_FP16,
    EXACT,
    FP16,
    FP16_ACCUMULATION,
    FP16_ACCUMULATION_SHORT,
    INT8,
    TF32,
    MatrixUnit,
)

CHAIN, LANES = "one after another", "32 lanes, then a tree"
ADDED, FIRST, ROUNDED = "added to the sums", "before the first product", "added to rounded sums"
"""Where a bias goes: to the sums in their type, rounded once to the output's; into the accumulator;
to sums that were rounded to the output's type, and rounded again."""
_LANES = 32
_WORD_PAIRS = tuple(k for half in (0, 2) for k in range(32) if k % 4 in (half, half + 1))
"""Bytes 0 and 1, then bytes 2 and 3, of every word of four: how Hopper's fp16 unit takes FP8."""
_BLOCK = 1 << 15
"""Outputs (times parts) that are simulated at once: their temporaries stay in the cache."""


@dataclass(frozen=True)
class Route:
    """How a product of matrices is computed.

    name: library and mode. unit: None is a chain of float32 FMAs. conversion: of the factors, ahead
    of the unit. low: conversion of what `conversion` leaves of a factor; given, three products are
    summed: low by high, high by low, high by high. part: products of K in one chain from zero;
    None: all of them, from the accumulator. head: the first chain takes K mod head products, and
    its accumulator goes on to the remainder. addition: order in which parts are added. sums: type
    in which they are. order: order of the products within every 32. epilogue: where a bias goes.
    """

    name: str
    unit: MatrixUnit | None
    conversion: FactorConversion = AS_IS
    low: FactorConversion | None = None
    part: int | None = None
    head: int = 0
    addition: str = CHAIN
    sums: str = "float32"
    order: tuple[int, ...] = ()
    epilogue: str = ADDED

    @property
    def arithmetic(self) -> str:
        """What a verdict calls it: "TF32 in matrix units (factors cut)"."""
        if self.unit is None:
            return "float32 FMA"
        how = self.conversion if self.conversion.format else self.unit.conversion
        name = how.name.split(",")[0] if how.format else self.unit.name
        if self.low is not None:
            return f"three {name} products in matrix units"
        rounding = f" (factors {how.rounding})" if how.format else ""
        chains = ""
        if self.unit.kept_bits == E4M3.kept_bits:  # where chains end decides how good the sum is
            chains = f", chains of {self.part}" if self.part else ", one chain"
        return f"{name} in matrix units{rounding}{chains}"

    def with_bias(self, epilogue: str) -> Route:
        return replace(self, epilogue=epilogue)

    def with_part(self, part: int | None, addition: str | None = None) -> Route:
        return replace(self, part=part, addition=addition or self.addition)


def predicted(route: Route, a: Any, b: Any, c: Any = None, dtype: Any = np.float32) -> np.ndarray:
    """a (..., M, K) times b (..., K, N) plus c (..., M, N), bit for bit as the route computes it.

    c is the accumulator that the first chain starts from, or to which parts are added. The result
    (..., M, N) is rounded to `dtype` (nearest even) from the route's sums.
    """
    a, b = np.asarray(a), np.asarray(b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*batch, a.shape[-2], b.shape[-1]), dtype)
    left, right = (np.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    start = None if c is None else np.broadcast_to(c, out.shape)
    n_parts = -(-a.shape[-1] // route.part) if route.part else 1
    columns = max(1, min(out.shape[-1], _BLOCK // min(8, n_parts)))
    rows = max(1, _BLOCK // (columns * n_parts))
    for index in np.ndindex(*batch):
        for i in range(0, out.shape[-2], rows):
            for j in range(0, out.shape[-1], columns):
                at = (*index, slice(i, i + rows), slice(j, j + columns))
                x = left[index][i : i + rows].T[:, :, None]
                y = right[index][:, None, j : j + columns]
                out[at] = sums(route, x, y, None if start is None else start[at], dtype)
    return out


def sums(route: Route, a: Any, b: Any, c: Any = None, dtype: Any = np.float32) -> np.ndarray:
    """Sums of products over the first axis as `predicted`; a (K, ...), b (K, ...), c broadcast."""
    a, b = np.asarray(a), np.asarray(b)
    if route.order:
        a, b = (_reordered(x, route.order) for x in (a, b))
    run = _runner(route)
    if route.part is None:
        start = 0.0 if c is None else c
        if route.head and (first := len(a) % route.head):
            start = run(a[:first], b[:first], start)
            a, b = a[first:], b[first:]
        total = run(a, b, start)
    else:
        narrow: Any = np.dtype(route.sums)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = [p.astype(narrow) for p in _parts(run, route.part, a, b)]
            start = [] if c is None else [np.asarray(c).astype(narrow)]
            if route.addition == CHAIN:
                total = _added([*start, *parts], CHAIN)
            else:
                total = _added([*start, _added(parts, route.addition)], CHAIN)
    with np.errstate(over="ignore", invalid="ignore"):
        return _rounded(total, route, dtype)


def _rounded(total: np.ndarray, route: Route, dtype: Any) -> np.ndarray:
    """The sums in the route's type, then in `dtype`."""
    if route.unit is not None and route.unit.scheme == EXACT:
        return total.astype(dtype)
    return total.astype(np.dtype(route.sums)).astype(dtype)


def _runner(route: Route) -> Callable[[Any, Any, Any], np.ndarray]:
    """What computes one chain of the route from factors that are not converted."""
    unit = route.unit
    if unit is None:
        return simulate.fma_chain
    if route.low is None:

        def once(a: Any, b: Any, c: Any) -> np.ndarray:
            return simulate.chain(unit, route.conversion(a), route.conversion(b), c)

        return once
    high, low = route.conversion, route.low

    def three(a: Any, b: Any, c: Any) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            x, y = high(a), high(b)
            remainder = [low(np.asarray(f, np.float32) - h) for f, h in ((a, x), (b, y))]
        small = simulate.chain(unit, remainder[0], y, c)
        small = simulate.chain(unit, x, remainder[1], small)
        # The low part of an infinity is NaN; kernels put zero in its place.
        return simulate.chain(unit, x, y, np.where(np.isnan(small), 0.0, small))

    return three


def _parts(
    run: Callable[[Any, Any, Any], np.ndarray], size: int, a: np.ndarray, b: np.ndarray
) -> list[np.ndarray]:
    """Sums from zero of parts of K, in order; the last may be shorter. Full ones run at once."""
    full = len(a) // size
    parts: list[np.ndarray] = []
    if full:
        x, y = (
            np.swapaxes(f[: full * size].reshape(full, size, *f.shape[1:]), 0, 1) for f in (a, b)
        )
        parts += list(run(x, y, 0.0))
    if len(a) % size:
        parts.append(run(a[full * size :], b[full * size :], 0.0))
    return parts


def _added(parts: list[np.ndarray], addition: str) -> np.ndarray:
    """The sum of parts in their type, rounded after each addition."""
    if addition == CHAIN or len(parts) == 1:
        return functools.reduce(np.add, parts)
    lanes = [functools.reduce(np.add, parts[i::_LANES]) for i in range(min(_LANES, len(parts)))]
    while len(lanes) > 1:
        half = (len(lanes) + 1) // 2
        paired = [x + y for x, y in zip(lanes, lanes[half:], strict=False)]
        lanes = paired + lanes[len(paired) : half]
    return lanes[0]


def _reordered(x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The first axis in that order, filled with zeros to a multiple of the order's length."""
    size = len(order)
    missing = -len(x) % size
    x = np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)])
    at = np.arange(0, len(x), size)[:, None] + np.array(order)
    return x[at.ravel()]


ROUTES: dict[str, Route] = {
    route.name: route
    for route in (
        Route("cuBLAS, float32", None),
        Route("cuBLAS, TF32 allowed", TF32, TF32_EVEN),
        Route("cuBLAS, bf16", BF16),
        Route("cuBLAS, fp16", FP16),
        Route("cuBLAS, fp16, rows not of 16 bytes", FP16, head=64),
        Route("cuBLAS, fp16 accumulation", FP16_ACCUMULATION, sums="float16"),
        Route("cuBLAS, fp16 accumulation, short", FP16_ACCUMULATION_SHORT, sums="float16"),
        Route("scaled_mm e4m3, fast accumulation", E4M3),
        Route("scaled_mm e4m3", E4M3, part=128),
        Route("scaled_mm e5m2, fast accumulation", E5M2),
        Route("scaled_mm e5m2", E5M2, part=128),
        Route("int8", INT8),
        Route("Triton, ieee", None),
        Route("Triton, tf32", TF32),
        Route("Triton, tf32x3", TF32, TF32_AWAY, low=TF32_CUT, part=32),
        Route("Triton, bf16", BF16),
        Route("Triton, fp16", FP16),
        Route("Triton, fp16 accumulation", FP16_ACCUMULATION, sums="float16"),
        Route("Triton, e4m3", E4M3),
        Route("Triton, e5m2", E5M2),
        Route("Triton, e4m3 by mma.sync", E4M3_BY_FP16, order=_WORD_PAIRS),
        Route("Triton, e5m2 by mma.sync", E5M2_BY_FP16, order=_WORD_PAIRS),
        Route("mma.sync, fp8", E4M3_BY_FP16, order=_WORD_PAIRS, part=32),
        Route("JAX, default", TF32, TF32_AWAY),
        Route("JAX, highest", None),
        Route("JAX, BF16_BF16_F32", BF16, BF16_EVEN),
        Route("JAX, TF32_TF32_F32_X3", TF32, TF32_AWAY, low=TF32_CUT),
        Route("JAX, BF16_BF16_F32_X3", BF16, BF16_EVEN, low=BF16_EVEN),
        Route("JAX, bf16", BF16),
        Route("JAX, fp16", FP16),
        Route("cuDNN, TF32, NCHW", TF32, TF32_AWAY),
        Route("cuDNN, TF32, channels_last", TF32, TF32_EVEN),
        Route("PyTorch's efficient attention, float32", TF32, TF32_CUT, low=TF32_EVEN),
    )
}
"""Routes of libraries on an H100, by name, with parts only where these do not depend on the shape.
cuDNN's were classified by their residual, not reproduced in bits."""

Part = int | None
_Sizes = dict[int, int | tuple[int, str]]

_RECORDED: dict[str, _Sizes] = {
    "cuBLAS, float32": {
        **{4: 4, 8: 4, 16: 4, 32: 32, 64: 32, 100: 28, 128: 32},
        **{512: 128, 2048: 64, 8192: 64},
    },
    "cuBLAS, TF32 allowed": {
        **{4: 4, 8: 4, 16: 4, 32: 32, 64: 32, 100: 8, 128: 32},
        **{512: 32, 2048: 96, 8192: 256},
    },
    "cuBLAS, bf16": {8192: 1408},
    "cuBLAS, fp16": {8192: 1408},
    "cuBLAS, fp16 accumulation": {64: 64, 100: 16, 128: 64, 512: 64, 2048: 128, 8192: 512},
    "cuBLAS, fp16 accumulation, short": {4: 4, 8: 8, 16: 8, 32: 8},
    "scaled_mm e4m3, fast accumulation": {8192: 2816},
    "scaled_mm e5m2, fast accumulation": {8192: 2816},
    **{
        name: {512: 32, 2048: (64, LANES), 8192: (128, LANES)}
        for name in ("JAX, default", "JAX, highest", "JAX, BF16_BF16_F32")
    },
    **{
        name: {512: 32, 2048: (32, LANES), 8192: (32, LANES)} for name in ("JAX, bf16", "JAX, fp16")
    },
    **{
        name: {32: (4, LANES), 100: 8, 128: 8, 512: (16, LANES)}
        for name in ("JAX, TF32_TF32_F32_X3", "JAX, BF16_BF16_F32_X3")
    },
}


def _parts_by_k(sizes: _Sizes) -> dict[int, tuple[Part, str]]:
    return {k: s if isinstance(s, tuple) else (s, CHAIN) for k, s in sizes.items()}


RECORDED_PARTS: dict[str, dict[int, tuple[Part, str]]] = {
    name: _parts_by_k(sizes) for name, sizes in _RECORDED.items()
}
"""By route and K: size of the parts and how they are added, on the recorded shapes (M x N from
48 x 40 at K = 4 to 8 x 8 at 8192). Another M, N or K makes a library choose again."""
UNKNOWN_PARTS = {
    (name, k) for name in ("JAX, TF32_TF32_F32_X3", "JAX, BF16_BF16_F32_X3") for k in (2048, 8192)
}
"""Recorded shapes whose order of addition is not known."""


def recorded(name: str, k: int) -> Route | None:
    """The route called `name` with the parts that it had on the recorded shape of that K; without
    parts where none were seen; None where it is known to have parts that nobody found."""
    if (name, k) in UNKNOWN_PARTS:
        return None
    route = ROUTES[name]
    if k not in RECORDED_PARTS.get(name, {}):
        return route
    return route.with_part(*RECORDED_PARTS[name][k])


_TILES = (4, 8, 16, 32, 64, 128)
_SPLITS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 22, 24, 32, 48, 64, 128)


def candidate_parts(k: int) -> tuple[Part, ...]:
    """Sizes of parts that kernels plausibly cut K into, likely ones first: one chain, then powers
    of two (slices of a block), then K over a number of splits, rounded up to a tile."""
    powers = [p for p in (32, 64, 128, 256, 16, 8, 4, 512, 1024, 2048, 4096) if p < k]
    splits = [-(-k // (n * tile)) * tile for n in _SPLITS for tile in reversed(_TILES)]
    return (None, *dict.fromkeys([*powers, *(s for s in splits if s < k)]))


_FLOAT32_ROUTES = (
    *("cuBLAS, TF32 allowed", "Triton, tf32", "JAX, default", "cuBLAS, float32", "JAX, highest"),
    *("Triton, tf32x3", "JAX, TF32_TF32_F32_X3", "JAX, BF16_BF16_F32"),
    *("JAX, BF16_BF16_F32_X3", "PyTorch's efficient attention, float32"),
)
_ROUTES_BY_FACTORS: dict[str, tuple[str, ...]] = {
    "float32": _FLOAT32_ROUTES,
    "bfloat16": ("cuBLAS, bf16", "JAX, bf16"),
    "float16": (
        *("cuBLAS, fp16", "cuBLAS, fp16, rows not of 16 bytes"),
        *("cuBLAS, fp16 accumulation", "cuBLAS, fp16 accumulation, short", "JAX, fp16"),
    ),
    "float8_e4m3fn": ("scaled_mm e4m3, fast accumulation", "Triton, e4m3 by mma.sync"),
    "float8_e5m2": ("scaled_mm e5m2, fast accumulation", "Triton, e5m2 by mma.sync"),
    "int8": ("int8",),
}


def candidate_routes(factors: str, k: int, epilogues: Sequence[str] = (ADDED,)) -> Iterator[Route]:
    """Routes that a product over K of factors of that dtype may have taken, likely ones first:
    those without known parts in the recorded sizes, then every size of `candidate_parts`, and JAX's
    added in lanes too, each with every one of `epilogues`. Empty for other dtypes."""
    names = _ROUTES_BY_FACTORS.get(factors, ())
    seen: set[tuple[Any, ...]] = set()
    for sized in (True, False):
        for name in names:
            route = ROUTES[name]
            options_recorded = [
                (route.part, route.addition),
                *RECORDED_PARTS.get(name, {}).values(),
            ]
            if route.unit is not None and route.unit.scheme == EXACT:
                options: list[tuple[Part, str]] = [(None, CHAIN)]
            elif sized:
                options = [o for o in dict.fromkeys(options_recorded) if o[0] is None or o[0] < k]
            else:
                orders = (CHAIN, LANES) if name.startswith("JAX") else (CHAIN,)
                options = [(size, how) for how in orders for size in candidate_parts(k)]
            for size, how in options:
                if route.head and size is not None:
                    continue
                candidate = route.with_part(size, how)
                key = (*(getattr(candidate, f) for f in _IDENTITY), how if size else CHAIN)
                if key not in seen:
                    seen.add(key)
                    yield from (candidate.with_bias(epilogue) for epilogue in epilogues)


_IDENTITY = ("unit", "conversion", "low", "part", "head", "sums", "order")
