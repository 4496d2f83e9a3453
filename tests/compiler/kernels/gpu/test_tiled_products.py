"""Products by tiles of a block's threads have the bits of the CPU's kernel, in every order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.compiler.kernels.gpu.problems import Product, of_zeros, products, tile, tiles

from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.gpu.tiles import TILES, TileSchedule, admissible, tile_schedule
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.target import Target

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(product=products(), schedule=tiles)
def test_products_of_odd_sizes_have_the_bits_of_the_cpu(
    product: Product, schedule: TileSchedule
) -> None:
    product.problem().compare(schedule)


@pytest.mark.parametrize("schedule", TILES, ids=str)
def test_every_tile_has_the_bits_of_the_cpu(schedule: TileSchedule) -> None:
    """More pixels and filters than a tile has, and more terms than all its stages."""
    m, n = schedule.pixels + 5, schedule.filters + 9
    k = 16 * schedule.steps * schedule.stages + 27
    Product(m, n, k, bias="column", epilogue="relu", seed=3).problem().compare(schedule)


def test_a_sum_of_zeros_keeps_its_sign() -> None:
    """A term that is not there must not turn -0 into +0."""
    of_zeros().compare(tile(16, 32))


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(product=products(), schedule=tiles)
def test_many_products_have_the_bits_of_the_cpu(product: Product, schedule: TileSchedule) -> None:
    product.problem().compare(schedule)


def test_all_tiles_may_be_tried() -> None:
    assert all(admissible(t, Target.cuda("sm_80")) for t in TILES)


@pytest.mark.parametrize("name", ["sm_70", "sm_75", "sm_80", "sm_90"])
def test_the_rule_chooses_what_fits_the_shared_memory(name: str) -> None:
    target = Target.cuda(name)
    side = Matrix(4096, 1)
    large = GemmSpec(4096, 4096, 4096, side, side, types=FLOAT32).convolution()
    schedule = tile_schedule(large, target)
    assert admissible(schedule, target) and schedule.pixels * schedule.filters >= 128 * 128
