"""Softmax of bytes: the largest of a row, the sum of its exponentials, each element's share."""

from __future__ import annotations

import math

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.loops import Access
from verax.compiler.kernels.reduce import ReduceSpec, Stage
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.numerics.expr import Input, TracingArith
from verax.ops.quantized.exponentials import LONGEST, RowSoftmax
from verax.ops.quantized.requantization import SoftmaxInteger


@lowers(SoftmaxInteger)
def lower_softmax(lowering: Lowering, group: Group) -> None:
    """x, y."""
    graph, node = lowering.graph, group.root
    assert isinstance(node.op, SoftmaxInteger)
    type_, to = graph.types[node.inputs[0] or ""], graph.types[node.outputs[0]].dtype
    *rows, length = type_.shape
    if str(type_.dtype) == "int16" or length >= LONGEST:
        raise NoKernel(f"softmax takes bytes, in rows shorter than {LONGEST}")
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
    source = lowering.read_contiguous(node.inputs[0] or "")
    lowering.call(spec, [source, lowering.write_contiguous(group.output)], group.label)
