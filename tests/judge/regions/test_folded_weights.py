"""A runtime that folds BatchNorm rounds each folded weight once, and every pixel shares that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.regions.sampler import Region, Sampler
from verax.records.verdict import Kind
from verax.reference import promised

ULTRAFACE = (
    Path(__file__).parents[4] / "shared" / "models" / "ultraface_slim"
    / "version-slim-320_without_postprocessing.onnx"
)  # fmt: skip


def network(seed: int, depth: int = 12) -> Graph:
    """Depthwise and pointwise convolutions with BatchNorm, positive all along: errors that all
    pixels share add up instead of averaging out."""
    rng, b = np.random.default_rng(seed), Builder("folded")
    h = b.input("x", TensorType.parse("float32[2, 6, 11, 9]"))
    for layer in range(depth):
        shape = (6, 1, 3, 2) if layer % 2 else (6, 6, 1, 1)
        weights = np.abs(rng.standard_normal(shape)) / np.prod(shape[1:])
        windows = {"groups": 6, "pads": ((1, 1), (0, 1))} if layer % 2 else {}
        conv = REGISTRY["Conv"](**windows)
        h = b.add(conv, [h, b.constant(weights.astype(np.float32))])
        more = [rng.uniform(0.7, 1.4, 6), rng.uniform(0, 0.5, 6), rng.uniform(0, 0.3, 6),
                rng.uniform(0.5, 1.5, 6)]  # fmt: skip
        parameters = [b.constant(m.astype(np.float32)) for m in more]
        h = b.add(REGISTRY["BatchNormalization"](), [h, *parameters])
        h = b.add(REGISTRY["Relu"](), [h])
    return b.graph([h])


def shared_by_pixels(between: str) -> float:
    """How far a channel's mean moves from sample to sample, in units of what it would if every
    pixel erred by itself."""
    rng, b = np.random.default_rng(8), Builder("one")
    x = b.input("x", TensorType.parse("float32[2, 3, 23, 19]"))
    h = b.add(REGISTRY["Conv"](), [x, b.constant(rng.uniform(0.5, 1, (4, 3, 1, 1)).astype("f4"))])
    h = b.add(REGISTRY[between](), [h]) if between else h
    more = [b.constant(rng.uniform(0.5, 1, 4).astype(np.float32)) for _ in range(4)]
    y = b.add(REGISTRY["BatchNormalization"](), [h, *more])
    graph = b.graph([y])
    region = Region(graph.nodes, frozenset(v for v in graph.producers if v != y), (y,))
    inputs = {"x": rng.uniform(0.5, 1, (2, 3, 23, 19)).astype(np.float32)}
    sampler = Sampler(graph, region, {**graph.constants, **inputs}, 9)
    errors = np.array([sampler.sample()[y] - sampler.expected[y] for _ in range(24)])
    alone = errors.std(0).mean() / np.sqrt(2 * 23 * 19)
    return float(errors.mean((1, 3, 4)).std(0).mean() / alone)


def test_folded_weights_are_noise_that_pixels_share() -> None:
    assert shared_by_pixels("") > 4
    assert shared_by_pixels("Tanh") < 2


@pytest.mark.skipif(not ULTRAFACE.exists(), reason="../shared is not here")
def test_a_detector_at_o2_is_rounding_from_its_outputs() -> None:
    found = verax.check(ULTRAFACE, "verax:O2", watch=False, explain=False, seed=0)
    assert found.kind is Kind.rounding, found.reasons


def folded(graph: Graph, x: np.ndarray, factor: float = 1.0) -> dict[str, np.ndarray]:
    """Its output as folded weights give it; one of them multiplied by `factor`."""
    new, _ = run_passes(graph, Settings(opt_level=2))
    name = next(n.inputs[1] for n in new.nodes if n.op.kind == "Conv")
    constants = {**new.constants, name: new.constants[name] * np.float32(factor)}
    return promised(replace(new, constants=constants), {"x": x})


@pytest.mark.parametrize("seed", range(6))
def test_folded_weights_are_rounding_seen_from_the_outputs(seed: int) -> None:
    graph = network(seed)
    x = np.random.default_rng([seed, 1]).uniform(0, 1, (2, 6, 11, 9)).astype(np.float32)
    given = folded(graph, x)
    assert list(given) == list(graph.outputs)
    found = verax.check(graph, given, {"x": x}, explain=False)
    assert found.kind in (Kind.rounding, Kind.identical), found.reasons


@pytest.mark.parametrize("seed", range(3))
def test_weights_that_are_a_little_wrong_are_a_mistake(seed: int) -> None:
    graph = network(seed)
    x = np.random.default_rng([seed, 1]).uniform(0, 1, (2, 6, 11, 9)).astype(np.float32)
    found = verax.check(graph, folded(graph, x, 1 + 3e-5), {"x": x}, explain=False)
    assert found.kind is Kind.mistake, found.reasons
