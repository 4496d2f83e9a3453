"""Operators without a family of their own: every attribute at its other values, operands exchanged.

What an attribute could be instead follows from its type and its name; a value that the operator
refuses is no hypothesis.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.operator import Inference, Operator
from verax.ir.types import TensorType
from verax.judge.explain.hypotheses.base import Arrays, Hypothesis, Prior, Suspect
from verax.ops.pointwise.comparison import Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from verax.ops.pointwise.logic import And, Or, Xor
from verax.ops.pointwise.rounding import Ceil, Floor, Round
from verax.ops.pointwise.transcendental import Cos, Cosh, Sin, Sinh, Tan

ALTERNATIVES: dict[str, tuple[str, ...]] = {
    "mode": ("linear", "nearest", "cubic", "avg", "max"),
    "padding_mode": ("zeros", "border", "reflection"),
    "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
    "reduction": ("none", "add", "mul", "max", "min"),
    "direction": ("LEFT", "RIGHT"),
    "rounding": ("once", "twice", "short"),
}
"""Attribute -> what it may be, over all operators."""
RELATIVES: tuple[tuple[type[Operator], ...], ...] = (
    (Greater, GreaterOrEqual, Less, LessOrEqual, Equal),
    (And, Or, Xor),
    (Floor, Ceil, Round),
    (Sin, Cos, Tan, Sinh, Cosh),
)
"""Operators without attributes that are taken for one another."""
RANKS = 5
"""Axes that are tried."""


def by_attributes(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield hypotheses on any operator: one attribute changed, another operator of its kind, two
    operands exchanged."""
    op = suspect.op
    for field in dataclasses.fields(op):
        value = getattr(op, field.name)
        for new_value in _other_values(field.name, value, suspect.x.ndim):
            alternative = _with(suspect, field.name, new_value)
            if alternative is not None:
                yield Hypothesis(
                    f"{field.name} {new_value}",
                    f"{field.name} was {new_value}, not {value}",
                    Prior.usual,
                    op=alternative,
                    attributes={field.name: str(new_value)},
                )
    for group in RELATIVES:
        for kind in group if type(op) in group else ():
            if kind is not type(op):
                yield Hypothesis(
                    f"computed as {kind.__name__}",
                    f"{kind.__name__} was computed",
                    Prior.usual,
                    op=kind(),
                    attributes={"operator": kind.__name__},
                )
    yield from exchanged(suspect, Prior.usual)


def exchanged(suspect: Suspect, prior: Prior) -> Iterator[Hypothesis]:
    """Two inputs of one type, and of other content, exchanged."""
    for i, j in itertools.combinations(range(len(suspect.inputs)), 2):
        a, b = suspect.inputs[i], suspect.inputs[j]
        if a is None or b is None or (a.shape, a.dtype) != (b.shape, b.dtype):
            continue
        if not np.array_equal(a, b):
            yield Hypothesis(
                f"inputs {i} and {j} exchanged",
                f"the inputs {i} and {j} were exchanged",
                prior,
                inputs=lambda arrays, i=i, j=j: _exchanged(arrays, i, j),
            )


def _other_values(name: str, value: Any, rank: int) -> Iterator[Any]:
    """Other values of an attribute."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, str):
        yield from (v for v in ALTERNATIVES.get(name, ()) if v != value)
    elif isinstance(value, int) and name.endswith("axis"):
        yield from (a for a in range(min(rank, RANKS)) if a != value % max(1, rank))


def _with(suspect: Suspect, name: str, value: Any) -> Operator | None:
    """The operator with another attribute; None where it refuses that."""
    types = tuple(None if a is None else TensorType.of(a) for a in suspect.inputs)
    try:
        alternative = dataclasses.replace(suspect.op, **{name: value})
        alternative.infer(Inference(types, suspect.inputs))
    except (VeraxError, ValueError, TypeError, IndexError):
        return None
    return alternative


def _exchanged(arrays: Arrays, i: int, j: int) -> Arrays:
    arrays = list(arrays)
    arrays[i], arrays[j] = arrays[j], arrays[i]
    return arrays
