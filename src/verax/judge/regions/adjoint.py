"""How rounding and mistakes inside a network reach what was shown, by derivatives.

One forward pass keeps every value in float64 (`Tape`). A backward pass from a combination v.e of
the shown values' errors then gives Var(v.e) = sum over nodes of sum (g sigma)^2, g being the
sensitivity of v.e to a value: no sampling. Two uses:

- few shown numbers: one pass for each gives its exact spread (`spreads`);
- many: passes from random signs give, for every node at once, what share of the rounding it makes
  and how large a relative error in it would show (`reaches`).

Derivatives say nothing about jumps. A tape that meets one, or an operator without a rule, raises
`NoRule`, and Monte Carlo arithmetic has to answer instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from verax.base.deadline import require_time
from verax.base.process.side_by_side import in_turn, sharing, threads
from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.judge.regions.vjp import rule_of
from verax.judge.regions.vjp_step import VjpStep
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY, U
from verax.reference.evaluate import to_work

Values = dict[str, np.ndarray]
Through = Callable[[list[np.ndarray]], list[tuple[str, np.ndarray]]]
"""Sensitivities of a node's outputs -> (value, sensitivity) of the inputs that matter."""
LARGE = 1 << 14
"""Elements of a node's result from which on its passes go to threads."""


class NoRule(Exception):
    """Derivatives cannot go back through a node; the text says which and why."""


