"""Which coarser arithmetic an answer was computed in: TF32, bfloat16, float16, int8, ...

A size alone proves nothing: a mistake can be as small as a bfloat16 rounding. So the size of the
errors only says whether it is worth trying (`unit_roundoff`); then the node is computed again with
its inputs rounded as that arithmetic would (`candidates`), and what the subject gave must be that,
within float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation, Operator, as_tuple
from verax.ir.types import DType, TensorType
from verax.judge.decide.coarse import Coarse, on_grid
from verax.judge.decide.matrix_sums import in_matrix_units, matrix_unit_sigma
from verax.judge.decide.possible import may_be_device
from verax.judge.decide.unit_sums import (
    FP8,
    FP16_ACCUMULATION,
    factor_format,
    unit_error,
    unit_sums,
)
from verax.numerics import statistics as st
from verax.numerics.error_model import KAPPA, Rounding, U
from verax.numerics.formats import BFLOAT16, FLOAT16, TF32, FloatFormat, round_to, ulp
from verax.ops.sums.linear import Gemm, MatMul
from verax.ops.windows.deconvolution import ConvTranspose
from verax.records.verdict import Precision

Array = np.ndarray
Change = Callable[[Array], Array]
PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
"""Operators that hardware computes in coarser arithmetics."""
IN_UNITS = ", matrix units"
"""What an arithmetic is called in addition where its sums err as matrix units do."""
THREE_PRODUCTS = "three bf16 products"
ITSELF = "arithmetic in"
"""How the names of arithmetics begin whose every step is rounded to a format."""
BEFORE_BIAS = ", rounded before the bias"
"""The same where the product is rounded before the bias is added, and again after it."""
SOME_CHANNELS = 8
"""Output channels on which an arithmetic is tried before the whole node is computed in it."""


@dataclass(frozen=True)
class Arithmetic:
    """An arithmetic of products: the rounding of data, weights and result.

    data, weights, bias: rounding of the first and the second factor and of what is added; weights
    also takes the axis of the output channels. output: the format that the result is stored in.
    sums: it is accumulated in that format too, in an unknown order. unit: its unit roundoff.
    factors: the format of both factors, where matrix units multiply in it.
    """

    name: str
    unit: float
    data: Change | None = None
    weights: Callable[[Array, int], Array] | None = None
    output: FloatFormat | None = None
    bias: Change | None = None
    sums: bool = False
    factors: str = ""


def truncated(x: Array, fmt: FloatFormat) -> Array:
    """x (float64) with the bits that `fmt` lacks cut off."""
    spacing = ulp(x, fmt)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(x), np.trunc(x / spacing) * spacing, x)


def to_nearest_away(x: Array, fmt: FloatFormat) -> Array:
    """x (float64) rounded to the nearest number of `fmt`, ties away from zero."""
    spacing = ulp(x, fmt)
    with np.errstate(invalid="ignore"):
        steps = np.floor(np.abs(x) / spacing + 0.5)
        return np.where(np.isfinite(x), np.copysign(steps * spacing, x), x)


def symmetric_int8(x: Array, axis: int | None = None) -> Array:
    """x on the grid of 255 multiples of its largest size / 127, per index of `axis` if given."""
    axes = None if axis is None else tuple(a for a in range(x.ndim) if a != axis % x.ndim)
    scale = np.max(np.abs(x), axis=axes, keepdims=True, initial=0.0) / 127
    scale = np.where(scale == 0, 1.0, scale)
    return np.rint(x / scale) * scale


def asymmetric_uint8(x: Array) -> Array:
    """x on the grid of 256 numbers between its smallest and its largest, 0 being one of them."""
    low, high = min(0.0, float(x.min(initial=0.0))), max(0.0, float(x.max(initial=0.0)))
    scale = (high - low) / 255 or 1.0
    zero = np.rint(-low / scale)
    return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


def _to(fmt: FloatFormat) -> Change:
    return lambda x: round_to(x, fmt)


def _weights_to(fmt: FloatFormat) -> Callable[[Array, int], Array]:
    return lambda w, axis: round_to(w, fmt)


def _floats(short: str, fmt: FloatFormat) -> Iterator[Arithmetic]:
    """The ways to use a half format, those that change least first."""
    u, data, weights = fmt.unit_roundoff, _to(fmt), _weights_to(fmt)
    yield Arithmetic(f"{short} output", u, output=fmt)
    yield Arithmetic(f"{short} inputs", u, data, weights, factors=fmt.name)
    yield Arithmetic(f"{short} inputs and output", u, data, weights, fmt, factors=fmt.name)
    yield Arithmetic(f"{short} weights", u, None, weights)
    yield Arithmetic(f"{short} weights and output", u, None, weights, fmt)
    yield Arithmetic(f"{short} throughout", u, data, weights, fmt, data, factors=fmt.name)


def _per_tensor(w: Array, axis: int) -> Array:
    return symmetric_int8(w)


ARITHMETICS = (
    Arithmetic("TF32 inputs", TF32.unit_roundoff, _to(TF32), _weights_to(TF32), factors=TF32.name),
    Arithmetic(
        "TF32 inputs, ties away",
        TF32.unit_roundoff,
        lambda x: to_nearest_away(x, TF32),
        lambda w, axis: to_nearest_away(w, TF32),
        factors=TF32.name,
    ),
    Arithmetic(
        "TF32 inputs, truncated",
        2 * TF32.unit_roundoff,
        lambda x: truncated(x, TF32),
        lambda w, axis: truncated(w, TF32),
        factors=TF32.name,
    ),
    *_floats("bf16", BFLOAT16),
    *_floats("fp16", FLOAT16),
    Arithmetic(
        FP16_ACCUMULATION,
        FLOAT16.unit_roundoff,
        _to(FLOAT16),
        _weights_to(FLOAT16),
        FLOAT16,
        sums=True,
    ),
    Arithmetic("int8 weights per tensor", 1 / 127, None, _per_tensor),
    Arithmetic("int8 weights per channel", 1 / 127, None, symmetric_int8),
    Arithmetic("int8 per tensor", 1 / 127, symmetric_int8, _per_tensor),
    Arithmetic("int8 per channel", 1 / 127, symmetric_int8, symmetric_int8),
    Arithmetic("int8 per tensor, asymmetric", 1 / 127, asymmetric_uint8, _per_tensor),
    Arithmetic("int8 per channel, asymmetric", 1 / 127, asymmetric_uint8, symmetric_int8),
)
"""What is tried, in this order. Where several give the same numbers the first is named."""
AUTOCASTS = ("bf16 autocast", "fp16 autocast")
"""Whole networks as torch.autocast computes them: products in 16 bits, norms in float32."""
FP16_INPUTS = next(a for a in ARITHMETICS if a.name == "fp16 inputs")


def channel_axis(op: Operator) -> int:
    """The axis of a product's second factor that holds the output channels."""
    if isinstance(op, MatMul):
        return -1
    if isinstance(op, Gemm):
        return 0 if op.trans_b else 1
    return 1 if isinstance(op, ConvTranspose) else 0


