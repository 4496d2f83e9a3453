"""Float32 attention on a GPU may err as sums in matrix units do; elsewhere it may not."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.judge.decide.matrix_sums import matrix_unit_sigma
from verax.judge.decide.possible import ALL, using
from verax.judge.regions.sampler import Region, Sampler
from verax.judge.regions.split_products import split_decision
from verax.numerics import statistics as st
from verax.ops.movement.reshaping import Transpose
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind


def sampler() -> Sampler:
    random = np.random.default_rng(31)
    sizes = {"q": 23, "k": 41, "v": 41}
    arrays = {n: random.standard_normal((2, 3, s, 16), np.float32) for n, s in sizes.items()}
    b = Builder("attention")
    q, k, v = (b.input(n, TensorType.of(a)) for n, a in arrays.items())
    scores = b.add(MatMul(), [q, b.add(Transpose(perm=(0, 1, 3, 2)), [k])])
    y = b.add(MatMul(), [b.add(Softmax(axis=3), [scores]), v], name="y")
    graph = b.graph([y])
    values = {v for n in graph.nodes for v in n.outputs}
    return Sampler(graph, Region(graph.nodes, frozenset(values - {y}), (y,)), arrays, seed=2)


def error(times: float) -> tuple[Sampler, str, np.ndarray, np.ndarray]:
    """Float32's rounding and `times` what matrix units add in the last product."""
    s = sampler()
    (y,) = s.region.observed
    node = s.region.nodes[-1]
    wide = [s.inner[node.inputs[0]], s.observed["v"].astype(np.float64)]
    extra = matrix_unit_sigma(node, s.wide_evaluation(node, wide), wide, s.expected[y], "tf32")
    sigma = st.sampled_sigma(np.mean([np.square(s.sample()[y] - s.expected[y])
                                      for _ in range(st.SAMPLES_FEW)], axis=0))  # fmt: skip
    given = s.sample()[y] - s.expected[y] + times * extra * s.random.standard_normal(extra.shape)
    return s, y, given, sigma


@pytest.mark.parametrize(("times", "fits"), [(1.0, True), (30.0, False)])
def test_only_errors_of_their_size_are_rounding(times: float, fits: bool) -> None:
    with using(ALL, any_device=True):
        decision = split_decision(*error(times))
    assert (decision is not None) is fits
    if decision is not None:
        assert decision.kind is Kind.rounding
        assert "three products in matrix units" in decision.reason


def test_a_processor_has_no_such_units() -> None:
    with using(ALL, any_device=False):
        assert split_decision(*error(1.0)) is None
