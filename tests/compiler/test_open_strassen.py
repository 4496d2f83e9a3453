"""Strassen's products and the rules that look at sizes, in programs for many sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.test_open_sizes import assert_as_alone, opened
from verax.base.option_groups.settings import Settings
from verax.compiler.passes.choose_strassen import LIMITS, fewest_rows, gain
from verax.compiler.passes.choose_winograd import FEWEST_PIXELS
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

OPTIONS = Settings(3, threads=1)


def pointwise(rng: np.random.Generator) -> Graph:
    """A pointwise convolution, one behind it that reads an image with a border, and their sum."""
    b = Builder("pointwise")
    dims = (symbol("n"), 320, symbol("h"), symbol("w"))
    x = b.input("x", TensorType(DType.float32, dims))
    conv = REGISTRY["Conv"]

    def weights(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / 16).astype(np.float32))

    a = b.add(conv(), [x, weights(512, 320, 1, 1), weights(512)])
    a = b.add(REGISTRY["Relu"](), [a])
    # The depthwise kernel sees the border that the pointwise one then has to go without.
    c = b.add(conv(pads=((1, 1), (2, 0)), groups=512), [a, weights(512, 1, 3, 3), weights(512)])
    d = b.add(conv(), [a, weights(512, 512, 1, 1), weights(512)])
    return b.graph([b.add(REGISTRY["Add"](), [d, c])])


def test_pixels_of_open_images_are_multiplied_with_their_bits() -> None:
    graph = pointwise(np.random.default_rng(31))
    program = opened(graph, {"h": 9, "n": 2, "w": 8}, OPTIONS)
    assert program is not None
    assert "Strassen" in str(program.plan)
    for sizes in (
        {"h": 9, "n": 2, "w": 8},
        {"h": 7, "n": 3, "w": 11},  # an odd number of pixels
        {"h": 23, "n": 1, "w": 5},
        {"h": 13, "n": 5, "w": 14},
    ):
        rng = np.random.default_rng(sizes["h"])
        x = rng.standard_normal((sizes["n"], 320, sizes["h"], sizes["w"])).astype(np.float32)
        x[0, 17, 6, 4] = np.inf
        x[-1, 3, 2, 1] = np.nan
        assert_as_alone(graph, program, sizes, {"x": x}, OPTIONS)


@pytest.mark.parametrize("pixels", [(4, 11), (7, 7)])
def test_one_limit_parts_sizes_into_programs(pixels: tuple[int, int]) -> None:
    graph = pointwise(np.random.default_rng(32))
    rows, columns = pixels
    program = opened(graph, {"h": rows, "n": 2, "w": columns}, OPTIONS)
    assert program is not None
    is_few = rows * columns < LIMITS[0]
    assert ("Strassen" in str(program.plan)) is not is_few
    assert program.open_sizes.serves((6, 3, 6)) is is_few  # 36 pixels of 3 images
    assert program.open_sizes.serves((8, 3, 6)) is not is_few


@pytest.mark.parametrize(("terms", "columns"), [(768, 768), (512, 256), (128, 512), (384, 384)])
def test_limits_are_near_where_counting_has_them(terms: int, columns: int) -> None:
    limit = fewest_rows(terms, columns)
    assert limit in LIMITS
    at = gain(np.array([limit, 2 * limit]), terms, columns)
    assert at[0] > 1.03
    assert at[1] > 1.04


def test_batch_one_is_no_other_program() -> None:
    b = Builder("masked")
    dims = (symbol("n"), symbol("s"), 24)
    x = b.input("x", TensorType(DType.float32, dims))
    mask = b.input("mask", TensorType(DType.float32, (1, symbol("s"), 24)))
    a = b.add(REGISTRY["Exp"](), [mask])
    graph = b.graph([b.add(REGISTRY["Add"](), [x, a])])
    program = opened(graph, {"n": 1, "s": 5}, OPTIONS)
    assert program is not None
    assert program.open_sizes.serves((4, 7))
    rng = np.random.default_rng(33)
    shapes = {"x": (4, 7, 24), "mask": (1, 7, 24)}
    inputs = {v: rng.standard_normal(shape).astype(np.float32) for v, shape in shapes.items()}
    assert_as_alone(graph, program, {"n": 4, "s": 7}, inputs, OPTIONS)


def halved(rng: np.random.Generator) -> Graph:
    """A 3x3 convolution, and one more behind it at half the resolution."""
    b = Builder("halved")
    x = b.input("x", TensorType(DType.float32, (1, 64, symbol("h"), symbol("w"))))
    conv, pads = REGISTRY["Conv"], ((1, 1), (1, 1))
    first, second = (
        b.constant((rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)) for _ in range(2)
    )
    a = b.add(conv(pads=pads), [x, first])
    pool = REGISTRY["MaxPool"](kernel_shape=(2, 2), strides=(2, 2))
    return b.graph([b.add(conv(pads=pads), [b.add(pool, [a]), second])])


def test_layers_of_all_resolutions_change_their_tiles_together() -> None:
    graph = halved(np.random.default_rng(34))
    small, large = (opened(graph, {"h": n, "w": n + 1}, OPTIONS) for n in (9, 20))
    assert small is not None
    assert large is not None
    assert "F(4x4" not in str(small.plan)
    assert "F(2x2" in str(large.plan)
    programs = [
        (small.open_sizes.serves((h, w)), large.open_sizes.serves((h, w)))
        for h in range(4, 41, 4)
        for w in range(4, 41, 3)
        if FEWEST_PIXELS[2] <= h * w < 900  # beyond, one band does not hold the matrices
    ]
    assert (True, True) not in programs
    assert programs.count((False, False)) <= len(programs) // 12
    rng = np.random.default_rng(35)
    for program, h, w in ((small, 7, 13), (large, 33, 14)):
        x = rng.standard_normal((1, 64, h, w)).astype(np.float32)
        assert_as_alone(graph, program, {"h": h, "w": w}, {"x": x}, OPTIONS)
