"""Maps y = x scale + shift along channels, and the operators that they commute with.

The algebra of `fold_scales`. For which numbers an operator f commutes with a map is a formula, and
`tests/compiler/passes/test_affine.py` proves each with exact rational numbers:

    f                              f(x) a + b = f(x a + b)          needs
    Relu, LeakyRelu, PRelu         max(x, 0) a = max(x a, 0)        a >= 0, b = 0
    MaxPool, GlobalMaxPool         max(x) a + b = max(x a + b)      a >= 0
    AveragePool, GlobalAveragePool mean(x) a + b = mean(x a + b)    b = 0 where padding is counted
    Clip(low, high)                clip(x) a + b = clip'(x a + b)   a > 0, one for all channels;
                                                                    bounds low a + b, high a + b
    Transpose                      moves the axis                   always
    Concat                         part by part                     always
    Add of two                     (x + y) a + b = (x a + b) + y a  always
    Pad with zeros                 0 a = 0                          b = 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sub
from verax.ops.sums.normalization import BatchNormalization

SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class AffineMap:
    """y = x scale + shift. scale, shift: float64, [c] along `axis`, or of no axis when `axis` is
    None: one number for all."""

    axis: int | None
    scale: np.ndarray
    shift: np.ndarray

    @property
    def is_scale(self) -> bool:
        """Whether nothing is added."""
        return not self.shift.any()

    @property
    def keeps_order(self) -> bool:
        """Whether larger numbers stay larger, or become equal."""
        return bool((self.scale >= 0).all())

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())

    def scale_only(self) -> AffineMap:
        return AffineMap(self.axis, self.scale, np.zeros_like(self.shift))

    def after(self, first: AffineMap) -> AffineMap | None:
        """The map that is `first` and then this; None when they run along different axes."""
        if None not in (self.axis, first.axis) and self.axis != first.axis:
            return None
        axis = self.axis if first.axis is None else first.axis
        shift = first.shift * self.scale + self.shift
        return AffineMap(axis, np.broadcast_to(first.scale * self.scale, shift.shape), shift)

    def along(self, axis: int | None) -> AffineMap:
        return self if self.axis is None else AffineMap(axis, self.scale, self.shift)

    def of_channels(self, begin: int, end: int) -> AffineMap:
        """The same map restricted to channels [begin, end)."""
        if self.axis is None:
            return self
        return AffineMap(self.axis, self.scale[begin:end], self.shift[begin:end])


def affine_of(graph: Graph, node: Node) -> tuple[str, AffineMap] | None:
    """(input, map) if the node computes x scale + shift of one float32 input with constants;
    None for any other node."""
    if graph.types[node.outputs[0]].dtype is not DType.float32 or len(node.outputs) != 1:
        return None
    if isinstance(node.op, BatchNormalization):
        return _of_batch_norm(graph, node)
    if not isinstance(node.op, Mul | Add | Sub | Div):
        return None
    first, second = node.inputs
    assert first is not None and second is not None
    for x, constant_name, swapped in ((first, second, False), (second, first, True)):
        constant = graph.constants.get(constant_name)
        if constant is None or x in graph.constants:
            continue
        axis_and_values = _along(graph, x, constant, node.outputs[0])
        if axis_and_values is None:
            return None
        axis, values = axis_and_values
        one, zero = np.ones_like(values), np.zeros_like(values)
        if isinstance(node.op, Mul):
            return x, AffineMap(axis, values, zero)
        if isinstance(node.op, Add):
            return x, AffineMap(axis, one, values)
        if isinstance(node.op, Sub):
            return x, AffineMap(axis, -one if swapped else one, values if swapped else -values)
        if swapped or not values.all():
            return None  # constant / x, or a division by zero
        return x, AffineMap(axis, 1 / values, zero)
    return None


def _of_batch_norm(graph: Graph, node: Node) -> tuple[str, AffineMap] | None:
    op, x = node.op, node.inputs[0]
    assert isinstance(op, BatchNormalization) and x is not None
    parameters = [graph.constants.get(v or "") for v in node.inputs[1:]]
    if op.training_mode or any(k is None for k in parameters):
        return None
    scale, bias, mean, variance = (k.astype(np.float64) for k in parameters if k is not None)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + op.epsilon)
        return x, AffineMap(1, factor, bias - mean * factor)


def _along(
    graph: Graph, x: str, constant: np.ndarray, result: str
) -> tuple[int | None, np.ndarray] | None:
    """(axis, values) of a constant that differs along one axis of x at most, and widens nothing."""
    dims = graph.types[x].dims
    if constant.ndim > len(dims) or graph.types[result].dims != dims:
        return None
    sizes = (1,) * (len(dims) - constant.ndim) + constant.shape
    wide = [axis for axis, n in enumerate(sizes) if n != 1]
    if len(wide) > 1:
        return None
    values = constant.astype(np.float64)
    return (wide[0], values.ravel()) if wide else (None, values.reshape(()))


def rounded(exact: np.ndarray) -> np.ndarray | None:
    """float64 numbers as float32, each within half a unit of its own; None where one overflows or
    loses digits below the normal numbers."""
    with np.errstate(all="ignore"):
        narrowed = exact.astype(np.float32)
    lost = (np.abs(narrowed) < SMALLEST_NORMAL) & (narrowed != exact)
    return None if bool(lost.any() or not np.isfinite(narrowed).all()) else narrowed
