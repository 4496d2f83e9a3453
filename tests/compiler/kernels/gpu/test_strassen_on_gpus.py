"""Strassen's algorithm on the emulated GPU has the bits of the CPU's program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.kernels.native import assert_same_bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.choose_strassen import fewest_rows
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType

TERMS, COLUMNS = 384, 384


def product(rows: int, function: str) -> Graph:
    """A product with a bias, a function and a sum behind it."""
    rng = np.random.default_rng(61)
    b = Builder("product")
    x = b.input("x", TensorType(DType.float32, (rows, TERMS)))
    other = b.input("other", TensorType(DType.float32, (rows, COLUMNS)))
    w = b.constant((rng.standard_normal((TERMS, COLUMNS)) / 16).astype(np.float32))
    bias = b.constant(rng.standard_normal(COLUMNS).astype(np.float32))
    y = b.add(REGISTRY["MatMul"](), [x, w])
    y = b.add(REGISTRY["Add"](), [y, bias])
    y = b.add(REGISTRY[function](), [y])
    return b.graph([b.add(REGISTRY["Add"](), [y, other])])


def pointwise(rows: int, cols: int) -> Graph:
    """Two pointwise convolutions, the second of which is followed by one with a border."""
    rng = np.random.default_rng(62)
    b = Builder("pointwise")
    x = b.input("x", TensorType(DType.float32, (2, 320, rows, cols)))
    conv = REGISTRY["Conv"]

    def weights(*shape: int) -> str:
        return b.constant((rng.standard_normal(shape) / 16).astype(np.float32))

    a = b.add(conv(), [x, weights(512, 320, 1, 1), weights(512)])
    a = b.add(REGISTRY["Relu"](), [a])
    c = b.add(conv(pads=((1, 1), (2, 0)), groups=512), [a, weights(512, 1, 3, 3), weights(512)])
    d = b.add(conv(), [a, weights(512, 512, 1, 1), weights(512)])
    return b.graph([b.add(REGISTRY["Add"](), [d, c])])


def compare(graph: Graph, inputs: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = compile(graph, Settings(3, threads=1))
    gpu = compile(graph, Settings(3, threads=1, target="cuda-emulated"))
    assert "Strassen" in str(cpu.plan) and "by threads of" in str(gpu.plan)
    expected: Any = cpu.run(inputs)
    for order in ("", "reversed", "late", "reversed,late"):
        monkeypatch.setenv("VERAX_GPU_ORDER", order)
        got: Any = gpu.run(inputs)
        for name in expected:
            assert_same_bits(got[name], expected[name])


@pytest.mark.parametrize("function", ["Relu", "Gelu"])
@pytest.mark.parametrize("more", [0, 1])
def test_products_have_the_bits_of_the_cpu(
    function: str, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an even and an odd number of rows, of which two are not finite."""
    rows = fewest_rows(TERMS, COLUMNS) + 6 + more
    rng = np.random.default_rng(63)
    x = rng.standard_normal((rows, TERMS)).astype(np.float32)
    x[2, 17], x[rows - 1, 3], x[rows - 1, 9] = np.inf, -np.inf, 1e-39
    x[rows // 2 + 1, 5] = np.nan
    other = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
    compare(product(rows, function), {"x": x, "other": other}, monkeypatch)


def test_pixels_have_the_bits_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(64).standard_normal((2, 320, 13, 15)).astype(np.float32)
    x[0, 17, 6, 4], x[1, 3, 2, 1] = np.inf, np.nan
    compare(pointwise(13, 15), {"x": x}, monkeypatch)
