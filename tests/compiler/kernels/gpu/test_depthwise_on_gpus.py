"""Depthwise convolutions on a GPU have the bits of the CPU's kernel."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.gpu.problems import EPILOGUES, convolution
from tests.compiler.kernels.test_conv import Case, cases, make

from verax.compiler.kernels.gpu.depthwise import StripSchedule, strip_schedule, takes

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@st.composite
def depthwise_cases(draw: st.DrawFn) -> Case:
    case = draw(cases())
    channels = draw(st.integers(2, 40))
    rng = np.random.default_rng(channels)
    return dataclasses.replace(
        case,
        x=h.random(rng, case.x.shape[0], channels, *case.x.shape[2:]),
        w=h.random(rng, channels, 1, *case.w.shape[2:]),
        bias=h.random(rng, channels) if case.bias is not None else None,
        groups=channels,
    )


def compare(case: Case, epilogue: str, shift: int, cols: int) -> None:
    problem = convolution(case, "blocked", epilogue, shift)
    assert takes(problem.spec)
    problem.compare(StripSchedule(cols=min(cols, case.output[2])))


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(
    depthwise_cases(), st.sampled_from(list(EPILOGUES)), st.sampled_from([0, 0, 1]),
    st.integers(1, 4),
)  # fmt: skip
def test_depthwise_convolutions_have_the_bits_of_the_cpu(
    case: Case, epilogue: str, shift: int, cols: int
) -> None:
    compare(case, epilogue, shift, cols)


@pytest.mark.parametrize(
    "case",
    [
        make(1, 2, 40, 40, (1, 7, 19), (1, 3, 3), (1, 1, 2), groups=40),
        make(2, 1, 35, 35, (1, 13, 14), (1, 5, 5), pads=(0, 1, 2), after=(0, 2, 1), groups=35),
        make(3, 1, 20, 20, (4, 21, 13), (3, 13, 9), pads=(1, 2, 4), after=(1, 2, 4), groups=20),
    ],
    ids=["stride", "5x5", "large"],
)
def test_layers_of_networks_have_the_bits_of_the_cpu(case: Case) -> None:
    problem = convolution(case, "blocked", "gelu")
    problem.compare(strip_schedule(problem.spec))
