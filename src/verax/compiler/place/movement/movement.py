"""Data movement: views and pieces of memory, strided copies, constant index tables, gathers with
checked indices.

What moves where is found by applying the operator's meaning to positions (`index_maps`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from verax.compiler.kernels.llvm.builder import ELEMENT_SIZES
from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.place.convolution.concatenation import concatenate_blocks, concatenates_blocks
from verax.compiler.place.convolution.pieces import cut_blocks
from verax.compiler.place.copies import View, copy_view, fill, view
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.formulas import (
    has_open_sizes,
    moves_by_formula,
    place_by_formula,
)
from verax.compiler.place.movement.index_maps import StridedMap, beginnings, strided_map
from verax.compiler.place.movement.layout_transposes import turn_blocks, turns
from verax.compiler.place.movement.pixels import view_pixels
from verax.compiler.place.movement.positions import iota
from verax.compiler.place.storage import MemorySpace, Physical, Placed, Pointer
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Layout
from verax.compiler.plan.shared_blocks import cuts_whole_blocks
from verax.ir.assumptions import is_counted
from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation, Inference, as_tuple
from verax.ir.types import DType
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.movement.generation import ConstantOfShape, EyeLike, Trilu
from verax.ops.movement.reshaping import Transpose

LIMIT = 1 << 26
"""Larger tensors are not mapped element by element while compiling."""
MOST_PARTS = 256
"""Inputs of a concatenation, and outputs of a split, that are copied by code of their own each."""


def plan_view(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    return (Choice("view"),)


@plans("Reshape", "Flatten", "Squeeze", "Unsqueeze", plan=plan_view)
def place_view(lowering: Lowering, group: Group, choice: Choice) -> None:
    """The same bytes under another shape."""
    source = group.root.inputs[0]
    assert source is not None
    lowering.values.alias(group.output, source)


def plan_transpose(planning: Planning, node: Node) -> Alternatives:
    """To blocks of channels in one go, where everything that reads the image wants blocks; else as
    any movement."""
    rows = plan_movement(planning, node)
    if isinstance(rows, NoKernel) or not turns(planning.graph, node, True):
        return rows
    to_blocks = dataclasses.replace(rows[0], output=Layout.blocked, blocked_readers=True)
    return to_blocks, *rows


@plans("Transpose", plan=plan_transpose)
def place_transpose(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Source, output; from or to blocks of channels in one go, where one of them lies so; nothing
    where pixels are read as they lie."""
    if not (view_pixels(lowering, group.root) or turn_blocks(lowering, group.root)):
        place_movement(lowering, group, choice)


def plan_cut(planning: Planning, node: Node) -> Alternatives:
    """Pieces of a blocked input, where the outputs are whole blocks of it; else as any movement."""
    rows = plan_movement(planning, node)
    if isinstance(rows, NoKernel) or not cuts_whole_blocks(planning.graph, node):
        return rows
    pieces = dataclasses.replace(
        rows[0], output=Layout.blocked, every_output=True, blocked_inputs=(0,)
    )
    return pieces, *rows


