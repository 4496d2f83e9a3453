"""Strassen's product, item by item: quarters of the left factor are added up, then multiplied."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from verax.compiler.kernels.convolution.pack import direct_order
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.kernels.products.strassen import (
    COLUMNS,
    pack_right,
    right_elements,
    room_elements,
)
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.products.strassen_sums import left_sums
from verax.compiler.kernels.registry import with_known_sizes
from verax.compiler.kernels.sizes import Size
from verax.compiler.place.lowering import Lowering, is_static
from verax.compiler.place.products import linear
from verax.compiler.place.storage import Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.dim import product, same
from verax.ir.graph import Graph, Node
from verax.numerics.strassen import right_scales
from verax.ops.sums.strassen import StrassenMatMul


def is_compiled(graph: Graph, node: Node) -> bool:
    """Known sizes, a constant right factor, halves of whole blocks of columns."""
    if node.inputs[1] not in graph.constants or not is_static(graph, node):
        return False
    a, w = (graph.types[v or ""].shape for v in node.inputs)
    return 0 not in a and w[1] % COLUMNS == 0


def plan_strassen(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    if not is_compiled(planning.graph, node):
        return NoKernel("it needs known sizes and constant weights of a multiple of 32 columns")
    return planning.refused(node, StrassenSpec, LoopSpec) or (
        Choice("Strassen", takes_epilogue=True, spec=StrassenSpec),
    )


@plans(StrassenMatMul, plan=plan_strassen, fits=linear.fits)
def place_strassen(lowering: Lowering, group: Group, choice: Choice) -> None:
    """What scales and adds up the left factor's quarters; one kernel for all else."""
    graph, node = lowering.graph, group.root
    shape: tuple[Size, ...] = graph.types[node.inputs[0] or ""].shape
    items, rows = (shape[0], product(shape[1:-1])) if len(shape) > 2 else (1, shape[0])
    weights = np.asarray(graph.constants[node.inputs[1] or ""])
    spec = StrassenSpec(rows, weights.shape[1], weights.shape[0])
    epilogue, values = linear.product_epilogue(lowering, group, spec.full_product)
    spec = dataclasses.replace(spec, epilogue=epilogue)
    a = lowering.values.read_contiguous(node.inputs[0] or "")
    y = lowering.values.write(group.output, bordered=False)

    def piece(item: int) -> Piece:
        label = f"{group.label}, item {item + 1} of {items}" if item else group.label
        read = [v if isinstance(v, Pointer) else _item(v, items, item) for v in values]
        return Piece(label, _item(a, items, item), read, _item(y, items, item))

    if isinstance(items, int):
        multiply(lowering, spec, weights, False, map(piece, range(items)))
        return
    with lowering.calls.repeated(items, group.label):
        read = [v if isinstance(v, Pointer) else _per_item(v, items) for v in values]
        strassen_piece = Piece(group.label, _per_item(a, items), read, _per_item(y, items))
        multiply(lowering, spec, weights, False, [strassen_piece])


@dataclasses.dataclass(frozen=True)
class Piece:
    """An item, or an image, of a product: its left factor, what is fused behind it, its result."""

    label: str
    factor: Pointer
    operands: Sequence[Pointer]
    result: Pointer


def multiply(
    lowering: Lowering,
    spec: StrassenSpec,
    weights: np.ndarray,
    transposed: bool,
    pieces: Iterable[Piece],
) -> None:
    """For each of `pieces` what scales and adds up quarters of its factor, then the kernel.

    weights: the right factor [k, n], or, where `transposed`, filters [n, k, ...] of one position.
    """
    spec = with_known_sizes(spec, lowering.target)
    schedule = lowering.calls.schedule(spec)
    assert isinstance(schedule, ConvSchedule)

    def matrix() -> np.ndarray:
        flat = weights.reshape(weights.shape[:2])
        return flat.T if transposed else flat

    def pack_factors(room: np.ndarray) -> None:
        pack_right(matrix(), spec, schedule, room.view(np.float32))

    def pack_signs(room: np.ndarray) -> None:
        signs = room.view(np.int8).reshape(matrix().shape)
        above, below = (side.view(np.int8) for side in (matrix() > 0, matrix() < 0))
        np.subtract(above, below, out=signs)

    sums = lowering.values.scratch(4 * spec.sum_elements)
    rows = lowering.values.scratch(4 * 2 * spec.upper)
    packing = "strassen", transposed, direct_order(spec.half, schedule)
    packed = lowering.weights.packed_later(
        weights,
        packing,
        4 * right_elements(spec, schedule),
        pack_into=pack_factors,
    )
    columns = lowering.weights.packed(right_scales(matrix()))
    marked = lowering.weights.packed_later(
        weights, ("signs", transposed), weights.size, pack_into=pack_signs
    )
    room = lowering.values.scratch(4 * room_elements(spec, schedule))
    for piece in pieces:
        for kernel in left_sums(spec):
            quarters, row_results = len(kernel.inputs), len(kernel.row_outputs)
            results = [rows] * row_results + [sums] * len(kernel.element_outputs)
            label = f"{piece.label}: sums of quarters"
            lowering.calls.call(kernel, [piece.factor] * quarters + results, label)
        arguments = [piece.factor, sums, rows, packed, columns, marked, room]
        lowering.calls.call(
            spec, [*arguments, *piece.operands, piece.result], piece.label, schedule
        )


def _item(placed: Placed, items: Size, item: int) -> Pointer:
    """Where an item of a batch begins in a dense tensor of all."""
    start = placed.pointer
    return Pointer(start.buffer, start.byte_offset + item * _bytes(placed, items), start.step)


def _per_item(placed: Placed, items: Size) -> Pointer:
    """Where the first item begins, and from run to run the next one."""
    start = placed.pointer
    assert same(start.step, 0), "a program of open sizes has no loop around"
    return Pointer(start.buffer, start.byte_offset, _bytes(placed, items))


def _bytes(placed: Placed, items: Size) -> Size:
    """Of an item of a dense tensor."""
    kind = placed.physical.type
    return product(kind.shape) // items * kind.dtype.itemsize
