"""Transpositions between pixels [n, height, width, channels] in rows and blocks of channels.

Sixteen channels of a pixel lie side by side in both, so one pass over memory does what a
transposition and a conversion of layouts would do in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES, Placed
from verax.compiler.place.strides import triple
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Input
from verax.ops.movement.reshaping import Transpose


def _to_channels_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _to_channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def turns(graph: Graph, node: Node, channels_first: bool) -> bool:
    """Whether the node brings channels behind the batch, or takes them from there to the end."""
    op, type_ = node.op, graph.types[node.outputs[0]]
    if not isinstance(op, Transpose) or op.perm is None or not type_.is_static:
        return False
    perm = (_to_channels_first if channels_first else _to_channels_last)(type_.rank)
    return tuple(p % type_.rank for p in op.perm) == perm and can_block(type_)


def turn_blocks(lowering: Lowering, node: Node) -> bool:
    """Move pixels to blocks, or out of them, if that is what the node does."""
    graph, source, value = lowering.graph, node.inputs[0] or "", node.outputs[0]
    if source in graph.constants:
        return False
    if lowering.values.find(value, Layout.plain) is not None:  # `pixels_of` has made them
        return True
    rank, label = graph.types[value].rank, node.name or value
    if value in lowering.values.layouts.blocked and turns(graph, node, True):
        pixels, image = lowering.values.read(source), lowering.values.write(value, Layout.blocked)
        along = [pixels.physical.strides[a] for a in _to_channels_first(rank)]
        reads = _walks(image.physical.shape, along, False)
        writes = _walks(image.physical.shape, image.physical.strides, True)
        args = [pixels, image]
    elif (
        turns(graph, node, False)
        and lowering.values.find(source, Layout.plain) is None
        and (placed := lowering.values.find(source, Layout.blocked)) is not None
    ):
        target = lowering.values.write(value)
        along = [target.physical.strides[a] for a in _to_channels_first(rank)]
        reads = _walks(placed.physical.shape, placed.physical.strides, True)
        writes = _walks(placed.physical.shape, along, False)
        args = [placed, target]
    else:
        return False
    dtype = str(graph.types[value].dtype)
    for (dims, read), (_, written) in zip(reads, writes, strict=True):
        spec = LoopSpec(
            dims, (Access(dtype, *read),), (Access(dtype, *written),), (Input(0, dtype),)
        )
        lowering.calls.call(spec, args, label)
    return True


def pixels_of(lowering: Lowering, image: str) -> tuple[Placed, Strides] | None:
    """Where a kernel that makes an image of whole blocks may write it as pixels, and how these lie
    for it: if a Transpose to channels last is all that reads it. None where there is no such."""
    graph = lowering.graph
    type_, readers = graph.types[image], graph.consumers.get(image, ())
    if image not in lowering.values.layouts.blocked or image in graph.outputs or len(readers) != 1:
        return None
    (reader,) = readers
    if not turns(graph, reader, False) or type_.shape[1] % LANES or reader.inputs[0] != image:
        return None
    placed = lowering.values.write(reader.outputs[0])
    batch, *space, _ = placed.physical.strides
    return placed, Strides(batch, LANES, *triple(space, 0))


Walk = tuple[tuple[int, ...], tuple[tuple[int, ...], int]]


def _walks(shape: Sequence[int], strides: Sequence[int], blocked: bool) -> Iterator[Walk]:
    """The whole blocks of channels, then what is left: dims, strides and offset in each.

    shape: [n, channels, ...]. strides: of a blocked tensor, or of the axes of `shape`."""
    n, channels, *space = shape
    full, partial_lanes = divmod(channels, LANES)
    batch, second, *steps = strides
    if blocked:
        lane, block, steps = 1, second, steps[:-1]
    else:
        lane, block = second, LANES * second
    if full:
        yield (n, full, *space, LANES), ((batch, block, *steps, lane), 0)
    if partial_lanes:
        yield (n, *space, partial_lanes), ((batch, *steps, lane), full * block)
