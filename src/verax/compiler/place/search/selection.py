"""NonZero, Compress and Unique: kernels count what they find, and that many rows are the value."""

from __future__ import annotations

import math

from verax.compiler.kernels.search.chosen import KeptSpec, PlacesSpec, UniqueSpec
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.movement.movement import place_movement, plan_movement
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import (
    MOVING,
    Alternatives,
    Choice,
    NoKernel,
    Planning,
    plans,
)
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import Compress, NonZero, Unique

FARTHEST = (1 << 31) - 1
"""More elements than that have no kernel: a place is half of a number that is sorted."""


def _room(lowering: Lowering, dtype: DType, *shape: int) -> Placed:
    return lowering.values.allocate(Physical(TensorType(dtype, shape)))


def _name(dtype: DType) -> str:
    """As kernels read it: truth values are bytes."""
    return "uint8" if dtype is DType.bool_ else str(dtype)


def _refused(planning: Planning, node: Node, spec: type) -> NoKernel | None:
    """`NoKernel` for inputs that are empty or too large, or of unknown element types."""
    type_ = planning.graph.types[node.inputs[0] or ""]
    if not math.prod(type_.shape):
        return NoKernel("nothing to compute")
    if math.prod(type_.shape) > FARTHEST:
        return NoKernel("there are too many elements")
    return planning.refused_names([_name(type_.dtype), str(DType.int64)], spec)


def plan_non_zero(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    refused = _refused(planning, node, PlacesSpec)
    if refused is None and not planning.graph.types[node.inputs[0] or ""].shape:
        return NoKernel("a scalar has no places")
    return refused or (Choice("nonzero"),)


@plans(NonZero, plan=plan_non_zero)
def place_non_zero(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, places, how many."""
    node = group.root
    source = node.inputs[0] or ""
    shape = lowering.graph.types[source].shape
    x = lowering.values.read_contiguous(source)
    positions = _room(lowering, DType.int64, len(shape), math.prod(shape))
    count = _room(lowering, DType.int64, 1)
    spec = PlacesSpec(shape, _name(x.physical.type.dtype))
    lowering.calls.call(spec, [x, positions, count], group.label)
    lowering.counted(node.outputs[0], positions, count, group.label, axis=1)


def plan_compress(planning: Planning, node: Node) -> Alternatives:
    """A movement like others where the conditions are known; else counted. The detail of the latter
    is the shape, flat where no axis is given, and the axis."""
    op, (source, condition) = node.op, (v or "" for v in node.inputs[:2])
    assert isinstance(op, Compress)
    if condition in planning.graph.constants:
        outputs = planning.graph.output_types(node)
        if not all(t.is_static for t in outputs):
            return NoKernel(MOVING)
        return plan_movement(planning, node)
    refused = _refused(planning, node, KeptSpec)
    if refused is not None:
        return refused
    shape, (conditions,) = (planning.graph.types[v].shape for v in (source, condition))
    axis = 0 if op.axis is None else op.axis % len(shape)
    shape = (math.prod(shape),) if op.axis is None else shape
    if not 0 < conditions <= shape[axis]:
        return NoKernel("there are more conditions than rows, or none")
    return (Choice("compress", detail=(shape, axis)),)


@plans(Compress, plan=plan_compress)
def place_compress(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, conditions, rows, how many; a movement like others where the conditions are known."""
    node = group.root
    source, condition = (v or "" for v in node.inputs[:2])
    if condition in lowering.graph.constants:
        place_movement(lowering, group, choice)
        return
    shape, axis = choice.detail
    (conditions,) = lowering.graph.types[condition].shape
    x, holds = lowering.values.read_contiguous(source), lowering.values.read_contiguous(condition)
    dtype = x.physical.type.dtype
    rows = _room(lowering, dtype, *shape[:axis], conditions, *shape[axis + 1 :])
    count = _room(lowering, DType.int64, 1)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    spec = KeptSpec(outer, shape[axis], conditions, inner, _name(dtype))
    lowering.calls.call(spec, [x, holds, rows, count], group.label)
    lowering.counted(node.outputs[0], rows, count, group.label, axis=axis)


def plan_unique(planning: Planning, node: Node) -> Alternatives:
    """One alternative, for elements and not for rows."""
    assert isinstance(node.op, Unique)
    refused = _refused(planning, node, UniqueSpec)
    rank = planning.graph.types[node.inputs[0] or ""].rank
    if refused is None and node.op.axis is not None and rank != 1:
        return NoKernel("rows are compared")
    return refused or (Choice("unique"),)


@plans(Unique, plan=plan_unique)
def place_unique(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Input, scratch memory, values, first places, numbers, frequencies, how many."""
    node, op = group.root, group.root.op
    assert isinstance(op, Unique)
    source = node.inputs[0] or ""
    shape = lowering.graph.types[source].shape
    x = lowering.values.read_contiguous(source)
    size, dtype = math.prod(shape), x.physical.type.dtype
    spec = UniqueSpec(size, op.sorted, _name(dtype))
    values = _room(lowering, dtype, size)
    first, counts = (_room(lowering, DType.int64, size) for _ in range(2))
    numbers, count = (
        lowering.values.write_contiguous(node.outputs[2]),
        _room(lowering, DType.int64, 1),
    )
    scratch = lowering.values.scratch(spec.scratch_bytes)
    lowering.calls.call(spec, [x, scratch, values, first, numbers, counts, count], group.label)
    for value, rows in zip((*node.outputs[:2], node.outputs[3]), (values, first, counts)):
        lowering.counted(value, rows, count, group.label)
