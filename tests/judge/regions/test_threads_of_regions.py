"""A region judged on several threads: the same bits as on one."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.process.side_by_side import sharing
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.regions import adjoint, sampler
from verax.judge.regions.adjoint import reaches
from verax.judge.regions.sampler import Region, Sampler


def residual() -> tuple[Graph, Region, dict[str, np.ndarray]]:
    """Convolutions with BatchNorm and a skip connection, a cast to bfloat16 and back inside."""
    rng, b = np.random.default_rng(31), Builder("residual")
    x = h = b.input("x", TensorType.parse("float32[2, 6, 17, 13]"))
    for _ in range(3):
        weights = (rng.standard_normal((6, 6, 3, 2)) / 6).astype(np.float32)
        conv = REGISTRY["Conv"](pads=((1, 1), (0, 1)))
        h = b.add(conv, [h, b.constant(weights)])
        drawn = [rng.uniform(0.5, 1.5, 6).astype(np.float32) for _ in range(4)]
        h = b.add(REGISTRY["BatchNormalization"](), [h, *map(b.constant, drawn)])
        h = b.add(REGISTRY["Relu"](), [h])
    h = b.add(REGISTRY["Add"](), [h, x])
    cast = REGISTRY["Cast"]
    h = b.add(cast(to=TensorType.parse("bfloat16[1]").dtype), [h])
    h = b.add(cast(to=TensorType.parse("float32[1]").dtype), [h])
    factors = b.constant(rng.uniform(0.5, 1.5, (1, 13, 17, 6)).astype(np.float32))
    moved = b.add(REGISTRY["Transpose"](perm=(0, 3, 2, 1)), [factors])
    short = b.add(cast(to=TensorType.parse("bfloat16[1]").dtype), [moved])  # rounds: it is steady
    h = b.add(REGISTRY["Mul"](), [h, b.add(cast(to=TensorType.parse("float32[1]").dtype), [short])])
    y = b.add(REGISTRY["GlobalAveragePool"](), [h])
    graph = b.graph([y])
    region = Region(graph.nodes, frozenset(v for v in graph.producers if v != y), (y,))
    arrays = {"x": rng.standard_normal((2, 6, 17, 13)).astype(np.float32)}
    return graph, region, {**graph.constants, **arrays}


def drawn(count: int) -> tuple[Sampler, list[dict[str, np.ndarray]]]:
    graph, region, arrays = residual()
    with sharing(count):
        s = Sampler(graph, region, arrays, 5)
        return s, [*s.samples(5), s.sample(), *s.samples(2)]


def test_samples_have_the_same_bits_on_any_number_of_threads() -> None:
    alone, expected = drawn(1)
    together, actual = drawn(3)
    assert alone.sigma.keys() == together.sigma.keys()
    assert all(np.array_equal(alone.sigma[v], together.sigma[v]) for v in alone.sigma)
    assert alone.tape.steady == together.tape.steady and alone.problems == together.problems
    (value,) = alone.region.observed
    pairs = [(a[value], b[value]) for a, b in zip(expected, actual, strict=True)]
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert len({a.tobytes() for a, _ in pairs}) == 8  # no sample twice


def test_a_sample_that_draws_what_it_meets_is_not_drawn_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, expected = drawn(1)
    monkeypatch.setattr(sampler.Sampler, "_is_drawable", False)
    monkeypatch.setattr(sampler.Sampler, "_numbers", None)  # a call would fail
    _, actual = drawn(3)
    assert all(a.keys() == b.keys() for a, b in zip(expected, actual, strict=True))
    assert all((a[v] == b[v]).all() for a, b in zip(expected, actual, strict=True) for v in a)


def test_passes_have_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adjoint, "LARGE", 1)
    s, _ = drawn(1)
    spread = {v: np.full(s.expected[v].shape, 1e-6) for v in s.region.observed}
    found = []
    for count in (1, 3):
        with sharing(count):
            found.append(reaches(s.tape, spread, s.sigma, np.random.default_rng(8)))
    assert found[0] == found[1] and len(found[0]) > 8


def test_a_run_holds_no_value_longer_than_it_is_read() -> None:
    s, _ = drawn(1)
    freed = [v for each in s._last_read for v in each]
    assert len(freed) == len(set(freed)) and set(freed) >= s.region.hidden
    for i, node in enumerate(s.region.nodes):
        for value in s._last_read[i]:
            assert all(value not in n.inputs for n in s.region.nodes[i + 1 :]), node
