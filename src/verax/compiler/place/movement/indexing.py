"""Elements read and written by computed indices, which kernels check: GatherElements, GatherND,
ScatterElements, ScatterND, MaxUnpool; and OneHot, which compares them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.kernels.search.scatter import SAVE, ScatterSpec, StateCopySpec
from verax.compiler.place.copies import copy_view, fill, view
from verax.compiler.place.lowering import Lowering, StateWrite
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.movement.gather import GatherElements, GatherND
from verax.ops.movement.generation import OneHot
from verax.ops.movement.scatter import ScatterElements, ScatterND
from verax.ops.windows.unpooling import MaxUnpool

CHUNK = 4096
"""Neighboring elements of one place that a thread writes, where there is no other way to share."""

M = TracingArith()


def plan_gather(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    return planning.refused(node, LoopSpec) or (Choice("gather"),)


@plans(GatherElements, plan=plan_gather)
def place_gather_elements(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Indices, data, output, and the flag that a bad index sets."""
    node, op = group.root, group.root.op
    assert isinstance(op, GatherElements)
    data, indices = (lowering.values.read(v or "") for v in node.inputs)
    y = lowering.values.write(node.outputs[0])
    shape, steps = data.physical.shape, list(data.physical.strides)
    axis = op.axis % len(shape)
    lookup = Lookup(0, shape[axis], steps[axis])
    steps[axis] = 0
    dtype = str(data.physical.type.dtype)
    spec = LoopSpec(
        y.physical.shape,
        (
            Access(str(indices.physical.type.dtype), indices.physical.strides),
            Access(dtype, tuple(steps), 0, (lookup,)),
        ),
        (Access(dtype, y.physical.strides),),
        (Input(1, dtype),),
    )
    lowering.calls.call(spec, [indices, data, y, lowering.calls.flag(node.place)], group.label)


@plans(GatherND, plan=plan_gather)
def place_gather_nd(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Indices once for each axis that they point into, data, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, GatherND)
    data, indices = (lowering.values.read(v or "") for v in node.inputs)
    y = lowering.values.write(node.outputs[0])
    shape, steps = data.physical.shape, data.physical.strides
    *index_strides, coordinate_stride = indices.physical.strides
    depth, b = indices.physical.shape[-1], op.batch_dims
    inner_zeros = (0,) * (len(shape) - b - depth)
    kind, dtype = str(indices.physical.type.dtype), str(data.physical.type.dtype)
    reads = [
        Access(kind, (*index_strides, *inner_zeros), j * coordinate_stride) for j in range(depth)
    ]
    lookups = tuple(Lookup(j, shape[b + j], steps[b + j]) for j in range(depth))
    middle = (0,) * (len(index_strides) - b)
    source = Access(dtype, (*steps[:b], *middle, *steps[b + depth :]), 0, lookups)
    spec = LoopSpec(
        y.physical.shape,
        (*reads, source),
        (Access(dtype, y.physical.strides),),
        (Input(depth, dtype),),
    )
    flag = lowering.calls.flag(node.place)
    lowering.calls.call(spec, [*([indices] * depth), data, y, flag], group.label)


