"""Transpositions between pixels and blocks of channels: one pass over memory, or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.plan.steps import BLOCK
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.reference import promised

FIRST, LAST = (0, 3, 1, 2), (0, 2, 3, 1)
PADS = ((1, 1), (1, 1))


class Net:
    """x: pixels [2, 6, 7, channels]."""

    def __init__(self, channels: int, dtype: str = "float32") -> None:
        self.b, self.c, self.dtype = Builder("net"), channels, dtype
        self.x = self.b.input("x", TensorType.parse(f"{dtype}[2, 6, 7, {channels}]"))
        self.rng = np.random.default_rng(channels)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def normal(self, *shape: int) -> str:
        return self.b.constant(self.rng.standard_normal(shape).astype(self.dtype))

    def conv(self, x: str, filters: int = 0, kernel: int = 3, **more: Any) -> str:
        """Depthwise, or with so many filters."""
        shape = (filters, self.c) if filters else (self.c, 1)
        groups = 1 if filters else self.c
        pads = PADS if kernel == 3 else ()
        weights = self.normal(*shape, kernel, kernel), self.normal(shape[0])
        return self.add("Conv", x, *weights, groups=groups, pads=pads, **more)

    def first(self, pixels: str) -> str:
        return self.add("Transpose", pixels, perm=FIRST)

    def last(self, image: str) -> str:
        return self.add("Transpose", image, perm=LAST)

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def moves(exe: Executable) -> list[str]:
    return [x for x in exe.plan.lines if ": move" in x and "zeros around" not in x]


def held(graph: Graph, **settings: Any) -> Executable:
    """Compiled, with the promised bits on one thread and on two."""
    inputs = draw_inputs(graph, 3)[0]
    meant = promised(graph, inputs)
    for threads in (2, 1):
        exe = compile(graph, Settings(**{"opt_level": 1, "threads": threads, **settings}))
        found = exe.run(inputs)
        for value in graph.outputs:
            assert bits(found[value]) == bits(np.asarray(meant[value])), value
    return exe


def between(s: Net, make: Callable[[str], str]) -> Graph:
    """Something on an image between pixels that a product makes and one that reads them."""
    channels = s.c
    image = s.first(s.add("MatMul", s.x, s.normal(channels, channels)))
    made = s.last(make(image))
    filters = s.b.types[made].shape[-1]
    return s.graph(s.add("MatMul", made, s.normal(filters, 5)))


@pytest.mark.parametrize(("channels", "count"), [(16, 1), (48, 1), (20, 4), (35, 4), (5, 2)])
def test_depthwise(channels: int, count: int) -> None:
    s = Net(channels)
    assert len(moves(held(between(s, lambda x: s.add("Gelu", s.conv(x)))))) == count


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("filters", [32, 64, 33])
def test_convolutions_write_pixels(kernel: int, filters: int) -> None:
    s = Net(48)
    exe = held(between(s, lambda x: s.add("Relu", s.conv(x, filters, kernel))))
    assert len(moves(exe)) == (1 if filters % 16 == 0 else 3)


def test_with_an_operand_and_with_a_stride() -> None:
    s = Net(32)

    def add_up(x: str) -> str:
        return s.add("Mul", s.add("Add", s.conv(x), s.conv(x)), s.normal(32, 1, 1))

    assert len(moves(held(between(s, add_up)))) == 1
    s = Net(32)
    assert len(moves(held(between(s, lambda x: s.conv(x, 16, 1, strides=(2, 3)))))) == 1


def test_pixels_that_are_an_output() -> None:
    s = Net(32)
    image = s.conv(s.first(s.x))
    assert len(moves(held(s.graph(s.last(image))))) == 1
    s = Net(32)
    image = s.conv(s.first(s.x))
    held(s.graph(s.last(image), image))


def test_an_image_that_is_read_twice_is_kept() -> None:
    s = Net(32)
    image = s.conv(s.first(s.x))
    exe = held(s.graph(s.add("MatMul", s.last(image), s.normal(32, 5)), s.conv(image)))
    assert any("Transpose" in x or "transpose" in x for x in moves(exe))


def test_a_sum_with_what_is_blocked() -> None:
    s = Net(32)
    image = s.conv(s.first(s.x))
    product = s.first(s.add("MatMul", s.x, s.normal(32, 32)))
    graph = s.graph(s.conv(s.add("Add", image, product)))
    assert not any("to blocked" in x or "to plain" in x for x in moves(held(graph)))


def test_without_blocks_and_without_anything() -> None:
    s = Net(32)
    graph = between(s, lambda x: s.add("Relu", s.conv(x)))
    held(graph, disable=(BLOCK.name,))
    held(graph, opt_level=0)


def test_every_number_of_decisions() -> None:
    s = Net(32)
    graph = between(s, lambda x: s.add("Relu", s.conv(x)))
    whole = held(graph).trace.rewrites
    for count in range(whole + 1):
        held(graph, stop_after=count)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype: str) -> None:
    s = Net(32, dtype)
    held(between(s, lambda x: s.add("Relu", s.conv(x))))


def test_other_permutations() -> None:
    s = Net(16)
    image = s.add("Transpose", s.x, perm=(0, 3, 2, 1))
    held(s.graph(s.add("Transpose", s.conv(image), perm=(0, 3, 2, 1))))