@plans("Slice", "Split", plan=plan_cut)
def place_cut(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Nothing where the outputs are whole blocks of the input; else as any movement."""
    if not cut_blocks(lowering, group.root):
        place_movement(lowering, group, choice)


def plan_movement(planning: Planning, node: Node) -> NoKernel | tuple[Choice]:
    """One alternative."""
    refused = planning.refused(node, LoopSpec)
    if refused is not None:
        return refused
    if has_open_sizes(planning.graph, node) and moves_by_formula(planning.graph, node):
        return (Choice("movement"),)
    if not _is_mapped(planning.graph, node):
        return NoKernel("what moves where is computed, or too large to be listed while compiling")
    return (Choice("movement"),)


@plans(
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Pad",
    "ReverseSequence", "CenterCropPad", plan=plan_movement,
)  # fmt: skip
def place_movement(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Source, output; or an index table, source, output."""
    node = group.root
    is_open = has_open_sizes(lowering.graph, node)
    if isinstance(node.op, Transpose) and (is_open or _is_large(lowering.graph, node)):
        _permute(lowering, node, node.op)
        return
    if is_open and moves_by_formula(lowering.graph, node):
        place_by_formula(lowering, node)
        return
    for value, positions in zip(node.outputs, _positions(lowering.graph, node), strict=True):
        _move(lowering, node, value, positions)


def _permute(lowering: Lowering, node: Node, op: Transpose) -> None:
    """A transposition of a tensor that is too large for a list of positions: source, output."""
    x, y = (
        lowering.values.read_contiguous(node.inputs[0] or ""),
        lowering.values.write(node.outputs[0]),
    )
    rank, dtype = len(x.physical.shape), str(x.physical.type.dtype)
    order = tuple(range(rank))[::-1] if op.perm is None else op.perm
    read = Access(dtype, tuple(x.physical.strides[axis] for axis in order))
    written = Access(dtype, y.physical.strides)
    spec = LoopSpec(y.physical.shape, (read,), (written,), (Input(0, dtype),))
    lowering.calls.call(spec, [x, y], node.name or node.outputs[0])


def _is_mapped(graph: Graph, node: Node) -> bool:
    """Whether only the first input varies, and it is of a size that can be mapped."""
    if len(node.outputs) > MOST_PARTS:
        return False
    fixed = all(v is None or v in graph.constants for v in node.inputs[1:])
    small = isinstance(node.op, Transpose) or not _is_large(graph, node)
    return fixed and small and node.inputs[0] not in graph.constants


def _is_large(graph: Graph, node: Node) -> bool:
    """True if its positions are not listed while compiling."""
    types = [graph.types[v] for v in (node.inputs[0], *node.outputs) if v is not None]
    return any(math.prod(t.shape) > LIMIT for t in types)


def _positions(graph: Graph, node: Node) -> tuple[np.ndarray, ...]:
    """For each output element the position of its source element, -1 where a constant goes."""
    source = graph.types[node.inputs[0] or ""]
    arrays: list[Any] = [None if v is None else graph.constants.get(v) for v in node.inputs]
    arrays[0] = np.arange(math.prod(source.shape), dtype=np.int64).reshape(source.shape)
    if node.op.kind == "Pad":
        arrays = [*arrays, None, None][: max(3, len(arrays))]
        arrays[2] = np.array(-1, np.int64)
    elif node.op.kind == "CenterCropPad":
        arrays[0] = arrays[0] + 1  # it fills with zeros
    integer = source.with_dtype(DType.int64)
    types = (integer, *graph.input_types(node)[1:])
    outputs = tuple(t.with_dtype(DType.int64) for t in graph.output_types(node))
    outputs_ = as_tuple(node.op.reference(Evaluation(types, outputs), *arrays))
    shift = 1 if node.op.kind == "CenterCropPad" else 0
    return tuple(np.asarray(p, np.int64) - shift for p in outputs_)


def _move(lowering: Lowering, node: Node, value: str, positions: np.ndarray) -> None:
    source = lowering.values.read_contiguous(node.inputs[0] or "")
    if _is_piece(source, positions):
        offset = int(positions.reshape(-1)[0]) * source.physical.type.dtype.itemsize
        physical = Physical(lowering.graph.types[value])
        lowering.values.placed[value] = [
            Placed(physical, source.buffer, source.byte_offset + offset)
        ]
        return
    written = lowering.values.write(value)
    target = view(written)
    label = node.name or value
    holes = positions < 0
    if holes.any():
        filled = _fill_value(lowering.graph, node)
        lowering.calls.call(fill(written.physical, filled), [written], label)
        if holes.all():
            return
        box = _box(~holes)
        assert box is not None, "pads and crops keep an interval of every axis"
        target, positions = target.subview(box), positions[box]
    strided = strided_map(positions)
    if strided is not None:
        _copy(lowering, strided, source, target, label)
    else:
        _table(lowering, positions, source, target, label)


def _is_piece(source: Placed, positions: np.ndarray) -> bool:
    """Whether an output is a piece of the program's own memory, one element after the other."""
    flat = positions.reshape(-1)
    ours = source.buffer.space is not MemorySpace.io
    return ours and flat[0] >= 0 and np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size))