def plan_scatter(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, types = node.op, [planning.graph.types[v or ""] for v in node.inputs]
    assert isinstance(op, ScatterElements | ScatterND)
    data, indices, updates = types
    if isinstance(op, ScatterND):
        slice_ = data.shape[indices.shape[-1] :]
        if updates.shape != (*indices.shape[:-1], *slice_):
            return NoKernel("the shape of the updates does not fit")
    if op.reduction != "none" and str(data.dtype) in ("float16", "bfloat16", "bool"):
        return NoKernel(f"{data.dtype} is combined through float64")
    if any(0 in t.shape for t in types):
        return NoKernel("nothing to write")
    return planning.refused(node, ScatterSpec, LoopSpec) or (Choice("scatter"),)


def _started(lowering: Lowering, group: Group) -> tuple[Placed, Placed, Placed]:
    """Indices, updates, and the output with the data in it. State that is written in place has it
    already, and so have data that nothing else reads."""
    node = group.root
    data = lowering.values.read(node.inputs[0] or "")
    indices, updates = (lowering.values.read_contiguous(v or "") for v in node.inputs[1:])
    overwritten = lowering.values.overwrite(node)
    if overwritten is not None:
        return indices, updates, overwritten
    y = lowering.values.write_contiguous(node.outputs[0])
    label = f"{group.label}: data"
    if _writes_state_in_place(lowering, node):
        type_ = data.physical.type
        copy = StateCopySpec(math.prod(type_.shape), str(type_.dtype))
        lowering.calls.call(copy, [data, y], label)
    else:
        lowering.calls.copy(data, y, label)
    return indices, updates, y


def _writes_state_in_place(lowering: Lowering, node: Node) -> bool:
    """True if the node makes the new value of a state that nothing else reads: then both may be one
    array, as no reader of the old value runs after the writing."""
    graph, data = lowering.graph, node.inputs[0] or ""
    return (
        graph.state.get(data) == node.outputs[0]
        and graph.consumers[data] == (node,)
        and data not in graph.outputs
    )


def _scatter(
    lowering: Lowering, group: Group, spec: ScatterSpec, arguments: Sequence[Placed]
) -> None:
    """The call; where it writes state in place, the old elements are saved before, to be restored
    if a check of the run fails."""
    indices, updates, y = arguments
    flag = lowering.calls.flag(group.root.place)
    if _writes_state_in_place(lowering, group.root):
        saved = lowering.values.allocate(updates.physical)
        save = dataclasses.replace(spec, combine=SAVE)
        lowering.calls.call(save, [indices, saved, y, flag], f"{group.label}: old elements")
        restore = dataclasses.replace(spec, combine="none")
        lowering.written_state.append(
            StateWrite(group.root.inputs[0] or "", restore, (indices, saved, y), flag)
        )
    lowering.calls.call(spec, [*arguments, flag], group.label)


@plans(ScatterElements, plan=plan_scatter)
def place_scatter_elements(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Data copied; then indices, updates, output, flag. Along the axis updates keep their order."""
    op = group.root.op
    assert isinstance(op, ScatterElements)
    indices, updates, y = _started(lowering, group)
    dims, size = indices.physical.shape, y.physical.shape
    axis = op.axis % len(dims)
    steps, to = indices.physical.strides, list(y.physical.strides)
    lookup = (size[axis], to[axis])
    to[axis] = 0
    other_axes = [a for a in range(len(dims)) if a != axis]
    last = other_axes.pop() if other_axes and axis != len(dims) - 1 else None
    order = [*other_axes, axis]

    def strides(own: tuple[int, ...]) -> tuple[int, ...]:
        return (*(own[a] for a in order), 0 if last is None else own[last])

    spec = ScatterSpec(
        tuple(dims[a] for a in other_axes),
        (dims[axis],),
        1 if last is None else dims[last],
        strides(steps),
        strides(updates.physical.strides),
        strides(tuple(to)),
        (lookup,),
        0,
        op.reduction,
        str(indices.physical.type.dtype),
        str(y.physical.type.dtype),
    )
    _scatter(lowering, group, spec, (indices, updates, y))


@plans(ScatterND, plan=plan_scatter)
def place_scatter_nd(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Data copied; then indices, updates, output, flag. What an index names is shared out."""
    op = group.root.op
    assert isinstance(op, ScatterND)
    indices, updates, y = _started(lowering, group)
    depth = indices.physical.shape[-1]
    size, to = y.physical.shape, y.physical.strides
    slice_ = math.prod(size[depth:])
    chunk = CHUNK if slice_ % CHUNK == 0 else slice_
    index_count = math.prod(indices.physical.shape[:-1])
    spec = ScatterSpec(
        (slice_ // chunk,),
        (index_count,),
        chunk,
        (0, depth, 0),
        (chunk, slice_, 1),
        (chunk, 0, 1),
        tuple((size[j], to[j]) for j in range(depth)),
        1,
        op.reduction,
        str(indices.physical.type.dtype),
        str(y.physical.type.dtype),
    )
    _scatter(lowering, group, spec, (indices, updates, y))


def plan_unpool(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, type_ = node.op, planning.graph.types[node.inputs[0] or ""]
    assert isinstance(op, MaxUnpool)
    inner = TensorType(type_.dtype, op.unpooled_dims(type_.shape)).shape
    output = planning.graph.types[node.outputs[0]].shape
    if any(a > b for a, b in zip(inner, output)) or 0 in type_.shape:
        return NoKernel("the output is too small, or the input is empty")
    return planning.refused_types([type_], ScatterSpec, LoopSpec) or (Choice("max unpooling"),)


@plans(MaxUnpool, plan=plan_unpool)
def place_unpool(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Zeros; then indices, updates, output, flag; the output in its place where it is larger."""
    node, op = group.root, group.root.op
    assert isinstance(op, MaxUnpool)
    x, indices = (lowering.values.read_contiguous(v or "") for v in node.inputs[:2])
    type_ = x.physical.type
    inner = TensorType(type_.dtype, op.unpooled_dims(type_.shape))
    y = lowering.values.write_contiguous(node.outputs[0])
    same = inner.shape == y.physical.shape
    unpooled = y if same else lowering.values.allocate(Physical(inner))
    dtype, zero = str(type_.dtype), np.zeros(1, type_.dtype.numpy)
    lowering.calls.call(fill(unpooled.physical, zero), [unpooled], f"{group.label}: zeros")
    count = math.prod(type_.shape)
    spec = ScatterSpec(
        (), (count,), 1, (1, 0), (1, 0), (0, 0), ((math.prod(inner.shape), 1),), 0, "none",
        "int64", dtype, wraps=False,
    )  # fmt: skip
    lowering.calls.call(spec, [indices, x, unpooled, lowering.calls.flag(node.place)], group.label)
    if not same:
        lowering.calls.call(fill(y.physical, zero), [y], f"{group.label}: more zeros")
        interior = view(y).subview([slice(0, n) for n in inner.shape])
        copied = copy_view(view(unpooled), interior)
        lowering.calls.call(copied, [unpooled, interior.pointer], f"{group.label}: into its place")


def plan_one_hot(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, kind = node.op, planning.graph.types[node.inputs[0] or ""].dtype
    assert isinstance(op, OneHot)
    output = planning.graph.types[node.outputs[0]]
    depth = output.shape[op.axis % output.rank]
    if kind is DType.bool_ or (kind.is_integer and kind.itemsize < 4 and depth > 127):
        return NoKernel("indices of that type cannot name all positions")
    types = [planning.graph.types[node.inputs[i] or ""] for i in (0, 2)]
    return planning.refused_types([*types, output], LoopSpec) or (Choice("one-hot"),)


@plans(OneHot, plan=plan_one_hot)
def place_one_hot(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Indices, positions along the new axis, off, on, output."""
    node, op = group.root, group.root.op
    assert isinstance(op, OneHot)
    indices, values = (lowering.values.read(node.inputs[i] or "") for i in (0, 2))
    y = lowering.values.write(node.outputs[0])
    shape = y.physical.shape
    axis, kind = op.axis % len(shape), indices.physical.type.dtype
    depth, dtype = shape[axis], str(y.physical.type.dtype)
    steps = list(indices.physical.strides)
    steps.insert(axis, 0)
    table = lowering.weights.constant(np.arange(depth, dtype=np.int64))
    along = tuple(int(a == axis) for a in range(len(shape)))
    index: Expr = Input(0, str(kind))
    signed = kind.is_float or kind.numpy.kind == "i"
    if signed:
        negative = M.lt(index, M.like(0, index))
        index = M.select(negative, M.add(index, M.like(depth, index)), index)
    compared = "float64" if kind.is_float else "int64"
    hot = M.eq(M.convert(index, compared), M.convert(Input(1, "int64"), compared))
    nothing = (0,) * len(shape)
    spec = LoopSpec(
        shape,
        (
            Access(str(kind), tuple(steps)),
            Access("int64", along),
            Access(dtype, nothing),
            Access(dtype, nothing, values.physical.strides[0]),
        ),
        (Access(dtype, y.physical.strides),),
        (M.select(hot, Input(3, dtype), Input(2, dtype)),),
    )
    lowering.calls.call(spec, [indices, table, values, values, y], group.label)
