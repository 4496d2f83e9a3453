"""Resizing, padding and running sums of open sizes: one program has the bits of every size."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.test_open_sizes import assert_as_alone, opened, rows
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.movement.resize_positions import coordinates
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.ops.images.resize_tables import NEAREST_MODES, source_coordinates

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
              "asymmetric")  # fmt: skip
MADE_FOR = {"h": 12, "n": 2, "w": 15}
SIZES = ({"h": 7, "n": 3, "w": 10}, {"h": 31, "n": 1, "w": 64}, {"h": 22, "n": 2, "w": 9},
         {"h": 3, "n": 4, "w": 4})  # fmt: skip


def image(channels: int = 3, dtype: DType = DType.float32) -> tuple[Builder, str]:
    """A network's input: images of open sizes."""
    b = Builder("open")
    dims = (symbol("n"), channels, symbol("h"), symbol("w"))
    return b, b.input("x", TensorType(dtype, dims))


def assert_all_served(graph: Graph, channels: int = 3, level: int = 1,
                      dtype: str = "float32") -> None:  # fmt: skip
    """The program made for `MADE_FOR` serves all of `SIZES`."""
    options = Settings(level, threads=1)
    program = opened(graph, MADE_FOR, options)
    assert program is not None
    for sizes in SIZES:
        x = (64 * rows(sizes["h"], sizes["n"], channels, sizes["h"], sizes["w"])).astype(dtype)
        assert_as_alone(graph, program, sizes, {"x": x}, options)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("scales", [(2, 3), (0.75, 1.5), (0.5, 2.25)])
@pytest.mark.parametrize("mode", ["linear", *NEAREST_MODES])
def test_images_are_resized_by_scales(mode: str, scales: tuple[float, float],
                                      transform: str) -> None:  # fmt: skip
    b, x = image()
    attributes: dict[str, Any] = (
        {"mode": "linear"} if mode == "linear" else {"mode": "nearest", "nearest_mode": mode}
    )
    resize = REGISTRY["Resize"](coordinate_transformation_mode=transform, **attributes)
    y = b.add(resize, [x, None, b.constant(np.array([1, 1, *scales], np.float32))])
    assert_all_served(b.graph([y]))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_images_are_resized_to_sizes_of_others(mode: str, transform: str) -> None:
    b, x = image()
    pooled = b.add(REGISTRY["MaxPool"](kernel_shape=(2, 2), strides=(2, 2)), [x])
    shape = b.add(REGISTRY["Shape"](), [x])
    resize = REGISTRY["Resize"](mode=mode, coordinate_transformation_mode=transform)
    larger = b.add(resize, [pooled, None, None, shape])
    assert_all_served(b.graph([b.add(REGISTRY["Add"](), [larger, x])]))


def test_blocks_of_channels_and_integers_are_resized() -> None:
    b, x = image(16)
    weights = b.constant(rows(5, 32, 16, 3, 3) / 8)
    convolved = b.add(REGISTRY["Conv"](pads=((1, 1), (1, 1))), [x, weights])
    scales = b.constant(np.array([1, 1, 2, 2], np.float32))
    resized = b.add(REGISTRY["Resize"](mode="linear"), [convolved, None, scales])
    assert_all_served(b.graph([resized]), channels=16, level=2)
    b, x = image(dtype=DType.int8)
    scales = b.constant(np.array([1, 1, 1.5, 2], np.float32))
    resized = b.add(REGISTRY["Resize"](mode="linear"), [x, None, scales])
    assert_all_served(b.graph([resized]), dtype="int8")


def test_a_scale_that_gives_no_written_size_has_programs_for_each() -> None:
    b, x = image()
    scales = b.constant(np.array([1, 1, 1.3, 0.7], np.float32))
    y = b.add(REGISTRY["Resize"](mode="linear"), [x, None, scales])
    exe = compile(b.graph([y]), Settings(1, threads=1))
    for h, w in ((10, 20), (20, 10), (30, 40)):
        assert exe.run({"x": rows(h, 2, 3, h, w)})[y].shape == (2, 3, h * 13 // 10, w * 7 // 10)


@settings(max_examples=15)
@given(st.sampled_from(TRANSFORMS), st.integers(1, 60), st.integers(1, 60))
def test_neighbors_are_those_of_the_exact_tables(transform: str, size: int, out: int) -> None:
    """Whole numbers give the coordinates that fractions give."""
    line = coordinates(transform, size, out, None)
    assert line is not None
    slope, start, divisor = map(int, line)
    exact = source_coordinates(transform, size, out, Fraction(out, size), Fraction(out))
    assert [Fraction(slope * i + start, divisor) for i in range(out)] == list(exact)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_images_are_padded(mode: str) -> None:
    b, x = image()
    pads = b.constant(np.array([0, 1, 2, 0, 1, 0, 1, 3]))  # more than a small image, both ways
    cut = b.constant(np.array([0, 0, 2, -1, 0, 0, -1, 1]))
    padded = b.add(REGISTRY["Pad"](mode=mode), [x, pads])
    assert_all_served(b.graph([padded, b.add(REGISTRY["Pad"](mode=mode), [x, cut])]))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["CumSum", "CumProd"])
def test_rows_of_any_length_are_added_up(kind: str, axis: int) -> None:
    b, x = image()
    at = b.constant(np.array(axis))
    sums = [
        b.add(REGISTRY[kind](exclusive=e, reverse=r), [x, at])
        for e in (False, True)
        for r in (False, True)
    ]
    assert_all_served(b.graph(sums))


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceProd"])
def test_as_many_rows_as_a_multiple_of_four_are_joined(kind: str) -> None:
    """None is left behind whole fours, however many there are."""
    b, x = image()
    joined = b.add(REGISTRY["Concat"](axis=2), [x, x, x, x])
    assert_all_served(b.graph([b.add(REGISTRY[kind](), [joined, b.constant(np.array([2]))])]))
