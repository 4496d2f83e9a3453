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
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.copies import View, broadcast_strides, copy_view, fill, view
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import MemorySpace, Physical, Placed, Pointer
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Input
from verax.ops.movement.slicing import Slice, Split, slice_bounds


def has_open_sizes(graph: Graph, node: Node) -> bool:
    """Whether a size of an input or output is no number."""
    types = (*graph.input_types(node), *graph.output_types(node))
    return any(t is not None and not t.is_fixed for t in types)


def moves_by_formula(graph: Graph, node: Node) -> bool:
    """Whether there is a formula for what this node moves."""
    if node.op.kind not in FORMULAS:
        return False
    if node.op.kind == "Pad" and node.op.attributes()["mode"] != "constant":
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
    dense = all(n == 1 or s == t for n, s, t in zip(piece.shape, piece.strides, physical.strides))
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


def _pad(lowering: Lowering, node: Node) -> None:
    """The fill everywhere, then what of the source lies inside."""
    graph, label = lowering.graph, node.name or node.outputs[0]
    source_view = view(lowering.values.read_contiguous(node.inputs[0] or ""))
    written = lowering.values.write(node.outputs[0])
    target, rank = view(written), len(source_view.shape)
    widths = _ints(lowering, node.inputs[1])
    assert widths is not None
    axes_input = node.inputs[3] if len(node.inputs) > 3 else None
    axes = [int(a) % rank for a in _ints(lowering, axes_input) or range(rank)]
    filled = node.inputs[2] if len(node.inputs) > 2 else None
    dtype = graph.types[node.outputs[0]].dtype.numpy
    value = np.zeros(1, dtype) if filled is None else graph.constants[filled].reshape(-1)[:1]
    lowering.calls.call(fill(written.physical, value), [written], label)
    shape: list[Size] = list(source_view.shape)
    source_offset: Size = 0
    target_offset: Size = 0
    for i, axis in enumerate(axes):
        before, after = widths[i], widths[len(axes) + i]
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
}
"""By operator."""
