"""Convolutions by tiles of a block's threads have the bits of the CPU's kernel, in every order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.kernels.gpu.problems import EPILOGUES, LAYOUTS, convolution, tile, tiles
from tests.compiler.kernels.test_conv import Case, cases, make, transposed_cases

from verax.compiler.kernels.gpu.contraction import takes
from verax.compiler.kernels.gpu.tiles import TileSchedule

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
SHIFTS = st.sampled_from([0, 0, 1])


def compare(case: Case, layout: str, epilogue: str, shift: int, schedule: TileSchedule) -> None:
    problem = convolution(case, layout, epilogue, shift)
    if takes(problem.spec):
        problem.compare(schedule)


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(cases(), st.sampled_from(LAYOUTS), st.sampled_from(list(EPILOGUES)), SHIFTS, tiles)
def test_convolutions_have_the_bits_of_the_cpu(
    case: Case, layout: str, epilogue: str, shift: int, schedule: TileSchedule
) -> None:
    compare(case, layout, epilogue, shift, schedule)


@settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
@given(transposed_cases(), st.sampled_from(list(EPILOGUES)), tiles)
def test_transposed_convolutions_have_the_bits_of_the_cpu(
    case: Case, epilogue: str, schedule: TileSchedule
) -> None:
    compare(case, "blocked", epilogue, 0, schedule)


LAYERS = {
    "first": (make(2, 2, 3, 32, (1, 23, 17), (1, 7, 7), (1, 2, 2), pads=(0, 3, 3)), "planar"),
    "first of pixels": (make(3, 2, 3, 20, (1, 13, 17), (1, 3, 3), pads=(0, 1, 1)), "pixels"),
    "stride": (make(4, 2, 48, 80, (1, 15, 11), (1, 3, 3), (1, 2, 2)), "blocked"),
    "pointwise": (make(5, 3, 40, 72, (1, 7, 5), (1, 1, 1)), "blocked"),
    "few channels in the last block": (make(6, 2, 37, 24, (1, 9, 6), (1, 3, 2)), "blocked"),
    "groups": (make(7, 2, 64, 96, (1, 6, 7), (1, 3, 3), groups=2), "blocked"),
    "volume": (make(8, 1, 20, 18, (5, 4, 6), (2, 3, 2), (2, 1, 1)), "blocked"),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("size", [(8, 32), (32, 64), (128, 64)], ids=str)
def test_layers_of_networks_have_the_bits_of_the_cpu(name: str, size: tuple[int, int]) -> None:
    case, layout = LAYERS[name]
    convolution(case, layout, "relu").compare(tile(*size))


@pytest.mark.slow
@settings(max_examples=250, deadline=None, suppress_health_check=SLOW)
@given(
    st.one_of(cases(), transposed_cases()),
    st.sampled_from(LAYOUTS),
    st.sampled_from(list(EPILOGUES)),
    SHIFTS,
    tiles,
)
def test_many_convolutions_have_the_bits_of_the_cpu(
    case: Case, layout: str, epilogue: str, shift: int, schedule: TileSchedule
) -> None:
    compare(case, layout, epilogue, shift, schedule)
