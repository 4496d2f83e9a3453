"""Sums, products and their like: operands missing, exchanged, doubled, along another axis."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from verax.ir.operator import Operator
from verax.judge.explain.hypotheses.base import (
    After,
    Hypothesis,
    Prior,
    Suspect,
    edited,
    from_inputs,
    hypotheses_of,
)
from verax.judge.explain.hypotheses.epsilons import added_epsilons
from verax.judge.explain.hypotheses.fitting import LEAST
from verax.ops.pointwise.arithmetic import Add, Div, Max, Mean, Min, Mul, Sub, Sum

EXPONENTS = (2.0, 3.0, 0.5, -1.0, -0.5, 1.0)
"""Exponents that fused operators stand for: squares, cubes, roots, inverses."""
BINARY: dict[str, Operator] = {"Add": Add(), "Sub": Sub(), "Mul": Mul(), "Div": Div()}
VARIADIC: dict[str, Operator] = {"Sum": Sum(), "Mean": Mean(), "Max": Max(), "Min": Min()}


@hypotheses_of("Add", "Sub", "Mul", "Div", "Pow")
def binary(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Add, Sub, Mul, Div and Pow."""
    kind = suspect.op.kind
    for index, label in ((0, "first"), (1, "second")):
        yield Hypothesis(
            f"{label} operand missing",
            f"the {label} operand was left out",
            Prior.usual,
            after=_only(1 - index, suspect.expected.shape),
        )
        yield Hypothesis(
            f"{label} operand negated",
            f"the sign of the {label} operand was changed",
            Prior.uncommon,
            inputs=edited(index, np.negative),
        )
        yield Hypothesis(
            f"{label} operand twice",
            f"the {label} operand was used twice",
            Prior.uncommon,
            inputs=lambda a, i=index: [a[i], a[i]],
        )
        yield from _other_axis(suspect, index, label)
    if kind in ("Sub", "Div", "Pow"):
        yield Hypothesis(
            "operands exchanged",
            "the operands were exchanged",
            Prior.usual,
            inputs=lambda a: a[::-1],
        )
    yield from added_epsilons(suspect)
    if kind == "Pow":
        yield from _exponents(suspect)
    for name, alternative in BINARY.items():
        if name != kind and kind in BINARY:
            yield Hypothesis(
                f"computed as {name}",
                f"{name} was computed",
                Prior.common,
                op=alternative,
                attributes={"operator": name},
            )


def _exponents(suspect: Suspect) -> Iterator[Hypothesis]:
    """The usual exponents in the place of a single one, as where a fusion does not look at it."""
    exponent = suspect.inputs[1]
    for value in EXPONENTS if exponent.size == 1 and suspect.actual.size >= LEAST else ():
        if value != exponent.item():
            yield Hypothesis(
                f"exponent {value:g}",
                f"the exponent was {value:g}, not {exponent.item():g}",
                Prior.usual,
                inputs=edited(1, lambda e, v=value: np.full(e.shape, v)),
                attributes={"exponent": f"{value:g}"},
            )


def _only(index: int, shape: tuple[int, ...]) -> After:
    return from_inputs(lambda inputs: np.broadcast_to(inputs[index], shape))


def _other_axis(suspect: Suspect, index: int, label: str) -> Iterator[Hypothesis]:
    """The smaller operand stretched along another axis of the same size, or in another order."""
    small, shape = suspect.inputs[index], suspect.expected.shape
    if small.size in (0, 1) or small.shape == shape:
        return
    axes = [a for a, n in enumerate(small.shape, len(shape) - small.ndim) if n > 1]
    if len(axes) == 1:
        for axis, n in enumerate(shape):
            target = [n if a == axis else 1 for a in range(len(shape))]
            if axis not in axes and n == small.size:
                yield Hypothesis(
                    f"{label} operand along axis {axis}",
                    f"the {label} operand was stretched along axis {axis}, not {axes[0]}",
                    Prior.usual,
                    inputs=edited(index, lambda v, t=target: v.reshape(t)),
                )
    for name, words, change in (
        ("reversed", "was read backwards", lambda v: np.flip(v)),
        ("shifted", "was read from its neighbor", lambda v: np.roll(v, 1)),
        ("of its first element", "was taken as its first element", lambda v: v.ravel()[0]),
    ):
        yield Hypothesis(
            f"{label} operand {name}",
            f"the {label} operand {words}",
            Prior.uncommon,
            inputs=edited(index, change),
        )


@hypotheses_of("Sum", "Mean", "Max", "Min")
def variadic(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on Sum, Mean, Max and Min."""
    count = len(suspect.inputs)
    for i in range(count if count > 1 else 0):
        yield Hypothesis(
            f"operand {i} missing",
            f"operand {i} of {count} was left out",
            Prior.usual,
            inputs=lambda a, i=i: [v for j, v in enumerate(a) if j != i],
        )
    for name, alternative in VARIADIC.items():
        if name != suspect.op.kind:
            yield Hypothesis(
                f"computed as {name}",
                f"{name} was computed",
                Prior.common,
                op=alternative,
                attributes={"operator": name},
            )
