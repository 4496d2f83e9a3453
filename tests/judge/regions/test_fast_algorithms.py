"""Winograd's algorithm inside a region: named where it is honest, no cover for a mistake."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.compiler.test_recipe import PADS, data, network

from verax.base.option_groups.settings import Settings
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.decide.possible import using
from verax.judge.regions.network import survey
from verax.numerics.winograd import NAMES
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.transcendental import Tanh
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
    with using(frozenset()):
        strict = survey(graph, data(), values, measure_power=False).findings
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
        dataclasses.replace(n, op=dataclasses.replace(n.op, epsilon=3e-4))  # type: ignore[call-arg]
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


@pytest.mark.parametrize("seed", range(6))
def test_behind_a_curve_that_saturates_too(seed: int) -> None:
    """Slopes differ from pixel to pixel by orders of magnitude, and the errors with them."""
    rng = np.random.default_rng(seed)
    b = Builder("net")
    value = b.add(Relu(), [b.input("x", TensorType.parse("float32[2, 65, 19, 17]"))])
    w = rng.standard_normal((67, 65, 3, 3)) * (1 if seed % 2 else 1 / 24)
    value = b.add(Conv(pads=PADS), [value, b.constant(w.astype(np.float32))], name="conv")
    graph = b.graph([b.add(Tanh(), [value], ["y"])])
    inputs = {"x": rng.standard_normal((2, 65, 19, 17), np.float32)}
    honest = VeraxRunner(Settings(opt_level=3)).run(graph, inputs)
    (found,) = survey(graph, inputs, honest, seed=seed, measure_power=False).findings
    assert found.kind in (Kind.rounding, Kind.precision), found
    wrong = dataclasses.replace(graph, constants={
        v: a * np.where(np.arange(67) == 5, np.float32(1.001), np.float32(1)).reshape(67, 1, 1, 1)
        for v, a in graph.constants.items()})  # fmt: skip
    given = VeraxRunner(Settings(opt_level=3)).run(wrong, inputs)
    (found,) = survey(graph, inputs, given, seed=seed, measure_power=False).findings
    assert found.kind is Kind.mistake, found
