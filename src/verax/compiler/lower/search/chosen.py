"""NonZero, Compress and Unique: kernels count what they find, and that many rows are the value."""

from __future__ import annotations

import math

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.search.chosen import KeptSpec, PlacesSpec, UniqueSpec
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.compiler.lower.movement.movement import lower_movement
from verax.compiler.lower.storage import Physical, Placed
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import Compress, NonZero, Unique

FARTHEST = (1 << 31) - 1
"""More elements than that have no kernel: a place is half of a number that is sorted."""


def _room(lowering: Lowering, dtype: DType, *shape: int) -> Placed:
    return lowering.allocate(Physical(TensorType(dtype, shape)))


def _name(dtype: DType) -> str:
    """As kernels read it: truth values are bytes."""
    return "uint8" if dtype is DType.bool_ else str(dtype)


def _of_known_size(lowering: Lowering, value: str) -> tuple[int, ...]:
    shape = lowering.graph.types[value].shape
    if not math.prod(shape):
        raise NoKernel("nothing to compute")
    if math.prod(shape) > FARTHEST:
        raise NoKernel("there are too many elements")
    return shape


@lowers(NonZero, counts=True)
def lower_non_zero(lowering: Lowering, group: Group) -> None:
    """Input, places, how many."""
    node = group.root
    source = node.inputs[0] or ""
    shape = _of_known_size(lowering, source)
    if not shape:
        raise NoKernel("a scalar has no places")
    x = lowering.read_contiguous(source)
    places = _room(lowering, DType.int64, len(shape), math.prod(shape))
    count = _room(lowering, DType.int64, 1)
    spec = PlacesSpec(shape, _name(x.physical.type.dtype))
    lowering.call(spec, [x, places, count], group.label)
    lowering.counted(node.outputs[0], places, count, group.label, axis=1)


@lowers(Compress, counts=True)
def lower_compress(lowering: Lowering, group: Group) -> None:
    """Input, conditions, rows, how many; a movement like others where the conditions are known."""
    node, op = group.root, group.root.op
    assert isinstance(op, Compress)
    source, condition = (v or "" for v in node.inputs[:2])
    if condition in lowering.graph.constants:
        lower_movement(lowering, group)
        return
    shape = _of_known_size(lowering, source)
    (conditions,) = lowering.graph.types[condition].shape
    if op.axis is None:
        shape, axis = (math.prod(shape),), 0
    else:
        axis = op.axis % len(shape)
    if not 0 < conditions <= shape[axis]:
        raise NoKernel("there are more conditions than rows, or none")
    x, holds = lowering.read_contiguous(source), lowering.read_contiguous(condition)
    dtype = x.physical.type.dtype
    rows = _room(lowering, dtype, *shape[:axis], conditions, *shape[axis + 1 :])
    count = _room(lowering, DType.int64, 1)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    spec = KeptSpec(outer, shape[axis], conditions, inner, _name(dtype))
    lowering.call(spec, [x, holds, rows, count], group.label)
    lowering.counted(node.outputs[0], rows, count, group.label, axis=axis)


@lowers(Unique, counts=True)
def lower_unique(lowering: Lowering, group: Group) -> None:
    """Input, scratch memory, values, first places, numbers, frequencies, how many."""
    node, op = group.root, group.root.op
    assert isinstance(op, Unique)
    source = node.inputs[0] or ""
    shape = _of_known_size(lowering, source)
    if op.axis is not None and len(shape) != 1:
        raise NoKernel("rows are compared")
    x = lowering.read_contiguous(source)
    size, dtype = math.prod(shape), x.physical.type.dtype
    spec = UniqueSpec(size, op.sorted, _name(dtype))
    values = _room(lowering, dtype, size)
    first, counts = (_room(lowering, DType.int64, size) for _ in range(2))
    numbers, count = lowering.write_contiguous(node.outputs[2]), _room(lowering, DType.int64, 1)
    scratch = lowering.scratch(spec.scratch_bytes)
    lowering.call(spec, [x, scratch, values, first, numbers, counts, count], group.label)
    for value, rows in zip((*node.outputs[:2], node.outputs[3]), (values, first, counts)):
        lowering.counted(value, rows, count, group.label)
