"""Tiles of products and convolutions whose sizes a kernel reads when it runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.gpu.emulation import UNTOUCHED, Problem, aligned, numbers
from tests.compiler.kernels.gpu.problems import GUARD, tile

from verax.compiler.kernels.convolution.emit import pack_conv_weights
from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Strides
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b
from verax.compiler.kernels.sizes import entry

M, N, K, BATCH = (entry(i) for i in range(4))
TILES = [tile(16, 32), tile(32, 64), tile(64, 64)]


@pytest.mark.parametrize("sizes", [(1, 5, 1, 1), (70, 93, 45, 2), (33, 64, 96, 3)], ids=str)
@pytest.mark.parametrize("schedule", TILES, ids=str)
def test_products_of_open_sizes_have_the_bits_of_the_cpu(
    sizes: tuple[int, int, int, int], schedule: object
) -> None:
    m, n, k, batch = sizes
    rng = np.random.default_rng(21)
    a, b = aligned(numbers(rng, batch, m, k)), numbers(rng, batch, k, n)
    spec = GemmSpec(
        M, N, K, Matrix(K, 1, M * K), Matrix(N, 1, M * N), BATCH, constant_b=False,
        bias="column", types=FLOAT32,
    )  # fmt: skip
    memory = np.full(batch * m * n + 2 * GUARD, UNTOUCHED, np.float32)
    bias = pack_channels(numbers(rng, n))

    def packed(spec: GemmSpec, schedule: object) -> np.ndarray:
        return np.concatenate([pack_b(one, spec, schedule) for one in b])  # type: ignore[arg-type]

    Problem(spec, packed, [a], [bias], memory, GUARD, sizes).compare(schedule)


@pytest.mark.parametrize("schedule", TILES, ids=str)
def test_a_convolution_of_open_images_has_the_bits_of_the_cpu(schedule: object) -> None:
    batch, height, width = 3, 13, 9
    channels, filters = 37, 40
    rng = np.random.default_rng(22)
    w = numbers(rng, filters, channels, 1, 3, 3)
    x = h.tensor(numbers(rng, batch, channels, 1, height, width), ((0, 0), (1, 1), (1, 1)))
    y = h.empty((batch, filters, 1, height, width))
    n, rows, cols = entry(0), entry(1), entry(2)

    def strides(blocks: int, border: int) -> Strides:
        row = (cols + 2 * border) * 16
        plane = (rows + 2 * border) * row
        return Strides(blocks * plane, plane, plane, row)

    spec = ConvSpec(
        n, channels, filters, (1, rows, cols), (1, 3, 3), strides(3, 1), strides(3, 0),
        pads=(0, 1, 1), types=FLOAT32,
    )  # fmt: skip
    lanes = dataclasses.replace(y, shape=(batch, 48, 1, height, width))
    spare = np.setdiff1d(lanes.index().ravel(), y.index().ravel())
    bias = pack_channels(numbers(rng, filters))
    data = aligned(x.memory)
    problem = Problem(
        spec, lambda spec, schedule: pack_conv_weights(w, spec, schedule),
        [data.ctypes.data + 4 * x.origin], [bias], y.memory, y.origin, (batch, height, width),
        ignored=spare,
    )  # fmt: skip
    problem.compare(schedule)