def with_factors(
    op: Operator, inputs: Sequence[Any], arithmetic: Arithmetic, cache: dict[Any, Array]
) -> list[Any]:
    """A product's float64 inputs, rounded as the arithmetic does.

    cache: factors that were rounded before, between calls for one node.
    """
    data, weights, *biases = inputs
    if arithmetic.bias is not None:
        biases = [None if b is None else arithmetic.bias(b) for b in biases]
    if arithmetic.data is not None:
        if arithmetic.data not in cache:
            cache[arithmetic.data] = arithmetic.data(data)
        data = cache[arithmetic.data]
    if arithmetic.weights is not None:
        key = ("weights", arithmetic.weights)
        if key not in cache:
            cache[key] = arithmetic.weights(weights, channel_axis(op))
        weights = cache[key]
    return [data, weights, *biases]


def unit_roundoff(
    node: Node, ev: Evaluation, wide: Sequence[Any], expected: Array, actual: Array
) -> float:
    """The unit roundoff that the errors look like: median(|e| / Q) / (0.6745 kappa sqrt 2).

    Q^2 is the sum of the products' squares; of other operators every result is taken to be rounded
    once. 0 when at least half of the elements agree.
    """
    error = np.abs(actual.astype(np.float64) - expected)
    if node.op.kind in PRODUCTS:
        with np.errstate(all="ignore"):
            squares = as_tuple(node.op.reference(ev, wide[0] ** 2, wide[1] ** 2))[0]
            size = np.sqrt(squares * abs(getattr(node.op, "alpha", 1.0))) * np.sqrt(2)
    else:
        size = np.abs(expected)
    usable = np.isfinite(error) & (size > 0)
    if not usable.any():
        return 0.0
    return float(np.median(error[usable] / size[usable]) / (st.NORMAL_MEDIAN * KAPPA))


