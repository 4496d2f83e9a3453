"""A function behind a convolution is fused, but not behind the short sums of a pointwise one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.place.convolution import convolution
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

PADS = ((1, 1), (1, 1))


def network(
    kernel: tuple[int, int], act: str, reader: str | None, pads: Any = PADS, **fields: Any
) -> Graph:
    """Convolution, activation, and what reads it."""
    b = Builder("net")
    rng = np.random.default_rng(len(act) + kernel[0])

    def weights(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    x = b.input("x", TensorType.parse("float32[2, 18, 7, 9]"))
    first = REGISTRY["Conv"](pads=PADS if kernel == (3, 3) else (), **fields)
    value = b.add(REGISTRY[act](), [b.add(first, [x, weights(35, 18, *kernel), weights(35)])])
    if reader == "depthwise":
        value = b.add(REGISTRY["Conv"](pads=pads, groups=35), [value, weights(35, 1, 3, 3)])
    if reader == "winograd":
        value = b.add(REGISTRY["WinogradConv"](tile=2, pads=pads), [value, weights(17, 35, 3, 3)])
    return b.graph([value])


@pytest.mark.parametrize(
    ("made", "calls"),
    [
        (lambda: network((1, 1), "Swish", "depthwise"), 3),
        (lambda: network((1, 1), "Sigmoid", "depthwise"), 3),
        (lambda: network((1, 1), "Swish", "winograd"), 6),  # scales, both transforms, products
        (lambda: network((1, 1), "Relu", "depthwise"), 2),
        (lambda: network((1, 1), "HardSwish", "depthwise"), 2),
        (lambda: network((1, 1), "Swish", "depthwise", strides=(2, 1)), 3),
        (lambda: network((1, 1), "Swish", None), 2),
        (lambda: network((3, 3), "Swish", None), 1),
        (lambda: network((3, 3), "Swish", "depthwise"), 2),
    ],
)
def test_it_is_fused_but_behind_a_pointwise_one(made: Any, calls: int) -> None:
    hold(made(), calls)


def test_what_leaves_the_caches_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network((1, 1), "Swish", "depthwise")
    bytes_ = 4 * 2 * 35 * 7 * 9
    monkeypatch.setattr(convolution, "IN_CACHE", bytes_)
    hold(graph, 3)
    monkeypatch.setattr(convolution, "IN_CACHE", bytes_ - 1)
    hold(graph, 2)


def hold(graph: Graph, calls: int) -> None:
    """calls: of kernels, copies of inputs and outputs left out."""
    exe = compile(graph, Settings(opt_level=1, threads=1))
    data = {"x": np.random.default_rng(3).standard_normal((2, 18, 7, 9), np.float32)}
    found = exe.run(data)
    kinds = [line for line in exe.plan.lines if ": to blocked" not in line]
    assert len([line for line in kinds if ": output: move" not in line]) == calls, exe.plan
    for name, array in promised(graph, data).items():
        assert bits(found[name]) == bits(np.asarray(array))
