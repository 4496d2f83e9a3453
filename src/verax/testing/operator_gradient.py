"""The vector-Jacobian product of an operator, by the judge's rules, in float64 and under random
rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.ir.operator import Operator
from verax.judge.gradients import Pulled
from verax.numerics.error_model import U
from verax.testing.operator_meaning import counted_inputs, operator_case
from verax.testing.random_rounding import Arrays, RoundingNoise
from verax.testing.random_rounding_numpy import RoundedArray, rounding_at_random


class OperatorGradient:
    """Gradients of an operator's float inputs, as a `random_rounding.SampledFunction`.

    inputs: by name, in the operator's order. differentiated: indices of those that have gradients.
    cotangents: of its outputs.
    """

    def __init__(
        self,
        op: Operator,
        inputs: Mapping[str, Any],
        differentiated: Sequence[int],
        cotangents: Sequence[np.ndarray],
    ) -> None:
        self.label = str(op)
        listed = list(counted_inputs(op, tuple(inputs.values())))
        self.case = operator_case(op, tuple(inputs.values()), cotangents[0].dtype)
        self.differentiated = [listed[i] for i in differentiated]
        self.cotangents = dict(zip(self.case.graph.outputs, cotangents))
        self.inputs = (*self.case.feeds.values(), *cotangents)

    def exact(self) -> Arrays:
        pulled = Pulled(self.case.graph, self.case.feeds)
        gradients = pulled.back(self.cotangents, self.differentiated)
        return [np.asarray(gradients[v]) for v in self.differentiated]

    def with_input(self, index: int, by: np.ndarray) -> Arrays:
        names = list(self.case.feeds)
        feeds, cotangents = dict(self.case.feeds), dict(self.cotangents)
        if index < len(names):
            feeds[names[index]] = by.astype(feeds[names[index]].dtype)
        else:
            cotangents[list(cotangents)[index - len(names)]] = by
        gradients = Pulled(self.case.graph, feeds).back(cotangents, self.differentiated)
        return [np.asarray(gradients[v]) for v in self.differentiated]

    def sample(self, noise: RoundingNoise) -> Arrays:
        pulled = Pulled(self.case.graph, self.case.feeds)
        cotangents = {
            v: noise.disturbed(np.asarray(g, np.float64)) for v, g in self.cotangents.items()
        }

        def seen(x: np.ndarray) -> np.ndarray:
            return np.asarray(noise.disturbed(x)).view(RoundedArray)

        with rounding_at_random(noise):
            gradients = pulled.back(cotangents, self.differentiated, seen)
        plain = [np.asarray(gradients[v]).view(np.ndarray) for v in self.differentiated]
        roundings = Pulled(self.case.graph, self.case.feeds).roundings(
            cotangents, self.differentiated
        )
        if roundings is None:
            return plain
        # Only products and sums: the error model of sums, whatever the rule's own order.
        scale = noise.sums / U
        return [
            g + scale * roundings[v].sigma * noise.random.standard_normal(g.shape)
            for v, g in zip(self.differentiated, plain)
        ]

    def own(self) -> Arrays | None:
        return None
