"""Bodies that hand on what they are given: another carried value, a weight, one value twice."""

from __future__ import annotations

import numpy as np
import pytest

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.control.control import If, Loop
from verax.reference.evaluate import promised

HEAD = """graph "body"
input %i: int64[]
input %before: float32[4, 7]
input %last: float32[4, 7]
input %m: float32[7, 7]
input %w: float32[4, 7]
%p: float32[4, 7] = MatMul()(%last, %m)
%new: float32[4, 7] = Sub()(%p, %before)
%less: bool[] = Less()(%i, %i)
%on: bool[] = Not()(%less)
output %on
"""
SIDE = """graph "side"
input %x: float32[4, 7]
input %y: float32[4, 7]
input %w: float32[4, 7]
"""


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.7, 0.6, shape).astype(np.float32)


X, Y, WEIGHT = drawn(9127, 4, 7), drawn(9128, 4, 7), drawn(9129, 4, 7)


def looping(outputs: str) -> Graph:
    """Five runs of a body that gives these two values."""
    b = Builder("handed on")
    x, y = (b.input(name, TensorType.parse("float32[4, 7]")) for name in "xy")
    m = b.constant(drawn(9130, 7, 7), "m")
    count, w = b.constant(np.array(5, np.int64), "count"), b.constant(WEIGHT, "w")
    body = HEAD + "".join(f"output %{name}\n" for name in outputs.split())
    given = [count, None, x, y, m, w]
    return b.graph(b.add_all(Loop(body=body, carried=2), given, ["a", "b"], "loop"))


def choosing(then: str, other: str) -> Graph:
    b = Builder("chosen")
    c = b.input("c", TensorType.parse("bool[]"))
    x, y = (b.input(name, TensorType.parse("float32[4, 7]")) for name in "xy")
    sides = [SIDE + "".join(f"output %{n}\n" for n in names.split()) for names in (then, other)]
    op = If(then_branch=sides[0], else_branch=sides[1])
    return b.graph(b.add_all(op, [c, x, y, b.constant(WEIGHT, "w")], ["a", "b"], "if"))


@pytest.mark.parametrize("opt_level", range(4))
@pytest.mark.parametrize(
    "outputs", ["last new", "last before", "new new", "w new", "last last", "new before"]
)
def test_a_loop_hands_on_what_it_was_given(outputs: str, opt_level: int) -> None:
    graph, inputs = looping(outputs), {"x": X, "y": Y}
    found = verax.compile(graph, opt_level=opt_level, cache=False).run(inputs)
    wanted = promised(graph, inputs)
    for name in ("a", "b"):
        np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize(("then", "other"), [("y x", "x w"), ("y y", "w w")])
def test_a_branch_hands_on_what_it_was_given(
    then: str, other: str, truth: bool, opt_level: int
) -> None:
    graph, inputs = choosing(then, other), {"c": np.array(truth), "x": X, "y": Y}
    found = verax.compile(graph, opt_level=opt_level, cache=False).run(inputs)
    values = {"x": X, "y": Y, "w": WEIGHT}
    for name, given in zip("ab", (then if truth else other).split()):
        np.testing.assert_array_equal(found[name], values[given])
