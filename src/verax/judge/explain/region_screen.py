"""A first look at hypotheses inside a region that costs one node each, not all nodes behind it.

A hypothesis that explains the error e of the region's output moves it by nearly e. To first order
the part of e that it makes is <J^T e, d> / <e, e>, with d what it changes at its own node and J^T e
from one backward pass for all of them. Where that part is far from one, the nodes behind need not
be evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.local import ReferenceValues
from verax.judge.regions.adjoint import NoRule, Tape
from verax.numerics import statistics as st

LEAST, MOST = 0.3, 2.5
"""Parts of the error between which a hypothesis is looked at: one that leaves half of it makes 0.5
to 1.5 of it where the network is linear."""
LINEAR = 0.05
"""Relative error of the output up to which first order is taken to be enough."""
Values = Mapping[str, np.ndarray]


def sensitivities(
    nodes: Sequence[Node],
    meanings: Sequence[ReferenceValues],
    truth: Values,
    seeds: Sequence[np.ndarray],
) -> list[dict[str, np.ndarray]]:
    """For each seed, an array of the shape of the last node's first output, the derivatives of
    <seed, output> by every value of the region. Empty where there are steps or no rule."""
    tape = Tape(frozenset(v for n in nodes for v in n.outputs))
    for node, meaning in zip(nodes, meanings, strict=True):
        inputs = [None if v is None else truth[v] for v in node.inputs]
        tape.add(node, meaning.ev, inputs, meaning.outputs)
    if tape.jumps or tape.choices:
        return [{} for _ in seeds]  # derivatives say nothing about steps
    try:
        return [dict(tape.pull_back({nodes[-1].outputs[0]: seed})) for seed in seeds]
    except NoRule:
        return [{} for _ in seeds]


class Screen:
    """Sensitivities of <e, output> to every value of a region, e being the output's error."""

    def __init__(
        self,
        nodes: Sequence[Node],
        meanings: Sequence[ReferenceValues],
        truth: Values,
        error: np.ndarray,
    ) -> None:
        last = nodes[-1].outputs[0]
        self.truth, self.energy = truth, float(np.vdot(error, error))
        self.gradients: dict[str, np.ndarray] = {}
        relative = st.root_mean_square(error) / max(st.root_mean_square(truth[last]), 1e-300)
        if not self.energy or relative > LINEAR:
            return
        self.gradients = sensitivities(nodes, meanings, truth, [error])[0]

    def passes(self, node: Node, outputs: Sequence[np.ndarray]) -> bool:
        """True if changing the node's results to `outputs` may explain the error, or if nobody can
        tell without evaluating what is behind."""
        changed_values = node.outputs[: len(outputs)]
        if not self.gradients or any(self.truth[v].dtype.kind != "f" for v in changed_values):
            return True
        share = 0.0
        for value, changed in zip(node.outputs, outputs):
            before = self.truth[value]
            if changed.shape != before.shape or before.dtype.kind != "f":
                return True
            if value in self.gradients:
                with np.errstate(all="ignore"):
                    share += float(np.vdot(self.gradients[value], changed - before))
        return not np.isfinite(share) or LEAST <= share / self.energy <= MOST
