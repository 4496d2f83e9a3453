"""Vector-Jacobian products: how an operator hands sensitivities back from outputs to inputs.

The judge asks how strongly an output depends on every value inside a network (see `adjoint`). That
needs a number good to a per cent, not a training gradient: at kinks (Relu at 0) any side will do,
elementwise operators are differentiated by central differences of their own float64 meaning, and
operators that only select or move elements by applying that meaning to positions.

An operator without a rule has none on purpose: it jumps (rounding, choices of indices), so that a
derivative says nothing about it, or nobody needed it yet. `rule_of` answers None for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import as_tuple
from verax.judge.regions import vjp_linear as linear
from verax.judge.regions import vjp_normalization as normalization
from verax.judge.regions.vjp_attention import attention
from verax.judge.regions.vjp_recurrent import recurrent
from verax.judge.regions.vjp_step import Array, Rule, VjpStep, unbroadcast
from verax.numerics.statistics import DERIVATIVE_FLOOR, DERIVATIVE_STEP
from verax.ops.pointwise.elementwise import Elementwise

# Elementwise operators


def _relu(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return [gradients[0] * (step.outputs[0] > 0)]


def _add(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return [
        unbroadcast(gradients[0], x.shape) if is_needed else None
        for x, is_needed in zip(step.inputs, step.needed)
    ]


def _multiply(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    a, b = step.inputs
    return [
        unbroadcast(gradients[0] * factor, own.shape) if is_needed else None
        for own, factor, is_needed in ((a, b, step.needed[0]), (b, a, step.needed[1]))
    ]


def _elementwise(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Central differences, input by input; 0 where the function is not defined beside x."""
    by_input: dict[int, Array] = {}
    for i, x in enumerate(step.inputs):
        if not step.needed[i]:
            continue
        h = DERIVATIVE_STEP * np.abs(x) + DERIVATIVE_FLOOR
        sides = [
            as_tuple(step.op.reference(step.ev, *step.inputs[:i], v, *step.inputs[i + 1 :]))[0]
            for v in (x + h, x - h)
        ]
        slope = _finite((sides[0] - sides[1]) / (2 * h))
        by_input[i] = unbroadcast(gradients[0] * slope, x.shape)
    return step.spread(by_input)


def _of_result(slope: Callable[[Array], Array]) -> Rule:
    """Of a function whose slope is known from its result. Differences need steps far smaller than
    x, and roots and reciprocals are asked about numbers as small as the square of a guard."""

    def rule(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
        return [gradients[0] * _finite(slope(step.outputs[0]))]

    return rule


def _divide(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    over = _finite(1 / step.inputs[1])
    slopes = over, -step.outputs[0] * over
    return [
        unbroadcast(gradients[0] * _finite(slope), x.shape) if is_needed else None
        for x, is_needed, slope in zip(step.inputs, step.needed, slopes)
    ]


def _choose(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Hand the sensitivity to the operand that is the result."""
    y = step.outputs[0]
    return [
        unbroadcast(gradients[0] * (y == x), np.shape(x)) if is_needed else None
        for x, is_needed in zip(step.inputs, step.needed)
    ]


def _finite(slope: Array) -> Array:
    return np.nan_to_num(slope, nan=0.0, posinf=0.0, neginf=0.0)


# Operators that move, repeat or select elements


def _reshape(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return step.spread({0: gradients[0].reshape(step.inputs[0].shape)})


def _select(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    """Move sensitivities back to the sources of the output elements, which the reference applied to
    positions tells."""
    positions, first = list(step.inputs), {}
    end = 1  # position 0 is "from nowhere"
    for i, x in enumerate(step.inputs):
        if step.needed[i]:
            first[i] = end
            end += x.size
            positions[i] = np.arange(first[i], end, dtype=np.float64).reshape(x.shape)
        elif x is not None and x.dtype.kind == "f":
            positions[i] = np.zeros(x.shape)
    total = np.zeros(end)
    for source, gradient in zip(as_tuple(step.op.reference(step.ev, *positions)), gradients):
        if source.dtype.kind == "f":
            total += np.bincount(source.ravel().astype(np.intp), gradient.ravel(), end)
    return step.spread(
        {i: total[at : at + step.inputs[i].size].reshape(step.inputs[i].shape)
         for i, at in first.items()}
    )  # fmt: skip


RULES: dict[str, Rule] = {
    "Relu": _relu,
    "Add": _add,
    "Mul": _multiply,
    "Div": _divide,
    "Sqrt": _of_result(lambda y: 0.5 / y),
    "Rsqrt": _of_result(lambda y: -0.5 * y**3),
    "Reciprocal": _of_result(lambda y: -y * y),
    **dict.fromkeys(("Max", "Min", "Clip"), _choose),
    "Conv": linear.convolution,
    "ConvTranspose": linear.transposed_convolution,
    "Gemm": linear.gemm,
    "MatMul": linear.matmul,
    "AveragePool": linear.average_pool,
    "MaxPool": linear.max_pool,
    "GlobalAveragePool": linear.global_average,
    "GlobalMaxPool": linear.global_maximum,
    "Resize": linear.resize,
    "BatchNormalization": normalization.batch_normalization,
    "InstanceNormalization": normalization.normalization,
    "GroupNormalization": normalization.normalization,
    "LayerNormalization": normalization.normalization,
    "MeanVarianceNormalization": normalization.normalization,
    "RMSNormalization": normalization.rms_normalization,
    "Softmax": normalization.softmax,
    "LogSoftmax": normalization.softmax,
    "LRN": normalization.response_normalization,
    "LpNormalization": normalization.lp_normalization,
    "Attention": attention,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast"), _reshape),
    "Bfloat16Factor": _reshape,
    **dict.fromkeys(
        (
            *("Transpose", "Expand", "Tile", "Slice", "Split", "Concat", "Pad", "CenterCropPad"),
            *("Gather", "GatherElements", "GatherND", "ReverseSequence", "Compress"),
            *("DepthToSpace", "SpaceToDepth", "Trilu", "Where", "MaxUnpool", "Dropout"),
        ),
        _select,
    ),
    **dict.fromkeys(linear.SLOPES, linear.reduction),
}
JUMPS = frozenset(
    (
        *(
            "Ceil",
            "Floor",
            "FloorDiv",
            "Round",
            "Sign",
            "Mod",
            "Equal",
            "Greater",
            "GreaterOrEqual",
        ),
        *("Less", "LessOrEqual", "IsInf", "IsNaN", "And", "Or", "Xor", "Not", "BitShift"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot", "Shrink", "ThresholdedRelu"),
        "WeightedSumInteger",
    )
)
"""Elementwise operators whose result jumps."""
FLAT = frozenset(("Shape", "Size", "ConstantOfShape", "EyeLike"))
"""Operators whose result does not depend on the numbers of their inputs."""


def rule_of(node: Node, types: Sequence[Any], first: bool = False) -> Rule | None:
    """The rule of a node whose outputs are declared as `types`; None where there is none.

    first: True if only the first output has a sensitivity, not the statistics of a normalization.
    """
    op = node.op
    if op.kind in FLAT:
        return lambda step, gradients: step.spread({})
    if (
        not first
        and len(node.outputs) > 1
        and op.kind in ("BatchNormalization", "LayerNormalization")
    ):
        return None
    if not any(t.dtype.is_float for t in types) or op.kind in JUMPS:
        return None
    rule = RULES.get(op.kind)
    if rule is None and isinstance(op, Elementwise):
        return _elementwise
    return rule
