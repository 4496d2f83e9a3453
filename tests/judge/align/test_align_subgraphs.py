"""Two networks whose branches or loops differ inside: the node and its attribute are named."""

from __future__ import annotations

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.align.networks import align
from verax.judge.align.subgraph_changes import changes
from verax.ops.control.control import If, Loop
from verax.ops.pointwise.activation import Relu
from verax.records.alignment import Relation

BODY = """graph "body"
input %i: int64[]
input %x: float32[4, 7]
input %v: float32[4, 7]
input %m: float32[7, 7]
%p: float32[4, 7] = MatMul()(%x, %m)
%d: float32[4, 7] = Sub()(%p, %v)
%y: float32[4, 7] = LeakyRelu(alpha=0.25)(%d) @ "bent"
%most: float32[] = ReduceMax(keepdims=False)(%y)
%go: bool[] = IsNaN()(%most)
%on: bool[] = Not()(%go)
output %on
output %y
output %d
"""


def renamed(body: str) -> str:
    """The same with other names of values and nodes."""
    for name in ("i", "x", "v", "m", "p", "d", "y", "most", "go", "on"):
        body = body.replace(f"%{name}:", f"%q.{name}:").replace(f"%{name},", f"%q.{name},")
        body = body.replace(f"%{name})", f"%q.{name})").replace(f"%{name}\n", f"%q.{name}\n")
    return body.replace('"bent"', '"leaky"')


def network(body: str = BODY) -> Graph:
    """x [4, 7] -> three runs of the body -> two outputs."""
    b = Builder("looping")
    x = b.input("x", TensorType.parse("float32[4, 7]"))
    m = np.random.default_rng(8311).uniform(-0.6, 0.7, (7, 7)).astype(np.float32)
    limit, matrix = b.constant(np.array(3, np.int64), "limit"), b.constant(m, "m")
    loop = Loop(body=body, carried=2)
    h, k = b.add_all(loop, [limit, None, x, x, matrix], ["h", "k"], "loop")
    return b.graph([b.add(Relu(), [h], ["out"], "relu"), k])


def test_the_test_writes_a_body_with_other_names() -> None:
    assert renamed(BODY) != BODY
    found = align(network(), network(renamed(BODY)))
    assert found.relation is Relation.same


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("alpha=0.25", "alpha=0.125", "body: LeakyRelu 'bent': alpha is 0.25 in the first and"),
        ("Sub()(%p, %v)", "Sub()(%v, %p)", "body: Sub 'd': input 0 is p in the first and v in"),
        ("output %y\noutput %d", "output %d\noutput %y", "body: output 1 is y in the first and d"),
        (
            "= Sub()(%p, %v)",
            "= Add()(%p, %v)",
            "body: the operator of 'd' is Sub in the first and Add in",
        ),
    ],
)
def test_what_differs_inside_of_a_loop_is_named(old: str, new: str, words: str) -> None:
    assert old in BODY
    found = align(network(), network(renamed(BODY.replace(old, new))))
    assert found.relation is Relation.different
    place = found.divergences[0]
    assert place.proved
    assert words in place.reason and len(place.reason) < 250
    assert all("input %" not in v for layer in place.first for v in layer.attributes.values())


def test_of_other_bodies_a_summary_is_given() -> None:
    more = BODY.replace("output %on", "%e: float32[4, 7] = Neg()(%y)\noutput %on")
    found = align(network(), network(more.replace("output %y", "output %e")))
    reason = found.divergences[0].reason
    assert "body is 6 nodes (MatMul, Sub, LeakyRelu" in reason and "7 nodes" in reason


def test_the_one_change_that_is_enough_stands_alone() -> None:
    body = BODY.replace("alpha=0.25", "alpha=0.125")
    idle = body.replace("keepdims=False", "keepdims=True")
    for name in ("%most: float32[", "%go: bool[", "%on: bool["):
        idle = idle.replace(name, f"{name}1, 1")
    found = align(network(), network(renamed(idle)))
    place = found.divergences[0]
    assert place.proved and [d.first for d in place.attributes] == ["0.25"]


def test_a_body_within_a_body_is_compared_too() -> None:
    def outer(alpha: float) -> If:
        inner = f"""graph "inner"
input %x: float32[4, 7]
%y: float32[4, 7] = LeakyRelu(alpha={alpha})(%x) @ "deep"
output %y
"""
        text = f"""graph "outer"
input %c: bool[]
input %x: float32[4, 7]
%z: float32[4, 7] = If(then_branch={inner!r}, else_branch={inner!r})(%c, %x) @ "which"
output %z
"""
        return If(then_branch=text, else_branch=text)

    found = changes(outer(0.5), outer(0.75))
    named = [c.difference.attribute for c in found]
    deep = "If 'which': {}_branch: LeakyRelu 'deep': alpha"
    assert named == [
        f"{branch}_branch: {deep.format(inner)}"
        for branch in ("then", "else")
        for inner in ("then", "else")
    ]
    assert all("0.75" in str(c.value) and "0.5" in str(c.value) for c in found)
