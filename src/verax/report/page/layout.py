"""Where to draw the nodes of a directed graph: layers from top to bottom, few crossings.

The usual four steps (Sugiyama, Tagawa, Toda 1981): layers by longest paths, order within layers by
barycenters, horizontal coordinates by weighted least squares under the minimal distances, and edges
as curves through the layers that they pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

GAP, LAYER_GAP, MARGIN = 18.0, 34.0, 16.0
"""Pixels between neighbors in a layer, between layers, and around the whole."""
SWEEPS = 6
"""Passes over the layers, down and up in turn, for the order and for the coordinates."""
MAX_BENDS = 6000
"""Points that edges may have between layers; beyond it long edges are drawn without."""
SHORT = 8
"""Layers that an edge may pass without being a long one."""
BEND_WIDTH, BEND_WEIGHT = 6.0, 4.0
"""Of a point of an edge: its width in pixels, and how much more it counts that it be straight."""

Point = tuple[float, float]


@dataclass(frozen=True)
class GraphLayout:
    """centers: of each box, pixels; routes: points of each edge, from box to box, empty for a loop
    of a box to itself; width, height: of the whole; layers: boxes by layer, left to right."""

    centers: tuple[Point, ...]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float
    layers: tuple[tuple[int, ...], ...]


def layered(sizes: Sequence[Point], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """A layout of boxes of these widths and heights in pixels.

    edges: pairs of indices. The boxes stand in an order of execution: an edge against it has no
    influence on the layers.
    """
    if not sizes:
        return GraphLayout((), ((),) * len(edges), 2 * MARGIN, 2 * MARGIN, ())
    ranks = _ranks(len(sizes), edges)
    chains, bend_ranks = _chains(ranks, edges)
    all_ranks = [*ranks, *bend_ranks]
    widths = [w for w, _ in sizes] + [BEND_WIDTH] * len(bend_ranks)
    before: list[list[int]] = [[] for _ in all_ranks]
    after: list[list[int]] = [[] for _ in all_ranks]
    for chain in chains:
        for a, b in itertools.pairwise(chain):
            if all_ranks[b] > all_ranks[a]:
                after[a].append(b)
                before[b].append(a)
    layers = _ordered(all_ranks, before, after)
    weights = [1.0] * len(sizes) + [BEND_WEIGHT] * len(bend_ranks)
    x = _coordinates(layers, widths, weights, before, after)
    heights = [max((sizes[i][1] for i in layer if i < len(sizes)), default=0.0) for layer in layers]
    tops = list(
        itertools.accumulate((h + LAYER_GAP for h in heights[:-1]), initial=MARGIN),
    )
    left = min(x[i] - widths[i] / 2 for i in range(len(x))) - MARGIN
    right = max(x[i] + widths[i] / 2 for i in range(len(x))) + MARGIN
    y = [tops[r] + heights[r] / 2 for r in all_ranks]
    at = [(x[i] - left, y[i]) for i in range(len(x))]
    return GraphLayout(
        tuple(at[: len(sizes)]),
        tuple(_route(chain, at, sizes) for chain in chains),
        right - left,
        tops[-1] + heights[-1] + MARGIN,
        tuple(tuple(i for i in layer if i < len(sizes)) for layer in layers),
    )


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each box: one below its lowest predecessor; boxes without predecessors directly
    above their first successor."""
    ranks, lowest = [0] * count, [count] * count
    has_predecessor = [False] * count
    forward = sorted({(a, b) for a, b in edges if a < b}, key=lambda e: e[1])
    for a, b in forward:
        ranks[b] = max(ranks[b], ranks[a] + 1)
        has_predecessor[b] = True
    for a, b in forward:
        lowest[a] = min(lowest[a], ranks[b] - 1)
    return [
        r if has_predecessor[i] or lowest[i] == count else lowest[i] for i, r in enumerate(ranks)
    ]


