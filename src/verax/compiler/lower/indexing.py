"""Elements read and written by computed indices, which kernels check: GatherElements, GatherND,
ScatterElements, ScatterND."""

from __future__ import annotations

import math

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.loops import Access, Lookup, LoopSpec
from verax.compiler.kernels.scatter import ScatterSpec
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.compiler.lower.storage import Placed
from verax.numerics.expr import Input
from verax.ops.movement.gather import GatherElements, GatherND
from verax.ops.movement.scatter import ScatterElements, ScatterND

CHUNK = 4096
"""Neighbouring elements of one place that a thread writes, where there is no other way to share."""


@lowers(GatherElements)
def lower_gather_elements(lowering: Lowering, group: Group) -> None:
    """Indices, data, output, and the flag that a bad index sets."""
    node, op = group.root, group.root.op
    assert isinstance(op, GatherElements)
    data, indices = (lowering.read(v or "") for v in node.inputs)
    y = lowering.write(node.outputs[0])
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
    lowering.call(spec, [indices, data, y, lowering.flag(node.place)], group.label)


@lowers(GatherND)
def lower_gather_nd(lowering: Lowering, group: Group) -> None:
    """Indices once for each axis that they point into, data, output, flag."""
    node, op = group.root, group.root.op
    assert isinstance(op, GatherND)
    data, indices = (lowering.read(v or "") for v in node.inputs)
    y = lowering.write(node.outputs[0])
    shape, steps = data.physical.shape, data.physical.strides
    *places, part = indices.physical.strides
    depth, b = indices.physical.shape[-1], op.batch_dims
    rest = (0,) * (len(shape) - b - depth)
    kind, dtype = str(indices.physical.type.dtype), str(data.physical.type.dtype)
    reads = [Access(kind, (*places, *rest), j * part) for j in range(depth)]
    lookups = tuple(Lookup(j, shape[b + j], steps[b + j]) for j in range(depth))
    middle = (0,) * (len(places) - b)
    source = Access(dtype, (*steps[:b], *middle, *steps[b + depth :]), 0, lookups)
    spec = LoopSpec(
        y.physical.shape,
        (*reads, source),
        (Access(dtype, y.physical.strides),),
        (Input(depth, dtype),),
    )
    flag = lowering.flag(node.place)
    lowering.call(spec, [*([indices] * depth), data, y, flag], group.label)


def _started(lowering: Lowering, group: Group) -> tuple[Placed, Placed, Placed]:
    """Indices, updates, and the output with the data in it."""
    graph, node = lowering.graph, group.root
    op = node.op
    assert isinstance(op, ScatterElements | ScatterND)
    type_ = graph.types[node.inputs[0] or ""]
    if op.reduction != "none":
        dtype = str(type_.dtype)
        if dtype in ("float16", "bfloat16", "bool"):
            raise NoKernel(f"{dtype} is combined through float64")
    if any(0 in graph.types[v or ""].shape for v in node.inputs):
        raise NoKernel("nothing to write")
    data = lowering.read(node.inputs[0] or "")
    indices, updates = (lowering.read_contiguous(v or "") for v in node.inputs[1:])
    y = lowering.write_contiguous(node.outputs[0])
    lowering.copy(data, y, f"{group.label}: data")
    return indices, updates, y


@lowers(ScatterElements)
def lower_scatter_elements(lowering: Lowering, group: Group) -> None:
    """Data copied; then indices, updates, output, flag. Along the axis updates keep their order."""
    node, op = group.root, group.root.op
    assert isinstance(op, ScatterElements)
    indices, updates, y = _started(lowering, group)
    dims, size = indices.physical.shape, y.physical.shape
    axis = op.axis % len(dims)
    steps, to = indices.physical.strides, list(y.physical.strides)
    lookup = (size[axis], to[axis])
    to[axis] = 0
    others = [a for a in range(len(dims)) if a != axis]
    last = others.pop() if others and axis != len(dims) - 1 else None
    order = [*others, axis]

    def strides(own: tuple[int, ...]) -> tuple[int, ...]:
        return (*(own[a] for a in order), 0 if last is None else own[last])

    spec = ScatterSpec(
        tuple(dims[a] for a in others),
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
    lowering.call(spec, [indices, updates, y, lowering.flag(node.place)], group.label)


@lowers(ScatterND)
def lower_scatter_nd(lowering: Lowering, group: Group) -> None:
    """Data copied; then indices, updates, output, flag. What an index names is shared out."""
    node, op = group.root, group.root.op
    assert isinstance(op, ScatterND)
    graph = lowering.graph
    if graph.types[node.inputs[2] or ""].shape != (
        *graph.types[node.inputs[1] or ""].shape[:-1],
        *graph.types[node.inputs[0] or ""].shape[graph.types[node.inputs[1] or ""].shape[-1] :],
    ):
        raise NoKernel("the shape of the updates does not fit")
    indices, updates, y = _started(lowering, group)
    depth = indices.physical.shape[-1]
    size, to = y.physical.shape, y.physical.strides
    slice_ = math.prod(size[depth:])
    chunk = CHUNK if slice_ % CHUNK == 0 else slice_
    places = math.prod(indices.physical.shape[:-1])
    spec = ScatterSpec(
        (slice_ // chunk,),
        (places,),
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
    lowering.call(spec, [indices, updates, y, lowering.flag(node.place)], group.label)
