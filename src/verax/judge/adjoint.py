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
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Evaluation
from verax.judge.vjp import FLAT, rule_of
from verax.judge.vjp_step import Step
from verax.numerics import statistics as st
from verax.reference.evaluate import to_work

Values = dict[str, np.ndarray]


class NoRule(Exception):
    """Derivatives cannot go back through a node; the text says which and why."""


@dataclass(frozen=True)
class _Record:
    node: Node
    ev: Evaluation
    inputs: tuple[Any, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass
class Tape:
    """Nodes as they were evaluated, in order.

    hidden: values that were computed inside. steady: those among them that rounding cannot move
    (shapes and what is computed from them exactly). choices: integers and booleans that it can.
    """

    hidden: frozenset[str]
    records: list[_Record] = field(default_factory=list)
    steady: set[str] = field(default_factory=set)
    choices: set[str] = field(default_factory=set)
    values: Values = field(default_factory=dict)

    def add(
        self, node: Node, ev: Evaluation, inputs: Sequence[Any], outputs: Sequence[np.ndarray]
    ) -> None:
        """Record one evaluation: inputs and outputs as `judge.local.meaning` takes and gives."""
        self.records.append(_Record(node, ev, tuple(inputs), tuple(outputs)))
        self.values.update(zip(node.outputs, outputs))
        fixed = all(v in self.steady or v not in self.hidden for v in node.inputs if v is not None)
        if node.op.kind in FLAT or (fixed and node.op.exact):
            self.steady.update(node.outputs)
        else:
            self.choices.update(v for v, y in zip(node.outputs, outputs) if y.dtype.kind != "f")

    def pull_back(self, seeds: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray]]:
        """Every value that the seeded ones depend on, last first, with its sensitivity.

        seeds: cotangents of values on the tape. Raises `NoRule`.
        """
        gradients = dict(seeds)
        for record in reversed(self.records):
            node = record.node
            if not any(v in gradients for v in node.outputs):
                continue
            given = [
                gradients.pop(v) if v in gradients else np.zeros(y.shape)
                for v, y in zip(node.outputs, record.outputs)
            ]
            yield from zip(node.outputs, given)
            for value, gradient in self._through(record, given):
                known = gradients.get(value)
                gradients[value] = gradient if known is None else known + gradient

    def _through(
        self, record: _Record, given: list[np.ndarray]
    ) -> Iterator[tuple[str, np.ndarray]]:
        node = record.node
        chosen = [v for v in node.inputs if v in self.choices]
        wanted = tuple(
            v in self.hidden and v not in self.steady and t is not None and t.dtype.is_float
            for v, t in zip(node.inputs, record.ev.inputs)
        )
        rule = rule_of(node, record.ev.outputs) if any(wanted) else None
        if chosen:
            raise NoRule(f"{node.place} reads {chosen[0]!r}, a choice that rounding may tip")
        if not any(wanted):
            return
        if rule is None:
            raise NoRule(f"no derivative goes through {node.place}")
        wide = tuple(
            None if x is None or t is None else to_work(x, t.dtype, np.dtype(np.float64))
            for x, t in zip(record.inputs, record.ev.inputs)
        )
        step = Step(node.op, record.ev, wide, record.outputs, wanted)
        try:
            with np.errstate(all="ignore"):
                found = rule(step, given)
        except NotImplementedError:
            raise NoRule(f"no derivative goes through {node.place} to its parameters") from None
        for value, gradient, asked in zip(node.inputs, found, wanted):
            if asked and value is not None and gradient is not None:
                yield value, np.nan_to_num(gradient, nan=0.0, posinf=0.0, neginf=0.0)


def spreads(
    tape: Tape, shown: Sequence[str], sigma: Mapping[str, np.ndarray]
) -> tuple[Values, dict[str, Reach]]:
    """Exact standard deviation of each element of the `shown` values, one pass for each.

    sigma: per value, the standard deviation of its own node's rounding. Also the `Reach` of every
    value, the shown elements' standard deviations being the unit. Raises `NoRule`.
    """
    found: Values = {v: np.zeros(tape.values[v].shape) for v in shown}
    passes: list[tuple[dict[str, float], dict[str, float], float]] = []
    for value in shown:
        for index in np.ndindex(tape.values[value].shape):
            seed = np.zeros(tape.values[value].shape)
            seed[index] = 1.0
            moved, rounded = _energies(tape, {value: seed}, sigma)
            variance = sum(rounded.values())
            found[value][index] = np.sqrt(variance)
            passes.append((moved, rounded, variance))
    count = len(passes)
    reach = _combined(
        [
            ({v: e / s for v, e in m.items()}, {v: e / s for v, e in r.items()})
            for m, r, s in passes
            if s > 0
        ],
        count,
    )
    return found, reach


def reaches(
    tape: Tape,
    spread: Mapping[str, np.ndarray],
    sigma: Mapping[str, np.ndarray],
    random: np.random.Generator,
    draws: int = st.REACH_DRAWS,
) -> dict[str, Reach]:
    """`Reach` of every value that the values in `spread` depend on, from random signs.

    spread: standard deviation of the shown values. The mean over signs r of (J^T (r / s))_k^2 is
    the sum over shown elements j of (J_jk / s_j)^2 (Hutchinson 1990). Raises `NoRule`.
    """
    passes = []
    count = sum(s.size for s in spread.values())
    for _ in range(draws):
        seeds = {
            v: np.where(s > 0, random.choice((-1.0, 1.0), s.shape) / np.where(s > 0, s, 1), 0.0)
            for v, s in spread.items()
        }
        passes.append(_energies(tape, seeds, sigma))
    return _combined(passes, count * draws)


@dataclass(frozen=True)
class Reach:
    """What a value inside does to the shown ones, in units of their standard deviations.

    moved: root mean square of z at the shown elements for a relative error of 1 spread over the
    value; rounded: part of their variance that the rounding of the value's own node makes.
    """

    moved: float
    rounded: float


def _energies(
    tape: Tape, seeds: Mapping[str, np.ndarray], sigma: Mapping[str, np.ndarray]
) -> tuple[dict[str, float], dict[str, float]]:
    """Per value, sum (g y)^2 and sum (g sigma)^2."""
    moved: dict[str, float] = {}
    rounded: dict[str, float] = {}
    for value, gradient in tape.pull_back(seeds):
        y = tape.values[value]
        if y.dtype.kind != "f":
            continue
        moved[value] = _energy(gradient, y)
        rounded[value] = _energy(gradient, sigma[value]) if value in sigma else 0.0
    return moved, rounded


def _energy(gradient: np.ndarray, size: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        product = np.nan_to_num(gradient * size, nan=0.0, posinf=0.0, neginf=0.0).ravel()
    return float(product @ product)


def _combined(
    passes: Sequence[tuple[dict[str, float], dict[str, float]]], count: int
) -> dict[str, Reach]:
    found: dict[str, Reach] = {}
    total = sum(sum(rounded.values()) for _, rounded in passes)
    for value in dict.fromkeys(v for moved, _ in passes for v in moved):
        moved = sum(m.get(value, 0.0) for m, _ in passes)
        rounded = sum(r.get(value, 0.0) for _, r in passes)
        found[value] = Reach(
            float(np.sqrt(moved / max(1, count))), rounded / total if total > 0 else 0.0
        )
    return found
