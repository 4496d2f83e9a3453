"""Movement of tensors of open sizes: what moves where as formulas over sizes.

Positions cannot be listed (`movement`) where sizes are open. Slices, pieces, repetitions and
borders are boxes whose corners are sizes, and each is one loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.sizes import Size, maximum
from verax.compiler.place.copies import View, broadcast_strides, copy_view, fill, view
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.positions import gather_along, iota
from verax.compiler.place.storage import MemorySpace, Physical, Placed, Pointer
from verax.ir.dim import same
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.movement.reshaping import DepthToSpace, SpaceToDepth
from verax.ops.movement.slicing import Slice, Split, slice_bounds

M = TracingArith()
LONG = "int64"


def has_open_sizes(graph: Graph, node: Node) -> bool:
    """Whether a size of an input or output is no number."""
    types = (*graph.input_types(node), *graph.output_types(node))
    return any(t is not None and not t.is_fixed for t in types)


def moves_by_formula(graph: Graph, node: Node) -> bool:
    """Whether there is a formula for what this node moves."""
    if node.op.kind not in FORMULAS:
        return False
    return all(v is None or v in graph.constants for v in node.inputs[1:])


def place_by_formula(lowering: Lowering, node: Node) -> None:
    """Source, output, for each output."""
    FORMULAS[node.op.kind](lowering, node)


def _shifted_view(
    view_: View, offset: Size, shape: Sequence[Size], strides: Sequence[Size]
) -> View:
    """Other elements of the same tensor: from `offset` elements further on."""
    at = view_.pointer.byte_offset + offset * ELEMENT_SIZES[view_.dtype]
    pointer = Pointer(view_.pointer.buffer, at)
    return View(view_.dtype, tuple(shape), tuple(strides), pointer)  # type: ignore[arg-type]


def _copy(lowering: Lowering, source: View, target: View, label: str) -> None:
    lowering.calls.call(copy_view(source, target), [source.pointer, target.pointer], label)


def _ints(lowering: Lowering, value: str | None) -> list[Size] | None:
    return None if value is None else lowering.graph.constants[value].ravel().tolist()


def _give(lowering: Lowering, value: str, source: Placed, piece: View, label: str) -> None:
    """`piece` of `source` as `value`: in its place if it lies there one element after the other."""
    physical = Physical(lowering.graph.types[value])
    dense = all(
        same(s, t) or n == 1 or s == t
        for n, s, t in zip(piece.shape, piece.strides, physical.strides, strict=True)
    )
    if dense and source.buffer.space is not MemorySpace.io:
        offset = piece.pointer.byte_offset
        lowering.values.placed[value] = [Placed(physical, source.buffer, offset)]
    else:
        _copy(lowering, piece, view(lowering.values.write(value)), label)


def _slice(lowering: Lowering, node: Node) -> None:
    source = lowering.values.read_contiguous(node.inputs[0] or "")
    source_view = view(source)
    starts, ends, axes, steps = (
        *(_ints(lowering, v) for v in node.inputs[1:]), None, None,
    )[:4]  # fmt: skip
    assert isinstance(node.op, Slice) and starts is not None and ends is not None
    shape: list[Size] = list(source_view.shape)
    strides: list[Size] = list(source_view.strides)
    offset: Size = 0
    for i, (start, end) in enumerate(zip(starts, ends)):
        axis = i if axes is None else int(axes[i]) % len(shape)
        step = 1 if steps is None else int(steps[i])
        begin, count = slice_bounds(shape[axis], start, end, step)
        offset = offset + begin * strides[axis]
        shape[axis], strides[axis] = count, strides[axis] * step  # type: ignore[call-overload]
    piece = _shifted_view(source_view, offset, shape, strides)
    _give(lowering, node.outputs[0], source, piece, node.name or node.outputs[0])


def _split(lowering: Lowering, node: Node) -> None:
    source = lowering.values.read_contiguous(node.inputs[0] or "")
    source_view, offset = view(source), 0
    assert isinstance(node.op, Split)
    axis = node.op.axis % len(source_view.shape)
    for value in node.outputs:
        shape = lowering.graph.types[value].shape
        piece = _shifted_view(source_view, offset, shape, source_view.strides)
        _give(lowering, value, source, piece, node.name or value)
        offset += shape[axis] * source_view.strides[axis]


def _expand(lowering: Lowering, node: Node) -> None:
    source_view = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    target = view(lowering.values.write(node.outputs[0]))
    strides = broadcast_strides(source_view.shape, source_view.strides, target.shape)
    repeated = dataclasses.replace(source_view, shape=target.shape, strides=strides)
    _copy(lowering, repeated, target, node.name or node.outputs[0])


def _tile(lowering: Lowering, node: Node) -> None:
    """Every axis twice: how often, and its elements."""
    source_view = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    target = view(lowering.values.write(node.outputs[0]))
    counts = _ints(lowering, node.inputs[1])
    assert counts is not None
    dims = tuple(d for pair in zip(counts, source_view.shape) for d in pair)
    read = tuple(s for stride in source_view.strides for s in (0, stride))
    written = tuple(
        s for n, stride in zip(source_view.shape, target.strides) for s in (n * stride, stride)
    )
    spec = LoopSpec(
        dims, (Access(source_view.dtype, read),), (Access(source_view.dtype, written),),
        (Input(0, source_view.dtype),),
    )  # fmt: skip
    label = node.name or node.outputs[0]
    lowering.calls.call(spec, [source_view.pointer, target.pointer], label)


def _blocks(lowering: Lowering, node: Node) -> None:
    """Channels to pixels of a block and back: an axis of each, wherever they stand."""
    op = node.op
    assert isinstance(op, DepthToSpace | SpaceToDepth)
    source = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    target = view(lowering.values.write(node.outputs[0]))
    side, back = op.blocksize, isinstance(op, SpaceToDepth)
    wide_view, depth_view = (target, source) if back else (source, target)  # channels
    batch, depth = depth_view.shape[:2]
    row, column, channel = (side * depth, depth, 1) if op.mode == "DCR" else (side, 1, side * side)

    def block_strides(blocks: View) -> tuple[Size, ...]:
        image, step, *space = blocks.strides
        return (image, channel * step, space[0], row * step, space[1], column * step)

    def pixel_strides(pixels: View) -> tuple[Size, ...]:
        image, step, high, wide = pixels.strides
        return (image, step, side * high, high, side * wide, wide)

    dims = (batch, depth, wide_view.shape[2], side, wide_view.shape[3], side)
    read, written = (pixel_strides, block_strides) if back else (block_strides, pixel_strides)
    spec = LoopSpec(
        dims,
        (Access(source.dtype, read(source)),),
        (Access(target.dtype, written(target)),),
        (Input(0, source.dtype),),
    )
    label = node.name or node.outputs[0]
    lowering.calls.call(spec, [source.pointer, target.pointer], label)


def _pad_by_elements(lowering: Lowering, node: Node) -> None:
    """Every element through one table of positions for each padded axis."""
    label = node.name or node.outputs[0]
    source = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    target = view(lowering.values.write(node.outputs[0]))
    tables: list[tuple[int, Pointer]] = []
    for axis, before, after in _pads(lowering, node, len(source.shape)):
        if before == 0 and after == 0:
            continue
        size = source.shape[axis]
        first = -before if before < 0 else 0
        size_inside = size - first + (after if after < 0 else 0)
        count = target.shape[axis]
        shift, first_inside = M.const(maximum(before, 0), LONG), M.const(first, LONG)  # type: ignore[arg-type]
        position = _reflected(
            M.sub(Input(0, LONG), shift), size_inside, node.op.attributes()["mode"]
        )
        position = M.add(position, first_inside)
        expr = M.convert(position, "int32")
        spec = LoopSpec((count,), (Access(LONG, (1,)),), (Access("int32", (1,)),), (expr,))
        table = lowering.values.scratch(4 * count)
        name = f"{label}: axis {axis}"
        lowering.calls.call(spec, [iota(lowering, count, name, LONG), table], name)
        tables.append((axis, table))
    gather_along(lowering, source, target, tables, label)


def _reflected(at: Expr, size: Size, mode: str) -> Expr:
    """The element, of `size`, that a position beyond or inside of them shows."""
    zero, last = M.const(0, LONG), M.const(size - 1, LONG)  # type: ignore[arg-type]
    if mode == "edge":
        return M.max(M.min(at, last), zero)
    # A reflection leaves the border elements alone; of one element there is no other.
    period = M.const(size, LONG) if mode == "wrap" else M.add(last, last)  # type: ignore[arg-type]
    remainder = M.rem(at, period)
    remainder = M.select(M.lt(remainder, zero), M.add(remainder, period), remainder)
    if mode == "wrap":
        return remainder
    return M.min(M.max(M.min(remainder, M.sub(period, remainder)), zero), last)


def _pads(lowering: Lowering, node: Node, rank: int) -> list[tuple[int, Size, Size]]:
    """(axis, elements before, elements after), negative where they are cut."""
    widths = _ints(lowering, node.inputs[1])
    assert widths is not None
    axes_input = node.inputs[3] if len(node.inputs) > 3 else None
    axes = [int(a) % rank for a in _ints(lowering, axes_input) or range(rank)]
    n = len(axes)
    return list(zip(axes, widths[:n], widths[n:], strict=True))


def _pad(lowering: Lowering, node: Node) -> None:
    """The fill everywhere, then what of the source lies inside."""
    if node.op.attributes()["mode"] != "constant":
        _pad_by_elements(lowering, node)
        return
    graph, label = lowering.graph, node.name or node.outputs[0]
    source_view = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    written = lowering.values.write(node.outputs[0])
    target = view(written)
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    dtype = graph.types[node.outputs[0]].dtype.numpy
    value = np.zeros(1, dtype) if filled is None else graph.constants[filled].reshape(-1)[:1]
    lowering.calls.call(fill(written.physical, value), [written], label)
    shape: list[Size] = list(source_view.shape)
    source_offset: Size = 0
    target_offset: Size = 0
    for axis, before, after in _pads(lowering, node, len(source_view.shape)):
        for width, first in ((before, True), (after, False)):
            if width < 0:  # cut
                shape[axis] = shape[axis] + width
                source_offset = source_offset - (width * source_view.strides[axis] if first else 0)
        target_offset = target_offset + (before * target.strides[axis] if before > 0 else 0)
    if any(n <= 0 for n in shape):
        return
    source = _shifted_view(source_view, source_offset, shape, source_view.strides)
    _copy(lowering, source, _shifted_view(target, target_offset, shape, target.strides), label)


FORMULAS: dict[str, Callable[[Lowering, Node], None]] = {
    "Slice": _slice,
    "Split": _split,
    "Expand": _expand,
    "Tile": _tile,
    "Pad": _pad,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}
"""By operator."""
