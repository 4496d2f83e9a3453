"""Kernels of integers that LiteRT computes in another way than it means them.

- Its optimized mean of bytes sums without zero points, and takes the input's zero point off at the
  end, as a whole number: every result of a node is moved by the same part of a step.
- XNNPACK's bilinear resize of bytes rounds the weights of the neighbors to 11 bits, from positions
  in float32, where the meaning has 10 bits; halves go up.
- Its optimized tanh and sigmoid of 16-bit numbers whose scale is a certain power of two go by steps
  on 16 bits (`fixed_point_words`), not by the table that is meant, and err by up to 12 units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.operator import Evaluation
from verax.numerics.fixed_point_words import stepped_sigmoid, stepped_tanh
from verax.ops.images.resize_integer import ResizeInteger, weighted
from verax.ops.pointwise.arithmetic import Sub
from verax.ops.quantized.requantization import Requantize
from verax.ops.sums.reduction import ReduceSum

Curve = Callable[[np.ndarray], np.ndarray]
Operands = Callable[[Sequence[Any]], list[Any]]
FINE_BITS = 11
WORDS = np.arange(-(2**15), 2**15)
TABLE_ERROR = 16
"""Units of 2^-15 by which a table of a curve may differ from it."""
STEPPED: tuple[tuple[int, Curve, Curve], ...] = (
    (0, np.tanh, stepped_tanh),
    (1, np.tanh, stepped_tanh),
    (0, lambda x: 1 / (1 + np.exp(-x)), stepped_sigmoid),
)
"""Curves that kernels compute by steps, of what is doubled so many times."""
_NOTHING = Evaluation((), ())


def share_apart(graph: Graph, node: Node) -> float:
    """Offset (in steps) of every unrounded result of a mean whose zero point's share is rounded by
    itself; 0 for other nodes."""
    sums = graph.producers.get(node.inputs[0] or "")
    if not isinstance(node.op, Requantize) or sums is None or not isinstance(sums.op, ReduceSum):
        return 0.0
    centered = graph.producers.get(sums.inputs[0] or "")
    constants = [graph.constants.get(v or "") for v in node.inputs[1:]]
    if (
        centered is None
        or not isinstance(centered.op, Sub)
        or any(k is None or k.ndim for k in constants)
    ):
        return 0.0
    zero = graph.constants.get(centered.inputs[1] or "")
    element_count, output_count = (
        graph.types[centered.outputs[0]].size,
        graph.types[sums.outputs[0]].size,
    )
    if (
        zero is None
        or zero.size != 1
        or not isinstance(element_count, int)
        or not isinstance(output_count, int)
    ):
        return 0.0
    multiplier, shift = (float(k) for k in constants if k is not None)
    share = float(zero) * element_count / max(output_count, 1) * multiplier * 2.0 ** (shift - 31)
    return share - float(np.copysign(np.floor(np.abs(share) + 0.5), share))


def mean_apart(op: Requantize, arrays: Sequence[Any], share: float) -> np.ndarray:
    """The result of a mean that `share` was added to."""
    (quantity,) = op.decides(_NOTHING, arrays)
    assert quantity is not None
    nearest = np.floor(quantity.real + share + 0.5)
    return np.clip(nearest, quantity.low, quantity.high).astype(op.output_dtype.numpy)


def finely_resized(op: ResizeInteger, x: np.ndarray) -> np.ndarray:
    """The result of a resize with weights of 11 bits."""
    tables = []
    for axis, size in zip(op.axes, op.sizes):
        length, corners = x.shape[axis], op.align_corners and size > 1
        step = np.float32((length - 1) / (size - 1) if corners else length / size)
        at = np.arange(size, dtype=np.float32) * step
        if op.half_pixel_centers:
            half = np.float32(0.5)
            at = np.clip((np.arange(size, dtype=np.float32) + half) * step - half, 0, length - 1)
        low = np.floor(at).astype(np.int64)
        weight = np.rint((at - low) * np.float32(1 << FINE_BITS)).astype(np.int64)
        tables.append((low, np.minimum(low + 1, length - 1), weight))
    total = weighted(x, op.axes, tables, FINE_BITS)
    return ((total + (1 << 2 * FINE_BITS - 1)) >> 2 * FINE_BITS).astype(x.dtype)


def stepped_lookup(graph: Graph, node: Node) -> Operands | None:
    """For a look-up in a table of tanh or sigmoid of 16-bit numbers, in units of 2^-12 (for tanh
    also of 2^-11): the node's operands with the table that steps on 16 bits give, as a function of
    its own."""
    index = {"Gather": 0, "LookupTable": 1}.get(node.op.kind)
    table = None if index is None else graph.constants.get(node.inputs[index] or "")
    if table is None or table.shape != WORDS.shape or table.dtype != np.int16:
        return None
    for shift, curve, steps in STEPPED:
        exact = curve(WORDS * 2.0 ** (shift - 12)) * 2**15
        if np.abs(table - exact).max() <= TABLE_ERROR:
            doubled = np.clip(WORDS << shift, -(2**15), 2**15 - 1)
            stepped = np.asarray(steps(doubled)).astype(np.int16)
            return lambda arrays: [stepped if i == index else a for i, a in enumerate(arrays)]
    return None
