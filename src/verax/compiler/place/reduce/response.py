"""LRN: squares of neighboring channels, on a copy with channels of zeros before and after.

A zero adds nothing to a sum that began as +0, so that every channel has as many terms.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.place.copies import copy_view, fill, view
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import Physical
from verax.compiler.plan.choice import Alternatives, Choice, NoKernel, Planning, plans
from verax.compiler.plan.fusion import Group
from verax.ir.graph import Node
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.sums.response_normalization import LRN

M = TracingArith()
MAX_NEIGHBORS = 64
"""Neighbors that are added by code of their own each."""


def plan_response(planning: Planning, node: Node) -> Alternatives:
    """One alternative."""
    op, type_ = node.op, planning.graph.types[node.inputs[0] or ""]
    assert isinstance(op, LRN)
    neighbors = sum(min(n, type_.shape[1] - 1) for n in op.reach)
    floats = str(type_.dtype) in ("float32", "float64")
    if not floats or neighbors >= MAX_NEIGHBORS or 0 in type_.shape:
        return NoKernel("it takes float32 or float64, and a few neighbors")
    return planning.refused(node, LoopSpec) or (Choice("local response normalization"),)


@plans(LRN, plan=plan_response)
def place_response(lowering: Lowering, group: Group, choice: Choice) -> None:
    """Zeros, a copy among them, then one loop over its channels and their neighbors."""
    node, op = group.root, group.root.op
    assert isinstance(op, LRN)
    x = lowering.values.read_contiguous(node.inputs[0] or "")
    shape = x.physical.shape
    before, after = (min(n, shape[1] - 1) for n in op.reach)
    type_ = x.physical.type
    dtype = str(type_.dtype)
    batch, channels, space = shape[0], shape[1], math.prod(shape[2:])
    wide = channels + before + after
    padded = lowering.values.allocate(Physical(type_.with_dims((batch, wide, space))))
    label = group.label
    nothing = np.zeros(1, type_.dtype.numpy)
    lowering.calls.call(fill(padded.physical, nothing), [padded], f"{label}: zeros")
    inside = view(padded).subview(
        (slice(0, batch), slice(before, before + channels), slice(0, space))
    )
    source = dataclasses.replace(view(x), shape=inside.shape, strides=(channels * space, space, 1))
    copied = copy_view(source, inside)
    lowering.calls.call(copied, [source.pointer, inside.pointer], f"{label}: channels")
    total: Expr = M.const(0.0, dtype)
    inputs = []
    for j in range(before + 1 + after):
        inputs.append(Access(dtype, (wide * space, space, 1), j * space))
        total = M.fma(Input(j, dtype), Input(j, dtype), total)
    scalar = type_.dtype.numpy.type
    share = float(scalar(op.alpha) / scalar(op.size))
    base = M.fma(M.const(share, dtype), total, M.const(op.bias, dtype))
    result = M.div(Input(before, dtype), M.pow(base, M.const(op.beta, dtype)))
    y = lowering.values.write_contiguous(node.outputs[0])
    written = Access(dtype, (channels * space, space, 1))
    spec = LoopSpec((batch, channels, space), tuple(inputs), (written,), (result,))
    lowering.calls.call(spec, [*([padded] * len(inputs)), y], label)
