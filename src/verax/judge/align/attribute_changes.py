"""Changes of one attribute that make two networks agree, at one node and everywhere.

A converter that reads an attribute wrongly does so at every node. When a divergence is explained
by one attribute, the whole network is tried with it changed at all nodes of that kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from verax.base.errors import VeraxError
from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.align.permutations import Arrangement
from verax.judge.align.values import Side, compare, evaluate_all
from verax.records.alignment import AttributeDifference
from verax.reference.evaluate import evaluate_node

DIGITS = 4
"""Significant digits to which a recovered epsilon is rounded: nobody chose more."""


@dataclass(frozen=True)
class Remedy:
    """An attribute of all `kind` nodes, to be changed from `old` to `new`.

    of_first: whether in the first network; else in the second.
    """

    kind: str
    attribute: str
    old: object
    new: object
    of_first: bool = True

    def apply(self, op: Operator) -> Operator:
        """The operator with the attribute changed."""
        if op.kind != self.kind or getattr(op, self.attribute) != self.old:
            return op
        return dataclasses.replace(op, **{self.attribute: self.new})

    def record(self) -> AttributeDifference:
        """The difference as a record."""
        texts = [_text(self.old), _text(self.new)]
        return AttributeDifference(
            self.kind, self.attribute, *(texts if self.of_first else texts[::-1])
        )


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def everywhere(side: Side, remedy: Remedy) -> Side | None:
    """The network with the remedy applied to all its nodes; None when that changes at most one, or
    the result cannot be evaluated."""
    if sum(remedy.apply(n.op) is not n.op for n in side.graph.nodes) < 2:
        return None
    nodes = tuple(dataclasses.replace(n, op=remedy.apply(n.op)) for n in side.graph.nodes)
    graph = dataclasses.replace(side.graph, nodes=nodes)
    try:
        values = evaluate_all(graph, {v: side.values[v] for v in graph.inputs})
    except (VeraxError, ValueError, IndexError):
        return None
    return Side(graph, values, side.spread)


def evaluate_changed(side: Side, node: Node, op: Operator) -> np.ndarray | None:
    """First output of a node on its inputs under another operator; None when that fails."""
    arrays = [None if v is None else side.values[v] for v in node.inputs]
    types = tuple(
        None if x is None or v is None else TensorType(side.graph.types[v].dtype, x.shape)
        for v, x in zip(node.inputs, arrays)
    )
    changed = dataclasses.replace(node, op=op)
    try:
        return evaluate_node(changed, arrays, types, side.graph.output_types(node))[0]
    except (VeraxError, ValueError, IndexError):
        return None


def folded_epsilon(
    first: Side,
    second: Side,
    cores: Sequence[Sequence[Node]],
    ends: tuple[str, str],
    arrangement: Arrangement,
) -> Remedy | None:
    """The epsilon with which one side folded the BatchNorm that the other keeps, if that alone is
    what differs: Conv -> BatchNormalization against Conv."""
    cores = [[n for n in nodes if n.op.kind != "Pad"] for nodes in cores]
    of_first = len(cores[0]) == 2
    unfolded, folded = cores if of_first else cores[::-1]
    kinds = [[n.op.kind for n in nodes] for nodes in (unfolded, folded)]
    if kinds != [["Conv", "BatchNormalization"], ["Conv"]]:
        return None
    own, folded_side = (first, second) if of_first else (second, first)
    convolution, norm = unfolded
    epsilon = _recovered(own, convolution, norm, folded_side, folded[0])
    if epsilon is None:
        return None
    remedy = Remedy(norm.op.kind, "epsilon", norm.op.attributes()["epsilon"], epsilon, of_first)
    value = evaluate_changed(own, norm, remedy.apply(norm.op))
    if value is None or norm.outputs[0] != ends[0 if of_first else 1]:
        return None
    trial = dataclasses.replace(own, values={**own.values, norm.outputs[0]: value})
    sides = (trial, second) if of_first else (first, trial)
    return remedy if compare(sides[0], ends[0], sides[1], ends[1], arrangement) else None


def _recovered(
    own: Side, convolution: Node, norm: Node, folded_side: Side, folded: Node
) -> float | None:
    """epsilon = (gamma / scale)^2 - variance, from the channels that depend on it most.

    scale: of the folded weights over the kept ones, per output channel, by least squares.
    """
    names = (convolution.inputs[1], norm.inputs[1], norm.inputs[4])
    w, gamma, variance = (own.values[v or ""] for v in names)
    f = folded_side.values[folded.inputs[1] or ""]
    if w.shape != f.shape:
        return None
    rows, folded_rows = w.reshape(len(w), -1), f.reshape(len(f), -1)
    size = (rows * rows).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (rows * folded_rows).sum(axis=1) / size
        epsilons = np.square(gamma / scale) - variance
    usable = np.isfinite(epsilons) & (epsilons > 0)
    if not usable.any():
        return None
    order = np.argsort(variance[usable])
    most_dependent = epsilons[usable][order][: max(1, len(order) // 4)]
    return float(f"{np.median(most_dependent):.{DIGITS}g}")
