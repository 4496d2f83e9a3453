"""The last block of filters is computed without the lanes that no filter has."""

from __future__ import annotations

import dataclasses

import pytest
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.test_conv import Case, compute, make

from verax.compiler.kernels import registry
from verax.compiler.kernels.convolution.emit import default_schedule
from verax.compiler.kernels.convolution.pack import sections
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.target import Target


def spec_of(case: Case) -> ConvSpec:
    """A convolution of dense blocked tensors."""
    size = case.x.shape[2], case.x.shape[3], case.x.shape[4]
    x = h.blocked_strides(case.x.shape[1], size)
    return case.spec(x, h.blocked_strides(case.w.shape[0], case.output))


def pointwise(filters: int) -> Case:
    return make(3, 2, 19, filters, (1, 5, 7), (1, 1, 1))


@pytest.mark.parametrize(
    ("filters", "avx2", "avx512"), [(24, 8, 0), (8, 8, 0), (40, 8, 0), (25, 0, 0), (32, 0, 0)]
)
def test_whole_registers_are_spared(filters: int, avx2: int, avx512: int) -> None:
    spec = spec_of(pointwise(filters))
    assert default_schedule(spec, Target.avx2()).spare == avx2
    assert default_schedule(spec, Target.avx512()).spare == avx512
    deep = spec_of(make(4, 1, filters, filters, (1, 5, 7), (1, 3, 3), groups=filters))
    assert default_schedule(deep, Target.avx2()).spare == avx2
    assert default_schedule(deep, Target.avx512()).spare == avx512


@pytest.mark.checkered
@pytest.mark.parametrize("filters", [8, 21, 24, 40, 56])
@pytest.mark.parametrize("blocks", [1, 2, 3])
@pytest.mark.parametrize("passes", [0, 1])
def test_spare_lanes_change_no_bit(filters: int, blocks: int, passes: int) -> None:
    case = make(filters, 2, 32, filters, (1, 5, 7), (1, 3, 2), pads=(0, 1, 0), after=(0, 1, 0))
    spare = -filters % 16 // 4 * 4
    schedule = ConvSchedule(blocks, 2, 3, chunk=2, pass_blocks=passes, spare=spare)
    for parts in (1, 3):
        got = compute(case, h.TARGETS[0], schedule, parts=parts)
        assert h.same_bits(got, case.expected())


@pytest.mark.checkered
@pytest.mark.parametrize("channels", [8, 21, 24, 40])
@pytest.mark.parametrize("kernel", [(1, 3, 2), (1, 9, 9)])
def test_spare_channels_change_no_bit(channels: int, kernel: tuple[int, int, int]) -> None:
    """By themselves, and in loops over kernel positions that are not written out."""
    pads = 0, kernel[1] // 2, kernel[2] // 2
    size = 1, 11, 13
    case = make(channels, 2, channels, channels, size, kernel, pads=pads, groups=channels)
    for rows, cols, outer in ((2, 3, False), (3, 4, True)):
        spare = -channels % 16 // 4 * 4
        schedule = ConvSchedule(1, rows, cols, 2, filters_outer=outer, spare=spare)
        got = compute(case, h.TARGETS[0], schedule, parts=3)
        assert h.same_bits(got, case.expected())


def test_the_narrow_block_has_a_section_of_one_group() -> None:
    spec = spec_of(pointwise(56))
    assert sections(spec, ConvSchedule(blocks=2, spare=8)) == [(0, 1, 2), (2, 1, 2)]
    assert sections(spec, ConvSchedule(blocks=3, spare=8)) == [(0, 1, 3), (3, 1, 1)]
    assert sections(spec, ConvSchedule(blocks=2)) == [(0, 2, 2)]


def test_lanes_that_filters_have_are_not_spared() -> None:
    target = Target.avx2()
    full, narrow = spec_of(pointwise(32)), spec_of(pointwise(24))
    rule = default_schedule(narrow, target)
    assert registry.admits(narrow, target, rule)
    plain = dataclasses.replace(default_schedule(full, target), spare=0)
    assert registry.admits(full, target, plain)
    assert not registry.admits(full, target, dataclasses.replace(plain, spare=8))
    assert not registry.admits(narrow, target, dataclasses.replace(rule, spare=12))
