"""Constants of formulas that are cut off or rounded to a few digits: 0.8 for the root of 2 / pi."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from verax.judge.explain.hypotheses.base import After, Hypothesis, Prior, Suspect
from verax.ops.pointwise.activation_smooth import Gelu

DIGITS = range(1, 6)
"""Significant digits that are left."""
LEAST_CHANGE = 2.0**-22
"""A constant that moves by less is the same in float32."""


def cut_constants(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield an activation with constants of its formula, or its own, of fewer digits."""
    op = suspect.op
    if isinstance(op, Gelu):
        yield from _gelu(op, suspect.meaning.ev.arith.erf)
    values = {k: v for k, v in op.attributes().items() if isinstance(v, float)}
    for changed in _changed(values):
        yield Hypothesis(
            _name(changed), f"a constant has few digits: {_words(changed, values)}", Prior.uncommon,
            op=dataclasses.replace(op, **changed),  # type: ignore[arg-type]
            attributes={k: f"{v:g}" for k, v in changed.items()},
        )  # fmt: skip


def shorter(value: float) -> list[float]:
    """`value` rounded and cut to few digits, each number once."""
    shortened: list[float] = []
    for digits in DIGITS:
        if value == 0 or not math.isfinite(value):
            return []
        unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - digits)
        for candidate in (round(value / unit) * unit, math.trunc(value / unit) * unit):
            candidate = float(f"{candidate:.{digits}g}")
            if abs(candidate - value) > LEAST_CHANGE * abs(value) and candidate not in shortened:
                shortened.append(candidate)
    return shortened


def _changed(values: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """One constant of fewer digits, and two of them."""
    shortened = {name: shorter(value) for name, value in values.items()}
    for name, numbers in shortened.items():
        yield from ({name: candidate} for candidate in numbers)
    for (a, first), (b, second) in itertools.combinations(shortened.items(), 2):
        yield from ({a: x, b: y} for x, y in itertools.product(first, second))


def _gelu(op: Gelu, erf: Callable[[np.ndarray], np.ndarray]) -> Iterator[Hypothesis]:
    formulas: dict[str, tuple[dict[str, float], Callable[..., np.ndarray]]] = {
        "tanh": ({"sqrt(2 / pi)": math.sqrt(2 / math.pi), "cubic": 0.044715}, _by_tanh),
        "none": ({"sqrt(2)": math.sqrt(2)}, partial(_by_erf, erf)),
    }
    values, formula = formulas[op.approximate]
    for changed in _changed(values):
        constants = tuple((values | changed).values())
        yield Hypothesis(
            _name(changed), f"a constant has few digits: {_words(changed, values)}", Prior.uncommon,
            after=After(lambda y, inputs, c=constants: formula(inputs[0], *c), roundings=4),
            attributes={k: f"{v:g}" for k, v in changed.items()},
        )  # fmt: skip


def _by_tanh(x: np.ndarray, root: float, cubic: float) -> np.ndarray:
    x = x.astype(np.float64)
    return np.asarray(x / 2 * (1 + np.tanh(root * (x + cubic * x**3))))


def _by_erf(erf: Callable[[np.ndarray], np.ndarray], x: np.ndarray, root: float) -> np.ndarray:
    x = x.astype(np.float64)
    return np.asarray(x / 2 * (1 + erf(x / root)))


def _name(changed: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in changed.items())


def _words(changed: Mapping[str, float], values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} is {v:g}, not {values[name]:.9g}" for name, v in changed.items())
