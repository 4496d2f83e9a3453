"""Reshapes between images and rows of tokens move to the side of the tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.passes.tokens_as_images import tokens_as_images
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.reference import promised

TURN = (0, 2, 1)


class Net:
    """A network of tokens x [n, 15, channels], whose images are 3 x 5."""

    def __init__(self, channels: int = 20, n: int = 2) -> None:
        self.b, self.n, self.c = Builder("net"), n, channels
        self.x = self.b.input("x", TensorType.parse(f"float32[{n}, 15, {channels}]"))
        self.rng = np.random.default_rng(channels)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def ints(self, *values: int) -> str:
        return self.b.constant(np.array(values, np.int64))

    def normal(self, *shape: int) -> str:
        return self.b.constant(self.rng.standard_normal(shape).astype(np.float32))

    def number(self, value: float, *shape: int) -> str:
        return self.b.constant(np.full(shape, value, np.float32))

    def image(self, tokens: str) -> str:
        rows = self.add("Transpose", tokens, perm=TURN)
        return self.add("Reshape", rows, self.ints(self.n, self.c, 3, 5))

    def rows(self, image: str) -> str:
        return self.add("Reshape", image, self.ints(self.n, self.c, 15))

    def depthwise(self, image: str) -> str:
        weights = self.normal(self.c, 1, 3, 3), self.normal(self.c)
        return self.add("Conv", image, *weights, groups=self.c, pads=((1, 1), (1, 1)))

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


def moved(before: Graph, rewrites: int) -> Graph:
    """After the pass, which changes no promised bit, nor does what is compiled."""
    after, trace = tokens_as_images(before)
    assert trace.rewrites == rewrites
    after, _ = remove_dead_code(after)
    checker.check(after)
    inputs = draw_inputs(before, 5)[0]
    old, new = promised(before, inputs), promised(after, inputs)
    found = compile(before, Settings(1, threads=2)).run(inputs)
    for value, other in zip(before.outputs, after.outputs, strict=True):
        assert bits(np.asarray(old[value])) == bits(np.asarray(new[other]))
        assert bits(np.asarray(old[value])) == bits(found[value])
    return after


@pytest.mark.parametrize("channels", [3, 16, 20, 35])
def test_a_convolution_between_tokens(channels: int) -> None:
    s = Net(channels)
    y = s.rows(s.depthwise(s.image(s.add("Tanh", s.x))))
    y = s.add("Gelu", s.add("Mul", s.add("Transpose", y, perm=TURN), s.number(0.5, 1, 1)))
    graph = s.graph(s.add("MatMul", y, s.normal(channels, 7)))
    found = kinds(moved(graph, 2))
    assert found == [
        "Tanh", "Reshape", "Transpose", "Conv", "Mul", "Gelu", "Transpose", "Reshape", "MatMul",
    ]  # fmt: skip


def test_between_reshape_and_transpose() -> None:
    s = Net()
    rows = s.rows(s.depthwise(s.image(s.x)))
    value = s.add("Mul", rows, s.add("Sigmoid", s.add("Mul", rows, s.number(1.702))))
    graph = s.graph(s.add("Exp", s.add("Transpose", value, perm=TURN)))
    assert kinds(moved(graph, 2))[2:] == [
        "Conv", "Mul", "Sigmoid", "Mul", "Transpose", "Reshape", "Exp",
    ]  # fmt: skip


def test_two_images_add_up() -> None:
    s = Net()
    image = s.image(s.x)
    both = [s.add("Transpose", s.rows(s.depthwise(image)), perm=TURN) for _ in range(2)]
    graph = s.graph(s.add("Neg", s.add("Relu", s.add("Add", *both))))
    assert kinds(moved(graph, 3)).count("Transpose") == 2


def test_tokens_that_are_read_twice_are_made_once() -> None:
    s = Net()
    turned = s.add("Transpose", s.rows(s.depthwise(s.image(s.x))), perm=TURN)
    products = [s.add("MatMul", turned, s.normal(20, 7)) for _ in range(2)]
    graph = s.graph(*products, s.add("Relu", turned))
    assert kinds(moved(graph, 2)).count("Transpose") == 2


def test_what_else_reads_rows_keeps_them() -> None:
    s = Net()
    rows = s.rows(s.depthwise(s.image(s.x)))
    turned = s.add("Transpose", rows, perm=TURN)
    moved(s.graph(s.add("Exp", turned), s.add("Softmax", rows)), 1)


def test_rows_or_tokens_that_are_outputs() -> None:
    s = Net()
    rows = s.rows(s.depthwise(s.image(s.x)))
    moved(s.graph(rows, s.add("Transpose", rows, perm=TURN)), 1)
    s = Net()
    turned = s.add("Transpose", s.rows(s.depthwise(s.image(s.x))), perm=TURN)
    moved(s.graph(turned, s.add("Relu", turned)), 2)


def test_operands_of_more_elements_stay_where_they_are() -> None:
    s = Net()
    rows = s.rows(s.depthwise(s.image(s.x)))
    scaled = s.add("Mul", rows, s.normal(20, 1))
    moved(s.graph(s.add("Transpose", scaled, perm=TURN)), 1)
    s = Net()
    turned = s.add("Transpose", s.rows(s.depthwise(s.image(s.x))), perm=TURN)
    found = kinds(moved(s.graph(s.add("Mul", turned, s.normal(20))), 2))
    assert found[-3:] == ["Transpose", "Reshape", "Mul"]


def test_other_axes_are_left_alone() -> None:
    s = Net()
    turned = s.add("Transpose", s.x, perm=(1, 2, 0))
    moved(s.graph(s.add("Reshape", turned, s.ints(15, 20, 2, 1))), 0)
    s = Net()
    rows = s.add("Transpose", s.x, perm=TURN)
    moved(s.graph(s.add("Relu", s.add("Reshape", rows, s.ints(2, 5, 4, 15)))), 0)


def test_it_stops_where_it_is_told_to() -> None:
    s = Net()
    rows = s.rows(s.depthwise(s.image(s.x)))
    graph = s.graph(s.add("Exp", s.add("Transpose", s.add("Relu", rows), perm=TURN)))
    for limit in range(3):
        after, trace = tokens_as_images(graph, limit)
        assert trace.rewrites == limit
        checker.check(after)
        inputs = draw_inputs(graph, 5)[0]
        (old,), (new,) = promised(graph, inputs).values(), promised(after, inputs).values()
        assert bits(np.asarray(old)) == bits(np.asarray(new))
