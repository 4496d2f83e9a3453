"""An epsilon that is added where the operator has none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from verax.judge.explain.hypotheses.base import (
    After,
    Hypothesis,
    Prior,
    Suspect,
    edited,
)
from verax.judge.explain.hypotheses.batch_norm import EPSILONS
from verax.ops.sums.response_normalization import LpNormalization

USUAL = tuple(e for e in (*EPSILONS, 1e-9, 1e-10) if e > 0)
PLACES = {"Log": (0, "argument"), "Sqrt": (0, "argument"), "Reciprocal": (0, "divisor"),
          "Div": (1, "divisor")}  # fmt: skip
"""Operator -> the input that people guard, and its name."""


def added_epsilons(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield, for each usual epsilon, that it was added to an input, or is its least value."""
    if suspect.op.kind not in PLACES or suspect.actual.dtype.kind != "f":
        return
    index, label = PLACES[suspect.op.kind]
    if suspect.inputs[index].size < 2:
        return  # any number is the sum of another and something
    for value in USUAL:
        yield Hypothesis(
            f"epsilon {value:g} added",
            f"epsilon {value:g} was added to the {label}, which has none",
            Prior.common,
            inputs=edited(index, lambda x, e=value: x.astype(np.float64) + e),
            attributes={"epsilon": f"{value:g}"},
        )
        yield Hypothesis(
            f"at least {value:g}",
            f"the {label} was taken for at least {value:g}",
            Prior.uncommon,
            inputs=edited(index, lambda x, e=value: np.maximum(x.astype(np.float64), e)),
            attributes={"epsilon": f"{value:g}"},
        )


def epsilons_of_norms(suspect: Suspect, op: LpNormalization) -> Iterator[Hypothesis]:
    """Yield LpNormalization with a guard that the node has not."""
    for value in USUAL:
        for field, words in (
            ("epsilon", f"epsilon {value:g} was added below the root"),
            ("floor", f"the norm was taken for at least {value:g}"),
        ):
            if getattr(op, field) != value:
                yield Hypothesis(
                    f"{field} {value:g}", words, Prior.common,
                    op=dataclasses.replace(op, **{field: value}),  # type: ignore[arg-type]
                    attributes={field: f"{value:g}"},
                )  # fmt: skip
        yield Hypothesis(
            f"epsilon {value:g} behind the root",
            f"epsilon {value:g} was added to the norm",
            Prior.common,
            after=After(lambda y, inputs, e=value: _guarded(op, y, inputs[0], e), roundings=1),
            attributes={"epsilon": f"{value:g}"},
        )


def _guarded(op: LpNormalization, y: np.ndarray, x: np.ndarray, epsilon: float) -> np.ndarray:
    """y with epsilon added to what it was divided by."""
    powers = np.abs(x.astype(np.float64)) ** op.p
    norm = np.sum(powers, axis=op.axis, keepdims=True) ** (1 / op.p)
    return np.asarray(y * norm / (norm + epsilon))
