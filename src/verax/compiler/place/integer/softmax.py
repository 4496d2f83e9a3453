"""Softmax of integers: the largest of a row, the sum of its exponentials, each element's share."""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical, Placed
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Input, TracingArith
from verax.ops.quantized.exponentials import LONGEST, RowSoftmax, TableSoftmax, between
from verax.ops.quantized.requantization import SoftmaxInteger, exp_table, reciprocal_table

I32 = "int32"


def plan_softmax(planning: Planning, node: Node) -> Alternatives:
    """By tables for 16 bits, else by a series of exponentials."""
    type_ = planning.graph.types[node.inputs[0] or ""]
    if type_.shape[-1] >= LONGEST:
        return NoKernel(f"softmax takes rows shorter than {LONGEST}")
    in_tables = type_.dtype is DType.int16
    name = "integer softmax by tables" if in_tables else "integer softmax"
    return planning.refused(node, ReduceSpec, LoopSpec) or (Choice(name),)


@plans(SoftmaxInteger, plan=plan_softmax)
def place_softmax(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, y."""
    graph, node = lowering.graph, group.root
    assert isinstance(node.op, SoftmaxInteger)
    type_, to = graph.types[node.inputs[0] or ""], graph.types[node.outputs[0]].dtype
    *rows, length = type_.shape
    if type_.dtype is DType.int16:
        _place_tables(lowering, group, math.prod(rows), length)
        return
    m, info = TracingArith(), np.iinfo(to.numpy)
    softmax = RowSoftmax(m, node.op.factor, int(info.min), int(info.max), info.bits)
    x = m.convert(Input(0, str(type_.dtype)), "int32")
    top, total = Input(1, "int32"), Input(2, "int32")
    stages = (
        Stage("max", x),
        Stage("sum", softmax.term(x, top), softmax.reciprocal(total)),
    )
    y = m.convert(softmax.result(x, top, Input(2, "int64")), str(to))
    spec = ReduceSpec(
        (math.prod(rows),),
        (length,),
        (Access(str(type_.dtype), (length, 1)),),
        stages,
        (),
        ((Access(str(to), (length, 1)), y),),
    )
    source = lowering.values.read_contiguous(node.inputs[0] or "")
    lowering.calls.call(spec, [source, lowering.values.write_contiguous(group.output)], group.label)


def _place_tables(lowering: Lowering, group: Group, rows: int, length: int) -> None:
    """Of 16 bits: where each element lies in the table of exponentials; the exponentials; where
    the row's sum lies in the table of reciprocals, and its shift; the reciprocals; the shares."""
    node, label = group.root, group.label
    assert isinstance(node.op, SoftmaxInteger)
    steps = TableSoftmax(TracingArith(), node.op.factor)

    def table(*shape: int) -> Placed:
        return lowering.values.allocate(Physical(TensorType(DType.int32, shape)))

    source = lowering.values.read_contiguous(node.inputs[0] or "")
    share = lowering.values.write_contiguous(group.output)
    indices, fractions, terms = (table(rows, length) for _ in range(3))
    row_where, row_rest, shifts, reciprocals = (table(rows) for _ in range(4))
    per_element, one = Access(I32, (length, 1)), Access(I32, (1,))
    index, fraction = steps.table_entry(Input(0, "int16"), Input(1, "int16"))
    highest = Stage("max", Input(0, "int16"))
    placing = ReduceSpec(
        (rows,),
        (length,),
        (Access("int16", (length, 1)),),
        (highest,),
        (),
        ((per_element, index), (per_element, fraction)),
    )
    lowering.calls.call(placing, [source, indices, fractions], f"{label}: places")
    _interpolate(lowering, exp_table(), indices, fractions, terms, f"{label}: exponentials")
    index, fraction, shift = steps.row(Input(1, I32))
    summing = ReduceSpec(
        (rows,),
        (length,),
        (per_element,),
        (Stage("sum", Input(0, I32)),),
        ((one, index), (one, fraction), (one, shift)),
    )
    lowering.calls.call(summing, [terms, row_where, row_rest, shifts], f"{label}: sums")
    row_operands = (row_where, row_rest, reciprocals)
    _interpolate(lowering, reciprocal_table(), *row_operands, f"{label}: reciprocals")
    wide = Access(I32, (1, 0))
    sharing = LoopSpec(
        (rows, length),
        (per_element, wide, wide),
        (Access("int16", (length, 1)),),
        (steps.share(*(Input(i, I32) for i in range(3))),),
    )
    lowering.calls.call(sharing, [terms, reciprocals, shifts, share], label)


def _interpolate(
    lowering: Lowering,
    entries: np.ndarray,
    indices: Placed,
    fractions: Placed,
    to: Placed,
    label: str,
) -> None:
    """`fixed_point.interpolated`, given the index and how far it is to the next entry."""
    shape, strides = indices.physical.shape, indices.physical.strides
    table = lowering.weights.constant(entries.astype(np.int32))
    lookups = (Lookup(0, len(entries) - 1, 1, checked=False),)
    still = (0,) * len(shape)
    inputs = (
        *(Access(I32, strides), Access(I32, strides)),
        *(Access(I32, still, ahead, lookups) for ahead in (0, 1)),
    )
    value = between(TracingArith(), Input(2, I32), Input(3, I32), Input(1, I32))
    spec = LoopSpec(shape, inputs, (Access(I32, to.physical.strides),), (value,))
    lowering.calls.call(spec, [indices, fractions, table, table, to], label)