def _fill_value(graph: Graph, node: Node) -> np.ndarray:
    dtype = graph.types[node.inputs[0] or ""].dtype.numpy
    if node.op.kind == "Pad" and len(node.inputs) > 2 and node.inputs[2] is not None:
        return graph.constants[node.inputs[2]].reshape(-1)[:1]
    return np.zeros(1, dtype)


def _box(mask: np.ndarray) -> tuple[slice, ...] | None:
    """The slices of a mask that is true in one box and nowhere else."""
    if not mask.any():
        return None
    slices = []
    for axis in range(mask.ndim):
        other_axes = tuple(a for a in range(mask.ndim) if a != axis)
        hit = np.flatnonzero(mask.any(axis=other_axes))
        slices.append(slice(int(hit[0]), int(hit[-1]) + 1))
    box = tuple(slices)
    return box if mask[box].all() else None


def _copy(
    lowering: Lowering, strided: StridedMap, source: Placed, target: View, label: str
) -> None:
    dtype = str(source.physical.type.dtype)
    # The offset is the caller's: parts of one tensor that lie alike share a kernel.
    first = source.pointer
    begin = first.byte_offset + strided.offset * ELEMENT_SIZES[dtype]
    spec = LoopSpec(
        strided.dims,
        (Access(dtype, strided.strides),),
        (Access(dtype, strided.target_strides(target.strides)),),
        (Input(0, dtype),),
    )
    lowering.calls.call(spec, [Pointer(first.buffer, begin), target.pointer], label)


def _table(
    lowering: Lowering, positions: np.ndarray, source: Placed, target: View, label: str
) -> None:
    """Through a table of positions: of every element, or of where the last axes begin if their
    elements lie alike behind each beginning."""
    dtype, dims = str(source.physical.type.dtype), positions.shape
    begins, steps = beginnings(positions)
    table = lowering.weights.constant(begins.astype(np.int32))
    size = math.prod(source.physical.shape)
    still = (0,) * len(steps)
    spec = LoopSpec(
        dims,
        (
            Access("int32", (*table.physical.strides, *still)),
            Access(dtype, (*(0,) * begins.ndim, *steps), 0, (Lookup(0, size, 1, checked=False),)),
        ),
        (Access(dtype, target.strides),),
        (Input(1, dtype),),
    )
    lowering.calls.call(spec, [table, source, target.pointer], label)


def plan_triangle(planning: Planning, node: Node) -> Alternatives:
    """One alternative, where the number of the diagonal is a constant."""
    k = node.inputs[1] if len(node.inputs) > 1 else None
    if k is not None and k not in planning.graph.constants:
        return NoKernel("the diagonal is computed")
    return planning.refused(node, LoopSpec) or (Choice("triangle"),)


@plans("Trilu", plan=plan_triangle)
def place_triangle(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Row numbers, column numbers, source, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, Trilu)
    k = node.inputs[1] if len(node.inputs) > 1 else None
    x, y = lowering.values.read(node.inputs[0] or ""), lowering.values.write(node.outputs[0])
    shape, dtype = x.physical.shape, str(x.physical.type.dtype)
    requested = 0 if k is None else int(lowering.graph.constants[k].reshape(-1)[0])
    tables, accesses, diagonal_index = _diagonals(lowering, shape, group.label)
    m = TracingArith()
    keep = (m.ge if op.upper else m.le)(diagonal_index, m.const(_diagonal(requested), "int32"))
    spec = LoopSpec(
        shape,
        (*accesses, Access(dtype, x.physical.strides)),
        (Access(dtype, y.physical.strides),),
        (m.select(keep, Input(2, dtype), m.const(0, dtype)),),
    )
    lowering.calls.call(spec, [*tables, x, y], group.label)


