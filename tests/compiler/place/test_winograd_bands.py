"""Winograd's convolution in bands of tiles: every output once, and the bits of all at once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compiler.test_integer_winograd import forced
from tests.compiler.test_integer_winograd import network as integer_network

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.winograd_tiles import Tiling
from verax.compiler.place.convolution import winograd
from verax.compiler.place.convolution.winograd import bands
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.windows.winograd import WinogradConv
from verax.reference.evaluate import promised

PADS = ((1, 1), (1, 1))
SHAPE = (5, 16, 21, 17)
"""Its tiles of 4 x 4 take 156 kB an image, in 6 rows; its weights with 20 filters take 46 kB."""


@given(
    st.sampled_from((2, 4)), st.integers(1, 9), st.integers(1, 40), st.integers(1, 40),
    st.integers(1, 100_000), st.integers(0, 2 * winograd.BAND_BYTES),
)  # fmt: skip
def test_every_output_is_in_one_band(
    tile: int, batch: int, rows: int, cols: int, tile_bytes: int, weight_bytes: int
) -> None:
    whole = Tiling(tile, batch, rows, cols)
    found = bands(whole, tile_bytes, weight_bytes)
    seen = Counter(
        (band.image + image, band.row + row)
        for band in found
        for image in range(band.tiling.batch)
        for row in range(band.tiling.rows)
    )
    assert seen == Counter((image, row) for image in range(batch) for row in range(rows))
    most = max(band.tiling.tiles for band in found) * tile_bytes
    one_row = whole.across * tile_bytes
    if len(found) > 1:
        assert weight_bytes <= winograd.BAND_BYTES
        assert most <= max(winograd.BAND_BYTES, one_row)
        assert all(band.row % tile == 0 for band in found)
    else:
        fits = most <= 2 * winograd.BAND_BYTES
        assert fits or weight_bytes > winograd.BAND_BYTES or (batch == 1 and rows <= tile)


@pytest.mark.parametrize(
    ("most", "count", "threads"),
    [(winograd.BAND_BYTES, 1, 3), (350_000, 3, 1), (60_000, 15, 3), (47_000, 30, 1)],
)
def test_bands_change_no_bit(
    monkeypatch: pytest.MonkeyPatch, most: int, count: int, threads: int
) -> None:
    """With a bias, a tensor that is added, and a result that lies among others."""
    rng, b = np.random.default_rng(most % 97), Builder("net")
    x = b.input("x", TensorType(TensorType.of(np.zeros(1, np.float32)).dtype, SHAPE))
    filters = [
        b.constant((rng.standard_normal((n, 16, 3, 3)) / 12).astype(np.float32)) for n in (16, 20)
    ]
    bias = b.constant(rng.standard_normal(16).astype(np.float32))
    first = b.add(WinogradConv(tile=4, pads=PADS), [x, filters[0], bias], [], "first")
    first = b.add(Relu(), [b.add(Add(), [first, x])])
    second = b.add(WinogradConv(tile=4, pads=PADS), [first, filters[1]], [], "second")
    graph = b.graph([b.add(Concat(axis=1), [first, second], ["y"])])
    data = {"x": rng.standard_normal(SHAPE, np.float32)}
    expected = promised(graph, data)["y"]
    monkeypatch.setattr(winograd, "BAND_BYTES", most)
    for target in ("host", "avx2"):
        exe = compile(graph, Settings(threads=threads, target=target, require_native=True))
        lines = [line for line in exe.plan.lines if "second" in line and "input tr" in line]
        assert len(lines) == count
        found = exe.run(data)["y"]
        np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize(("most", "count"), [(250_000, 3), (50_000, 15)])
def test_bands_of_integers_give_the_exact_sums(
    monkeypatch: pytest.MonkeyPatch, most: int, count: int
) -> None:
    rng = np.random.default_rng(most)
    x = rng.integers(0, 256, SHAPE, np.uint8)
    w = rng.integers(-90, 90, (20, 16, 3, 3), np.int8)
    graph, data = integer_network(x, w, behind="requantised", pads=PADS)
    expected = promised(graph, data)[graph.outputs[0]]
    monkeypatch.setattr(winograd, "BAND_BYTES", most)
    with forced(4):
        exe = compile(graph, Settings(opt_level=1, threads=2))
    assert sum("input transform" in line for line in exe.plan.lines) == count
    np.testing.assert_array_equal(exe.run(data)[graph.outputs[0]], expected)
