"""Winograd's convolution: transform the input, multiply position by position, transform back.

Large images go through in bands of tiles, so that the matrices stay in a cache.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_elements, direct_order, pack_channels
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.winograd import (
    STORED,
    WinogradOutput,
    pack_filters,
    product,
)
from verax.compiler.kernels.convolution.winograd_scales import WinogradScales
from verax.compiler.kernels.convolution.winograd_special import pack_signs, signs_bytes
from verax.compiler.kernels.convolution.winograd_tiles import Tiling, WinogradInput
from verax.compiler.kernels.dtypes import FLOAT32, ContractionTypes
from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.sizes import entries, static_size
from verax.compiler.kernels.target import LANES
from verax.compiler.place.convolution import convolution
from verax.compiler.place.convolution.epilogues import epilogue
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.place.strides import kernel_strides
from verax.compiler.plan.bounded import Bounds
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.epilogues import fits_any_type
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, Pads
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Expr
from verax.ops.windows.windows import Windows, border_is_modest
from verax.ops.windows.winograd import WinogradConv

BAND_BYTES = 3 << 20
"""Of the matrices of a band, and of weights that are read again for each: they stay in the last
cache, beside what else is there. Twice as much is still taken at once."""


def is_compiled(graph: Graph, node: Node) -> bool:
    """As for convolutions, and weights and bias are constants: filters are transformed ahead.
    Groups are of whole blocks."""
    assert isinstance(node.op, WinogradConv)
    constant = all(v is None or v in graph.constants for v in node.inputs[1:])
    if not constant or not convolution.is_compiled(graph, node):
        return False
    filters, channels = graph.types[node.inputs[1] or ""].shape[:2]
    whole_blocks = channels % LANES == 0 and filters % (node.op.groups * LANES) == 0
    return node.op.groups == 1 or whole_blocks


def tiling_of(graph: Graph, node: Node, tile: int) -> Tiling:
    """How the output of a convolution is cut into tiles."""
    n, _, rows, cols = graph.types[node.outputs[0]].shape
    return Tiling(tile, n, rows, cols)


def zeros_around(windows: Windows, tiling: Tiling) -> Pads:
    """The border that the tiles at the edges see; of an open size as wide as it can be."""
    reach = (tiling.down * tiling.tile + 2, tiling.across * tiling.tile + 2)
    max_after = (end + tiling.tile - 1 for _, end in windows.pads)
    return tuple(
        (begin, max(0, static_size(far) - begin - n) if isinstance(n, int) else most_after)
        for n, far, (begin, _), most_after in zip(
            windows.input, reach, windows.pads, max_after, strict=True
        )
    )


def plan_winograd(planning: Planning, node: Node) -> Alternatives:
    """One alternative: blocked in and out, with the zeros that the tiles at the edges see."""
    pads = _border(planning.graph, node) if is_compiled(planning.graph, node) else None
    if pads is None:
        return NoKernel(
            "it needs known sizes, constant weights, groups of whole blocks of 16 channels and "
            "borders that are not too large"
        )
    data = (0, Layout.blocked, pads)
    kernels = WinogradScales, WinogradInput, ConvSpec, WinogradOutput
    return planning.refused(node, *kernels) or (
        Choice(
            "Winograd", (data,), output=Layout.blocked, takes_epilogue=True, spec=WinogradOutput
        ),
    )


def _border(graph: Graph, node: Node) -> Pads | None:
    """The zeros around the data; None for a border out of proportion."""
    assert isinstance(node.op, WinogradConv)
    x, w = (graph.types[v] for v in node.inputs[:2] if v is not None)
    windows = node.op.spatial(x, w)
    pads = zeros_around(windows, tiling_of(graph, node, node.op.tile))
    padded_sizes = [n + a + b for n, (a, b) in zip(windows.input, pads, strict=True)]
    if not border_is_modest(x.shape[0] * x.shape[1], windows.input, windows.output, padded_sizes):
        return None
    return pads


def fits(graph: Graph, value: str, node: Node) -> bool:
    """As for any type that the transform knows."""
    is_stored = all(str(graph.types[v].dtype) in STORED for v in (*node.inputs, *node.outputs) if v)
    return is_stored and fits_any_type(graph, value, node)


@plans(WinogradConv, plan=plan_winograd, fits=fits)
def place_winograd(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Four calls, band by band: magnitudes of x; x to matrices; matrices times weights; sums, bias
    and operands to y."""
    graph, node = lowering.graph, group.root
    assert isinstance(node.op, WinogradConv)
    weights = np.asarray(graph.constants[node.inputs[1] or ""])
    ((_, layout, pads),) = choice.inputs
    x = lowering.values.read(node.inputs[0] or "", layout, pads)
    windows = node.op.spatial(graph.types[node.inputs[0] or ""], graph.types[node.inputs[1] or ""])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    packed = None if bias is None else lowering.weights.packed(pack_channels(graph.constants[bias]))
    lower_in_bands(lowering, group, x, windows, weights, node.op.groups, node.op.tile, bias=packed)


@dataclasses.dataclass(frozen=True)
class Band:
    """Some tiles of a convolution: of so many images from number `image` on, from output row `row`
    on, as `tiling` has them."""

    tiling: Tiling
    image: int
    row: int

    def pointer_in(self, operand: Placed | Pointer) -> Pointer:
        """Where the band begins in a blocked tensor, which has a pixel for each output; what has no
        pixels is the same for every band."""
        if isinstance(operand, Pointer):
            return operand
        strides, start = kernel_strides(operand.physical), operand.pointer
        elements = self.image * strides.batch + self.row * strides.row
        offset = elements * operand.physical.type.dtype.itemsize
        return Pointer(start.buffer, start.byte_offset + offset, start.step)


