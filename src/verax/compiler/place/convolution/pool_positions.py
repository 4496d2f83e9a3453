"""MaxPool that also says where each window's largest element is: a reduction over the window to the
extreme, then one over the positions of those elements that are it.

Positions come from a table over the plane, in which padding lies farthest and so is never chosen.
"""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec
from verax.compiler.place.copies import copy_view, fill, view
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.reduce.extremes import FARTHEST, INDEX, M, extreme_stages
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.numerics.expr import Input
from verax.ops.windows.pooling import MaxPool
from verax.ops.windows.windows import Windows, lowest

MAX_PADDING, SMALL = 16, 4096
"""Elements of a padded plane: at most so many times its own, and so many more."""


POSITIONS = "max pooling with positions"


def plan_with_positions(planning: Planning, node: Node) -> Alternatives:
    """One alternative; its detail: the padding that windows reach, per spatial axis."""
    op, x_type = node.op, planning.graph.types[node.inputs[0] or ""]
    assert isinstance(op, MaxPool)
    refused = planning.refused(node, ReduceSpec)
    if refused is not None:
        return refused
    if op.storage_order or 0 in x_type.shape:
        return NoKernel("positions are counted row by row, in planes of known size")
    space = x_type.shape[2:]
    windows, size = op.spatial(x_type), int(math.prod(space))
    if size >= FARTHEST:
        return NoKernel("a plane is too large")
    behind = [
        max(0, (m - 1) * s + (k - 1) * d + 1 - begin - n)
        for n, m, s, k, d, (begin, _) in zip(
            space, windows.output, windows.strides, windows.kernel_shape, windows.dilations,
            windows.pads,
        )
    ]  # fmt: skip
    pads = [(int(begin), int(end)) for (begin, _), end in zip(windows.pads, behind)]
    if math.prod(a + n + b for n, (a, b) in zip(space, pads)) > MAX_PADDING * size + SMALL:
        return NoKernel("windows reach far beyond the plane")
    return (Choice(POSITIONS, detail=pads),)


def place_with_positions(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, positions in the plane, first position of each plane, largest elements, positions."""
    node, op, pads = group.root, group.root.op, choice.detail
    assert isinstance(op, MaxPool)
    x_type = lowering.graph.types[node.inputs[0] or ""]
    batch, channels, *space = x_type.shape
    windows, size = op.spatial(x_type), int(math.prod(space))
    inner = np.arange(size, dtype=np.int32).reshape(space)
    table = lowering.weights.constant(np.pad(inner, pads, constant_values=FARTHEST))
    planes = lowering.weights.constant(np.arange(batch * channels, dtype=np.int64) * size)
    seen = _padded(lowering, node.inputs[0] or "", pads, group.label)
    y, positions = (lowering.values.write_contiguous(v) for v in node.outputs)
    dtype, rank = str(x_type.dtype), len(space)
    inputs = (
        Access(dtype, _window_strides(seen.physical.strides, windows)),
        Access(INDEX, _window_strides((0, 0, *table.physical.strides), windows)),
        Access("int64", (channels, 1, *(0,) * 2 * rank)),
    )
    position = Input(4, INDEX)
    plane_position = M.add(M.convert(position, "int64"), Input(2, "int64"))
    nowhere = M.eq(position, M.const(FARTHEST, INDEX))
    plane_position = M.select(nowhere, M.const(-1, "int64"), plane_position)
    spec = ReduceSpec(
        (batch, channels, *windows.output),
        windows.kernel_shape,
        inputs,
        extreme_stages(dtype, largest=True, last=False, first_stage=3),
        (
            (Access(dtype, y.physical.strides), Input(3, dtype)),
            (Access("int64", positions.physical.strides), plane_position),
        ),
    )
    lowering.calls.call(spec, [seen, table, planes, y, positions], group.label)


def _padded(lowering: Lowering, value: str, pads: list[tuple[int, int]], label: str) -> Placed:
    """The input, row-major, with the least number around it as far as windows reach."""
    x = lowering.values.read_contiguous(value)
    if not any(map(any, pads)):
        return x
    type_ = x.physical.type
    shape = (*type_.shape[:2], *(n + a + b for n, (a, b) in zip(type_.shape[2:], pads)))
    wide = lowering.values.allocate(Physical(TensorType(type_.dtype, shape)))
    lowest_value = np.asarray(lowest(type_.dtype.numpy), type_.dtype.numpy)
    lowering.calls.call(fill(wide.physical, lowest_value), [wide], f"{label}: around the input")
    box = [slice(0, n) for n in type_.shape[:2]]
    box += [slice(a, a + n) for n, (a, _) in zip(type_.shape[2:], pads)]
    interior = view(wide).subview(box)
    lowering.calls.call(
        copy_view(view(x), interior), [x, interior.pointer], f"{label}: with padding"
    )
    return wide


def _window_strides(strides: tuple[int, ...], windows: Windows) -> tuple[int, ...]:
    """Steps from window to window, then from kernel position to kernel position."""
    space = strides[2:]
    return (
        *strides[:2],
        *(step * s for step, s in zip(space, windows.strides)),
        *(step * d for step, d in zip(space, windows.dilations)),
    )
