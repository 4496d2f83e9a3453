"""Which products of a region were computed in a coarser arithmetic, decided in the order of nodes.

A library chooses for each layer, and a network's gradients have three products for each. What a
product's rounded factors add to the shown values is one direction d; the error that is left of what
was given, r, is 1 d and other products' errors if the product was computed so, and only these if
not. So <r, d> / <d, d> is near 1 or near 0, and many shown numbers tell which. Products before a
node have to be decided first: their errors decide to which side its factors are rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.judge.decide.precision import PRODUCTS
from verax.judge.regions.exceptional import Exceptional
from verax.judge.regions.programs import ProgramRunner, SubjectProgram
from verax.numerics import statistics as st

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Assignment:
    """A program whose exceptions say which products were in float32, and how many programs were
    run to find it."""

    program: SubjectProgram
    runs: int


def assigned(
    runner: ProgramRunner, program: SubjectProgram, actual: Values, max_runs: int
) -> Assignment | None:
    """The program with each product in float32 whose rounded factors do not show in `actual`.

    actual: float64, by shown value. max_runs: runs that may be made. Where products repeat, as the
    steps of a recurrent network do, and one by one would take too many, those of equal shapes are
    decided together. None where there are more than that, or where all of them round, or none.
    """
    nodes = [n for n in runner.sampler.region.nodes if n.op.kind in PRODUCTS]
    products: list[tuple[Node, ...]] = [(n,) for n in nodes]
    if SWEEPS * len(products) > max_runs:
        products = _of_equal_shapes(runner, nodes)
    if not 1 < len(products) <= max_runs or program.factors.data is None:
        return None
    expected = runner.sampler.expected
    weights = {v: st.root_mean_square(a - expected[v]) for v, a in actual.items()}
    current = program.with_exceptions({n.outputs[0]: Exceptional.float32 for n in nodes})
    search = _AssignmentSearch(runner, actual, weights, current, max_runs)
    for i, alike in enumerate(products):
        search.decide(program, alike, len(products) - i)
    for _ in range(SWEEPS):
        before = search.changes
        for alike in products:
            search.decide(program, alike, 0)
        if search.changes == before:
            for first, second in itertools.pairwise(products):
                search.exchange(first, second)
        if search.changes == before:
            break
    exceptions = search.program.exceptions.values()
    in_float32 = sum(e is Exceptional.float32 for e in exceptions)
    return Assignment(search.program, search.runs) if 0 < in_float32 < len(nodes) else None


def _of_equal_shapes(runner: ProgramRunner, nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Products by the shapes of their factors, in the order of their first."""
    types = runner.sampler.graph.types
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        shapes = tuple(types[v].shape for v in node.inputs[:2] if v is not None)
        groups.setdefault((node.op.kind, shapes), []).append(node)
    return [tuple(group) for group in groups.values()]


SWEEPS = 4
"""How often all products are decided: what comes later tells more of what was decided before."""
SCALED = (Exceptional.as_given, Exceptional.scaled_by_root)
"""Other ways to round the factors of a product of attention."""


class _AssignmentSearch:
    """The likeliest program so far, and its run."""

    def __init__(
        self,
        runner: ProgramRunner,
        actual: Values,
        weights: Mapping[str, float],
        program: SubjectProgram,
        max_runs: int,
    ) -> None:
        self.runner, self.actual, self.weights, self.max_runs = runner, actual, weights, max_runs
        self.program, self.base = program, runner.run(program, 0.0)
        self.runs, self.changes = 1, 0

    def decide(self, program: SubjectProgram, alike: tuple[Node, ...], reserved: int) -> None:
        """Compute products in the way that leaves least. reserved: runs that others need."""
        scaled = [o for o in self.runner.options(program, alike[0]) if o in SCALED]
        own = self.program.exceptions.get(alike[0].outputs[0])
        likeliest: tuple[float, SubjectProgram, Values] | None = None
        for option in (None, Exceptional.float32, *scaled):
            if option is own:
                continue
            if self.runs >= self.max_runs or (
                self.runs + reserved > self.max_runs and option is not None
            ):
                break
            candidate = self._with(alike, option)
            run = self.runner.run(candidate, 0.0)
            self.runs += 1
            gain = _gain(run, self.base, self.actual, self.weights)
            if gain > 0 and (likeliest is None or gain > likeliest[0]):
                likeliest = gain, candidate, run
        if likeliest is not None:
            _, self.program, self.base = likeliest
            self.changes += 1

    def _with(self, alike: tuple[Node, ...], option: Exceptional | None) -> SubjectProgram:
        candidate = self.program
        for node in alike:
            candidate = candidate.but(node.outputs[0], option)
        return candidate

    def exchange(self, first: tuple[Node, ...], second: tuple[Node, ...]) -> None:
        """Decide two products the other way at once, where that leaves less: the error of one hides
        behind that of its neighbor."""
        if self.runs >= self.max_runs:
            return
        candidate = self.program
        for value in (n.outputs[0] for n in (*first, *second)):
            is_float32 = self.program.exceptions.get(value) is Exceptional.float32
            candidate = candidate.but(value, None if is_float32 else Exceptional.float32)
        run = self.runner.run(candidate, 0.0)
        self.runs += 1
        if _gain(run, self.base, self.actual, self.weights) > 0:
            self.program, self.base, self.changes = candidate, run, self.changes + 1


def _gain(run: Values, base: Values, actual: Values, weights: Mapping[str, float]) -> float:
    """How much less of the squared error a run leaves than the one before it, where that is more
    than half of what the difference of the two can take away; else at most 0.

    Of a product that was computed so, the difference d takes <d, d> of the error away, of another
    one it adds as much: 2 <r, d> - <d, d> is one or the other.
    """
    gain = 0.0
    for value, weight in weights.items():
        if not weight or run[value].shape != base[value].shape:
            continue
        before, after = actual[value] - base[value], actual[value] - run[value]
        gain += float(np.vdot(before, before) - np.vdot(after, after)) / weight**2 / before.size
    return gain if np.isfinite(gain) else 0.0