def candidates(
    node: Node, ev: Evaluation, inputs: Sequence[Any], output: int, actual: Array
) -> Iterator[Coarse]:
    """Output number `output` of a node under every arithmetic that its errors are large enough for.

    inputs: declared arrays; actual: the subject's output.
    """
    wide = [to_float64(x) for x in inputs]
    declared = ev.outputs[output].dtype
    if declared in (DType.float16, DType.bfloat16):
        name = f"{ITSELF} {declared} itself"
        if node.op.kind in PRODUCTS and declared is DType.float16 and may_be_device():
            name = FP16_ACCUMULATION  # runtimes on processors err like this by casts left out
        yield from _evaluated(name, node, ev, wide, output)
    if declared is not DType.float32:
        return
    yield from _unit_sums(node, ev, wide, output)
    products = output == 0 and _worth_rounding_factors(node, ev, wide, actual)
    fitting = {f.name for f in (BFLOAT16, FLOAT16) if on_grid(actual, f)}
    cache: dict[Any, Array] = {}
    for arithmetic in ARITHMETICS:
        if arithmetic.output is not None and arithmetic.output.name not in fitting:
            continue
        factors, name = wide, arithmetic.name
        if arithmetic.data is not None or arithmetic.weights is not None:
            if not products:
                continue
            factors = with_factors(node.op, wide, arithmetic, cache)
            if not arithmetic.sums and not _promising(node, ev, wide, factors, actual, arithmetic):
                continue
            half = name == "TF32 inputs" and with_factors(node.op, wide, FP16_INPUTS, cache)
            if half and all(np.array_equal(a, b) for a, b in zip(factors[:2], half[:2])):
                name = "TF32 or fp16 inputs"
        for coarse in _evaluated(name, node, ev, factors, output):
            if arithmetic.sums:
                scale, r = arithmetic.unit / U, coarse.rounding
                yield replace(coarse, rounding=Rounding(r.sigma * scale, r.bound * scale))
                continue
            yield replace(coarse, grid=arithmetic.output)
            if arithmetic.bias is not None and arithmetic.output is not None:
                yield from _rounded_before_bias(name, arithmetic, node, ev, factors)
            if arithmetic.factors:
                extra = matrix_unit_sigma(node, ev, factors, coarse.expected, arithmetic.factors)
                rounding = in_matrix_units(coarse.rounding, extra, arithmetic.factors)
                units = f"{name}{IN_UNITS}"
                yield replace(coarse, name=units, rounding=rounding, grid=arithmetic.output)
    yield from _three_products(node, ev, wide, output)


