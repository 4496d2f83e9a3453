"""A pass that is right in a network and wrong in the bodies of its loops: the mistake is noticed,
and bisection names the pass and the body."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from tests.compiler.passes.test_inside_bodies import network

from verax.base.option_groups.settings import Settings
from verax.compiler.passes.fold_constants import fold_constants
from verax.compiler.pipeline import levels
from verax.ir.graph import Graph
from verax.judge.bisect import bisect
from verax.records.bisection import Bisection
from verax.records.trace import Trace
from verax.records.verdict import Kind
from verax.runners.own import VeraxRunner


def halved_in_bodies(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """What is folded inside of a body is half of what it should be."""
    new, trace = fold_constants(graph, limit)
    if graph.name != "body" or not trace.rewrites:
        return new, trace
    made = {v: a for v, a in new.constants.items() if v not in graph.constants}
    halved = {v: (a / 2).astype(a.dtype) for v, a in made.items()}
    return replace(new, constants={**new.constants, **halved}), trace


def bisected(run: object) -> Bisection:
    broken = tuple(
        replace(p, run=run) if p.name == "fold_constants" else p for p in levels.PIPELINE
    )
    with patch.object(levels, "PIPELINE", broken):
        return bisect(network(2), VeraxRunner(Settings(1, threads=1)), seed=3).record


def test_a_pass_that_is_wrong_in_bodies_is_named_with_the_body() -> None:
    halved_in_bodies.__name__ = "fold_constants"
    record = bisected(halved_in_bodies)
    found = record.optimizations
    assert record.verdict.kind is Kind.mistake and found is not None
    assert found.guilty == "fold_constants: node 'e' (Exp) (in body of node 'loop' (Loop))"
    assert found.cured is True
    assert found.steps[0].region == ("loop",) and found.steps[0].before != found.steps[0].after


def test_the_pass_itself_is_right_in_them() -> None:
    assert bisected(fold_constants).verdict.kind in (Kind.identical, Kind.rounding)
