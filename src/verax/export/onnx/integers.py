"""Windows over integers (convolutions, means) in ONNX's operators, with exactly the same integers.

A float32 sum of whole numbers is exact in any order while all that could be added stays within
2^24. Where it could not, the data is cut into digits whose sums stay within.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    numbered_pads,
    plain,
    spelled,
    written_for,
)
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.onnx_format.package import numpy_helper
from verax.ops.quantized.requantization import AveragePoolInteger
from verax.ops.windows.integer_convolution import ConvTransposeInteger

EXACT_SUM = 2**24
"""Up to here every integer is a float32."""
EXACT_MEAN = 2**21
"""Sums up to here are found again from their float32 mean: three roundings stay below a half."""
WINDOW = ("kernel_shape", "strides", "pads", "dilations", "groups", "output_padding")
"""Attributes that say where a window lies."""


@written_for("ConvInteger")
def conv_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX's ConvInteger on unsigned bytes where it can be, else sums of floats.

    ONNX Runtime multiplies signed weights by an instruction that saturates on processors without
    VNNI; products of two unsigned operands are exact everywhere.
    """
    g = NodeGroup(node, graph)
    in_32_bits = node.op.attributes()["output_dtype"] is DType.int32
    one_zero = not g.has(3) or g.type(3).rank == 0
    if in_32_bits and one_zero and g.type(0).dtype is DType.uint8:
        return plain(node, graph, version, output_dtype=None)
    if not in_32_bits or g.type(0).dtype.itemsize > 1:
        return _float_sums(g, "Conv", 0)
    weights = _unsigned_weights(g)
    if weights is None:
        return _float_sums(g, "Conv", 0)
    data = _unsigned(g, 0), _unsigned(g, 2) if g.has(2) else _byte_zero(g, 0)
    inputs = data[0], weights[0], data[1], weights[1]
    return g.finish(g.add("ConvInteger", *inputs, **_window(node.op)))


