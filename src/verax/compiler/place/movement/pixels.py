"""Images that come as pixels, channels side by side, up to the convolution that reads them.

Frameworks with channels last and decoders of images keep red, green and blue of a pixel together;
convolutions are written for channels first, so a Transpose stands between them. A convolution of
few channels reads one element at a time and can take them from either, so the Transpose moves
nothing: its result is a view of what it was given, and the chain that converts and normalizes the
image writes pixels, straight into the border that the convolution wants around them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.layout_transposes import turns
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.expressions import is_elementwise
from verax.compiler.plan.layouts import Decided, Layout
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType
from verax.ops.movement.reshaping import Transpose


def come_as_pixels(graph: Graph, value: str) -> bool:
    """Whether an image [n, channels, ...] is a Transpose of pixels, or computed of one by a chain
    of elementwise nodes."""
    dims = graph.types[value].dims
    while value not in graph.outputs and (producer := graph.producers.get(value)) is not None:
        if isinstance(producer.op, Transpose):
            computed = producer.inputs[0] not in graph.constants
            return computed and turns(graph, producer, True) and graph.types[value].shape[1] > 1
        images = {v for v in producer.inputs if v is not None and graph.types[v].dims == dims}
        images -= graph.constants.keys()
        if len(images) != 1 or not is_elementwise(graph, producer):
            return False
        (value,) = images
    return False


def view_pixels(lowering: Lowering, node: Node) -> bool:
    """Leave pixels where they are, if `node` is a Transpose whose result is read as pixels."""
    value = node.outputs[0]
    if not isinstance(node.op, Transpose) or not _read_as_pixels(lowering.values.layouts, value):
        return False
    if lowering.values.find(value, Layout.pixels) is None:  # else `write_pixels` has made them
        source = lowering.values.read_contiguous(node.inputs[0] or "")
        physical = Physical(lowering.graph.types[value], Layout.pixels)
        lowering.values.placed[value] = [dataclasses.replace(source, physical=physical)]
    return True


def _read_as_pixels(decided: Decided, value: str) -> bool:
    """Whether a convolution wants pixels of it, or of what a chain makes of it."""
    if (value, Layout.pixels) in decided.borders:
        return True
    graph = decided.graph
    return come_as_pixels(graph, value) and any(
        is_elementwise(graph, reader)
        and come_as_pixels(graph, reader.outputs[0])
        and _read_as_pixels(decided, reader.outputs[0])
        for reader in graph.consumers.get(value, ())
    )


def write_pixels(lowering: Lowering, value: str) -> tuple[Placed, tuple[int, ...]] | None:
    """Where a chain may write pixels instead of `value` in rows, and the strides for its axes: if
    they are wanted of it, or of the Transpose that alone reads it. None where neither is so."""
    graph, requested = lowering.graph, lowering.values.layouts.borders
    if (value, Layout.pixels) in requested:
        placed = lowering.values.write(value, Layout.pixels)
        return placed, placed.physical.axis_strides
    readers = graph.consumers.get(value, ())
    if len(readers) != 1 or value in graph.outputs or not isinstance(readers[0].op, Transpose):
        return None
    image = readers[0].outputs[0]
    if (image, Layout.pixels) not in requested:
        return None
    placed = lowering.values.write(image, Layout.pixels)
    batch, channel, *space = placed.physical.axis_strides
    return placed, (batch, *space, channel)


def place_along_rows(
    lowering: Lowering, constant: np.ndarray, shape: Sequence[int], steps: Sequence[int]
) -> Placed:
    """A constant that a chain which writes pixels reads. If it differs by channel, it is repeated
    for each pixel of a row, as they lie there: so the loop over a row is one, and not one of a few
    elements for every pixel.

    shape, steps: of the image that it is broadcast to; neighbors along its channels are 1 apart.
    """
    aligned = constant.reshape((1,) * (len(shape) - constant.ndim) + constant.shape)
    column, channel = sorted(range(len(shape)), key=lambda axis: -steps[axis])[-2:]
    if [axis for axis, size in enumerate(aligned.shape) if size > 1] != [channel]:
        return lowering.weights.constant(constant)
    row = tuple(n if axis in (column, channel) else 1 for axis, n in enumerate(shape))
    type_ = TensorType(DType(constant.dtype.name), row)
    layout = Layout.pixels if channel == 1 else Layout.plain
    repeated = np.broadcast_to(aligned, row)
    lie = np.moveaxis(repeated, 1, -1) if layout is Layout.pixels else repeated
    return lowering.weights.constant(lie, Physical(type_, layout))
