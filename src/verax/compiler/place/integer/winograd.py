"""3x3 convolutions of bytes by Winograd's filtering, which is exact on integers: a schedule.

Whether it can be used follows from the weights and from what the data can be (`plan.ranges`);
whether it is used, from the sizes. `convolution` asks here before it sums directly.
"""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.convolution.winograd import WHOLE
from verax.compiler.place.convolution.winograd import lower_in_bands, tiling_of, zeros_around
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES, Placed
from verax.compiler.plan.bounded import Bounds
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Pads
from verax.ir.assumptions import assumed_sizes
from verax.ir.dim import evaluated
from verax.ir.graph import Graph, Node
from verax.numerics import winograd, winograd_integers
from verax.numerics.expr import Expr
from verax.ops.windows.integer_convolution import ConvInteger
from verax.ops.windows.windows import Windows, border_is_modest

FEWEST_CHANNELS = 16
"""Of inputs and of outputs, in a group."""
PER_WEIGHT = 8.0
"""What fetching a weight costs, in multiply-adds."""
FEWEST_TILES = 17.0
"""Fewer tiles take as long where VNNI is: its products wait for weights, which are fetched beside
them at 30 GB/s (layers of 256 and of 512 channels of a core of Zen 5)."""
PER_INPUT, PER_OUTPUT = 8.0, 24.0
"""What transforming, writing and reading one number of a tile costs, in multiply-adds."""
QUICK = 2.1
"""How many times as many multiply-adds direct summation does by VNNI's bytes as tiles do by its
words: 1,060 and 500 GOPS, as measured on a core of Zen 5."""
WORTH = 1.1
"""The least gain for which three kernels are made in place of one."""


def windows_of(graph: Graph, node: Node) -> Windows:
    """The windows in numbers."""
    assert isinstance(node.op, ConvInteger)
    x, w = (graph.types[v or ""] for v in node.inputs[:2])
    return node.op.convolution().spatial(x, w)


def tile_of(
    graph: Graph, node: Node, weights: np.ndarray, data: tuple[int, int], quick: bool = False
) -> int:
    """Outputs of a tile along an axis; 0 for direct summation.

    weights: minus their zero points. data: the lowest and the highest, minus its zero point.
    quick: direct summation takes four bytes at a time, where tiles take two words.
    """
    op = node.op
    if not isinstance(op, ConvInteger) or weights.shape[2:] != (winograd.KERNEL,) * 2:
        return 0
    windows, y = windows_of(graph, node), graph.types[node.outputs[0]].shape
    filters, channels = weights.shape[0] // op.groups, weights.shape[1]
    whole_blocks = op.groups == 1 or (filters % LANES, channels % LANES) == (0, 0)
    ordinary = not {*windows.strides, *windows.dilations} - {1}
    if not ordinary or not whole_blocks or min(filters, channels) < FEWEST_CHANNELS:
        return 0
    # Integers are the same by either, so that sizes may decide and set no condition.
    y = tuple(evaluated(n, assumed_sizes()) for n in y)
    costs = {0: 9 * (y[0] * y[2] * y[3] + PER_WEIGHT) / WORTH / (QUICK if quick else 1)}
    for tile in winograd.TILES:
        if _border(graph, node, tile) and winograd_integers.fits(weights, *data, tile):
            costs[tile] = _cost(tile, filters, channels, y, quick)
    return min(costs, key=costs.__getitem__)


def _cost(tile: int, filters: int, channels: int, y: tuple[int, ...], quick: bool) -> float:
    """Multiply-adds, or what takes as long, for each pair of an input and an output channel."""
    tiles = y[0] * -(-y[2] // tile) * -(-y[3] // tile)
    positions = (tile + winograd.KERNEL - 1) ** 2
    transform_cost = positions * tiles * (PER_INPUT / filters + PER_OUTPUT / channels)
    fetched = max(tiles, FEWEST_TILES) if quick else tiles + PER_WEIGHT
    return positions * fetched + transform_cost


def _border(graph: Graph, node: Node, tile: int) -> Pads | None:
    """The zeros around the data; None for a border out of proportion."""
    windows, x = windows_of(graph, node), graph.types[node.inputs[0] or ""].shape
    pads = zeros_around(windows, tiling_of(graph, node, tile))
    reach = [a + n + b for n, (a, b) in zip(windows.input, pads, strict=True)]
    modest = border_is_modest(x[0] * x[1], windows.input, windows.output, reach)
    return pads if modest else None


def border(graph: Graph, node: Node, tile: int) -> Pads:
    """The zeros that the tiles at the edges see; for a tile that `tile_of` has chosen."""
    pads = _border(graph, node, tile)
    assert pads is not None
    return pads


def lower_tiles(
    lowering: Lowering,
    group: Group,
    x: Placed,
    weights: np.ndarray,
    tile: int,
    declared: Expr | None,
    within: Bounds,
) -> None:
    """The calls. x: centered, int16, with its border. declared, within: as of `epilogue`."""
    node = group.root
    assert isinstance(node.op, ConvInteger)
    windows, groups = windows_of(lowering.graph, node), node.op.groups
    lower_in_bands(lowering, group, x, windows, weights, groups, tile, WHOLE, declared, within)