@dataclass(frozen=True)
class Record:
    """A node as it was evaluated."""

    node: Node
    ev: Evaluation
    inputs: tuple[Any, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass
class Tape:
    """Nodes as they were evaluated, in order.

    hidden: values that were computed inside. steady: those among them that rounding cannot move
    (shapes, what is computed from them exactly, that no number is a NaN). choices: integers and
    booleans that it can. jumps: indices of the records whose results jump and that read what
    rounding can move.
    """

    hidden: frozenset[str]
    records: list[Record] = field(default_factory=list)
    steady: set[str] = field(default_factory=set)
    choices: set[str] = field(default_factory=set)
    values: Values = field(default_factory=dict)
    jumps: list[int] = field(default_factory=list)

    def add(
        self,
        node: Node,
        ev: Evaluation,
        inputs: Sequence[Any],
        outputs: Sequence[np.ndarray],
        still: bool = False,
    ) -> None:
        """Append one evaluation of a node; arrays as in `decide.local.meaning`.

        still: True if the node's own rounding cannot change these outputs."""
        self.records.append(Record(node, ev, tuple(inputs), tuple(outputs)))
        self.values.update(zip(node.outputs, outputs))
        fixed = all(v in self.steady or v not in self.hidden for v in node.inputs if v is not None)
        types = [*(t for t in ev.inputs if t is not None), *ev.outputs]
        integers_only = not any(t.dtype.is_float for t in types)
        no_nan = node.op.kind == "IsNaN" and not any(y.any() for y in outputs)
        if node.op.is_flat or no_nan or (fixed and (node.op.exact or still or integers_only)):
            self.steady.update(node.outputs)
        else:
            discrete = [v for v, y in zip(node.outputs, outputs) if y.dtype.kind != "f"]
            self.choices.update(discrete)
            reads_noise = any(v in self.hidden and v not in self.steady for v in node.inputs)
            if reads_noise and (discrete or node.op.jumps):
                self.jumps.append(len(self.records) - 1)

    def pull_back(self, seeds: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (value, sensitivity) for every value that the seeded ones depend on, last first.

        seeds: cotangents of values on the tape. Raises `NoRule`.
        """
        for value, (sensitivity,) in self.pull_back_together([seeds]):
            yield value, sensitivity

    def pull_back_together(
        self, seeds: Sequence[Mapping[str, np.ndarray]]
    ) -> Iterator[tuple[str, list[np.ndarray]]]:
        """`pull_back` of several seeds of the same values, node by node: one sensitivity each."""
        passes: list[Values] = [dict(s) for s in seeds]
        for record in reversed(self.records):
            require_time()
            node = record.node
            if not any(v in passes[0] for v in node.outputs):
                continue
            cotangents = [
                [
                    gradients.pop(v) if v in gradients else np.zeros(y.shape)
                    for v, y in zip(node.outputs, record.outputs)
                ]
                for gradients in passes
            ]
            for i, value in enumerate(node.outputs):
                yield value, [of_pass[i] for of_pass in cotangents]
            through = self._through(record)
            if through is None:
                continue
            size = max((y.size for y in cotangents[0]), default=0)
            with sharing(threads() if size >= LARGE else 1):
                for gradients, results in zip(passes, in_turn(through, cotangents)):
                    for value, gradient in results:
                        accumulated = gradients.get(value)
                        gradients[value] = (
                            gradient if accumulated is None else accumulated + gradient
                        )

    def _through(self, record: Record) -> Through | None:
        """How sensitivities of a record's outputs become those of its inputs; None where nothing
        before it matters."""
        node = record.node
        choices_read = [v for v in node.inputs if v in self.choices]
        needed = tuple(
            v in self.hidden and v not in self.steady and t is not None and t.dtype.is_float
            for v, t in zip(node.inputs, record.ev.inputs)
        )
        if not any(y.size for y in record.outputs):  # an empty batch: nothing is to be moved
            zeros = [
                (value, np.zeros(x.shape))
                for value, x, is_needed in zip(node.inputs, record.inputs, needed)
                if is_needed and value is not None
            ]
            return lambda cotangents: zeros
        rule = rule_of(node, record.ev.outputs) if any(needed) else None
        if choices_read:
            raise NoRule(f"{node.place} reads {choices_read[0]!r}, a choice that rounding may tip")
        if not any(needed):
            return None
        if rule is None:
            raise NoRule(f"no derivative goes through {node.place}")
        wide = tuple(
            None if x is None or t is None else to_work(x, t.dtype, np.dtype(np.float64))
            for x, t in zip(record.inputs, record.ev.inputs)
        )
        step = VjpStep(node.op, record.ev, wide, record.outputs, needed)

        def through(cotangents: list[np.ndarray]) -> list[tuple[str, np.ndarray]]:
            try:
                with np.errstate(all="ignore"):
                    gradients = rule(step, cotangents)
                    return [
                        (value, _finite(gradient))
                        for value, gradient, is_needed in zip(node.inputs, gradients, needed)
                        if is_needed and value is not None and gradient is not None
                    ]
            except NotImplementedError:
                raise NoRule(f"no derivative goes through {node.place} to its parameters") from None

        return through


@dataclass(frozen=True)
class Reach:
    """Effect of an error of one inner value on the observed values.

    statistic: T of the shown values, for a relative error of 1 spread over the value, drawn for
    each element: the root mean square over the shown values, which the worst of them is at least.
    rounded: part of the shown values' variance that the rounding of the value's own node makes.
    factor: T for one relative error of all elements, which a norm behind the value takes away.
    directions: how many independent ones there are in what such drawn errors do; where they are
    few, some draws do little. draws: passes from random signs that this is known from, 0 where it
    is exact.
    """

    statistic: float
    rounded: float
    factor: float = 0.0
    directions: float = math.inf
    draws: int = 0

    @property
    def least(self) -> float:
        """T that an error drawn for each element exceeds as often as `statistics.CLAIMED` asks."""
        return self.statistic * st.least_share(self.directions)

    @property
    def least_factor(self) -> float:
        """`factor`, as small as it may be by the passes that it is known from."""
        return self.factor / st.most_share(self.draws)


def spreads(
    tape: Tape, observed: Sequence[str], sigma: Mapping[str, np.ndarray]
) -> tuple[Values, dict[str, Reach]]:
    """Exact standard deviation of each element of the `observed` values, and `Reach` by value.

    sigma: per value, the standard deviation of its own node's rounding. Takes one backward pass for
    each element. Where nothing rounds at all, any error is visible. Raises `NoRule`.
    """
    zeros = {v: np.zeros(tape.values[v].shape) for v in observed}
    places = [(v, i) for v in observed for i in np.ndindex(zeros[v].shape)]
    seeds = []
    for value, index in places:
        seed = np.zeros(zeros[value].shape)
        seed[index] = 1.0
        seeds.append({**zeros, value: seed})
    energies = _energies(tape, seeds, sigma)
    variance = np.sum([e.rounded for e in energies.values()], axis=0)
    weight = np.array([_weight(zeros[v].size, len(observed)) for v, _ in places])
    if variance.any():
        scale = np.sqrt(np.divide(weight, variance, where=variance > 0, out=0 * variance))
    else:
        scale = np.sqrt(weight) / TINY
    found = {v: a.copy() for v, a in zeros.items()}
    for (value, index), part in zip(places, variance):
        found[value][index] = np.sqrt(part)
    return found, _combined({v: e.scaled(scale) for v, e in energies.items()})


def reaches(
    tape: Tape,
    spread: Mapping[str, np.ndarray],
    sigma: Mapping[str, np.ndarray],
    random: np.random.Generator,
    draws: int = st.REACH_DRAWS,
) -> dict[str, Reach]:
    """`Reach` of every value that the values in `spread` depend on, from random signs.

    spread: standard deviation of the observed values. The mean over signs r of (J^T (r / s))_k^2 is
    the sum over observed elements j of (J_jk / s_j)^2 (Hutchinson 1990). Raises `NoRule`.
    """
    least = np.inf if any(s.any() for s in spread.values()) else TINY  # nothing rounds: all shows
    seeds = []
    for _ in range(draws):
        seed = {}
        for value, s in spread.items():
            if not s.any():  # what does not round shows every error
                s = U * np.abs(tape.values[value]) + TINY
            unit = np.where(s > 0, s, least) / np.sqrt(_weight(s.size, len(spread)))
            seed[value] = random.choice((-1.0, 1.0), s.shape) / unit
        seeds.append(seed)
    return _combined(_energies(tape, seeds, sigma), draws)


def _weight(size: int, values: int) -> float:
    """Weight of z^2 of one of `size` elements in the mean over `values` shown values of T^2."""
    return 1 / (max(1, size) * st.group_limit(size) ** 2 * values)


class _Energy(NamedTuple):
    """Of one value y in several passes with sensitivities g, h: sum g y h y of each two of them,
    and of each sum (g sigma)^2 and sum g y."""

    moved: np.ndarray
    rounded: np.ndarray
    together: np.ndarray

    def scaled(self, by: np.ndarray) -> _Energy:
        """With the seed of each pass times a number."""
        return _Energy(self.moved * by * by[:, None], self.rounded * by * by, self.together * by)


def _energies(
    tape: Tape, seeds: Sequence[Mapping[str, np.ndarray]], sigma: Mapping[str, np.ndarray]
) -> dict[str, _Energy]:
    """By value. seeds: of each pass, of the same values; the passes go side by side."""
    found: dict[str, _Energy] = {}
    for value, gradients in tape.pull_back_together(seeds):
        y = tape.values[value]
        if y.dtype.kind != "f":
            continue
        products = np.empty((len(seeds), y.size))
        _multiply(gradients, y, products)
        moved, together = products @ products.T, products.sum(axis=1)
        rounded = np.zeros(len(seeds))
        if value in sigma:
            _multiply(gradients, sigma[value], products)
            rounded = np.array([float(n @ n) for n in products])
        found[value] = _Energy(moved, rounded, together)
    return found


def _multiply(gradients: Sequence[np.ndarray], size: np.ndarray, out: np.ndarray) -> None:
    """Each gradient times `size` into a row of `out`, what is not finite as 0."""
    with np.errstate(all="ignore"):
        for gradient, row in zip(gradients, out, strict=True):
            np.multiply(gradient, size, out=row.reshape(gradient.shape))
            _finite(row, copy=False)


def _finite(array: np.ndarray, copy: bool = True) -> np.ndarray:
    """`array` with 0 for what is not finite; itself where all is. copy: not in place."""
    if np.isfinite(array.sum()):  # a sum of which one addend is not finite is not either
        return array
    return np.nan_to_num(array, copy=copy, nan=0.0, posinf=0.0, neginf=0.0)


def _combined(energies: Mapping[str, _Energy], draws: int = 0) -> dict[str, Reach]:
    """draws: passes from random signs, whose mean counts; 0 for one pass each, whose sum does."""
    total = sum(float(e.rounded.sum()) for e in energies.values())
    found: dict[str, Reach] = {}
    for value, energy in energies.items():
        passes = max(1, draws)
        share = float(energy.rounded.sum()) / total if total > 0 else 0.0
        found[value] = Reach(
            math.sqrt(np.trace(energy.moved) / passes),
            share,
            math.sqrt(float(energy.together @ energy.together) / passes),
            directions(energy.moved, draws),
            draws,
        )
    return found


def directions(moved: np.ndarray, draws: int) -> float:
    """How many independent directions a covariance M has: (sum of eigenvalues)^2 / sum of squares.

    moved: M, or with `draws` the products r M q of so many random vectors with each other, of which
    the mean of (r M q)^2 is the sum of the squares of M. One cannot tell, and may have met a single
    direction."""
    diagonal = np.diag(moved)
    if not draws:
        squares, product = float((moved * moved).sum()), float(np.square(diagonal.sum()))
    else:
        squares = float((moved * moved).sum() - diagonal @ diagonal)
        product = float(np.square(diagonal.sum())) - float(diagonal @ diagonal)
    if draws == 1 or not product > 0:
        return 1.0
    return max(1.0, product / squares) if squares > 0 else math.inf
