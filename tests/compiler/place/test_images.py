"""Sampling, pools by norm, responses, unpooling, one-hot and resizing integers: promised bits."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, shapes, values
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType
from verax.ops.images.detection import MaxRoiPool, RoiAlign
from verax.ops.images.resize import Resize
from verax.ops.images.resize_integer import ResizeInteger
from verax.ops.images.sampling import GridSample
from verax.ops.movement.generation import OneHot
from verax.ops.sums.response_normalization import LRN
from verax.ops.windows.global_pooling import GlobalLpPool
from verax.ops.windows.pooling import LpPool
from verax.ops.windows.unpooling import MaxUnpool
from verax.reference import promised

FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.checkered
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@FEW
@given(st.integers(1, 2), st.integers(1, 3), shapes(1, 2, 6), st.data(), st.booleans(), seeds)
def test_samples_of_a_grid(
    mode: str,
    padding: str,
    n: int,
    channels: int,
    space: tuple[int, ...],
    data: st.DataObject,
    align: bool,
    seed: int,
) -> None:
    rank, rng = len(space), np.random.default_rng(seed)
    places = data.draw(shapes(rank, rank, 5))
    grid = rng.uniform(-2, 2, (n, *places, rank)).astype(np.float32)
    if seed % 2:
        odd = np.array([np.nan, np.inf, -np.inf, 1, -1, 0, 1e30, -1e9, 0.5], np.float32)
        grid = np.where(rng.random(grid.shape) < 0.3, rng.choice(odd, grid.shape), grid)
    op = GridSample(mode=mode, padding_mode=padding, align_corners=align)
    agree(op, values(seed, (n, channels, *space)), grid)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_samples_of_a_volume(mode: str) -> None:
    grid = np.random.default_rng(3).uniform(-1.5, 1.5, (2, 2, 3, 4, 3)).astype(np.float32)
    for padding in ("zeros", "border", "reflection"):
        agree(GridSample(mode=mode, padding_mode=padding), values(2, (2, 3, 4, 5, 3)), grid)


@FEW
@given(
    st.integers(1, 2), st.integers(1, 20), shapes(0, 3, 6), st.integers(1, 9), seeds,
)  # fmt: skip
def test_responses(n: int, channels: int, space: tuple[int, ...], size: int, seed: int) -> None:
    op = LRN(size=size, alpha=0.7, beta=0.6 if seed % 2 else 0.75, bias=1.5)
    agree(op, values(seed, (n, channels, *space)))


@pytest.mark.parametrize("p", [1, 2])
@FEW
@given(shapes(1, 3, 9), st.data(), seeds)
def test_norms_of_windows(p: int, space: tuple[int, ...], data: st.DataObject, seed: int) -> None:
    kernel = tuple(data.draw(st.integers(1, min(n, 4))) for n in space)
    strides = tuple(data.draw(st.integers(1, 3)) for _ in space)
    pads = tuple(
        (data.draw(st.integers(0, k - 1)), data.draw(st.integers(0, k - 1))) for k in kernel
    )
    x = values(seed, (2, 5, *space))
    agree(LpPool(kernel_shape=kernel, strides=strides, pads=pads, p=p), x)
    agree(GlobalLpPool(p=p), x)


@FEW
@given(st.integers(1, 3), shapes(1, 2, 6), st.booleans(), seeds)
def test_unpooling(n: int, space: tuple[int, ...], larger: bool, seed: int) -> None:
    rng, rank = np.random.default_rng(seed), len(space)
    op = MaxUnpool(kernel_shape=(2,) * rank, strides=(3,) * rank)
    x = values(seed, (n, 2, *space), "float32" if seed % 3 else "int8")
    dims = [int(d) for d in op.unpooled_dims(x.shape)]
    indices = rng.integers(0, np.prod(dims), x.shape)  # some of them twice
    shape = () if not larger else (np.array([*dims[:2], *(d + 2 for d in dims[2:])]),)
    agree(op, x, indices, *shape, constant=(2,))


def test_unpooling_to_nowhere_is_an_error() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    for wrong in (-1, 16):
        indices = np.array([[[[0, wrong], [2, 3]]]])
        op = MaxUnpool(kernel_shape=(2, 2), strides=(2, 2))
        graph, fed = graph_of(Case(op, (x, indices)), False)
        exe = compile(graph, Settings(opt_level=1, require_native=True))
        with pytest.raises(InputError, match="an index lies outside"):
            exe.run(fed)


@FEW
@given(shapes(0, 3), st.integers(1, 9), st.data(), seeds)
def test_one_hot(shape: tuple[int, ...], depth: int, data: st.DataObject, seed: int) -> None:
    axis = data.draw(st.integers(-len(shape) - 1, len(shape)))
    kind = data.draw(st.sampled_from(["int64", "int32", "uint8", "uint64", "float32", "float16"]))
    dtype = data.draw(st.sampled_from(["float32", "int64", "bool", "float16"]))
    indices = np.random.default_rng(seed).integers(-12, 12, shape).astype(kind)
    if kind == "float32":
        indices = np.where(
            indices == 1, np.array(np.nan, kind), indices + np.float32(0.5) * (seed % 2)
        )
    op = OneHot(axis=axis)
    given_ = np.asarray(indices, kind), np.array(depth), values(7, (2,), dtype)
    agree(op, *given_, constant=(1,))


@FEW
@given(
    st.integers(1, 5), st.integers(1, 6), st.integers(1, 11), st.integers(1, 11),
    st.sampled_from(["", "align_corners", "half_pixel_centers"]), seeds,
)  # fmt: skip
def test_resized_integers(h: int, w: int, rows: int, cols: int, how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.int8, np.int16):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max + 1, (2, h, w, 3)).astype(dtype)
        flags = {how: True} if how else {}
        agree(ResizeInteger(sizes=(rows, cols), **flags), x)
        agree(ResizeInteger(sizes=(rows,), axes=(-2,), **flags), x)


WIDE = ["float64", "uint8", "int8", "uint16", "int16", "uint32", "int32"]


@pytest.mark.checkered
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", WIDE)
def test_other_types_between_pixels(mode: str, dtype: str) -> None:
    """float64 with weights of float64; integers rounded once, and saturated by cubics."""
    rng = np.random.default_rng(zlib.crc32(f"{mode} {dtype}".encode()))
    x = rng.standard_normal((2, 3, 7, 5))
    if dtype != "float64":
        info = np.iinfo(dtype)
        x = rng.choice(np.array([info.min, info.max, info.max // 2, 3], dtype), x.shape)
    for sizes in ((2, 3, 4, 11), (2, 3, 9, 5), (2, 3, 7, 2)):
        agree(Resize(mode=mode), x, None, None, np.array(sizes), constant=(3,))
    shrunk = np.array([1, 1, 0.6, 0.45], np.float32)
    agree(Resize(mode=mode, antialias=True), x, None, shrunk, None, constant=(2,))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_lies_outside(mode: str, dtype: str) -> None:
    x = values(8, (2, 3, 4, 5), dtype)
    roi = np.array([0.0, 0.0, 0.3, -0.2, 1.0, 1.0, 0.9, 1.25], np.float32)
    crop = Resize(
        mode=mode, coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=-0.1
    )
    agree(crop, x, roi, None, np.array([2, 3, 6, 7]), constant=(1, 3))


def test_what_lies_outside_of_blocked_images() -> None:
    b, rng = Builder("net"), np.random.default_rng(4)
    x = b.input("x", TensorType.parse("float32[2, 19, 6, 7]"))
    conv = REGISTRY["Conv"](pads=((1, 1), (1, 1)))
    weights = [b.constant(rng.standard_normal((19, 19, 3, 3)).astype(np.float32)) for _ in range(2)]
    roi = b.constant(np.array([0.3, -0.2, 0.9, 1.25], np.float32))
    sizes = b.constant(np.array([9, 8]))
    for mode in ("nearest", "linear"):
        crop = Resize(
            mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize",
            extrapolation_value=2.5,
            axes=(2, 3),
        )
        x = b.add(crop, [b.add(conv, [x, weights[0]]), roi, None, sizes])
    graph = b.graph([b.add(conv, [x, weights[1]])])
    fed = {"x": rng.standard_normal((2, 19, 6, 7)).astype(np.float32)}
    exe = compile(graph, Settings(opt_level=1, threads=2, require_native=True))
    (got,), (want,) = exe.run(fed).values(), promised(graph, fed).values()
    assert bits(got) == bits(np.asarray(want))


@pytest.mark.checkered
@pytest.mark.parametrize("image", ["float32", "float64"])
@pytest.mark.parametrize("places", ["float32", "float64"])
def test_images_and_places_in_float64(image: str, places: str) -> None:
    rng = np.random.default_rng(5)
    x = values(6, (2, 3, 6, 7), image)
    grid = rng.uniform(-1.6, 1.6, (2, 4, 5, 2)).astype(places)
    grid[0, 0, 0], grid[1, 3, 4] = (np.nan, 0.3), (np.inf, -np.inf)
    for mode in ("linear", "nearest", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            corners = (mode == "linear") == (padding == "border")
            agree(GridSample(mode=mode, padding_mode=padding, align_corners=corners), x, grid)
    regions = np.array([[0, 0, 6, 5], [1.3, 2.1, 5.9, 4.7]], places)
    x = rng.standard_normal((2, 3, 6, 7)).astype(image)
    for which in ("avg", "max"):
        agree(RoiAlign(mode=which, output_height=2, output_width=3), x, regions, np.array([0, 1]))
    numbered = np.concatenate([np.array([[1], [0]], places), regions], 1)
    agree(MaxRoiPool(pooled_shape=(2, 3)), x, numbered)