def _unit_sums(node: Node, ev: Evaluation, wide: Sequence[Any], output: int) -> Iterator[Coarse]:
    """The value where the factors are numbers of 16 bits and a matrix unit multiplied these."""
    if not may_be_device() or not _is_float32_product(node, ev, output):
        return
    formats = [factor_format(w) for w in wide[:2]]
    if any(f is None for f in formats):
        return
    # Numbers that happen to be those of 8 bits do not say that a unit for these had them.
    short = [f if f not in FP8 else FLOAT16.name for f in formats if f is not None]
    for coarse in _evaluated("", node, ev, wide, output):
        (option, *_) = unit_sums(short, coarse.expected)
        mean, spread = unit_error(node, ev, wide[:2], option.route)
        mean = mean / 2  # a kernel that sums parts of the chain in float32 errs less
        sigma = np.hypot(coarse.rounding.sigma, np.hypot(spread, mean))
        bound = coarse.rounding.bound + np.abs(mean) + 8 * spread
        yield replace(
            coarse,
            name=option.name,
            expected=coarse.expected + mean,
            rounding=Rounding(sigma, bound),
        )


def _is_float32_product(node: Node, ev: Evaluation, output: int) -> bool:
    declared = [t is not None and t.dtype is DType.float32 for t in ev.inputs[:2]]
    return node.op.kind in PRODUCTS and not output and all(declared)


def _three_products(
    node: Node, ev: Evaluation, wide: Sequence[Any], output: int
) -> Iterator[Coarse]:
    """The value where each factor is the sum of two bf16 numbers and their low parts are not
    multiplied: JAX's BF16_BF16_F32_X3. As good as 16 bits of each factor."""
    if not _is_float32_product(node, ev, output):
        return
    high = [round_to(w, BFLOAT16) for w in wide[:2]]
    low = [round_to(w - h, BFLOAT16) for w, h in zip(wide, high)]
    if not any(x.any() for x in low):
        return
    factors = [h + x for h, x in zip(high, low)]
    for coarse in _evaluated(THREE_PRODUCTS, node, ev, [*factors, *wide[2:]], output):
        with np.errstate(all="ignore"):
            dropped = np.asarray(as_tuple(node.op.reference(ev, *low))[0])
        expected = coarse.expected - dropped
        extra = matrix_unit_sigma(node, ev, factors, expected, BFLOAT16.name)
        rounding = in_matrix_units(coarse.rounding, extra, BFLOAT16.name)
        yield replace(coarse, expected=expected, rounding=rounding)


def _rounded_before_bias(
    name: str, arithmetic: Arithmetic, node: Node, ev: Evaluation, factors: Sequence[Any]
) -> Iterator[Coarse]:
    """The value where the product is stored in the arithmetic's format and the bias added to that:
    cuDNN rounds twice where it has no kernel that adds the bias itself."""
    bias = _added_bias(node.op, arithmetic, factors)
    if bias is None:
        return
    for coarse in _evaluated(f"{name}{BEFORE_BIAS}", node, ev, factors[:2], 0):
        yield replace(coarse, grid=arithmetic.output, added=bias)


def find_precision(
    node: Node,
    inputs: Sequence[Any],
    actual: Array,
    outputs: Sequence[TensorType],
) -> Precision | None:
    """The arithmetic in which the node's first output was computed; None when none gives it.

    inputs: arrays in their declared types (None where omitted), the subject's own; actual: its
    output; outputs: the declared types. `local.check_node` says the same in a finding.
    """
    types = tuple(None if x is None else TensorType.of(x) for x in inputs)
    ev = Evaluation(types, tuple(outputs))
    for coarse in candidates(node, ev, inputs, 0, actual):
        if coarse.test(actual).statistic <= st.ROUNDING_T:
            wide = [to_float64(x) for x in inputs]
            with np.errstate(all="ignore"):
                expected = np.asarray(as_tuple(node.op.reference(ev, *wide))[0])
            unit = unit_roundoff(node, ev, wide, expected, actual)
            return Precision(node.outputs[0], node.name or node.outputs[0], coarse.name, unit, True)
    return None


def to_float64(x: Any) -> Any:
    """Floats of any declared type in float64; other arrays, and None, as they are."""
    return x.astype(np.float64) if x is not None and x.dtype.kind in "fV" else x


