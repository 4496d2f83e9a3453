"""The promise of O0 and O1: the bits of the canonical order, on every target and thread count.

The witness is `reference.promised`: NumPy with an exact fused multiply-add, node by node.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiler.graphs import networks
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.ir.graph import Graph
from verax.reference import promised

CHOICES = [
    Settings(opt_level=0, threads=1),
    Settings(opt_level=1, threads=1),
    Settings(opt_level=1, threads=2),
    Settings(opt_level=1, threads=1, target="avx2"),
    Settings(opt_level=1, threads=2, target="avx512", checked=True),
]


def bits(array: np.ndarray) -> tuple[object, ...]:
    """What must be equal: dtype, shape and bytes, all NaN counting as one."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return array.dtype, array.shape, array.tobytes()


def runnable(choice: Settings) -> bool:
    return Target.named(choice.target).runs_here()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.sampled_from([c for c in CHOICES if runnable(c)]))
def test_a_network_has_the_promised_bits(
    case: tuple[Graph, dict[str, np.ndarray]], choice: Settings
) -> None:
    graph, inputs = case
    want = promised(graph, inputs)
    got = compile(graph, choice).run(inputs)
    for name, array in want.items():
        assert bits(got[name]) == bits(array), f"{name} under {choice}\n{graph}"


@pytest.mark.slow
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(most_nodes=14))
def test_every_setting_gives_the_promised_bits(
    case: tuple[Graph, dict[str, np.ndarray]],
) -> None:
    graph, inputs = case
    want = promised(graph, inputs)
    for choice in CHOICES:
        if runnable(choice):
            got = compile(graph, choice).run(inputs)
            for name, array in want.items():
                assert bits(got[name]) == bits(array), f"{name} under {choice}\n{graph}"
