"""Normalisations by mean and variance: promised bits on drawn shapes, in rows and in blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.compiler.native import agree, seeds, shapes, values
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import TensorType
from verax.ops.sums.layer_normalization import (
    LayerNormalization,
    MeanVarianceNormalization,
    RMSNormalization,
)
from verax.ops.sums.normalization import GroupNormalization, InstanceNormalization
from verax.reference import promised

FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), shapes(0, 3, 9), st.booleans(), seeds
)
def test_groups_of_channels(
    n: int, groups: int, per: int, space: tuple[int, ...], per_group: bool, seed: int
) -> None:
    op = GroupNormalization(num_groups=groups, per_group=per_group, epsilon=1e-3)
    length = groups if per_group else groups * per
    x = values(seed, (n, groups * per, *space))
    agree(op, x, values(seed + 1, (length,)), values(seed + 3, (length,)))


@FEW
@given(st.sampled_from([0, 1, 2, 8, 24, 48]), st.booleans(), st.booleans(), seeds)
def test_groups_between_convolutions(groups: int, per_group: bool, fuse: bool, seed: int) -> None:
    """Blocked in and out, with what follows fused behind it. No groups: every channel alone."""
    rng = np.random.default_rng(seed)

    def draw(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    b = Builder("net")
    x = rng.standard_normal((2, 3, 9, 7)).astype(np.float32)
    h = b.add(REGISTRY["Conv"](), [b.input("x", TensorType.of(x)), draw(48, 3, 2, 2)])
    length = groups if per_group and groups else 48
    op: Operator = InstanceNormalization()
    if groups:
        op = GroupNormalization(num_groups=groups, per_group=per_group)
    y = b.add(op, [h, draw(length), draw(length)])
    if fuse:
        y = b.add(REGISTRY["Tanh"](), [b.add(REGISTRY["Mul"](), [y, draw(48, 1, 1)])])
        y = b.add(REGISTRY["Add"](), [y, h])
    graph = b.graph([b.add(REGISTRY["Conv"](), [y, draw(5, 48, 1, 1)])])
    want = promised(graph, {"x": x})
    for threads in (1, 3):
        exe = compile(graph, Settings(opt_level=1, threads=threads, require_native=True))
        for value, array in exe.run({"x": x}).items():
            assert bits(array) == bits(np.asarray(want[value]))


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_mean_and_variance_over_any_axes(
    shape: tuple[int, ...], data: st.DataObject, seed: int
) -> None:
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
    axes = [a - rank if data.draw(st.booleans()) else a for a in axes]
    agree(MeanVarianceNormalization(axes=tuple(axes)), values(seed, shape))


@FEW
@given(shapes(1, 4), st.data(), seeds)
def test_a_layer_gives_its_statistics(
    shape: tuple[int, ...], data: st.DataObject, seed: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    op = LayerNormalization(axis=axis, with_statistics=True)
    scale = values(seed + 1, shape[axis % len(shape) :])
    agree(op, values(seed, shape), scale, values(seed + 3, shape[-1:]))


@FEW
@given(st.integers(1, 3), st.sampled_from([3, 16, 21]), shapes(1, 3, 9), st.booleans(), seeds)
def test_channels_alone(
    n: int, channels: int, space: tuple[int, ...], fuse: bool, seed: int
) -> None:
    x, scale, bias = (
        values(seed + i, s) for i, s in enumerate([(n, channels, *space), (channels,), (channels,)])
    )
    agree(InstanceNormalization(epsilon=1e-3), x, scale, bias)
    if fuse:
        b = Builder("net")
        names = [b.input("x", TensorType.of(x)), b.constant(scale), b.constant(bias)]
        graph = b.graph([b.add(REGISTRY["Tanh"](), [b.add(InstanceNormalization(), names)])])
        got = compile(graph, Settings(opt_level=1, threads=3, require_native=True)).run({"x": x})
        for value, array in promised(graph, {"x": x}).items():
            assert bits(got[value]) == bits(np.asarray(array))


@FEW
@given(st.integers(1000, 1100), st.integers(1, 3), st.booleans(), seeds)
def test_rows_of_more_than_a_block(n: int, rows: int, wide: bool, seed: int) -> None:
    """Around and behind the end of the first block of a sum, a mean far from zero among them."""
    n += 1024 * wide
    x = values(seed, (rows, 3, n)) * np.float32(0.25) + np.float32(40)
    scale, bias = values(seed + 1, (n,)), values(seed + 3, (n,))
    agree(LayerNormalization(with_statistics=True), x, scale, bias)
    agree(RMSNormalization(), x, scale)
    agree(InstanceNormalization(), x, values(seed + 1, (3,)), values(seed + 3, (3,)))
    turned = np.ascontiguousarray(x.transpose(0, 2, 1))
    agree(MeanVarianceNormalization(axes=(1,)), turned)
