"""Arguments and result of a vector-Jacobian rule (see `vjp`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.operator import Evaluation

Array = np.ndarray


@dataclass(frozen=True)
class VjpStep:
    """One node as it was evaluated. Floats are float64; integers as declared; None if omitted.

    needed: per input, True if its sensitivity is needed.
    """

    op: Any
    ev: Evaluation
    inputs: tuple[Any, ...]
    outputs: tuple[Array, ...]
    needed: tuple[bool, ...]

    def spread(self, gradients: dict[int, Array]) -> list[Array | None]:
        """One entry per input, None where `gradients` has none."""
        return [gradients.get(i) for i in range(len(self.inputs))]


Rule = Callable[[VjpStep, Sequence[Array]], list[Array | None]]
"""(step, one cotangent per output) -> one per input, None where it is not wanted."""
RULES: dict[str, Rule] = {}
"""Kind of operator -> its rule; filled by `derivative_of`."""


def derivative_of(*kinds: str) -> Callable[[Rule], Rule]:
    """Registers a rule for kinds of operators; each has one."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            assert kind not in RULES, f"{kind} has a derivative already"
            RULES[kind] = rule
        return rule

    return register


def unbroadcast(gradient: Array, shape: tuple[int, ...]) -> Array:
    """The sum of `gradient` over what broadcasting `shape` had repeated."""
    lead = gradient.ndim - len(shape)
    total = gradient.sum(axis=tuple(range(lead))) if lead else gradient
    repeated = tuple(a for a, n in enumerate(shape) if n == 1 != total.shape[a])
    return total.sum(axis=repeated, keepdims=True) if repeated else total
