"""Vector-Jacobian products: how an operator hands sensitivities back from outputs to inputs.

The judge asks how strongly an output depends on every value inside a network (see `adjoint`). That
needs a number good to a per cent, not a training gradient: at kinks (Relu at 0) any side will do,
elementwise operators are differentiated by central differences of their own float64 meaning, and
operators that only select or move elements by applying that meaning to positions.

A rule is registered where it is written (`derivative_of`), here and in every `vjp_*.py` of this
folder. An operator without one says so in its declaration: its result jumps (`jumps`), or
`no_derivative` has the reason. `rule_of` answers None for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.discovery import import_modules
from verax.ir.graph import Node
from verax.ir.operator import as_tuple
from verax.judge.regions.vjp_step import (
    RULES,
    Array,
    Rule,
    VjpStep,
    derivative_of,
    unbroadcast,
)
from verax.numerics.statistics import DERIVATIVE_FLOOR, DERIVATIVE_STEP
from verax.ops.pointwise.elementwise import Elementwise

# Elementwise operators


@derivative_of("Relu")
def _relu(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return [gradients[0] * (step.outputs[0] > 0)]


@derivative_of("Add")
def _add(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return [
        unbroadcast(gradients[0], x.shape) if is_needed else None
        for x, is_needed in zip(step.inputs, step.needed)
    ]


@derivative_of("Mul")
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


derivative_of("Sqrt")(_of_result(lambda y: 0.5 / y))
derivative_of("Rsqrt")(_of_result(lambda y: -0.5 * y**3))
derivative_of("Reciprocal")(_of_result(lambda y: -y * y))


@derivative_of("Div")
def _divide(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    over = _finite(1 / step.inputs[1])
    slopes = over, -step.outputs[0] * over
    return [
        unbroadcast(gradients[0] * _finite(slope), x.shape) if is_needed else None
        for x, is_needed, slope in zip(step.inputs, step.needed, slopes)
    ]


@derivative_of("Max", "Min", "Clip")
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


@derivative_of("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Cast", "Bfloat16Factor")
def _reshape(step: VjpStep, gradients: Sequence[Array]) -> list[Array | None]:
    return step.spread({0: gradients[0].reshape(step.inputs[0].shape)})


@derivative_of(
    *("Transpose", "Expand", "Tile", "Slice", "Split", "Concat", "Pad", "CenterCropPad"),
    *("Gather", "GatherElements", "GatherND", "ReverseSequence", "Compress", "DepthToSpace"),
    *("SpaceToDepth", "Trilu", "Where", "MaxUnpool", "Dropout"),
)
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


def rule_of(node: Node, types: Sequence[Any], first: bool = False) -> Rule | None:
    """The rule of a node whose outputs are declared as `types`; None where there is none.

    first: True if only the first output has a sensitivity, not the statistics of a normalization.
    """
    op = node.op
    if op.is_flat:
        return lambda step, gradients: step.spread({})
    if (
        not first
        and len(node.outputs) > 1
        and op.kind in ("BatchNormalization", "LayerNormalization")
    ):
        return None
    if not any(t.dtype.is_float for t in types) or op.jumps:
        return None
    rule = RULES.get(op.kind)
    if rule is None and isinstance(op, Elementwise):
        return _elementwise
    return rule


import_modules(__package__, [str(Path(__file__).parent)], "vjp_")