def _chains(
    ranks: Sequence[int], edges: Sequence[tuple[int, int]]
) -> tuple[list[list[int]], list[int]]:
    """Each edge as boxes and points from layer to layer, and the layers of the points, whose
    indices follow those of the boxes."""
    bends = sum(max(0, ranks[b] - ranks[a] - 1) for a, b in edges)
    limit = max(ranks) + 1 if bends <= MAX_BENDS else SHORT
    chains, bend_ranks = [], list[int]()
    for a, b in edges:
        between = range(ranks[a] + 1, ranks[b]) if ranks[b] - ranks[a] <= limit else range(0)
        first = len(ranks) + len(bend_ranks)
        bend_ranks += between
        chains.append([a, *range(first, first + len(between)), b])
    return chains, bend_ranks


def _ordered(
    ranks: Sequence[int], before: list[list[int]], after: list[list[int]]
) -> list[list[int]]:
    """The members of each layer from left to right."""
    layers: list[list[int]] = [[] for _ in range(max(ranks) + 1)]
    for i, rank in enumerate(ranks):
        layers[rank].append(i)
    position = {i: float(p) for layer in layers for p, i in enumerate(layer)}
    for sweep in range(SWEEPS):
        neighbors = after if sweep % 2 else before
        for layer in reversed(layers) if sweep % 2 else layers:
            center = {
                i: sum(position[j] for j in neighbors[i]) / len(neighbors[i])
                if neighbors[i]
                else position[i]
                for i in layer
            }
            layer.sort(key=center.__getitem__)
            position.update({i: float(p) for p, i in enumerate(layer)})
    return layers


def _coordinates(
    layers: list[list[int]],
    widths: Sequence[float],
    weights: Sequence[float],
    before: list[list[int]],
    after: list[list[int]],
) -> list[float]:
    """The horizontal center of each member."""
    x = [0.0] * len(widths)
    for layer in layers:
        total = sum(widths[i] for i in layer) + GAP * (len(layer) - 1)
        left = -total / 2
        for i in layer:
            x[i] = left + widths[i] / 2
            left += widths[i] + GAP
    for sweep in range(2 * SWEEPS):
        for layer in reversed(layers) if sweep % 2 else layers:
            desired = []
            for i in layer:
                near = (after[i] or before[i]) if sweep % 2 else (before[i] or after[i])
                desired.append(sum(x[j] for j in near) / len(near) if near else x[i])
            for i, value in zip(layer, _spread(layer, desired, widths, weights)):
                x[i] = value
    return x


def _spread(
    layer: Sequence[int],
    desired: Sequence[float],
    widths: Sequence[float],
    weights: Sequence[float],
) -> list[float]:
    """Coordinates nearest to the desired ones (least squares) that keep the order and the gaps:
    isotonic regression by pooling adjacent violators."""
    offsets, offset = [], 0.0
    for p, i in enumerate(layer):
        if p:
            offset += (widths[layer[p - 1]] + widths[i]) / 2 + GAP
        offsets.append(offset)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, members
    for p, i in enumerate(layer):
        mean, weight, members = desired[p] - offsets[p], weights[i], 1
        while blocks and blocks[-1][0] > mean:
            last_mean, last_weight, last_members = blocks.pop()
            mean = (mean * weight + last_mean * last_weight) / (weight + last_weight)
            weight, members = weight + last_weight, members + last_members
        blocks.append((mean, weight, members))
    means = [mean for mean, _, members in blocks for _ in range(members)]
    return [mean + offset for mean, offset in zip(means, offsets)]


def _route(chain: list[int], at: list[Point], sizes: Sequence[Point]) -> tuple[Point, ...]:
    """Points of an edge, from the lower side of its first box to the upper side of its last."""
    first, last = chain[0], chain[-1]
    if first == last:
        return ()
    begin = (at[first][0], at[first][1] + sizes[first][1] / 2)
    end = (at[last][0], at[last][1] - sizes[last][1] / 2)
    return (begin, *(at[i] for i in chain[1:-1]), end)