def _promising(
    node: Node,
    ev: Evaluation,
    wide: Sequence[Any],
    factors: Sequence[Any],
    actual: Array,
    arithmetic: Arithmetic,
) -> bool:
    """Whether the arithmetic explains most of the error in some output channels, or all but what
    matrix units add: on data of one sign that is as much as rounding the factors."""
    op = node.op
    channels = _sample_channels(op, actual)
    axis = 1 if op.kind.startswith("Conv") else -1
    sampled = actual if channels is None else np.take(actual, channels, axis)
    some = _channels(op, factors, channels)

    def result(inputs: Sequence[Any]) -> Array:
        return np.asarray(as_tuple(op.reference(ev, *inputs))[0])

    likely = [result(some)]
    if arithmetic.output is not None:
        likely = [round_to(likely[0], arithmetic.output)]
        bias = _added_bias(op, arithmetic, some)
        if bias is not None:
            stored = round_to(result(some[:2]), arithmetic.output)
            likely.append(round_to(stored + bias, arithmetic.output))
    wide_sample = sampled.astype(np.float64)
    total = st.root_mean_square(wide_sample - result(_channels(op, wide, channels)))
    left = min(st.root_mean_square(wide_sample - y) for y in likely)
    if left <= st.PROMISING * total or not arithmetic.factors:
        return left <= st.PROMISING * total
    added = matrix_unit_sigma(node, ev, some, likely[0], arithmetic.factors)
    return left < total and left <= st.UNITS_PROMISING * st.root_mean_square(added)


def _added_bias(op: Operator, arithmetic: Arithmetic, factors: Sequence[Any]) -> Array | None:
    """The bias of a convolution, as its result broadcasts it; None without one, or where the
    arithmetic does not store results."""
    if arithmetic.bias is None or not op.kind.startswith("Conv") or len(factors) < 3:
        return None
    bias = factors[2]
    return None if bias is None else bias.reshape(-1, *(1,) * (factors[0].ndim - 2))


def _sample_channels(op: Operator, actual: Array) -> Array | None:
    """A few output channels; None where the operator cannot be cut along them."""
    axis = 1 if op.kind.startswith("Conv") else -1
    if getattr(op, "groups", 1) > 1 or actual.ndim < 2 or actual.shape[axis] <= SOME_CHANNELS:
        return None
    return np.linspace(0, actual.shape[axis] - 1, SOME_CHANNELS).astype(np.intp)


def _channels(op: Operator, inputs: Sequence[Any], channels: Array | None) -> list[Any]:
    """A product's inputs for output channels `some` alone."""
    if channels is None:
        return list(inputs)
    data, weights, *biases = inputs
    biases = [
        b if b is None or b.shape[-1:] == (1,) or not b.ndim else b[..., channels] for b in biases
    ]
    return [data, np.take(weights, channels, channel_axis(op)), *biases]


def _worth_rounding_factors(node: Node, ev: Evaluation, wide: Sequence[Any], actual: Array) -> bool:
    """Whether this is a product of float32 tensors with errors that are larger than float32's own
    and spread over at least half of the elements."""
    declared = [t is not None and t.dtype is DType.float32 for t in ev.inputs[:2]]
    if node.op.kind not in PRODUCTS or not all(declared):
        return False
    with np.errstate(all="ignore"):
        expected = np.asarray(as_tuple(node.op.reference(ev, *wide))[0])
    if expected.shape != actual.shape or not np.isfinite(expected).all():
        return False
    return unit_roundoff(node, ev, wide, expected, actual) > st.COARSE_UNIT


def _evaluated(
    name: str, node: Node, ev: Evaluation, wide: Sequence[Any], output: int
) -> Iterator[Coarse]:
    with np.errstate(all="ignore"):
        results = as_tuple(node.op.reference(ev, *wide))
        rounding = node.op.error(ev, wide, results)[output]
    expected = np.asarray(results[output])
    if rounding is None:
        rounding = Rounding(np.zeros(expected.shape), np.zeros(expected.shape))
    if np.isfinite(expected).all():
        yield Coarse(name, expected, rounding)
