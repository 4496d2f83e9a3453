"""Recorded logits of a deep network in which most is blind: no size of an error acquits them."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.movement.reshaping import Flatten
from verax.ops.pointwise.activation import Relu
from verax.ops.sums.linear import MatMul
from verax.ops.sums.normalization import BatchNormalization
from verax.ops.windows.convolution import Conv
from verax.ops.windows.global_pooling import GlobalAveragePool
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.arrays import ArraysRunner

BLOCKS = 20
STRIDED = (3, 9)


def network(gain: float, moved: int | None = None) -> Graph:
    """123 nodes as of a MobileNet whose weights have this size. moved: the block whose pads are all
    at the end."""
    r, b = np.random.default_rng(0), Builder("deep")

    def weights(*shape: int, size: float = gain) -> str:
        made = size * r.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return b.constant(made.astype(np.float32))

    def normalized(h: str, channels: int, name: str) -> str:
        limits = ((0.5, 1.5), (-0.2, 0.2), (-0.2, 0.2), (0.5, 1.5))
        drawn = [b.constant(r.uniform(*at, channels).astype(np.float32)) for at in limits]
        h = b.add(BatchNormalization(), [h, *drawn], [f"n{name}"], f"bn{name}")
        return b.add(Relu(), [h], [f"r{name}"], f"relu{name}")

    h, channels = b.input("x", TensorType.parse("float32[2, 3, 32, 24]")), 3
    for i in range(BLOCKS):
        width = 16 if i < 8 else 24
        h = b.add(Conv(), [h, weights(width, channels, 1, 1)], [f"p{i}"], f"point{i}")
        h = normalized(h, width, f"p{i}")
        pads = ((0, 2), (0, 2)) if moved == i else ((1, 1), (1, 1))
        strides = (2, 2) if i in STRIDED else (1, 1)
        depthwise = Conv(pads=pads, strides=strides, groups=width)
        h = b.add(depthwise, [h, weights(width, 1, 3, 3)], [f"d{i}"], f"depth{i}")
        h, channels = normalized(h, width, f"d{i}"), width
    h = b.add(GlobalAveragePool(), [h], ["pooled"], "pool")
    h = b.add(Flatten(axis=1), [h], ["flat"], "flatten")
    return b.graph([b.add(MatMul(), [h, weights(channels, 10, size=3.0)], ["y"], "logits")])


@pytest.mark.parametrize(
    ("gain", "moved", "kinds"),
    [
        (0.3, 9, {Kind.undecided}),
        (0.5, 14, {Kind.undecided}),
        (0.8, 3, {Kind.undecided}),
        (0.64, 14, {Kind.undecided, Kind.mistake}),
        (0.35, 16, {Kind.undecided, Kind.mistake}),
    ],
)
def test_moved_pads_that_hardly_show_are_no_coarse_arithmetic(
    gain: float, moved: int, kinds: set[Kind]
) -> None:
    x = np.random.default_rng(1).random((2, 3, 32, 24)).astype(np.float32)
    y = evaluate(network(gain, moved), {"x": x}, work=np.float32)["y"].astype(np.float32)
    graph = network(gain)
    assert len(graph.nodes) == 123
    found = check(graph, ArraysRunner({"y": y}), {"x": x}, explain=False)
    assert found.coverage is not None and 2 * found.coverage.seen < found.coverage.tried
    assert found.kind in kinds and found.exit_code != 0, found.reasons
    assert not found.precisions
