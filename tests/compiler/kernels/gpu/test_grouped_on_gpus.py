"""Convolutions in small groups on a GPU have the bits of the CPU's kernel."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels.gpu.problems import EPILOGUES, convolution
from tests.compiler.kernels.test_conv import Case, grouped_cases, make, transposed_cases

from verax.compiler.kernels.gpu.grouped import FilterSchedule, takes

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(
    st.one_of(grouped_cases(), transposed_cases()), st.sampled_from(["blocked", "planar"]),
    st.sampled_from(list(EPILOGUES)), st.integers(1, 4),
)  # fmt: skip
def test_small_groups_have_the_bits_of_the_cpu(
    case: Case, layout: str, epilogue: str, cols: int
) -> None:
    problem = convolution(case, layout, epilogue)
    assume(takes(problem.spec))
    problem.compare(FilterSchedule(cols=cols))


@pytest.mark.parametrize(
    ("channels", "filters", "groups"), [(40, 40, 10), (48, 24, 3), (60, 36, 3)]
)
def test_layers_of_networks_have_the_bits_of_the_cpu(
    channels: int, filters: int, groups: int
) -> None:
    case = make(
        8, 2, channels, filters, (1, 7, 19), (1, 3, 3), (1, 1, 2), pads=(0, 1, 1),
        after=(0, 1, 1), groups=groups,
    )  # fmt: skip
    problem = convolution(case, "blocked", "relu")
    assert takes(problem.spec)
    problem.compare(FilterSchedule())
