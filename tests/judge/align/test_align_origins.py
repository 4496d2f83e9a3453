"""Where two networks part although what differs shows only behind it: that node is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.frontends.onnx_models import model
from tests.judge.align.align_pairs import read

from verax.ir.graph import Graph
from verax.judge.align.networks import align
from verax.records.alignment import Divergence, Relation

SHAPES = {"w1": (6, 5), "w2": (6, 5), "w3": (4, 12), "w4": (4, 6), "t1": (4, 3, 3), "t2": (5, 4, 1)}


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(83)
    return {
        name: (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in SHAPES.items()
    }


DRAWN = weights()
W = {name: DRAWN[name] for name in ("w1", "w2", "w3", "w4")}
TAPS = {name: DRAWN[name] for name in ("t1", "t2")}


def concat(order: tuple[str, str], p: str = "") -> Graph:
    """Two products side by side, and a product of both."""
    nodes = [
        helper.make_node("Gemm", [p + "x", "w1"], [p + "a"], p + "left", transB=1),
        helper.make_node("Gemm", [p + "x", "w2"], [p + "b"], p + "right", transB=1),
        helper.make_node("Concat", [p + o for o in order], [p + "c"], p + "both", axis=1),
        helper.make_node("Tanh", [p + "c"], [p + "t"], p + "squashed"),
        helper.make_node("Gemm", [p + "t", "w3"], [p + "y"], p + "dense", transB=1),
    ]
    return read(model(nodes, {p + "x": [3, 5]}, {p + "y": [3, 4]}, W))


def bounded(least: float, p: str = "") -> Graph:
    """A bound far below rounding that the inverse of a root makes large."""
    nodes = [
        helper.make_node("Gemm", [p + "x", "w1"], [p + "a"], p + "gemm", transB=1),
        helper.make_node("Relu", [p + "a"], [p + "r"], p + "relu"),
        helper.make_node("Clip", [p + "r", p + "low"], [p + "b"], p + "clip"),
        helper.make_node("Mul", [p + "b", "k"], [p + "m"], p + "mul"),
        helper.make_node("Pow", [p + "m", "half"], [p + "z"], p + "pow"),
        helper.make_node("Gemm", [p + "z", "w4"], [p + "y"], p + "dense", transB=1),
    ]
    numbers: dict[str, Any] = {
        p + "low": np.float32(least),
        "k": np.float32(3),
        "half": np.float32(-0.5),
    }
    return read(model(nodes, {p + "x": [3, 5]}, {p + "y": [3, 4]}, {**W, **numbers}))


def chomp(axis: int, p: str = "") -> Graph:
    """A convolution over time that is padded at both ends and cut at the last."""
    cut = {"begin": np.array([0]), "end": np.array([-4]), p + "axis": np.array([axis])}
    nodes: list[Any] = [
        helper.make_node(
            "Conv", [p + "x", "t1"], [p + "a"], p + "conv", pads=[4, 4], dilations=[2]
        ),
        helper.make_node("Slice", [p + "a", "begin", "end", p + "axis"], [p + "b"], p + "chomp"),
        helper.make_node("Conv", [p + "b", "t2"], [p + "c"], p + "point"),
        helper.make_node("ReduceMean", [p + "c"], [p + "y"], p + "mean", axes=[2]),
    ]
    return read(model(nodes, {p + "x": [8, 3, 11]}, {p + "y": None}, {**TAPS, **cut}))


def parted(first: Graph, second: Graph) -> Divergence:
    found = align(first, second)
    assert found.relation is Relation.different
    return found.divergences[0]


@pytest.mark.parametrize("swap", [False, True])
def test_exchanged_operands_of_a_concat_are_named(swap: bool) -> None:
    pair = concat(("a", "b")), concat(("b", "a"), "q")
    place = parted(*(pair[::-1] if swap else pair))
    nodes = [[layer.node for layer in side] for side in (place.first, place.second)]
    assert nodes == ([["qboth"], ["both"]] if swap else [["both"], ["qboth"]])
    assert "the operands are exchanged" in place.reason and place.bridged


def test_a_bound_below_rounding_is_named_not_the_root_behind_it() -> None:
    place = parted(bounded(1e-12), bounded(1e-9, "q"))
    assert [layer.node for layer in place.first] == ["clip"] and place.bridged
    assert "1e-12 against 1e-09" in place.reason, place.reason


def test_another_axis_of_a_slice_is_named_as_the_file_has_it() -> None:
    place = parted(chomp(2), chomp(0, "q"))
    assert [layer.node for layer in place.first] == ["chomp"]
    assert place.reason == "Slice: input 3 is [2] in the first and [0] in the second"


def test_a_concat_in_another_order_is_the_same_where_its_reader_follows() -> None:
    followed = {**W, "w3": np.concatenate([W["w3"][:, 6:], W["w3"][:, :6]], axis=1)}
    nodes = [
        helper.make_node("Gemm", ["x", "w1"], ["a"], "left", transB=1),
        helper.make_node("Gemm", ["x", "w2"], ["b"], "right", transB=1),
        helper.make_node("Concat", ["b", "a"], ["c"], "both", axis=1),
        helper.make_node("Tanh", ["c"], ["t"], "squashed"),
        helper.make_node("Gemm", ["t", "w3"], ["y"], "dense", transB=1),
    ]
    other = read(model(nodes, {"x": [3, 5]}, {"y": [3, 4]}, followed))
    assert not any(o.reason for o in align(concat(("a", "b")), other).outputs)
