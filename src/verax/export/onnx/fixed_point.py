"""Fixed-point arithmetic of quantized networks in ONNX's operators, with exactly the same integers.

A runtime that gets DequantizeLinear and QuantizeLinear around a float operator rounds otherwise,
so every integer step of `numerics.fixed_point` is spelled out, in int64. Casting an integer to a
narrower type keeps its low bits (ONNX's table of casts says so).
"""

from __future__ import annotations

import numpy as np

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    plain,
    reduced,
    written_for,
)
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.numerics.fixed_point import (
    INT32,
    exp_of_negative,
    quantized_factor,
    rounded_shift,
    scaled,
)
from verax.ops.images.resize_integer import BITS, ResizeInteger
from verax.ops.pointwise.cast import has_saturation
from verax.ops.quantized.dynamic_quantization import HIGH, LOW, DynamicQuantizeGroups
from verax.ops.quantized.quantization import QuantizeLinear
from verax.ops.quantized.requantization import (
    DIFF_BITS,
    SUM_BITS,
    L2NormalizeInteger,
    Requantize,
    SoftmaxInteger,
    exp_table,
    reciprocal_table,
)
from verax.ops.quantized.weighted_sum import WeightedSumInteger


@written_for("Requantize")
def requantize(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The products and shifts in int64."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, Requantize)
    multiplier, shift = g.constant_input(1), g.constant_input(2)
    if multiplier is None or shift is None:
        return g.refuse("by a factor that is computed while the network runs has no ONNX form")
    if multiplier.min(initial=0) < 0:
        return g.refuse("by a negative factor has no ONNX form")
    rank = g.type(0).rank
    lanes = [-1 if a == op.axis % max(rank, 1) else 1 for a in range(rank)]
    factor, shift = (
        f.astype(np.int64).reshape(lanes if f.ndim else []) for f in (multiplier, shift)
    )
    x = g.cast(g.input(0), DType.int64)
    if op.rounding == "twice":
        scaled = _scaled(g, x, factor, shift)
    else:
        is_short = op.rounding == "short"
        if is_short:
            factor = np.where(factor < 0x7FFF0000, (factor + 2**15) >> 16, 0x7FFF)
        total = (15 if is_short else 31) - shift
        if total.min(initial=1) < 1:
            return g.refuse("by a factor of 2^30 or more has no ONNX form")
        half = g.constant(np.int64(1) << (total - 1))
        scaled = g.add("Mul", x, g.constant(factor))
        if not is_short:  # halves go away from zero
            half = g.add("Sub", half, g.cast(g.add("Less", scaled, g.constant(0)), DType.int64))
        scaled = g.add("Add", scaled, half)
        scaled = _wrap32(g, _floor_divide(g, scaled, g.constant(np.int64(1) << total)))
    info = np.iinfo(op.output_dtype.numpy)
    low = int(info.min) if op.low is None else max(op.low, int(info.min))
    high = int(info.max) if op.high is None else min(op.high, int(info.max))
    if op.zero_point:
        scaled = g.add("Add", scaled, g.constant(op.zero_point))
    scaled = g.add("Clip", scaled, g.constant(low), g.constant(max(low, high)))
    return g.finish(g.cast(scaled, op.output_dtype))


@written_for("LookupTable")
def lookup_table(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """A Gather; what rounding may make of an entry is not written."""
    g = NodeGroup(node, graph)
    index = g.cast(g.input(0), DType.int64)
    lowest = int(np.iinfo(g.type(0).dtype.numpy).min)
    if lowest:
        index = g.add("Sub", index, g.constant(lowest))
    return g.finish(g.add("Gather", g.input(1), index))


@written_for("WeightedSumInteger")
def weighted_sum(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The sum and the shift in int64."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, WeightedSumInteger)
    total = g.constant(op.offset)
    for i, factor in enumerate(op.factors):
        term = g.add("Mul", g.cast(g.input(i), DType.int64), g.constant(factor))
        total = g.add("Add", total, term)
    shifted = _shifted(g, _wrap32(g, total), op.shift, 40)
    shifted = g.add("Clip", shifted, g.constant(op.low), g.constant(op.high))
    return g.finish(g.cast(shifted, op.output_dtype))


def _scaled(g: NodeGroup, x: str, multiplier: np.ndarray, shift: np.ndarray) -> str:
    """`numerics.fixed_point.scaled` for multipliers that are not negative."""
    if shift.max(initial=0) > 0:
        x = _wrap32(g, g.add("Mul", x, g.constant(np.int64(1) << np.maximum(shift, 0))))
    scaled = _doubling_high_product(g, x, g.constant(multiplier))
    if shift.min(initial=0) == 0:
        return scaled
    exponent = np.maximum(-shift, 0)
    half = (np.int64(1) << exponent) >> 1
    # Halves go away from zero: of a negative number one half less is added (nothing is shifted
    # by 0 bits, and no number lies below -2^31).
    below = g.constant(np.where(exponent > 0, 0, np.int64(INT32.min)))
    is_negative = g.cast(g.add("Less", scaled, below), DType.int64)
    scaled = g.add("Sub", g.add("Add", scaled, g.constant(half)), is_negative)
    return _shifted(g, scaled, exponent, 40)


def _doubling_high_product(g: NodeGroup, a: str, b: str) -> str:
    """floor((a b + 2^30) / 2^31) of int64 values whose product lies within 2^62 of zero."""
    raised = g.add("Add", g.add("Mul", a, b), g.constant(2**30))
    return _shifted(g, raised, 31, 62)


def _shifted(g: NodeGroup, x: str, exponent: int | np.ndarray, bits: int) -> str:
    """floor(x / 2^exponent) of int64 values from -2^bits on. ONNX shifts unsigned values."""
    raised = g.cast(g.add("Add", x, g.constant(2**bits)), DType.uint64)
    shifted = g.add("BitShift", raised, g.constant(exponent, np.uint64), direction="RIGHT")
    less = np.int64(1) << (bits - np.asarray(exponent))
    return g.add("Sub", g.cast(shifted, DType.int64), g.constant(less))


def _floor_divide(g: NodeGroup, a: str, divisor: str) -> str:
    """floor(a / divisor), the divisor being positive."""
    return g.add("Div", g.add("Sub", a, g.add("Mod", a, divisor)), divisor)


def _wrap32(g: NodeGroup, value: str) -> str:
    return g.cast(g.cast(value, DType.int32), DType.int64)


@written_for("SoftmaxInteger")
def softmax_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Exponentials from a table of the 256 differences of two bytes, the rest in int64."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, SoftmaxInteger)
    if g.type(0).dtype.itemsize > 1:
        return _softmax_by_tables(g, op.factor, version)
    exponentials, terms = _tables(op.factor)
    x = g.cast(g.input(0), DType.int32)
    largest = reduced(g, "ReduceMax", x, [-1], version)
    below = g.add("Sub", largest, x)
    exponential = g.add("Gather", g.constant(exponentials), below)
    term = g.add("Gather", g.constant(terms), below)
    total = g.add("ReduceSum", term, g.constant([-1]))
    lead = _leading_zeros(g, total)
    normal = g.add("Mul", total, _power(g, lead))
    reciprocal = _reciprocal_of_one_plus(g, g.add("Sub", normal, g.constant(2**31)))
    exponent = g.add("Sub", g.constant(SUM_BITS + 31 - 8 * op.output_dtype.itemsize), lead)
    divisor = _power(g, exponent)
    product = _doubling_high_product(g, reciprocal, exponential)
    rounded = g.add("Add", product, g.add("Div", divisor, g.constant(2)))
    info = np.iinfo(op.output_dtype.numpy)
    shares = g.add("Add", g.add("Div", rounded, divisor), g.constant(info.min))
    shares = g.add("Clip", shares, g.constant(info.min), g.constant(info.max))
    return g.finish(g.cast(shares, op.output_dtype))


def _leading_zeros(g: NodeGroup, x: str) -> str:
    """Of numbers of 32 bits above 0, whose last axis has the size 1."""
    bits = g.cast(g.add("GreaterOrEqual", x, g.constant(2 ** np.arange(1, 32))), DType.int64)
    return g.add("Sub", g.constant(31), g.add("ReduceSum", bits, g.constant([-1])))


def _softmax_by_tables(g: NodeGroup, factor: float, version: int) -> OnnxEmission:
    """Softmax of 16 bits: two interpolated tables."""
    multiplier, shift = quantized_factor(factor / (10.0 / (2**16 - 1)))
    x = g.cast(g.input(0), DType.int64)
    below = g.add("Sub", x, reduced(g, "ReduceMax", x, [-1], version))
    scaled_ = _scaled(g, below, np.array(multiplier), np.array(shift))
    terms = _interpolated(g, g.add("Add", scaled_, g.constant(2**15 - 1)), exp_table())
    total = g.add("ReduceSum", terms, g.constant([-1]))
    lead = _leading_zeros(g, total)
    normal = g.add("Mul", total, _power(g, g.add("Sub", lead, g.constant(1))))
    at = _shifted(g, g.add("Add", normal, g.constant(2**13)), 14, 40)
    at = g.add("Sub", at, g.constant(3 * 2**15))
    reciprocal = _interpolated(g, at, reciprocal_table())
    divisor = _power(g, g.add("Sub", g.constant(31), lead))
    half = g.add("Div", divisor, g.constant(2))
    rounded = g.add("Add", g.add("Mul", terms, reciprocal), half)
    shares = g.add("Clip", g.add("Div", rounded, divisor), g.constant(0), g.constant(2**15 - 1))
    return g.finish(g.cast(shares, DType.int16))


def _interpolated(g: NodeGroup, x: str, table: np.ndarray) -> str:
    """`numerics.fixed_point.interpolated` of x cut to 16 bits."""
    x = g.add("Clip", x, g.constant(-(2**15)), g.constant(2**15 - 1))
    index = _shifted(g, g.add("Add", x, g.constant(2**15)), 7, 20)
    base = g.add("Gather", g.constant(table), index)
    step = g.add("Gather", g.constant(np.diff(table)), index)
    remainder = g.add(
        "Sub", g.add("Add", x, g.constant(2**15)), g.add("Mul", index, g.constant(128))
    )
    scaled_step = g.add("Add", g.add("Mul", step, remainder), g.constant(64))
    return g.add("Add", base, _shifted(g, scaled_step, 7, 40))


def _tables(factor: float) -> tuple[np.ndarray, np.ndarray]:
    """exp(-factor d) for d = 0 .. 255 with 31 fraction bits, and as terms of the sum; 0 where
    `SoftmaxInteger` leaves a difference out."""
    multiplier, shift = quantized_factor(min(factor * 2 ** (31 - DIFF_BITS), float(INT32.max)))
    difference = -np.arange(256)
    radius = (2**DIFF_BITS - 1) * 2.0 ** (31 - DIFF_BITS) / 2.0**shift
    counted = difference >= -np.floor(radius)
    exponentials = exp_of_negative(
        scaled(np.where(counted, difference, 0), multiplier, shift), DIFF_BITS
    )
    exponentials = np.where(counted, exponentials, 0)
    return exponentials, rounded_shift(exponentials, SUM_BITS)


def _reciprocal_of_one_plus(g: NodeGroup, a: str) -> str:
    """`numerics.fixed_point.reciprocal_of_one_plus`."""
    half = g.add("Div", g.add("Add", a, g.constant(2**31)), g.constant(2))
    x = _doubling_high_product(g, half, g.constant(-1010580540))
    x = g.add("Add", x, g.constant(1515870810))
    for _ in range(3):
        residual = g.add("Sub", g.constant(2**29), _doubling_high_product(g, half, x))
        x = g.add("Add", x, _saturating_product(g, _doubling_high_product(g, x, residual), 4))
    return _saturating_product(g, x, 2)


def _saturating_product(g: NodeGroup, x: str, factor: int) -> str:
    product = g.add("Mul", x, g.constant(factor))
    return g.add("Clip", product, g.constant(INT32.min), g.constant(INT32.max))


@written_for("QuantizeLinear")
def quantize_linear(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """ONNX rounds halves to even; others by their steps, the quotient being rounded to float32."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, QuantizeLinear)
    to = graph.output_types(node)[0].dtype
    if op.halves == "even" or to.is_float:
        changed = {} if has_saturation(to) else {"saturate": None}
        return plain(node, graph, version, halves=None, **changed)
    if to.is_narrow:
        return g.refuse(f"to {to} with halves rounded away from zero has no ONNX form")
    single = all(g.type(i).size == 1 and g.type(i).rank <= 1 for i in range(1, len(node.inputs)))
    if not single or op.precision not in (None, DType.float32) or g.type(0).dtype != "float32":
        return g.refuse("with halves rounded away from zero is written for one float32 scale only")
    rounded = _nearest(g, g.add("Div", g.input(0), g.input(1)))
    if len(node.inputs) > 2:
        rounded = g.add("Add", rounded, g.cast(g.input(2), DType.float64))
    info = np.iinfo(to.numpy)
    ends = (g.constant(end, float) for end in (info.min, info.max))
    return g.finish(g.cast(g.add("Clip", rounded, *ends), to))


@written_for("L2NormalizeInteger")
def l2_normalize_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The inverse root's steps in int64, with exponents from tables over the number of bits."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, L2NormalizeInteger)
    info = np.iinfo(g.type(0).dtype.numpy)
    x = g.add("Sub", g.cast(g.input(0), DType.int64), g.constant(op.zero_point))
    total = g.add("ReduceSum", g.add("Mul", x, x), g.constant([-1]))
    multiplier, right = _inverse_root(g, total)
    if info.min:
        left = g.add("Clip", g.add("Sub", g.constant(7), right), g.constant(0), g.constant(7))
        right = g.add("Max", g.add("Sub", right, g.constant(7)), g.constant(0))
        x = _wrap32(g, g.add("Mul", x, _power(g, left)))
    else:
        x = g.add("Mul", x, g.constant(128))
    product = _doubling_high_product(g, x, multiplier)
    divisor = _power(g, right)
    size = g.add("Add", g.add("Abs", product), g.add("Div", divisor, g.constant(2)))
    product = g.add("Mul", g.add("Sign", product), g.add("Div", size, divisor))
    if not info.min:
        product = g.add("Add", product, g.constant(128))
    product = g.add("Clip", product, g.constant(info.min), g.constant(info.max))
    return g.finish(g.cast(product, g.type(0).dtype))


@written_for("ResizeInteger")
def resize_integer(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """Neighbors gathered along one axis after the other, and their weighted sums in int64."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, ResizeInteger)
    rank, value = g.type(0).rank, g.cast(g.input(0), DType.int64)
    for index, axis in enumerate(op.axes):
        in_size = g.type(0).dims[axis]
        if not isinstance(in_size, int):
            return g.refuse("of an unknown size is not written")
        low, high, weight = op.table(index, in_size)
        lanes = [-1 if a == axis % rank else 1 for a in range(rank)]
        terms = []
        for indices, factor in ((low, (1 << BITS) - weight), (high, weight)):
            seen = g.add("Gather", value, g.constant(indices), axis=axis)
            terms.append(g.add("Mul", seen, g.constant(factor.reshape(lanes))))
        value = g.add("Add", *terms)
    one = 1 << len(op.axes) * BITS
    size = g.add("Div", g.add("Add", g.add("Abs", value), g.constant(one // 2)), g.constant(one))
    above = g.add("Greater", value, g.constant(0))  # ONNX Runtime's Sign is wrong beyond 32 bits
    rounded = g.add("Where", above, size, g.add("Neg", size))
    return g.finish(g.cast(rounded, g.type(0).dtype))


def _inverse_root(g: NodeGroup, x: str) -> tuple[str, str]:
    """Multiplier and bits to shift right of `numerics.fixed_point.inverse_root`.

    How far its steps shift follows from the number of bits of x, here up to 62.
    """
    bits = np.arange(63)
    down = np.maximum(-(-(bits - 29) // 2), 0)
    bit_pairs = (31 - np.maximum(bits - 2 * down, 1)) // 2 - 1
    reached = g.add("GreaterOrEqual", x, g.constant(2 ** bits[:-1]))
    length = g.add("ReduceSum", g.cast(reached, DType.int64), g.constant([-1]))

    def by_length(table: np.ndarray) -> str:
        return g.add("Gather", g.constant(table), length)

    scaled_down = g.add("Div", x, by_length(4**down))
    value = g.add("Div", g.add("Mul", scaled_down, by_length(4**bit_pairs)), g.constant(2))
    half = g.add("Div", g.add("Add", value, g.constant(1)), g.constant(2))
    root = g.constant(2**28)
    for _ in range(5):
        cube = _doubling_high_product(g, _doubling_high_product(g, root, root), root)
        residual = _doubling_high_product(g, g.constant(3 * 2**27), root)
        less = _doubling_high_product(g, half, _saturating_product(g, cube, 64))
        root = _saturating_product(g, g.add("Sub", residual, less), 8)
    root = _doubling_high_product(g, root, g.constant(1518500250))
    right = 11 + down - bit_pairs
    root = g.add("Mul", root, by_length(2 ** np.maximum(-right, 0)))
    is_one = g.add("LessOrEqual", x, g.constant(1))
    multiplier = g.add("Where", is_one, g.constant(INT32.max), root)
    return multiplier, g.add("Where", is_one, g.constant(0), by_length(np.maximum(right, 0)))


def _power(g: NodeGroup, exponent: str) -> str:
    """2^exponent for 0 .. 62."""
    return g.add("Gather", g.constant(2 ** np.arange(63)), exponent)


@written_for("DynamicQuantizeGroups")
def dynamic_quantize_groups(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """The same steps in float32, and in float64 where the operator takes it."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, DynamicQuantizeGroups)
    x, axes = g.input(0), list(range(op.axis, g.type(0).rank))
    zero, one = (g.constant(v, np.float32) for v in (0, 1))
    low, high = x, x
    if axes:
        low = reduced(g, "ReduceMin", x, axes, version)
        high = reduced(g, "ReduceMax", x, axes, version)
    low, high = g.add("Min", low, zero), g.add("Max", high, zero)
    empty = g.add("Equal", low, high)
    if op.symmetric:
        top = g.constant(HIGH, np.float32)
        largest = g.add("Where", empty, one, g.add("Max", g.add("Neg", low), high))
        scale = g.add("Div", largest, top)
        q = _nearest(g, g.add("Mul", x, g.add("Div", top, largest)))
        q = g.add("Clip", q, g.constant(-HIGH, float), g.constant(HIGH, float))
    else:
        range_ = g.cast(g.add("Where", empty, one, g.add("Sub", high, low)), DType.float64)
        step = g.add("Div", range_, g.constant(HIGH - LOW, float))
        below, above = (g.add("Div", g.cast(v, DType.float64), step) for v in (low, high))
        bottom, top = g.constant(LOW, float), g.constant(HIGH, float)
        reach = g.add("Sub", g.add("Abs", below), bottom), g.add("Add", g.add("Abs", above), top)
        lower, upper = g.add("Sub", bottom, below), g.add("Sub", top, above)
        start = g.add("Where", g.add("Less", *reach), lower, upper)
        start = g.add("Clip", _nearest(g, start), bottom, top)
        scale = g.cast(step, DType.float32)
        q = g.add("Add", _nearest(g, g.add("Mul", x, g.add("Div", one, scale))), start)
        q = g.add("Sub", g.add("Clip", q, bottom, top), start)
    integers = g.cast(g.add("Where", empty, g.constant(0, float), q), DType.int16)
    return g.finish(integers, g.add("Where", empty, one, scale))


def _nearest(g: NodeGroup, x: str) -> str:
    """`numerics.fixed_point.nearest`: halves away from zero, in float64."""
    wide = g.cast(x, DType.float64)
    size = g.add("Floor", g.add("Add", g.add("Abs", wide), g.constant(0.5, float)))
    return g.add("Mul", g.add("Sign", wide), size)
