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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from verax.base.deadline import require_time
from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.judge.regions.vjp import FLAT, JUMPS, rule_of
from verax.judge.regions.vjp_step import VjpStep
from verax.numerics import statistics as st
from verax.numerics.error_model import TINY
from verax.reference.evaluate import to_work

Values = dict[str, np.ndarray]


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
        if node.op.kind in FLAT or no_nan or (fixed and (node.op.exact or still or integers_only)):
            self.steady.update(node.outputs)
        else:
            discrete = [v for v, y in zip(node.outputs, outputs) if y.dtype.kind != "f"]
            self.choices.update(discrete)
            reads_noise = any(v in self.hidden and v not in self.steady for v in node.inputs)
            if reads_noise and (discrete or node.op.kind in JUMPS):
                self.jumps.append(len(self.records) - 1)

    def pull_back(self, seeds: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (value, sensitivity) for every value that the seeded ones depend on, last first.

        seeds: cotangents of values on the tape. Raises `NoRule`.
        """
        gradients = dict(seeds)
        for record in reversed(self.records):
            require_time()
            node = record.node
            if not any(v in gradients for v in node.outputs):
                continue
            cotangents = [
                gradients.pop(v) if v in gradients else np.zeros(y.shape)
                for v, y in zip(node.outputs, record.outputs)
            ]
            yield from zip(node.outputs, cotangents)
            for value, gradient in self._through(record, cotangents):
                accumulated = gradients.get(value)
                gradients[value] = gradient if accumulated is None else accumulated + gradient

    def _through(
        self, record: Record, cotangents: list[np.ndarray]
    ) -> Iterator[tuple[str, np.ndarray]]:
        node = record.node
        choices_read = [v for v in node.inputs if v in self.choices]
        needed = tuple(
            v in self.hidden and v not in self.steady and t is not None and t.dtype.is_float
            for v, t in zip(node.inputs, record.ev.inputs)
        )
        if not any(y.size for y in cotangents):  # an empty batch: nothing there is to be moved
            for value, x, is_needed in zip(node.inputs, record.inputs, needed):
                if is_needed and value is not None:
                    yield value, np.zeros(x.shape)
            return
        rule = rule_of(node, record.ev.outputs) if any(needed) else None
        if choices_read:
            raise NoRule(f"{node.place} reads {choices_read[0]!r}, a choice that rounding may tip")
        if not any(needed):
            return
        if rule is None:
            raise NoRule(f"no derivative goes through {node.place}")
        wide = tuple(
            None if x is None or t is None else to_work(x, t.dtype, np.dtype(np.float64))
            for x, t in zip(record.inputs, record.ev.inputs)
        )
        step = VjpStep(node.op, record.ev, wide, record.outputs, needed)
        try:
            with np.errstate(all="ignore"):
                gradients = rule(step, cotangents)
        except NotImplementedError:
            raise NoRule(f"no derivative goes through {node.place} to its parameters") from None
        for value, gradient, is_needed in zip(node.inputs, gradients, needed):
            if is_needed and value is not None and gradient is not None:
                yield value, np.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Reach:
    """Effect of an error of one inner value on the observed values.

    statistic: T of the observed values for a relative error of 1, drawn for each element of the
    value: the root mean square over the observed values, a lower bound of their maximum.
    rounded: share of the observed values' variance that the rounding of the value's own node makes.
    factor: T for one relative error common to all elements, which a later norm removes.
    """

    statistic: float
    rounded: float
    factor: float = 0.0


def spreads(
    tape: Tape, observed: Sequence[str], sigma: Mapping[str, np.ndarray]
) -> tuple[Values, dict[str, Reach]]:
    """Exact standard deviation of each element of the `observed` values, and `Reach` by value.

    sigma: per value, the standard deviation of its own node's rounding. Takes one backward pass for
    each element. Where nothing rounds at all, any error is visible. Raises `NoRule`.
    """
    deviations: Values = {v: np.zeros(tape.values[v].shape) for v in observed}
    passes: list[_Energies] = []
    exact: list[_Energies] = []
    for value in observed:
        weight = _weight(tape.values[value].size, len(observed))
        for index in np.ndindex(tape.values[value].shape):
            seed = np.zeros(tape.values[value].shape)
            seed[index] = 1.0
            energies = _energies(tape, {value: seed}, sigma)
            variance = sum(e.rounded for e in energies.values())
            deviations[value][index] = np.sqrt(variance)
            weighed = weight / (variance if variance > 0 else TINY**2)
            (passes if variance > 0 else exact).append(
                {v: _Energy(*(weighed * term for term in e)) for v, e in energies.items()}
            )
    return deviations, _combined(passes or exact, 1)


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
    passes = []
    floor = np.inf if any(s.any() for s in spread.values()) else TINY  # nothing rounds: all shows
    for _ in range(draws):
        seeds = {}
        for value, s in spread.items():
            unit = np.where(s > 0, s, floor) / np.sqrt(_weight(s.size, len(spread)))
            seeds[value] = random.choice((-1.0, 1.0), s.shape) / unit
        passes.append(_energies(tape, seeds, sigma))
    return _combined(passes, draws)


def _weight(size: int, values: int) -> float:
    """Weight of z^2 of one of `size` elements in the mean over `values` shown values of T^2."""
    return 1 / (max(1, size) * st.group_limit(size) ** 2 * values)


class _Energy(NamedTuple):
    """Sums over one value y in one backward pass, g being its sensitivity.

    relative: sum (g y)^2; rounded: sum (g sigma)^2; together: (sum g y)^2."""

    relative: float
    rounded: float
    together: float


_Energies = dict[str, _Energy]


def _energies(
    tape: Tape, seeds: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]
) -> _Energies:
    """The sums of one backward pass from `seeds`, by value."""
    energies: _Energies = {}
    for value, gradient in tape.pull_back(seeds):
        y = tape.values[value]
        if y.dtype.kind != "f":
            continue
        terms = _product(gradient, y)
        noise = _product(gradient, sigma[value]) if value in sigma else np.zeros(1)
        energies[value] = _Energy(
            float(terms @ terms), float(noise @ noise), float(terms.sum()) ** 2
        )
    return energies


def _product(gradient: np.ndarray, size: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.nan_to_num(gradient * size, nan=0.0, posinf=0.0, neginf=0.0).ravel()


def _combined(passes: Sequence[_Energies], draws: int) -> dict[str, Reach]:
    reach_of: dict[str, Reach] = {}
    total = sum(e.rounded for energies in passes for e in energies.values())
    for value in dict.fromkeys(v for energies in passes for v in energies):
        own = [energies[value] for energies in passes if value in energies]
        relative, rounded, together = (float(sum(column)) for column in zip(*own))
        share = rounded / total if total > 0 else 0.0
        reach_of[value] = Reach(
            float(np.sqrt(relative / draws)), share, float(np.sqrt(together / draws))
        )
    return reach_of
