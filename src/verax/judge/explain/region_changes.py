"""Wrong wires and constants inside a region, seen from its last value alone.

A wire: an operand of a node is another value of its type. Each is tried by computing the region
again, the nearest values in the order of nodes first.

A constant: one element of a parameter (a bias, a factor, a weight's output channel), or all of it
by one factor. The derivative says which of them can give the error at all: random combinations of
the region's last elements are traced back to every node, and one number is fitted to them for each
candidate. The candidates that leave least are fitted to all elements by Gauss-Newton steps, each of
which computes the region again; whether the result explains the numbers is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from verax.base.deadline import clock
from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues
from verax.judge.decide.precision import to_float64
from verax.judge.explain.hypotheses.base import Hypothesis, Prior, Suspect, edited
from verax.judge.explain.hypotheses.parameters import NodeParameter, named, parameters_of, slopes
from verax.judge.regions.adjoint import NoRule, Tape
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY

WIRES = 32
"""Values that are tried in place of an operand."""
COMBINATIONS = 16
"""Random combinations of the last value's elements that are traced back."""
MOST_TRACED = 1 << 22
"""Elements of a region's values together up to which they are: half a gigabyte of derivatives."""
FITTED = 48
"""Candidates that are fitted to all elements, those that leave least first."""
ZEROED = 128
"""Output channels of weights that are tried as zeros, which is too far for a derivative."""
STEPS = 6
"""Gauss-Newton steps at most."""
STEP = 2.0**-16
"""Step of their difference quotients, relative to the size of what is changed."""
Carried = Callable[[int, Hypothesis], np.ndarray | None]
"""The region's last value with a hypothesis on the node of this index."""


def wires(
    node: Node,
    values: Mapping[str, np.ndarray],
    types: Mapping[str, TensorType],
    order: Mapping[str, int],
    excluded: Collection[str],
) -> Iterator[Hypothesis]:
    """Yield hypotheses that an operand was another value of its type.

    order: position of the values that nodes make; excluded: constants and values that depend on
    the node.
    """
    here = order[node.outputs[0]]
    for i, own in enumerate(node.inputs):
        if own is None or own in excluded:
            continue
        shape, dtype = values[own].shape, types[own].dtype
        alternatives = [
            v
            for v, array in values.items()
            if v not in excluded and v != own
            if array.shape == shape and types[v].dtype == dtype
        ]
        for v in sorted(alternatives, key=lambda v: abs(order.get(v, -1) - here))[:WIRES]:
            yield Hypothesis(
                f"input {i} taken from {v}",
                f"input {i} was {v!r} and not {own!r}",
                Prior.common,
                inputs=edited(i, lambda _, v=v: values[v]),
            )


@dataclass(frozen=True)
class _Candidate:
    """One element of a parameter is changed, or all of it by a factor (None). step: by how much, in
    units of `direction`; remainder: what the combinations leave, as a part of all."""

    suspect: Suspect
    parameter: NodeParameter
    element: int | None
    step: float
    remainder: float

    @property
    def direction(self) -> np.ndarray:
        """The change of the parameter's values by one step."""
        values = self.parameter.values
        if self.element is None:
            return values
        return np.where(np.arange(values.size) == self.element, 1.0, 0.0)


@dataclass(frozen=True)
class RegionError:
    """wide, expected: the last value, float64; sigma: standard deviation of its rounding."""

    wide: np.ndarray
    expected: np.ndarray
    sigma: np.ndarray


