"""LRN: squares of neighbouring channels, on a copy with channels of zeros before and after.

A zero adds nothing to a sum that began as +0, so that every channel has as many terms.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from verax.compiler.decide.fusion import Group
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.lower.copies import copy_view, fill, view
from verax.compiler.lower.lowering import Lowering, NoKernel, lowers
from verax.compiler.lower.storage import Physical
from verax.ir.types import DType, TensorType
from verax.numerics.expr import Expr, Input, TracingArith
from verax.ops.sums.response_normalization import LRN

F32 = "float32"
M = TracingArith()
MOST = 64
"""Neighbours that are added by code of their own each."""


@lowers(LRN)
def lower_response(lowering: Lowering, group: Group) -> None:
    """Zeros, a copy among them, then one loop over its channels and their neighbours."""
    node, op = group.root, group.root.op
    assert isinstance(op, LRN)
    x = lowering.read_contiguous(node.inputs[0] or "")
    shape = x.physical.shape
    before, after = (min(n, shape[1] - 1) for n in op.reach)
    if x.physical.type.dtype is not DType.float32 or before + after >= MOST or 0 in shape:
        raise NoKernel("it takes float32 and a few neighbours")
    batch, channels, space = shape[0], shape[1], math.prod(shape[2:])
    wide = channels + before + after
    padded = lowering.allocate(Physical(TensorType(DType.float32, (batch, wide, space))))
    label = group.label
    lowering.call(fill(padded.physical, np.zeros(1, np.float32)), [padded], f"{label}: zeros")
    inside = view(padded).part((slice(0, batch), slice(before, before + channels), slice(0, space)))
    source = dataclasses.replace(view(x), shape=inside.shape, strides=(channels * space, space, 1))
    copied = copy_view(source, inside)
    lowering.call(copied, [source.pointer, inside.pointer], f"{label}: channels")
    total: Expr = M.const(0.0, F32)
    inputs = []
    for j in range(before + 1 + after):
        inputs.append(Access(F32, (wide * space, space, 1), j * space))
        total = M.fma(Input(j, F32), Input(j, F32), total)
    share = float(np.float32(op.alpha) / np.float32(op.size))
    base = M.fma(M.const(share, F32), total, M.const(op.bias, F32))
    result = M.div(Input(before, F32), M.pow(base, M.const(op.beta, F32)))
    y = lowering.write_contiguous(node.outputs[0])
    written = Access(F32, (channels * space, space, 1))
    spec = LoopSpec((batch, channels, space), tuple(inputs), (written,), (result,))
    lowering.call(spec, [*([padded] * len(inputs)), y], label)
