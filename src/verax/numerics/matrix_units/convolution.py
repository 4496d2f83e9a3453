"""Convolutions as products over K: in which order a library's kernel visits channels and kernel.

An implicit product of matrices sums over C channels and the positions of the kernel. The order in
which it does decides the bits, because units add groups of consecutive products. Three orders were
found on an H100: channels outside, channels inside, and blocks of channels (32, say) with the
kernel's positions between blocks and channels; channels may be filled up with zeros to a multiple.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from verax.numerics.matrix_units.reproduction import (
    FIRST_SAMPLES,
    SAMPLES,
    Plausibility,
    best,
    finished,
    sampled_places,
)
from verax.numerics.matrix_units.routes import (
    ADDED,
    FIRST,
    ROUNDED,
    Route,
    candidate_routes,
    sums,
)

_OUTPUTS, _FACTORS = 1 << 15, 1 << 20
"""Outputs that are simulated at once, and numbers of patches that are laid out at once."""


@dataclass(frozen=True)
class Order:
    """Order of the products of a convolution. block: channels that are innermost; 1 puts all
    channels outside the kernel's positions. Channels are filled with zeros to a multiple of it."""

    name: str
    block: int | None
    """None: all channels."""
    multiple: int = 1
    """Channels are filled with zeros to a multiple of this first."""

    @property
    def step(self) -> int:
        """Channels are filled with zeros to a multiple of this."""
        return self.multiple if self.block is None else self.block

    def arranged(self, x: np.ndarray) -> np.ndarray:
        """(n, C, positions of the kernel) in this order: (n, K)."""
        channels = x.shape[1]
        missing = -channels % self.step
        if missing:
            x = np.concatenate([x, np.zeros((len(x), missing, x.shape[2]), x.dtype)], axis=1)
        block = x.shape[1] if self.block is None else self.block
        blocks = x.reshape(len(x), -1, block, x.shape[2])
        return np.swapaxes(blocks, 2, 3).reshape(len(x), -1)


OUTSIDE = Order("channels outside", 1)
INSIDE = Order("channels inside", None)
ORDERS = (
    OUTSIDE,
    INSIDE,
    *(Order(f"blocks of {n} channels", n) for n in (32, 16, 64, 8, 4)),
    *(Order(f"channels inside, multiples of {n}", None, n) for n in (4, 8, 16, 32)),
)
"""Likely ones first. Found: cuDNN in float32 and depthwise OUTSIDE, or INSIDE in channels_last; on
matrix units blocks of 32, or INSIDE where there are fewer channels."""


def _epilogues(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Where a bias may go, for that type of outputs."""
    return (ADDED, FIRST) if dtype.itemsize > 2 else (ADDED, ROUNDED, FIRST)


class ConvolutionReproduction(NamedTuple):
    """route and order: those with the most equal numbers, None if none gave the samples. equal,
    of: as in `Reproduction`."""

    route: Route | None
    order: Order | None
    equal: int
    of: int


def patches(
    x: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> np.ndarray:
    """View of x (N, C, *spatial) as (N, *out, C, *kernel); pads: of all axes at their begin, then
    at their end."""
    rank = len(kernel)
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    padded = np.pad(np.asarray(x), widths)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True))
    axes = tuple(range(2, 2 + rank))
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    at = (slice(None), slice(None), *(slice(None, None, s) for s in strides))
    seen = seen[(*at, *(slice(None, None, d) for d in dilations))]
    return np.moveaxis(seen, 1, 1 + rank)


def candidate_orders(channels: int, fills_groups: bool = True) -> Iterator[Order]:
    """The orders that differ for so many channels of a group. fills_groups: a unit adds groups of
    products, so that zeros among them move the products behind; a chain of FMAs does not notice."""
    seen = set()
    for order in ORDERS:
        filled = channels + -channels % order.step
        if filled > channels and (not fills_groups or filled > max(8, 2 * channels)):
            continue
        key = (filled if order.block is None else min(order.block, filled), filled)
        if key not in seen:
            seen.add(key)
            yield order


def reproduces_convolution(
    outputs: Any,
    x: Any,
    weight: Any,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    bias: Any = None,
    routes: Iterable[Route] | None = None,
    orders: Iterable[Order] | None = None,
    share: float = 1.0,
    samples: int = SAMPLES,
) -> ConvolutionReproduction:
    """The route and order that give the most of a convolution's `outputs` bit for bit.

    x (N, C, *spatial) and weight (O, C / groups, *kernel) are of the type of the factors, outputs
    (N, O, *out) of the type that was stored, bias (O). routes, orders: by default the candidates
    for these types and sizes, in one chain, with the bias in each place that it may have. Each
    route is tried in each order.
    """
    outputs, x, weight = np.asarray(outputs), np.asarray(x), np.asarray(weight)
    n_out, channels = weight.shape[:2]
    seen = patches(x, weight.shape[2:], strides, pads, dilations)
    rank = weight.ndim - 2
    taps = int(np.prod(weight.shape[2:]))
    filters = weight.reshape(n_out, channels, taps)
    at = sampled_places(outputs.shape, samples)
    per_group = n_out // groups
    first = (at[1] // per_group) * channels
    index = tuple(i[:, None] for i in (at[0], *at[2:]))
    picked = seen[(*index, first[:, None] + np.arange(channels))].reshape(-1, channels, taps)
    offsets = None if bias is None else np.asarray(bias)

    start = None if offsets is None else offsets[at[1]]
    likely = Plausibility(outputs[at], start)
    plain = OUTSIDE.arranged(picked).T, OUTSIDE.arranged(filters[at[1]]).T

    def some(candidate: tuple[Route, Order], count: int) -> np.ndarray | None:
        route, order = candidate
        if count <= FIRST_SAMPLES and not likely.holds(route, *plain):
            return None
        a, b = order.arranged(picked[:count]).T, order.arranged(filters[at[1][:count]]).T
        added = None if start is None else start[:count]
        return finished(sums, route, a, b, added, outputs.dtype)

    def all_of(candidate: tuple[Route, Order]) -> np.ndarray:
        route, order = candidate
        positions = [p.ravel() for p in np.indices(seen.shape[: 1 + rank])]
        result = np.empty((len(positions[0]), groups, per_group), outputs.dtype)
        b = order.arranged(filters).T.reshape(-1, 1, groups, per_group)
        added = None if offsets is None else offsets.reshape(1, groups, per_group)
        rows = max(1, min(_OUTPUTS // n_out, _FACTORS // (groups * len(b))))
        for i in range(0, len(result), rows):
            chunk = seen[tuple(p[i : i + rows] for p in positions)]
            a = order.arranged(chunk.reshape(-1, channels, taps)).T
            a = a.reshape(len(b), len(chunk), groups, 1)
            result[i : i + rows] = finished(sums, route, a, b, added, outputs.dtype)
        shaped = result.reshape(len(x), *outputs.shape[2:], n_out)
        return np.moveaxis(shaped, -1, 1)

    if routes is None:
        epilogues = _epilogues(outputs.dtype) if bias is not None else (ADDED,)
        found_routes = candidate_routes(x.dtype.name, channels * taps, epilogues)
        routes = (r for r in found_routes if r.part is None)
    fixed = None if orders is None else list(orders)

    def candidates() -> Iterator[tuple[Route, Order]]:
        for route in routes:
            orders_known = candidate_orders(channels, route.unit is not None)
            yield from ((route, order) for order in (orders_known if fixed is None else fixed))

    result = best(candidates(), outputs, at, some, all_of, share)
    route, order = result[0] or (None, None)
    return ConvolutionReproduction(route, order, *result[1:])
