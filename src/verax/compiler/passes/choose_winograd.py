"""3 x 3 convolutions are computed by Winograd's algorithm where that saves work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction

import numpy as np

from verax.ir.amplification import amplifiers
from verax.ir.dim import DimLike
from verax.ir.graph import Builder, Graph, Node
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType, TensorType
from verax.numerics import winograd
from verax.ops.windows.convolution import Conv
from verax.ops.windows.winograd import WinogradConv
from verax.records.trace import Trace

BLOCK = 16
"""Groups of other than whole blocks of channels are left alone: no kernel multiplies them fast."""
FEWEST_CHANNELS = 16
"""Of inputs and of outputs of a group: below, transforms cost more than what they save."""
PER_WEIGHT = 10
"""What fetching a weight costs, in multiply-adds."""
PER_NUMBER = 12
"""What transforming, writing and reading one number of a tile costs, in multiply-adds."""
TILE_AXES = (2, 3)
"""Along which numbers share an error: those of a tile."""
WORTH = Fraction(23, 20)
"""The least gain for which accuracy is given away; also of F(4x4) over F(2x2), which errs less."""
FEWEST_PIXELS: Mapping[int, int] = {2: 48, 4: 200}
"""Of an output, over the batch, for each tile. By counting whole tiles, F(4x4) gains `WORTH` over
F(2x2) from 116 to 172 pixels on (64 by 32 to 512 by 512 channels), and 14 x 14 does not, of which
the last tiles hang over. F(2x2) gains as much from 23 to 52 on; below 64 by 32 channels it does not
before F(4x4) does. Layers of half the resolution have about a quarter of the pixels, so that they
meet the first limit where others meet the second."""
FEWEST_ALONG_AN_AXIS = 2
"""Of a single row of pixels, tiles save nothing."""


def choose_winograd(
    graph: Graph, limit: int | None = None, keep: Collection[str] = ()
) -> tuple[Graph, Trace]:
    """Compute 3x3 convolutions of stride 1 by Winograd's minimal filtering.

    Given:  %y = Conv(kernel_shape=(3, 3), pads=((1, 1), (1, 1)))(%x, %w, %b)
    Result: %y = WinogradConv(tile=4, pads=((1, 1), (1, 1)))(%x, %w, %b)

    F(2x2, 3x3) and F(4x4, 3x3) take 2.25 and 4 times fewer products. Which of them, or neither, is
    decided by counting pixels and channels from the shapes alone, so that it is the same on every
    machine. Nodes named in `keep` stay as they are. So does one whose result reaches an operator
    that amplifies errors without bound, before it is added to something of its own size
    (`ir.amplification`): a pixel errs relative to the largest one of its tile, so that normalizing
    each pixel by its own norm counts as such.

    Numeric effect: the same convolution over the reals; in float32 an error that a tile shares, for
    F(2x2) about as large as that of direct summation, for F(4x4) ten times that. A certificate
    holds it against the bound of direct summation, layer by layer. An output all of whose inputs
    are zero is exactly the bias. What is not finite stays where direct summation has it, with its
    kind, and inputs of any size that float32 has are transformed without overflow: only an output
    that is itself too large becomes infinite. Layers with weights of 2^48 and more are left alone.
    """
    rewriter = Rewriter(graph, limit)
    tiles = {
        node.outputs[0]: tile
        for node in graph.nodes
        if node.name not in keep and node.outputs[0] not in keep
        if (tile := best_tile(graph, node))
    }
    amplified = amplifiers(graph, dict.fromkeys(tiles, TILE_AXES))
    for node in graph.nodes:
        tile = 0 if rewriter.spent else tiles.get(node.outputs[0], 0)
        if tile and node.outputs[0] in amplified:
            reached = amplified[node.outputs[0]].place
            rewriter.refuse(node, f"choose_winograd: {reached} would amplify errors")
        elif tile:
            assert isinstance(node.op, Conv)
            op = WinogradConv(tile=tile, pads=node.op.pads, groups=node.op.groups)
            inputs = [rewriter.map(v) for v in node.inputs]
            output = rewriter.add(op, inputs, node.name, rewriter.names(node))
            rewriter.replace(node, output, f"choose_winograd: F({tile}x{tile}, 3x3)")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def example() -> Graph:
    """What `verax passes` shows."""
    b = Builder("choose_winograd")
    x = b.input("x", TensorType.parse("float32[2, 16, 23, 19]"))
    weights = np.random.default_rng(5).standard_normal((18, 16, 3, 3)).astype(np.float32)
    w, bias = b.constant(weights, "w"), b.constant(np.linspace(-1, 1, 18, dtype=np.float32), "b")
    return b.graph([b.add(Conv(kernel_shape=(3, 3), pads=((1, 1), (1, 1))), [x, w, bias], ["y"])])


def best_tile(graph: Graph, node: Node) -> int:
    """Output tile size (2 or 4) to compute this node with; 0 for direct summation."""
    types = [t for t in (*graph.input_types(node), *graph.output_types(node)) if t is not None]
    constant = all(v is None or v in graph.constants for v in node.inputs[1:])
    if not (isinstance(node.op, Conv) and constant and all(t.is_static for t in types)):
        return 0
    x, w, y = types[0], types[1], types[-1]
    if x.rank != 4 or x.dtype is not DType.float32 or 0 in (*x.shape, *y.shape):
        return 0
    done = node.op.geometry(w.shape[2:])
    ordinary = (done.kernel_shape, done.strides, done.dilations) == ((3, 3), (1, 1), (1, 1))
    filters, channels = w.shape[0] // node.op.groups, w.shape[1]
    whole_blocks = node.op.groups == 1 or (filters % BLOCK, channels % BLOCK) == (0, 0)
    if not ordinary or not whole_blocks or min(filters, channels) < FEWEST_CHANNELS:
        return 0
    if any(n < FEWEST_ALONG_AN_AXIS for n in y.shape[2:]):
        return 0
    tile = _tile_for(y.shape[0] * y.shape[2] * y.shape[3], filters, channels)
    if not tile:
        return 0
    weights = np.asarray(graph.constants[node.inputs[1] or ""])
    return tile if (np.abs(weights) < winograd.LARGEST_WEIGHT).all() else 0


def _tile_for(pixels: DimLike, filters: int, channels: int) -> int:
    """By one limit for each tile, which all layers share: those of a network then change together
    where sizes grow, and a program for many sizes serves all between two limits."""
    if pixels >= FEWEST_PIXELS[4]:
        return 4
    return (
        2
        if _gain(2, 2 * FEWEST_PIXELS[2], filters, channels) >= WORTH
        and (pixels >= FEWEST_PIXELS[2])
        else 0
    )


def _gain(tile: int, pixels: int, filters: int, channels: int) -> Fraction:
    """How many times faster a layer of whole tiles becomes, by counting: multiply-adds, or what
    takes as long, for each pair of a filter and a channel of a group."""
    tiles = Fraction(pixels, tile * tile)
    positions = (tile + winograd.KERNEL - 1) ** 2
    transforms = tiles * PER_NUMBER * (Fraction(1, filters) + Fraction(1, channels))
    direct = winograd.KERNEL**2 * (pixels + PER_WEIGHT)
    return direct / (positions * (tiles + PER_WEIGHT + transforms))
