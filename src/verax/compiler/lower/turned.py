"""Transpositions between pixels [n, height, width, channels] in rows and blocks of channels.

Sixteen channels of a pixel lie side by side in both, so one pass over memory does what a
transposition and a conversion of layouts would do in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verax.compiler.decide.layouts import Decided, Layout, Layouts, can_block
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.lower.lowering import RULES, Lowering
from verax.compiler.lower.storage import LANES
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Input
from verax.ops.movement.reshaping import Transpose


def _to_channels_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def _to_channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _turns(graph: Graph, node: Node, channels_first: bool) -> bool:
    """Whether the node brings channels behind the batch, or takes them from there to the end."""
    op, type_ = node.op, graph.types[node.outputs[0]]
    if not isinstance(op, Transpose) or op.perm is None or not type_.is_static:
        return False
    wanted = (_to_channels_first if channels_first else _to_channels_last)(type_.rank)
    return tuple(p % type_.rank for p in op.perm) == wanted and can_block(type_)


def turned_to_blocks(decided: Decided, node: Node) -> Layouts | None:
    """Blocked where all that reads the image wants blocks."""
    graph, value = decided.graph, node.outputs[0]
    readers = graph.consumers.get(value, ())
    if not _turns(graph, node, True) or not readers or value in graph.outputs:
        return None
    for reader in readers:
        rule = RULES.get(reader.op.kind)
        wanted = rule.layouts(decided, reader) if rule and rule.layouts else None
        places = [i for i, v in enumerate(reader.inputs) if v == value]
        layouts = [wanted.inputs.get(i) for i in places] if wanted else []
        if not layouts or any(found is None or found[0] is Layout.plain for found in layouts):
            return None
    return Layouts({}, Layout.blocked)


def turn_blocks(lowering: Lowering, node: Node) -> bool:
    """Move pixels to blocks, or out of them, if that is what the node does."""
    graph, source, value = lowering.graph, node.inputs[0] or "", node.outputs[0]
    if source in graph.constants:
        return False
    rank, label = graph.types[value].rank, node.name or value
    if value in lowering.blocked and _turns(graph, node, True):
        pixels, image = lowering.read(source), lowering.write(value, Layout.blocked)
        along = [pixels.physical.strides[a] for a in _to_channels_first(rank)]
        reads = _walks(image.physical.shape, along, False)
        writes = _walks(image.physical.shape, image.physical.strides, True)
        args = [pixels, image]
    elif (
        _turns(graph, node, False)
        and lowering.find(source, Layout.plain) is None
        and (found := lowering.find(source, Layout.blocked)) is not None
    ):
        target = lowering.write(value)
        along = [target.physical.strides[a] for a in _to_channels_first(rank)]
        reads = _walks(found.physical.shape, found.physical.strides, True)
        writes = _walks(found.physical.shape, along, False)
        args = [found, target]
    else:
        return False
    dtype = str(graph.types[value].dtype)
    for (dims, read), (_, written) in zip(reads, writes, strict=True):
        spec = LoopSpec(
            dims, (Access(dtype, *read),), (Access(dtype, *written),), (Input(0, dtype),)
        )
        lowering.call(spec, args, label)
    return True


Walk = tuple[tuple[int, ...], tuple[tuple[int, ...], int]]


def _walks(shape: Sequence[int], strides: Sequence[int], blocked: bool) -> Iterator[Walk]:
    """The whole blocks of channels, then what is left: dims, strides and offset in each.

    shape: [n, channels, ...]. strides: of a blocked tensor, or of the axes of `shape`."""
    n, channels, *space = shape
    full, rest = divmod(channels, LANES)
    batch, second, *steps = strides
    if blocked:
        lane, block, steps = 1, second, steps[:-1]
    else:
        lane, block = second, LANES * second
    if full:
        yield (n, full, *space, LANES), ((batch, block, *steps, lane), 0)
    if rest:
        yield (n, *space, rest), ((batch, *steps, lane), full * block)
