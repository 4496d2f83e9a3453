"""1x1 convolutions by Strassen's algorithm, image by image, on blocks of 16 channels."""

from __future__ import annotations

import numpy as np

from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.kernels.products.strassen import COLUMNS
from verax.compiler.kernels.products.strassen_spec import ImageRows, StrassenSpec
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.convolution.epilogues import epilogue
from verax.compiler.place.lowering import Lowering, is_static
from verax.compiler.place.movement.layout_transposes import pixels_of
from verax.compiler.place.products.strassen import Piece, multiply
from verax.compiler.place.storage import Physical, Placed, Pointer
from verax.compiler.place.strides import kernel_strides, triple
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.epilogues import fits_any_type
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout, can_block
from verax.ir.dim import product, same
from verax.ir.graph import Graph, Node
from verax.ops.windows.strassen import StrassenConv


def is_compiled(graph: Graph, node: Node) -> bool:
    """Known sizes, constant weights, halves of whole blocks of channels and of filters."""
    if node.inputs[1] not in graph.constants or not is_static(graph, node):
        return False
    (x, w), (y,) = graph.input_types(node), graph.output_types(node)
    assert x is not None and w is not None
    return all(n % COLUMNS == 0 for n in w.shape[:2]) and can_block(x) and can_block(y)


def plan_strassen(planning: Planning, node: Node) -> Alternatives:
    """One alternative, blocked in and out."""
    if not is_compiled(planning.graph, node):
        return NoKernel(
            "it needs known sizes and constant weights, multiples of 32 channels and of 32 filters"
        )
    no_border = ((0, 0),) * (planning.graph.types[node.inputs[0] or ""].rank - 2)
    data = (0, Layout.blocked, no_border)
    return planning.refused(node, StrassenSpec, LoopSpec) or (
        Choice("Strassen", (data,), output=Layout.blocked, takes_epilogue=True, spec=StrassenSpec),
    )


@plans(StrassenConv, plan=plan_strassen, fits=fits_any_type)
def place_strassen(lowering: Lowering, group: Group, choice: Choice) -> None:
    """For each image loops that add up quarters of its pixels and channels, then one kernel."""
    graph, node = lowering.graph, group.root
    ((_, layout, pads),) = choice.inputs
    x = _dense(lowering, lowering.values.read(node.inputs[0] or "", layout, pads), group.label)
    fused, operands = epilogue(lowering, group)
    pixels = pixels_of(lowering, group.output)
    y = pixels[0] if pixels else lowering.values.write(group.output, Layout.blocked)
    written = pixels[1] if pixels else kernel_strides(y.physical)
    images: Size = x.physical.shape[0]
    channels, size = x.physical.shape[1], x.physical.shape[2:]
    weights = np.asarray(graph.constants[node.inputs[1] or ""])
    image = ImageRows(kernel_strides(x.physical).block, written, triple(size, 1))
    spec = StrassenSpec(product(size), weights.shape[0], channels, fused, image)

    def piece(index: int | None) -> Piece:
        label = f"{group.label}, image {index + 1} of {images}" if index else group.label
        read = [_image(o, index) for o in operands]
        return Piece(label, _image(x, index), read, _image(y, index, written.batch))

    if isinstance(images, int):
        multiply(lowering, spec, weights, True, map(piece, range(images)))
        return
    with lowering.calls.repeated(images, group.label):
        multiply(lowering, spec, weights, True, [piece(None)])


def _dense(lowering: Lowering, x: Placed, label: str) -> Placed:
    """The image without the border that somebody else reads: halves of pixels lie in one piece."""
    if not x.physical.has_border:
        return x
    inside = Physical(x.physical.type, Layout.blocked)
    copy = Placed(inside, lowering.values.scratch(inside.nbytes).buffer)
    lowering.calls.copy(x, copy, f"{label}: without border")
    return copy


def _image(operand: Placed | Pointer, index: int | None, batch: Size | None = None) -> Pointer:
    """Where an image of a tensor begins, `batch` elements behind the one before; what has no images
    is the same for all. index: None for the first one, from which each run goes on to the next."""
    if isinstance(operand, Pointer):
        return operand
    elements = kernel_strides(operand.physical).batch if batch is None else batch
    start, step = operand.pointer, elements * operand.physical.type.dtype.itemsize
    if index is None:
        assert same(start.step, 0), "a program of open sizes has no loop around"
        return Pointer(start.buffer, start.byte_offset, step)
    return Pointer(start.buffer, start.byte_offset + index * step, start.step)
