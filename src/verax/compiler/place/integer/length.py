"""L2NormalizeInteger: the sum of a row's squares, its inverse root, each element's share."""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.numerics.expr import Input, TracingArith
from verax.ops.quantized.requantization import L2NormalizeInteger
from verax.ops.quantized.row_lengths import LONGEST, RowLength


def plan_length(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, type_ = node.op, planning.graph.types[node.inputs[0] or ""]
    assert isinstance(op, L2NormalizeInteger)
    info = np.iinfo(type_.dtype.numpy)
    if type_.shape[-1] >= LONGEST or not info.min <= op.zero_point <= info.max:
        return NoKernel(f"it takes rows shorter than {LONGEST}, and a zero point of the type")
    return planning.refused(node, ReduceSpec) or (Choice("integer L2 normalization"),)


@plans(L2NormalizeInteger, plan=plan_length)
def place_length(lowering: Lowering, group: Group, choice: Choice) -> None:
    """x, y."""
    node, op = group.root, group.root.op
    assert isinstance(op, L2NormalizeInteger)
    type_ = lowering.graph.types[node.inputs[0] or ""]
    *rows, length = type_.shape
    info, dtype = np.iinfo(type_.dtype.numpy), str(type_.dtype)
    m = TracingArith()
    steps = RowLength(m, op.zero_point, int(info.min), int(info.max))
    x = m.convert(Input(0, dtype), "int32")
    spec = ReduceSpec(
        (math.prod(rows),),
        (length,),
        (Access(dtype, (length, 1)),),
        (Stage("sum", steps.square(x), steps.inverse(Input(1, "int32"))),),
        (),
        ((Access(dtype, (length, 1)), m.convert(steps.result(x, Input(1, "int64")), dtype)),),
    )
    source = lowering.values.read_contiguous(node.inputs[0] or "")
    lowering.calls.call(spec, [source, lowering.values.write_contiguous(group.output)], group.label)