def bands(tiling: Tiling, tile_bytes: int, weight_bytes: int) -> list[Band]:
    """The tiles in bands whose matrices fit into a cache, as the weights do: what one call writes
    the next then reads from there. One band where they fit, or where the weights, which every band
    reads again, do not. tile_bytes: of what all matrices hold for one tile."""
    image_bytes = tiling.down * tiling.across * tile_bytes
    if entries((tiling.batch, image_bytes)):  # how many bands there are would be
        return [Band(tiling, 0, 0)]
    if tiling.batch * image_bytes <= 2 * BAND_BYTES or weight_bytes > BAND_BYTES:
        return [Band(tiling, 0, 0)]
    images = max(1, BAND_BYTES // image_bytes)
    rows = tiling.down if images > 1 else max(1, BAND_BYTES // (tiling.across * tile_bytes))
    all_bands = []
    for image in range(0, tiling.batch, images):
        for row in range(0, tiling.rows, rows * tiling.tile):
            left = min(rows * tiling.tile, tiling.rows - row)
            band_tiling = dataclasses.replace(
                tiling, batch=min(images, tiling.batch - image), rows=left
            )
            all_bands.append(Band(band_tiling, image, row))
    return all_bands


def lower_in_bands(
    lowering: Lowering,
    group: Group,
    x: Placed,
    windows: Windows,
    weights: np.ndarray,
    groups: int,
    tile: int,
    types: ContractionTypes = FLOAT32,
    declared: Expr | None = None,
    within: Bounds | None = None,
    bias: Pointer | None = None,
) -> None:
    """The calls of every band. x: with its border; weights: [o, c / groups, 3, 3], of the data's
    kind; declared, within: as `epilogue` takes them; bias: packed."""
    graph = lowering.graph
    filters, channels = weights.shape[0], weights.shape[1] * groups
    tiling = tiling_of(graph, group.root, tile)
    fused, operands = epilogue(lowering, group, declared, within)
    y = lowering.values.write(group.output, Layout.blocked)
    stored, width = str(graph.types[group.output].dtype), ELEMENT_SIZES[types.x]
    tile_bytes = tiling.positions * (width * channels + ELEMENT_SIZES[types.sum] * filters)
    weight_bytes = tiling.positions * weights[..., 0, 0].size * ELEMENT_SIZES[types.weights]
    all_bands = bands(tiling, tile_bytes, weight_bytes)
    begin = windows.pads[0][0], windows.pads[1][0]
    for index, band in enumerate(all_bands):
        label = f"{group.label}, band {index + 1} of {len(all_bands)}" if index else group.label
        source = WinogradInput(
            band.tiling, channels, kernel_strides(x.physical), begin, types.x, groups
        )
        tables = _scales_of_tiles(lowering, label, band.pointer_in(x), source)
        sums = _sums_of_tiles(lowering, label, band.pointer_in(x), source, tables, weights, types)
        back = WinogradOutput(
            band.tiling,
            filters,
            kernel_strides(y.physical),
            bias is not None,
            fused,
            types.sum,
            stored,
            source if tables else None,
        )
        read = [sums, *([] if bias is None else [bias])]
        if tables:
            _, scales, factors = tables
            read += [band.pointer_in(x), _signs(lowering, weights), scales, factors]
        lowering.calls.call(
            back, [*read, *map(band.pointer_in, operands), band.pointer_in(y)], label
        )


def _scales_of_tiles(
    lowering: Lowering, label: str, x: Pointer, source: WinogradInput
) -> list[Pointer]:
    """The first call of a band: magnitudes, scales and factors (`Tables`). Integers need none."""
    if source.dtype != FLOAT32.x:
        return []
    tables = [lowering.values.scratch(4 * count) for count in source.tables.elements]
    lowering.calls.call(WinogradScales(source), [x, *tables], f"{label}: scales")
    return tables


def _signs(lowering: Lowering, weights: np.ndarray) -> Pointer:
    """The signs of the weights, packed."""
    return lowering.weights.packed_later(
        weights, "signs", signs_bytes(weights), lambda: pack_signs(weights)
    )


def _sums_of_tiles(
    lowering: Lowering,
    label: str,
    x: Pointer,
    source: WinogradInput,
    tables: list[Pointer],
    weights: np.ndarray,
    types: ContractionTypes,
) -> Pointer:
    """The two calls of a band that make what the output transform reads."""
    tiling, channels, filters = source.tiling, source.channels, weights.shape[0]
    seen = lowering.values.scratch(ELEMENT_SIZES[types.x] * tiling.elements(channels))
    lowering.calls.call(source, [x, *tables[:2], seen], f"{label}: input transform")
    spec = product(tiling, channels, filters, source.groups, types)
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    size = tiling.positions * direct_elements(spec, schedule)

    def pack() -> np.ndarray:
        return pack_filters(weights, tiling, spec, schedule)

    packing = tiling.tile, direct_order(spec, schedule)
    packed = lowering.weights.packed_later(
        weights, packing, size * ELEMENT_SIZES[types.weights], pack
    )
    sums = lowering.values.scratch(4 * tiling.elements(filters))
    lowering.calls.call(spec, [seen, packed, sums], f"{label}: products", schedule)
    return sums