def wrong_constants(
    suspects: Sequence[Suspect], last: RegionError, carried: Carried, random: np.random.Generator
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield (index of the suspect, hypothesis) for the constants that explain the error best.

    suspects: the region's nodes in order, each with its reference as output. None are yielded for
    a region of more than `MOST_TRACED` elements.
    """
    if sum(s.expected.size for s in suspects) > MOST_TRACED:
        return
    weights = random.standard_normal((COMBINATIONS, *last.expected.shape)) / last.sigma
    error = np.tensordot(weights, last.wide - last.expected, last.expected.ndim)
    traced = _traced([(s.node, s.meaning, s.inputs) for s in suspects], weights)
    candidates = [
        (i, candidate)
        for i, suspect in enumerate(suspects)
        if suspect.node.outputs[0] in traced
        for candidate in _candidates(suspect, traced[suspect.node.outputs[0]], error)
    ]
    candidates.sort(key=lambda c: c[1].remainder)
    for i, candidate in candidates[:FITTED]:
        if clock().is_up:
            return
        values = _fitted(candidate, last, partial(carried, i))
        if values is not None:
            differing = candidate.direction != 0
            for hypothesis in named(candidate.suspect, candidate.parameter, values, differing):
                yield i, hypothesis
    channels = [
        (i, c) for i, c in candidates if c.parameter.axis is not None and c.element is not None
    ]
    for i, candidate in channels[:ZEROED]:
        differing = candidate.direction != 0
        values = np.where(differing, 0.0, candidate.parameter.values)
        for hypothesis in named(candidate.suspect, candidate.parameter, values, differing):
            yield i, hypothesis


def _traced(
    nodes: Sequence[tuple[Node, ReferenceValues, Sequence[np.ndarray | None]]], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Sensitivity [combinations, ...] of the weighted sums of the last value to each value, as far
    as there are rules of derivatives."""
    tape = Tape(frozenset(v for node, *_ in nodes for v in node.outputs))
    for node, reference, inputs in nodes:
        wide = [None if x is None else to_float64(x) for x in inputs]
        tape.add(node, reference.ev, wide, reference.outputs)
    tape.choices.clear()  # what is chosen stays chosen
    last = nodes[-1][0].outputs[0]
    traced: dict[str, list[np.ndarray]] = {}
    for cotangent in weights:
        try:
            for value, gradient in tape.pull_back({last: cotangent}):
                traced.setdefault(value, []).append(gradient)
        except NoRule:
            continue
    return {v: np.array(g) for v, g in traced.items() if len(g) == len(weights)}


def _candidates(suspect: Suspect, gradient: np.ndarray, error: np.ndarray) -> Iterator[_Candidate]:
    """Yield one candidate per element of each parameter, and one for all of it by one factor."""
    flat = gradient.reshape(len(gradient), -1)
    for parameter in parameters_of(suspect):
        sloped = slopes(suspect, parameter)
        if sloped is None:
            continue
        slope, reader, steps = (a.ravel() for a in sloped)
        use = reader >= 0
        count = parameter.values.size
        per_element = (
            np.array([np.bincount(reader[use], (g * slope)[use], count) for g in flat]) / steps
        )
        effects: list[tuple[int | None, np.ndarray]] = []
        if count > 1:
            effects += enumerate(per_element.T)
        if parameter.values.any():
            effects.append((None, per_element @ parameter.values))
        for element, effect in effects:
            size = float(effect @ effect)
            if not np.isfinite(size) or size <= 0:
                continue
            step = float(effect @ error) / size
            remainder = float(np.sum(np.square(error - step * effect)) / max(error @ error, TINY))
            yield _Candidate(suspect, parameter, element, step, remainder)


def _fitted(
    candidate: _Candidate,
    last: RegionError,
    carried: Callable[[Hypothesis], np.ndarray | None],
) -> np.ndarray | None:
    """Values of the parameter by Gauss-Newton steps; None where the error does not shrink."""
    parameter, direction = candidate.parameter, candidate.direction

    def value(step: float) -> np.ndarray | None:
        edit = parameter.edit(parameter.values + step * direction)
        y = carried(Hypothesis("", "", Prior.rare, inputs=edit))
        same = y is not None and y.shape == last.wide.shape and bool(np.isfinite(y).all())
        return y if same else None

    best, step, size = (
        None,
        candidate.step,
        st.root_mean_square((last.wide - last.expected) / last.sigma),
    )
    for _ in range(STEPS):
        increment = STEP * max(1.0, abs(step))
        y, beside = value(step), value(step + increment)
        if y is None or beside is None:
            break
        left = (last.wide - y) / last.sigma
        now = st.root_mean_square(left)
        if now >= size:
            if best is None and now > 4 * size:
                break
        else:
            best, size = step, now
        slope = ((beside - y) / increment / last.sigma).ravel()
        square = float(slope @ slope)
        change = float(slope @ left.ravel()) / square if square > 0 else 0.0
        if not np.isfinite(change) or abs(change) <= 1 / np.sqrt(max(square, TINY)):
            break
        step += change
    return None if best is None else parameter.values + best * direction