@written_for("BlockScaledMatMul")
def block_scaled_product(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The sums of blocks in float64, where they are exact, the rest in float32."""
    g = NodeGroup(node, graph)
    rank, (blocks, size), (k, n) = g.type(0).rank, g.type(0).dims[-2:], g.type(2).dims
    if not (isinstance(blocks, int) and isinstance(size, int) and isinstance(k, int)):
        return g.refuse("whose blocks are counted while the network runs has no ONNX form")
    lead = [0] * (rank - 2)
    weights = g.cast(g.input(2), DType.float64)
    if g.has(4):
        zeros = g.cast(g.input(4), DType.float64)
        rows = g.add("Gather", zeros, g.constant(np.arange(k) // size))
        weights = g.add("Sub", weights, rows)
    if k != blocks * size:
        weights = g.add("Pad", weights, g.constant([0, 0, blocks * size - k, 0]))
    weights = g.add("Reshape", weights, g.constant([blocks, size, n]))
    x = g.cast(g.input(0), DType.float64)
    x = g.add("Reshape", x, g.constant([*lead, blocks, 1, size]))
    sums = g.add("Reshape", g.add("MatMul", x, weights), g.constant([*lead, blocks, n]))
    scales = g.add("Mul", g.input(1), g.input(3))
    terms = g.add("Mul", g.cast(sums, DType.float32), scales)
    axes = [rank - 2]
    if version < 13:
        return g.finish(g.add("ReduceSum", terms, axes=axes, keepdims=0))
    return g.finish(g.add("ReduceSum", terms, g.constant(axes), keepdims=0))


@written_for("ConvTransposeInteger")
def conv_transpose_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Float sums: there is no such operator for integers."""
    assert isinstance(node.op, ConvTransposeInteger)
    return _float_sums(NodeGroup(node, graph), "ConvTranspose", 1)


def _window(op: Any) -> dict[str, Any]:
    """Attributes of a window operator as ONNX spells them."""
    attributes: dict[str, Any] = {}
    for name, value in op.attributes().items():
        if name in WINDOW:
            attributes |= spelled(name, value)
    return attributes


def _unsigned(g: NodeGroup, index: int) -> str:
    """Input `index`, bytes with sign raised by 128 into uint8."""
    if g.type(index).dtype is DType.uint8:
        return g.input(index)
    content = g.constant_input(index)
    if content is not None:
        return g.constant(content.astype(np.int16) + 128, np.uint8)
    raised = g.add("Add", g.cast(g.input(index), DType.int32), g.constant(128, np.int32))
    return g.cast(raised, DType.uint8)


def _byte_zero(g: NodeGroup, index: int) -> str:
    """What zero of input `index` is in `_unsigned`."""
    return g.constant(0 if g.type(index).dtype is DType.uint8 else 128, np.uint8)


def _unsigned_weights(g: NodeGroup) -> tuple[str, str] | None:
    """Weights as uint8 and their one zero point; None when one does not suffice."""
    if not g.has(3) or g.type(3).rank == 0:
        return _unsigned(g, 1), _unsigned(g, 3) if g.has(3) else _byte_zero(g, 1)
    centered = _known_weights(g, 0)
    if centered is None or centered.min(initial=0) < -128 or centered.max(initial=0) > 127:
        return None
    return g.constant(centered + 128, np.uint8), g.constant(128, np.uint8)


def _known_weights(g: NodeGroup, axis: int) -> np.ndarray | None:
    """Weights less their zero points, int64, when both are constants. axis: of output channels."""
    weights = g.constant_input(1)
    zero = g.constant_input(3) if g.has(3) else np.zeros((), np.int64)
    if weights is None or zero is None:
        return None
    lanes = [-1 if a == axis else 1 for a in range(weights.ndim)] if zero.ndim else []
    return weights.astype(np.int64) - zero.astype(np.int64).reshape(lanes)


def _float_sums(g: NodeGroup, kind: str, axis: int) -> OnnxEmission:
    """The float operator `kind` on centered data and weights, cut into digits where sums of whole
    numbers could exceed 2^24. axis: of the output channels in the weights."""
    largest = _largest_sum(g, axis)
    if largest is None:
        return g.refuse("of weights of unknown size has no ONNX form")
    bits = (EXACT_SUM // max(largest, 1)).bit_length() - 1
    if bits < 1:
        return g.refuse(f"adds up to {largest} weights per number: ONNX has no exact sum of those")
    data = _centered(g, 0, 2, [])
    lanes = [-1 if a == axis else 1 for a in range(g.type(1).rank)]
    weights = _centered(g, 1, 3, lanes)
    attributes = _window(g.node.op)
    to: DType = g.node.op.attributes()["output_dtype"]
    digits = _digits(g, data, _magnitude(g, 0, 2), bits)
    sums = [g.add(kind, digit, weights, **attributes) for digit in digits]
    return g.finish(g.cast(_from_digits(g, sums, bits), to))


def _largest_sum(g: NodeGroup, axis: int) -> int | None:
    """A bound on the sum of magnitudes of the weights that meet in one result."""
    weights = _known_weights(g, axis)
    if not g.type(1).is_static:
        return None
    dims = g.type(1).shape
    if weights is None:
        return _magnitude(g, 1, 3) * int(np.prod(dims)) // max(dims[axis], 1)
    groups = g.node.op.attributes()["groups"]
    if axis == 0:
        sums = np.abs(weights).reshape(len(weights), -1).sum(1)
    else:
        sums = np.abs(weights).reshape(groups, -1, weights.shape[1], int(np.prod(dims[2:])))
        sums = sums.sum((1, 3))
    return int(sums.max(initial=0))


def _magnitude(g: NodeGroup, index: int, zero: int) -> int:
    """A bound on input `index` less its zero point."""
    info = np.iinfo(g.type(index).dtype.numpy)
    zero_point = g.constant_input(zero) if g.has(zero) else np.zeros(1, np.int64)
    if zero_point is None:
        return int(info.max) - int(info.min)
    return max(int(info.max) - int(zero_point.min()), int(zero_point.max()) - int(info.min))


def _centered(g: NodeGroup, index: int, zero: int, lanes: list[int]) -> str:
    """Input `index` less its zero point, float32. lanes: shape of a zero point per channel."""
    value = g.cast(g.input(index), DType.float32)
    zero_point = g.constant_input(zero) if g.has(zero) else np.zeros((), np.int64)
    if zero_point is not None and not zero_point.any():
        return value
    less = g.cast(g.input(zero), DType.float32)
    if g.type(zero).rank:
        less = g.add("Reshape", less, g.constant(lanes))
    return g.add("Sub", value, less)


def _digits(g: NodeGroup, value: str, magnitude: int, bits: int) -> list[str]:
    """Whole numbers in float32 as digits of `bits` bits, the lowest first, the last one signed."""
    digits = []
    base = g.constant(2.0**bits, np.float32)
    while magnitude > 2**bits:
        high = g.add("Floor", g.add("Div", value, base))
        digits.append(g.add("Sub", value, g.add("Mul", high, base)))
        value, magnitude = high, -(-magnitude // 2**bits)
    return [*digits, value]


def _from_digits(g: NodeGroup, digits: list[str], bits: int) -> str:
    """Digits (whole numbers in float32) put together: one of them as it is, several as int64."""
    total = digits[-1]
    for digit in reversed(digits[:-1]):
        if total is digits[-1]:
            total = g.cast(total, DType.int64)
        total = g.add("Mul", total, g.constant(2**bits))
        total = g.add("Add", total, g.cast(digit, DType.int64))
    return total


@written_for("AveragePoolInteger")
def average_pool_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Sums from the float mean times the window's size, then the division of integers."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, AveragePoolInteger)
    taps = int(np.prod(op.kernel_shape, dtype=np.int64))
    bits = (EXACT_MEAN // taps).bit_length() - 1
    if bits < 1:
        return g.refuse(f"over windows of {taps} numbers has no ONNX form")
    data = g.cast(g.input(0), DType.float32)
    info = np.iinfo(g.type(0).dtype.numpy)
    digits = _digits(g, data, max(int(info.max), -int(info.min)), bits)
    sums = [_window_sum(g, digit, taps) for digit in digits]
    total = g.cast(_from_digits(g, sums, bits), DType.int64)
    if op.pads:
        one = numpy_helper.from_array(np.ones(1, np.float32))
        ones = g.add("ConstantOfShape", g.add("Shape", g.input(0)), value=one)
        counts = g.add("Max", g.cast(_window_sum(g, ones, taps), DType.int64), g.constant(1))
    else:
        counts = g.constant(taps)
    size = g.add("Add", g.add("Abs", total), g.add("Div", counts, g.constant(2)))
    quotient = g.add("Mul", g.add("Sign", total), g.add("Div", size, counts))
    low = int(info.min) if op.low is None else op.low
    high = int(info.max) if op.high is None else op.high
    quotient = g.add("Clip", quotient, g.constant(low), g.constant(high))
    return g.finish(g.cast(quotient, g.type(0).dtype))


def _window_sum(g: NodeGroup, value: str, taps: int) -> str:
    """Sums over the windows of small whole numbers, float32; padding counts as zero."""
    op = g.node.op
    attributes = _window(op) | spelled(
        "pads", numbered_pads(op, op.attributes()["kernel_shape"], g.type(0).dims[2:])
    )
    if "pads" in attributes:
        attributes.pop("auto_pad", None)
    mean = g.add("AveragePool", value, count_include_pad=1, **attributes)
    return g.add("Round", g.add("Mul", mean, g.constant(taps, np.float32)))
