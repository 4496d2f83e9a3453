"""Kernels whose images are split by rows, or by channels where they are small, give the same bits
on any number of threads: depthwise convolutions, pools, Winograd's transforms, and products whose
weights are fetched ahead."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.convolution.tiles import splits_channels
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.windows.convolution import Conv
from verax.ops.windows.pooling import AveragePool, MaxPool
from verax.reference import promised

THREADS = (1, 2, 3, 5)
SIZES = ((23, 17), (15, 6), (7, 6))


def network(rows: int, cols: int) -> Graph:
    """1x1, depthwise 3x3, max pool, 3x3 and 1x1 with stride 1 and 2, mean pool."""
    rng = np.random.default_rng(rows * 100 + cols)
    b = Builder("rows")
    value = b.input("x", TensorType.parse(f"float32[2, 19, {rows}, {cols}]"))

    def conv(x: str, inputs: int, filters: int, size: int, groups: int = 1, stride: int = 1) -> str:
        shape = (filters, inputs // groups, size, size)
        w = (rng.standard_normal(shape) / size).astype(np.float32)
        bias = rng.standard_normal(filters).astype(np.float32)
        pads, strides = ((size // 2, size // 2),) * 2, (stride, stride)
        op = Conv(pads=pads, groups=groups, strides=strides)
        return b.add(op, [x, b.constant(w), b.constant(bias)])

    value = b.add(Relu(), [conv(value, 19, 70, 1)])
    value = b.add(Relu(), [conv(value, 70, 70, 3, groups=70)])
    value = b.add(MaxPool(kernel_shape=(3, 3), pads=((1, 1), (1, 1))), [value])
    value = conv(value, 70, 37, 3)
    value = conv(value, 37, 48, 1, stride=2)
    value = b.add(AveragePool(kernel_shape=(2, 2)), [value])
    return b.graph([value])


@pytest.mark.parametrize("rows, cols", SIZES)
def test_bits_are_the_promised_ones_on_any_number_of_threads(rows: int, cols: int) -> None:
    graph = network(rows, cols)
    rng = np.random.default_rng(5)
    x = {"x": rng.standard_normal((2, 19, rows, cols)).astype(np.float32)}
    want = promised(graph, x)
    for threads in THREADS:
        got = compile(graph, Settings(opt_level=1, threads=threads)).run(x)
        assert all(got[name].tobytes() == array.tobytes() for name, array in want.items()), threads


@pytest.mark.parametrize("rows, cols", SIZES)
def test_bits_of_o3_do_not_depend_on_the_number_of_threads(rows: int, cols: int) -> None:
    graph = network(rows, cols)
    rng = np.random.default_rng(6)
    x = {"x": rng.standard_normal((2, 19, rows, cols)).astype(np.float32)}
    runs = [compile(graph, Settings(opt_level=3, threads=n)).run(x) for n in THREADS]
    for name in graph.outputs:
        assert len({run[name].tobytes() for run in runs}) == 1


def test_both_ways_of_splitting_are_met() -> None:
    assert {splits_channels(*size) for size in SIZES} == {True, False}
