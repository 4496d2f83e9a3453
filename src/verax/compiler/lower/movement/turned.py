"""Transpositions between pixels [n, height, width, channels] in rows and blocks of channels.

Sixteen channels of a pixel lie side by side in both, so one pass over memory does what a
transposition and a conversion of layouts would do in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from verax.compiler.decide.expressions import is_elementwise
from verax.compiler.decide.layouts import Decided, Layout, Layouts, can_block
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.lower.lowering import RULES, Lowering, is_static
from verax.compiler.lower.storage import LANES, Placed
from verax.compiler.lower.strides import triple
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
    wanted = (_to_channels_first if channels_first else _to_channels_last)(type_.rank)
    return tuple(p % type_.rank for p in op.perm) == wanted and can_block(type_)


def turned_to_blocks(decided: Decided, node: Node) -> Layouts | None:
    """Blocked where all that reads the image wants blocks."""
    graph, value = decided.graph, node.outputs[0]
    readers = graph.consumers.get(value, ())
    if not turns(graph, node, True) or not readers or value in graph.outputs:
        return None
    blocked = all(_reads_blocks(decided, reader, value) for reader in readers)
    return Layouts({}, Layout.blocked) if blocked else None


def _reads_blocks(decided: Decided, reader: Node, value: str) -> bool:
    """Whether a kernel wants blocks, or an elementwise node has another operand in blocks."""
    graph = decided.graph
    if is_elementwise(graph, reader):
        shape = graph.types[value].dims
        others = [v for v in reader.inputs if v is not None and v != value]
        return any(graph.types[v].dims == shape and _in_blocks(decided, v) for v in others)
    wanted = _wanted(decided, reader)
    places = [i for i, v in enumerate(reader.inputs) if v == value]
    layouts = [wanted.inputs.get(i) for i in places] if wanted else []
    return bool(layouts) and all(found and found[0] is Layout.blocked for found in layouts)


def _in_blocks(decided: Decided, value: str) -> bool:
    """Whether a value is blocked, or will be, by a kernel that may take the sum as its epilogue."""
    made = decided.graph.producers.get(value)
    wanted = None if made is None or isinstance(made.op, Transpose) else _wanted(decided, made)
    return value in decided.blocked or (wanted is not None and wanted.output is Layout.blocked)


def _wanted(decided: Decided, node: Node) -> Layouts | None:
    rule = RULES.get(node.op.kind)
    known = rule is not None and rule.layouts is not None and is_static(decided.graph, node)
    return rule.layouts(decided, node) if known and rule and rule.layouts else None


def turn_blocks(lowering: Lowering, node: Node) -> bool:
    """Move pixels to blocks, or out of them, if that is what the node does."""
    graph, source, value = lowering.graph, node.inputs[0] or "", node.outputs[0]
    if source in graph.constants:
        return False
    if lowering.find(value, Layout.plain) is not None:  # `pixels_of` has made them
        return True
    rank, label = graph.types[value].rank, node.name or value
    if value in lowering.blocked and turns(graph, node, True):
        pixels, image = lowering.read(source), lowering.write(value, Layout.blocked)
        along = [pixels.physical.strides[a] for a in _to_channels_first(rank)]
        reads = _walks(image.physical.shape, along, False)
        writes = _walks(image.physical.shape, image.physical.strides, True)
        args = [pixels, image]
    elif (
        turns(graph, node, False)
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


def pixels_of(lowering: Lowering, image: str) -> tuple[Placed, Strides] | None:
    """Where a kernel that makes an image of whole blocks may write it as pixels, and how these lie
    for it: if a Transpose to channels last is all that reads it. None where there is no such."""
    graph = lowering.graph
    type_, readers = graph.types[image], graph.consumers.get(image, ())
    if image not in lowering.blocked or image in graph.outputs or len(readers) != 1:
        return None
    (reader,) = readers
    if not turns(graph, reader, False) or type_.shape[1] % LANES or reader.inputs[0] != image:
        return None
    placed = lowering.write(reader.outputs[0])
    batch, *space, _ = placed.physical.strides
    return placed, Strides(batch, LANES, *triple(space, 0))


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
