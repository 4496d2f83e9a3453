"""Mistakes in a region that concern several nodes: of attention written out, a negative
scale folded through an activation, two neighbors in the other order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues, meaning
from verax.judge.explain.attention_scores import scores_of
from verax.judge.explain.hypotheses.base import Prior
from verax.judge.explain.hypotheses.written_attention import written_attention
from verax.judge.explain.node import IMPOSSIBLE
from verax.judge.explain.region_hypothesis import RegionHypothesis, Values
from verax.numerics.error_model import Rounding
from verax.ops.pointwise.arithmetic import Div, Mul
from verax.ops.sums.normalization import BatchNormalization

ACTIVATIONS = ("Relu", "LeakyRelu", "PRelu", "Clip")
"""Activations through which scales are folded."""
HOMOGENEOUS = ("Relu", "LeakyRelu", "PRelu")
"""Activations before which scales are folded."""
UNARY = (
    *ACTIVATIONS,
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "MaxPool",
    "AveragePool",
    "BatchNormalization",
)
"""Operators on one tensor whose order with a neighbor is easily exchanged."""


def several_nodes(
    nodes: Sequence[Node],
    meanings: Sequence[ReferenceValues],
    truth: Values,
    types: Mapping[str, TensorType],
    evaluated: Callable[[Node, Values], ReferenceValues],
) -> Iterator[RegionHypothesis]:
    """Yield hypotheses on attention, then on each two neighbors.

    meanings: of the nodes; truth: all values by name; types: of them; evaluated: a node's results
    from values.
    """
    region = _SeveralNodes(nodes, meanings, truth, types, evaluated)
    for scores in scores_of(nodes, truth):
        rounding = meanings[scores.product].roundings[0]
        yield from written_attention(
            nodes,
            scores,
            truth,
            lambda node, values: evaluated(node, values).outputs[0],
            None if rounding is None else rounding.sigma,
        )
    for i in range(len(nodes) - 1):
        yield from region.folded(i)
        yield from region.folded_before(i)
        yield from region.exchanged(i)


@dataclass(frozen=True)
class _SeveralNodes:
    nodes: Sequence[Node]
    meanings: Sequence[ReferenceValues]
    truth: Values
    types: Mapping[str, TensorType]
    evaluated: Callable[[Node, Values], ReferenceValues]

    def folded(self, i: int) -> Iterator[RegionHypothesis]:
        """act(s x) computed as s act(x), which differs where s is negative."""
        scaling, activation = self.nodes[i], self.nodes[i + 1]
        if activation.op.kind not in ACTIVATIONS or activation.inputs[0] != scaling.outputs[0]:
            return
        negative = self._negative_scale(scaling)
        if negative is None or not negative.any():
            return
        channels = [int(c) for c in np.flatnonzero(negative.any(axis=_but_channel(negative.ndim)))]

        def value(values: Values) -> np.ndarray:
            inner = values[scaling.outputs[0]]
            negated = dict(values)
            negated[scaling.outputs[0]] = np.where(negative, -inner, inner)
            y = self.evaluated(activation, negated).outputs[0]
            return np.where(negative, -y, y)

        yield RegionHypothesis(
            "negative scale folded through the activation",
            f"the scale of {scaling.place} was moved behind {activation.place}, which does not hold"
            f" where it is negative (channels {', '.join(map(str, channels[:6]))})",
            Prior.usual,
            i + 1,
            value,
        )

    def folded_before(self, i: int) -> Iterator[RegionHypothesis]:
        """s act(x) + t computed as act(s x) + t, as where a scale is folded into the weights before
        the activation, which differs where s is negative."""
        activation, scaling = self.nodes[i], self.nodes[i + 1]
        follows = scaling.inputs[0] == activation.outputs[0]
        if activation.op.kind not in HOMOGENEOUS or not follows:
            return
        negative = self._negative_scale(scaling)
        if negative is None or not negative.any():
            return
        channels = [int(c) for c in np.flatnonzero(negative.any(axis=_but_channel(negative.ndim)))]

        def value(values: Values) -> np.ndarray:
            x, name = values[str(activation.inputs[0])], activation.outputs[0]
            flipped = self.evaluated(activation, {**values, str(activation.inputs[0]): -x})
            scaled, shift = (
                self.evaluated(scaling, {**values, name: a}).outputs[0]
                for a in (flipped.outputs[0], np.zeros_like(x))
            )
            return np.where(
                negative, 2 * shift - scaled, self.evaluated(scaling, values).outputs[0]
            )

        yield RegionHypothesis(
            "negative scale folded before the activation",
            f"the scale of {scaling.place} was moved before {activation.place}, which does not "
            f"hold where it is negative (channels {', '.join(map(str, channels[:6]))})",
            Prior.usual,
            i + 1,
            value,
        )

    def _negative_scale(self, node: Node) -> np.ndarray | None:
        """Mask of elements that the node multiplies by a negative number, or None."""
        y = self.truth[node.outputs[0]]
        if isinstance(node.op, BatchNormalization):
            scale = self.truth[str(node.inputs[1])].reshape(1, -1, *(1,) * (y.ndim - 2))
        elif isinstance(node.op, Mul | Div):
            scale = self.truth[str(node.inputs[1])]
            if scale.size == y.size:
                return None
        else:
            return None
        return np.broadcast_to(scale < 0, y.shape)

    def exchanged(self, i: int) -> Iterator[RegionHypothesis]:
        """Two neighbors in the other order."""
        first, second = self.nodes[i], self.nodes[i + 1]
        follows = second.inputs[0] == first.outputs[0] and second.op.kind in UNARY
        sources = range(len(first.inputs) if first.op.kind in ("Add", "Sub", "Mul") else 1)
        if not follows or not (first.op.kind in UNARY or len(sources) > 1):
            return
        for j in sources:
            source = first.inputs[j]

            def value(values: Values, source: str | None = source, j: int = j) -> np.ndarray:
                return self._in_other_order(first, second, source, j, values).outputs[0]

            try:
                rounding = self._in_other_order(first, second, source, j, self.truth).roundings[0]
            except IMPOSSIBLE:
                continue
            operand = f", on operand {j}" if len(sources) > 1 else ""
            yield RegionHypothesis(
                f"order exchanged{operand}",
                f"{second.place} was computed before {first.place}{operand}",
                Prior.common,
                i + 1,
                value,
                sigma=_together(rounding, self.meanings[i + 1].roundings[0]),
            )

    def _in_other_order(
        self, first: Node, second: Node, source: str | None, j: int, values: Values
    ) -> ReferenceValues:
        """`first` with its operand j, the value `source`, replaced by `second` of it."""
        early = dataclasses.replace(second, inputs=(source, *second.inputs[1:]))
        exchanged = self.evaluated(early, values).outputs[0]
        arrays = [exchanged if k == j else None if v is None else values[v]
                  for k, v in enumerate(first.inputs)]  # fmt: skip
        declared = [None if v is None else self.types[v] for v in first.inputs]
        return meaning(first, arrays, declared, tuple(self.types[v] for v in first.outputs))


def _together(a: Rounding | None, b: Rounding | None) -> np.ndarray | None:
    """Sigma of two roundings one after the other."""
    sigmas = [r.sigma for r in (a, b) if r is not None]
    if not sigmas or any(s.shape != sigmas[0].shape for s in sigmas):
        return sigmas[0] if sigmas else None
    return np.sqrt(sum((np.square(s) for s in sigmas), np.zeros(sigmas[0].shape)))


def _but_channel(rank: int) -> tuple[int, ...]:
    return tuple(a for a in range(rank) if a != 1)
