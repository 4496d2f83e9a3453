"""Strassen's product, item by item: quarters of the left factor are added up, then multiplied."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.convolution.pack import direct_order
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products.strassen import (
    COLUMNS,
    StrassenSpec,
    left_sums,
    pack_right,
    right_elements,
    room_elements,
)
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.compiler.lower.products import linear
from verax.compiler.lower.storage import Placed, Pointer
from verax.ir.graph import Graph, Node
from verax.ops.sums.strassen import StrassenMatMul


def is_compiled(graph: Graph, node: Node) -> bool:
    """Known sizes, a constant right factor, halves of whole blocks of columns."""
    types = [t for t in (*graph.input_types(node), *graph.output_types(node)) if t is not None]
    if node.inputs[1] not in graph.constants or not all(t.is_static for t in types):
        return False
    return 0 not in types[0].shape and types[1].shape[1] % COLUMNS == 0


@lowers(StrassenMatMul, epilogue=is_compiled, fits=linear.fits)
def lower_strassen(lowering: Lowering, group: Group) -> None:
    """Loops that add up the left factor's quarters; one kernel for all else."""
    graph, node = lowering.graph, group.root
    if not is_compiled(graph, node):
        raise NoKernel("it needs known sizes and constant weights of a multiple of 32 columns")
    shape = graph.types[node.inputs[0] or ""].shape
    items, rows = (shape[0], math.prod(shape[1:-1])) if len(shape) > 2 else (1, shape[0])
    weights = np.asarray(graph.constants[node.inputs[1] or ""])
    spec = StrassenSpec(rows, weights.shape[1], weights.shape[0])
    epilogue, values = linear.product_epilogue(lowering, group, spec.whole)
    spec = dataclasses.replace(spec, epilogue=epilogue)
    schedule = lowering.schedule(spec)
    assert isinstance(schedule, ConvSchedule)
    a = lowering.read_contiguous(node.inputs[0] or "")
    sums = lowering.scratch(4 * spec.sum_elements)
    packed = lowering.packed_later(
        weights,
        ("strassen", direct_order(spec.half, schedule)),
        4 * right_elements(spec, schedule),
        lambda: pack_right(weights, spec, schedule),
    )
    room = lowering.scratch(4 * room_elements(spec, schedule))
    y = lowering.write(group.output)
    for item in range(items):
        label = f"{group.label}, item {item + 1} of {items}" if item else group.label
        factor, result = _item(a, items, item), _item(y, items, item)
        for loop in left_sums(spec):
            made = [sums] * len(spec.summed)
            lowering.call(loop, [factor] * 4 + made, f"{label}: sums of quarters")
        read = [v if isinstance(v, Pointer) else _item(v, items, item) for v in values]
        lowering.call(spec, [factor, sums, packed, room, *read, result], label, schedule)


def _item(whole: Placed, items: int, item: int) -> Pointer:
    """Where an item of a batch begins in a dense tensor of all."""
    start, kind = whole.pointer, whole.physical.type
    size = math.prod(kind.shape) // items * kind.dtype.itemsize
    return Pointer(start.buffer, start.byte_offset + item * size, start.step)