def plan_eye(planning: Planning, node: Node) -> Alternatives:
    """One alternative; the type of the input does not matter."""
    return planning.refused_types([planning.graph.types[node.outputs[0]]], LoopSpec) or (
        Choice("identity matrix"),
    )


@plans("EyeLike", plan=plan_eye)
def place_eye(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Row numbers, column numbers, output; of the input its shape alone matters."""
    node, op = group.root, group.root.op
    assert isinstance(op, EyeLike)
    y = lowering.values.write(node.outputs[0])
    shape, dtype = y.physical.shape, str(y.physical.type.dtype)
    tables, accesses, diagonal_index = _diagonals(lowering, shape, group.label)
    m = TracingArith()
    result = m.select(
        m.eq(diagonal_index, m.const(_diagonal(op.k), "int32")),
        m.const(1, dtype),
        m.const(0, dtype),
    )
    spec = LoopSpec(shape, accesses, (Access(dtype, y.physical.strides),), (result,))
    lowering.calls.call(spec, [*tables, y], group.label)


def _diagonal(requested: int) -> int:
    """The number of a diagonal as an int32; beyond a matrix there is none."""
    ends = np.iinfo(np.int32)
    return min(max(requested, ends.min), ends.max)


def _diagonals(
    lowering: Lowering, shape: tuple[int, ...], label: str
) -> tuple[list[Pointer], tuple[Access, Access], Expr]:
    """Tables of rows and columns, as inputs 0 and 1 of a loop, and the number of the diagonal: how
    far the column is beyond the row."""
    tables = [iota(lowering, n, label) for n in shape[-2:]]
    rows, columns = (
        Access("int32", tuple(int(a == axis) for a in range(len(shape))))
        for axis in (len(shape) - 2, len(shape) - 1)
    )
    diagonal_index = TracingArith().sub(Input(1, "int32"), Input(0, "int32"))
    return tables, (rows, columns), diagonal_index


def plan_shape(planning: Planning, node: Node) -> Alternatives:
    """A constant: shapes are static here."""
    from_types = getattr(node.op, "from_types", None)
    content = (
        None if from_types is None else from_types(Inference(planning.graph.input_types(node)))
    )
    values = as_tuple(content)
    if values[0] is None or np.asarray(values[0]).dtype == object:
        return NoKernel("the shape is known only when it runs")
    return (Choice("constant", detail=np.asarray(values[0])),)


@plans("Shape", "Size", plan=plan_shape)
def place_shape(lowering: Lowering, group: Group, choice: Choice) -> None:
    """No call."""
    lowering.values.placed[group.output] = [lowering.weights.constant(choice.detail)]


def plan_constant_of_shape(planning: Planning, node: Node) -> Alternatives:
    """One alternative; the shape is known, whoever gave it."""
    type_ = planning.graph.types[node.outputs[0]]
    if type_.dtype.numpy.kind == "V":
        return NoKernel("constants of bfloat16 have no kernel")
    return planning.refused_types([type_], LoopSpec) or (Choice("fill"),)


@plans("ConstantOfShape", plan=plan_constant_of_shape)
def place_constant_of_shape(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Output."""
    node, op = group.root, group.root.op
    assert isinstance(op, ConstantOfShape)
    y = lowering.values.write(node.outputs[0])
    value = np.array(op.value).astype(y.physical.type.dtype.numpy)
    lowering.calls.call(fill(y.physical, value), [y], group.label)


def plan_range(planning: Planning, node: Node) -> Alternatives:
    """One alternative, for a modest number of elements."""
    if planning.graph.types[node.outputs[0]].shape[0] > LIMIT:
        return NoKernel("so many numbers are not listed while compiling")
    return planning.refused(node, LoopSpec) or (Choice("range"),)


@plans("Range", plan=plan_range)
def place_range(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Start, delta, numbers from 0 on, output: start + round(i * delta); how many is known."""
    node = group.root
    start, _, delta = (lowering.values.read(v or "") for v in node.inputs)
    y = lowering.values.write(node.outputs[0])
    numbers = iota(lowering, y.physical.shape[0], group.label)
    dtype = str(y.physical.type.dtype)
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    m = TracingArith()
    first, step, i = (m.convert(Input(k, t), wide) for k, t in enumerate((dtype, dtype, "int32")))
    spec = LoopSpec(
        y.physical.shape,
        (Access(dtype, (0,)), Access(dtype, (0,)), Access("int32", (1,))),
        (Access(dtype, (1,)),),
        (m.convert(m.add(first, m.mul(i, step)), dtype),),
    )
    lowering.calls.call(spec, [start, delta, numbers, y], group.label)


def plan_concat(planning: Planning, node: Node) -> Alternatives:
    """In blocks where all inputs are blocked and fill theirs; else in rows."""
    if len(node.inputs) > MOST_PARTS:
        return NoKernel(f"more than {MOST_PARTS} inputs")
    refused = planning.refused(node, LoopSpec)
    if refused is not None:
        return refused
    rows = Choice("concatenation")
    if not concatenates_blocks(planning.graph, node):
        return (rows,)
    indices = range(len(node.inputs))
    blocks = Choice(
        "concatenation",
        tuple((i, Layout.blocked, ()) for i in indices),
        output=Layout.blocked,
        blocked_inputs=tuple(indices),
    )
    return blocks, rows


@plans("Concat", plan=plan_concat)
def place_concat(lowering: Lowering, group: Group, choice: Choice) -> None:
    """One copy per input, into its part of the output; behind a growing cache, of what is new."""
    graph, node = lowering.graph, group.root
    if node.outputs[0] in lowering.values.layouts.blocked:
        concatenate_blocks(lowering, node)
        return
    output = graph.types[node.outputs[0]]
    axis = node.op.attributes()["axis"] % output.rank
    in_cache = lowering.values.append_to_cache(node)
    target = view(in_cache or lowering.values.write(node.outputs[0]))
    start = 0
    for i, value in enumerate(node.inputs):
        assert value is not None
        shape = graph.types[value].shape
        box = [slice(0, n) for n in output.shape]
        box[axis] = slice(start, start + shape[axis])
        start += shape[axis]
        if (in_cache and not i) or any(not is_counted(n) and n == 0 for n in shape):
            continue
        source, slot = view(lowering.values.read(value)), target.subview(tuple(box))
        label = node.name or node.outputs[0]
        lowering.calls.call(copy_view(source, slot), [source.pointer, slot.pointer], label)


def plan_gather(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    return planning.refused(node, LoopSpec) or (Choice("gather"),)


@plans("Gather", plan=plan_gather)
def place_gather(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Indices, data, output, and the flag that a bad index sets."""
    graph, node = lowering.graph, group.root
    data, index = (graph.types[v or ""] for v in node.inputs)
    axis = node.op.attributes()["axis"] % data.rank
    source = lowering.values.read(node.inputs[0] or "")
    indices = lowering.values.read(node.inputs[1] or "")
    target = lowering.values.write(node.outputs[0])
    steps = source.physical.strides
    dims = (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])
    inner = len(data.shape) - axis - 1
    dtype = str(data.dtype)
    index_strides = (*(0,) * axis, *indices.physical.strides, *(0,) * inner)
    data_strides = (*steps[:axis], *(0,) * index.rank, *steps[axis + 1 :])
    lookup = Lookup(0, data.shape[axis], steps[axis])
    spec = LoopSpec(
        dims,
        (
            Access(str(index.dtype), index_strides),
            Access(dtype, data_strides, 0, (lookup,)),
        ),
        (Access(dtype, target.physical.strides),),
        (Input(1, dtype),),
    )
    label = node.name or node.outputs[0]
    lowering.calls.call(spec, [indices, source, target, lowering.calls.flag(node.place)], label)
