"""Winograd's algorithm inside a region: named where it is honest, no cover for a mistake."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.compiler.test_recipe import data, network

from verax.base.settings import Settings
from verax.ir.graph import Graph
from verax.judge.regions.network import survey
from verax.numerics.winograd import NAMES
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind
from verax.runners.own import ReferenceRunner, VeraxRunner

SEEDS = (31, 32, 33)


def shown(graph: Graph, runner: VeraxRunner | ReferenceRunner) -> dict[str, np.ndarray]:
    """What is left when convolution, normalization and activation are one kernel."""
    found = runner.run(graph, data(), ["a0", "a1"])
    return {v: found[v] for v in ("a0", "a1", "y")}


@pytest.mark.parametrize("seed", SEEDS)
def test_it_is_named(seed: int) -> None:
    graph = network(seed)
    values = shown(graph, VeraxRunner(Settings(opt_level=3)))
    found = survey(graph, data(), values, measure_power=False).findings
    assert {f.kind for f in found} <= {Kind.identical, Kind.rounding, Kind.precision}
    named = [f for f in found if f.kind is Kind.precision]
    assert named and {f.test for f in named} <= set(NAMES.values())
    for finding in named:
        assert finding.precision is not None and 2**-24 < finding.precision.unit_roundoff < 2**-18
    strict = survey(graph, data(), values, winograd=False, measure_power=False).findings
    assert Kind.mistake in {f.kind for f in strict}


@pytest.mark.parametrize("seed", SEEDS)
def test_direct_sums_are_rounding(seed: int) -> None:
    graph = network(seed)
    found = survey(graph, data(), shown(graph, ReferenceRunner()), measure_power=False).findings
    assert {f.kind for f in found} <= {Kind.identical, Kind.rounding}


def swapped(graph: Graph) -> Graph:
    nodes = [
        dataclasses.replace(n, op=dataclasses.replace(n.op, pads=((0, 2), (1, 1))))
        if isinstance(n.op, Conv) and n.name == "conv1"
        else n
        for n in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


def scaled(graph: Graph) -> Graph:
    weights = graph.constants["w1"].copy()
    weights[3] *= 1.0002
    return dataclasses.replace(graph, constants={**graph.constants, "w1": weights})


def other_epsilon(graph: Graph) -> Graph:
    nodes = [
        dataclasses.replace(n, op=dataclasses.replace(n.op, epsilon=3e-4))
        if n.name == "norm1"
        else n
        for n in graph.nodes
    ]
    return dataclasses.replace(graph, nodes=tuple(nodes))


@pytest.mark.parametrize("fault", [swapped, scaled, other_epsilon])
@pytest.mark.parametrize("level", [2, 3])
def test_it_is_no_cover_for_a_mistake(fault: object, level: int) -> None:
    graph = network(34)
    values = shown(fault(graph), VeraxRunner(Settings(opt_level=level)))  # type: ignore[operator]
    found = survey(graph, data(), values, measure_power=False).findings
    assert Kind.mistake in {f.kind for f in found if f.value == "a1"}
