"""A network with some products in TF32 and others in float32: each is decided by itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.decide.precision import ARITHMETICS
from verax.judge.regions.exceptional import Exceptional
from verax.judge.regions.product_assignment import assigned
from verax.judge.regions.programs import ProgramRunner, SubjectProgram
from verax.judge.regions.sampler import Region, Sampler
from verax.numerics.formats import TF32, round_to
from verax.ops.pointwise.transcendental import Tanh
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.runners.arrays import ArraysRunner

SIZES = 23, 37, 29, 41, 31, 19
LAYERS = len(SIZES) - 1
PROGRAM = SubjectProgram("TF32 inputs", next(a for a in ARITHMETICS if a.name == "TF32 inputs"))


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(12)
    return [
        random.standard_normal((m, n), np.float32) / np.float32(m**0.5)
        for m, n in itertools.pairwise(SIZES)
    ]


X = np.random.default_rng(4).standard_normal((53, SIZES[0]), np.float32)


def network() -> Graph:
    """Layers one behind the other, of which the last is shown."""
    b = Builder("layers")
    value = b.input("x", TensorType.of(X))
    for i, w in enumerate(weights()):
        value = b.add(MatMul(), [value, b.constant(w, f"w{i}")], name=f"product{i}")
        if i < LAYERS - 1:
            value = b.add(Tanh(), [value], name=f"tanh{i}")
    return b.graph([value])


def answered(coarse: tuple[int, ...], wrong: float = 1.0) -> np.ndarray:
    """The last value with the factors of these layers in TF32, all else in float64. wrong: a factor
    of one layer's result."""
    value = X.astype(np.float64)
    for i, w in enumerate(weights()):
        factors = value, w.astype(np.float64)
        left, right = (round_to(f, TF32) for f in factors) if i in coarse else factors
        value = left @ right
        if i == 3:
            value = value * wrong
        if i < LAYERS - 1:
            value = np.tanh(value)
    return value.astype(np.float32)


@pytest.mark.parametrize("coarse", [(0, 3), (1, 2, 4), (4,), (0, 1, 2, 3)], ids=str)
def test_the_products_in_tf32_are_found(coarse: tuple[int, ...]) -> None:
    graph = network()
    values = {v for n in graph.nodes for v in n.outputs}
    region = Region(graph.nodes, frozenset(values - set(graph.outputs)), tuple(graph.outputs))
    sampler = Sampler(graph, region, {**graph.constants, "x": X}, seed=1)
    actual = {graph.outputs[0]: answered(coarse).astype(np.float64)}
    found = assigned(ProgramRunner(sampler), PROGRAM, actual, max_runs=100)
    assert found is not None
    in_float32 = {v for v, e in found.program.exceptions.items() if e is Exceptional.float32}
    products = [n.outputs[0] for n in graph.nodes if n.op.kind == "MatMul"]
    assert in_float32 == {v for i, v in enumerate(products) if i not in coarse}


@pytest.mark.parametrize(("wrong", "kind"), [(1.0, Kind.precision), (1.01, Kind.mistake)])
def test_what_is_left_is_rounding_or_a_mistake(wrong: float, kind: Kind) -> None:
    graph = network()
    subject = ArraysRunner({graph.outputs[0]: answered((0, 3), wrong)})
    assert check(graph, subject, {"x": X}).kind is kind
