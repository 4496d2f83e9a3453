"""Channels first and channels last are one function: every windowed operator in both layouts.

TensorFlow computes most of them channels-last only on a CPU, so it cannot be the witness here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tf_graphs import constant, empty, node, placeholder

import verax
from verax.base.errors import UnsupportedError, UsageError
from verax.frontends.tensorflow import load_tensorflow


def draw(*shape: int) -> np.ndarray:
    """Whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(shape).integers(-9, 10, shape).astype(np.float32)


IMAGE = draw(2, 7, 9, 4)
STRIDES = (1, 2, 3, 1)
CASES: dict[str, tuple[str, Sequence[np.ndarray], dict[str, Any]]] = {
    "conv": ("Conv2D", [draw(3, 2, 4, 5)], {"strides": STRIDES, "padding": "SAME"}),
    "conv_dilated": (
        "Conv2D",
        [draw(3, 2, 4, 5)],
        {"strides": (1, 1, 1, 1), "dilations": (1, 2, 3, 1), "padding": "VALID"},
    ),
    "conv_explicit": (
        "Conv2D",
        [draw(3, 2, 4, 5)],
        {
            **{"strides": STRIDES, "padding": "EXPLICIT"},
            "explicit_paddings": (0, 0, 1, 2, 0, 3, 0, 0),
        },
    ),
    "depthwise": (
        "DepthwiseConv2dNative",
        [draw(3, 2, 4, 3)],
        {"strides": (1, 2, 2, 1), "padding": "SAME"},
    ),
    "max_pool": ("MaxPool", [], {"ksize": (1, 3, 2, 1), "strides": STRIDES, "padding": "SAME"}),
    "avg_pool": ("AvgPool", [], {"ksize": (1, 3, 2, 1), "strides": STRIDES, "padding": "SAME"}),
    "bias": ("BiasAdd", [draw(4)], {}),
    "norm": (
        "FusedBatchNormV3",
        [draw(4), draw(4) * 2, draw(4) * 3, np.abs(draw(4)) + 0.5],
        {"is_training": False, "U": 1, "epsilon": 0.25},
    ),
    "depth_to_space": ("DepthToSpace", [], {"block_size": [2]}),
}
PER_AXIS = ("strides", "dilations", "ksize", "explicit_paddings")


def moved(values: Sequence[int]) -> list[int]:
    """Numbers per axis, or pairs of them, channels first."""
    size = len(values) // 4
    groups = [list(values[i : i + size]) for i in range(0, len(values), size)]
    return [v for i in (0, 3, 1, 2) for v in groups[i]]


def loaded(name: str, layout: str) -> verax.Model:
    kind, operands, attributes = CASES[name]
    graph = empty()
    first = layout != "NHWC"
    shape = IMAGE.transpose(0, 3, 1, 2).shape if first else IMAGE.shape
    names = [placeholder(graph, "x", shape)]
    names += [constant(graph, f"w{i}", w.astype(np.float32)) for i, w in enumerate(operands)]
    made = node(graph, "y", kind, *names, T=1, data_format=layout)
    for key, value in attributes.items():
        if key == "block_size":
            made.attr[key].i = value[0]
        elif key in PER_AXIS:
            made.attr[key].list.i.extend(moved(value) if first else value)
        elif isinstance(value, bool):
            made.attr[key].b = value
        elif isinstance(value, str):
            made.attr[key].s = value.encode()
        elif isinstance(value, float):
            made.attr[key].f = value
        else:
            made.attr[key].type = value
    return load_tensorflow(graph.SerializeToString())


@pytest.mark.parametrize("name", CASES)
def test_both_layouts_mean_the_same(name: str) -> None:
    last = verax.reference(loaded(name, "NHWC"), {"x": IMAGE})["y"]
    image = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
    first = verax.reference(loaded(name, "NCHW"), {"x": image})["y"]
    assert np.array_equal(first.transpose(0, 2, 3, 1), last)


@pytest.mark.parametrize("name", CASES)
def test_other_layouts_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="data_format"):
        loaded(name, "NCHW_VECT_C")


def test_what_a_placeholder_leaves_open_is_given_or_stays_open() -> None:
    graph = empty()
    placeholder(graph, "x", (-1, 7, -1, 4))
    node(graph, "y", "Relu", "x", T=1)
    data = graph.SerializeToString()
    assert len(load_tensorflow(data).graph.symbols()) == 2
    assert load_tensorflow(data, shapes={"x": (2, 7, 9, 4)}).inputs["x"].shape == (2, 7, 9, 4)
    with pytest.raises(UsageError, match="does not fit"):
        load_tensorflow(data, shapes={"x": (2, 8, 9, 4)})


def test_an_input_of_unknown_rank_needs_a_shape() -> None:
    graph = empty()
    node(graph, "x", "Placeholder", dtype=1).attr["shape"].shape.unknown_rank = True
    node(graph, "y", "Relu", "x", T=1)
    data = graph.SerializeToString()
    with pytest.raises(UnsupportedError, match="how many dimensions"):
        load_tensorflow(data)
    assert load_tensorflow(data, shapes={"x": (2, 3)}).outputs["y"].shape == (2, 3)
