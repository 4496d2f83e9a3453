"""Vector-Jacobian rule of attention (see `vjp`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.judge.regions.vjp_step import Array, VjpStep, derivative_of, unbroadcast
from verax.ops.common import constant
from verax.ops.sums.attention import PARTS, Attention


@derivative_of("Attention")
def attention(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Sensitivities of queries, keys, values and an added mask."""
    op: Attention = step.op
    mask = step.inputs[3] if len(step.inputs) > 3 else None
    q, k, v = op.operands(*step.inputs[:3])
    g, scale = op.result(gradients[0]), constant(step.ev, op.scale) / constant(step.ev, op.divisor)
    shares = op.shares(step.ev, q, k, mask)
    through = np.matmul(g, np.swapaxes(v, -1, -2))
    scores = shares * (through - np.sum(shares * through, axis=-1, keepdims=True))
    unmasked = scores * scale
    by_operand = {
        0: np.matmul(unmasked, k),
        1: np.matmul(np.swapaxes(unmasked, -1, -2), q),
        2: np.matmul(np.swapaxes(shares, -1, -2), g),
    }
    back = {
        i: _own(op, x, i, step.inputs[i].shape) for i, x in by_operand.items() if step.needed[i]
    }
    if mask is not None and step.needed[3]:
        back[3] = unbroadcast(scores, mask.shape)
    return step.spread(back)


def _own(op: Attention, gradient: Array, operand: int, shape: tuple[int, ...]) -> Array:
    """The gradient in the operand's shape, summed over heads and batches that share an element."""
    heads_inside = PARTS[operand] in op.heads_inside
    ordered = (*shape[:-3], shape[-2], shape[-3], shape[-1]) if heads_inside else shape
    if len(shape) > 2 and ordered[-3] not in (1, gradient.shape[-3]):
        *batch, heads, rows, features = gradient.shape
        own = ordered[-3]
        gradient = gradient.reshape(*batch, own, heads // own, rows, features).sum(axis=-3)
    gradient = unbroadcast(gradient, ordered)
    return np.swapaxes(gradient, -2, -3) if heads_inside else gradient
