"""Mistakes planted in branches and loops: pinned to the node and named; honest ones are not
accused, and where rounding decides what is chosen nobody is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph, Node
from verax.ir.text import parse_graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.ops.control.control import If, Loop
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.comparison import Greater
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceSum
from verax.records.verdict import Kind
from verax.reference.evaluate import promised

THEN = """graph "then"
input %x: float32[4, 7]
input %w: float32[7]
%a: float32[4, 7] = Mul()(%x, %w)
%y: float32[4, 7] = Tanh()(%a)
output %y
"""
ELSE = """graph "else"
input %x: float32[4, 7]
input %w: float32[7]
%y: float32[4, 7] = Sub()(%x, %w)
output %y
"""
BODY = """graph "body"
input %i: int64[]
input %x: float32[4, 7]
input %v: float32[4, 7]
input %m: float32[7, 7]
input %far: float32[]
%p: float32[4, 7] = MatMul()(%x, %m)
%y: float32[4, 7] = Add()(%p, %v)
%z: float32[4, 7] = Tanh()(%y)
%most: float32[] = ReduceMax(keepdims=False)(%y)
%go: bool[] = Less()(%most, %far)
output %go
output %y
output %z
"""


def network() -> Graph:
    """x [4, 7] -> out [4, 7] by a branch and a loop that runs until a number is large."""
    random = np.random.default_rng(8101)

    def drawn(*shape: int) -> np.ndarray:
        return random.uniform(0.2, 1.0, shape).astype(np.float32)

    b = Builder("control")
    x = b.input("x", TensorType.parse("float32[4, 7]"))
    total = b.add(ReduceSum(keepdims=False), [x], ["total"], "total")
    chosen = b.add(Greater(), [total, b.constant(np.float32(0), "zero")], ["chosen"], "chosen")
    w = b.constant(drawn(7), "w")
    op = If(then_branch=THEN, else_branch=ELSE)
    h = b.add(op, [chosen, x, w], ["branch"], "branch")
    m, far = b.constant(drawn(7, 7), "m"), b.constant(np.float32(300), "far")
    limit = b.constant(np.array(20, np.int64), "limit")
    loop = Loop(body=BODY, carried=2)
    h, k = b.add_all(loop, [limit, None, h, x, m, far], ["loop", "loop2"], "loop")
    mixed = b.add(MatMul(), [h, m], ["mixed"], "mixed")
    return b.graph([b.add(Relu(), [mixed], ["out"], "relu"), k])


X = np.random.default_rng(8102).standard_normal((4, 7)).astype(np.float32)


def subject(edit: Callable[[Node], Node] | None = None) -> Shown:
    """The network in its promised bits, every value shown; nodes as `edit` makes them."""

    def run(graph: Graph, inputs: Any, keep: Any = None) -> dict[str, np.ndarray]:
        nodes = tuple(edit(n) if edit else n for n in graph.nodes)
        wanted = [*graph.outputs, *(keep or ())]
        return promised(dataclasses.replace(graph, nodes=nodes), inputs, keep=wanted)

    return Shown(run)


class Shown:
    """What `check` takes for a runner."""

    name, stored_inputs = "planted", None
    capabilities = Capabilities(watches=True, truncates=True)

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def describe(self) -> dict[str, str]:
        return {}

    def run(self, graph: Graph, inputs: Any, keep: Any = None) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = self.answer(graph, inputs, keep)
        return found


def on(name: str, **changes: Any) -> Callable[[Node], Node]:
    def edit(node: Node) -> Node:
        if node.name != name:
            return node
        return dataclasses.replace(node, op=dataclasses.replace(node.op, **changes))

    return edit


def runs(count: int) -> str:
    """The body that goes on until it has run so often."""
    return BODY.replace(
        "%go: bool[] = Less()(%most, %far)",
        f"%n: float32[] = Cast(to='float32')(%i)\n%k: float32[] = Sub()(%far, %far)\n"
        f"%one: float32[] = Exp()(%k)\n{_sum(count)}%go: bool[] = Less()(%n, %s{count})",
    )


def _sum(count: int) -> str:
    """%s<count> = count - 1, of ones."""
    lines = ["%s1: float32[] = Add()(%k, %k)"]
    lines += [f"%s{i}: float32[] = Add()(%s{i - 1}, %one)" for i in range(2, count + 1)]
    return "\n".join(lines) + "\n"


SWAPPED = BODY.replace("output %y\noutput %z", "output %z\noutput %y")
KEPT = BODY.replace("output %z", "output %v")


@pytest.mark.parametrize("sign", [1, -1])
def test_honest_ones_are_not_accused(sign: int) -> None:
    verdict = check(network(), subject(), {"x": np.float32(sign) * X})
    assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def planted() -> dict[str, tuple[str, Callable[[Node], Node], str]]:
    meant = _times()
    return {
        "branches swapped": (
            "branch", on("branch", then_branch=ELSE, else_branch=THEN), "the other branch",
        ),
        "a run too few": ("loop", on("loop", body=runs(meant - 1)), "run once too few"),
        "a run too many": ("loop", on("loop", body=runs(meant + 1)), "run once too many"),
        "carried values swapped": (
            "loop", on("loop", body=SWAPPED), "carried values 0 and 1 swapped",
        ),
        "a carried value kept": ("loop", on("loop", body=KEPT), "carried value 1 kept"),
    }  # fmt: skip


def _times() -> int:
    """How often the loop runs by its meaning."""
    found, count = promised(network(), {"x": X}, keep=["branch"])["branch"], 0
    graph = network()
    x, v = found, X
    while count < 20:
        y = x @ graph.constants["m"] + v
        x, v, count = y, np.tanh(y), count + 1
        if y.max() >= 300:
            break
    return count


@pytest.mark.parametrize(
    "name",
    [
        "branches swapped", "a run too few", "a run too many", "carried values swapped",
        "a carried value kept",
    ],
)  # fmt: skip
def test_a_mistake_is_pinned_and_named(name: str) -> None:
    guilty, edit, cause = planted()[name]
    verdict = check(network(), subject(edit), {"x": X})
    assert verdict.kind is Kind.mistake, verdict.reasons
    assert {blame.node for blame in verdict.blame} == {guilty}
    named = [e.hypothesis for blame in verdict.blame for e in blame.explanations]
    assert cause in named, named


def test_a_condition_within_rounding_of_its_threshold_accuses_nobody() -> None:
    """The subject runs once more or less often than the meaning: both may be right."""
    loop = next(n for n in network().nodes if n.name == "loop")
    graph = network()
    start = promised(graph, {"x": X}, keep=["branch"])["branch"].astype(np.float64)
    tops, x, v = [], start, X.astype(np.float64)
    for _ in range(4):
        y = x @ graph.constants["m"].astype(np.float64) + v
        x, v = y, np.tanh(y)
        tops.append(y.max())
    edge = np.float32(tops[2])
    constants = {**graph.constants, "far": edge}
    open_ = dataclasses.replace(graph, constants=constants)
    for count in (3, 4):
        other = on("loop", body=runs(count))
        verdict = check(open_, subject(other), {"x": X})
        assert verdict.kind is not Kind.mistake, (count, verdict.reasons)
    assert isinstance(loop.op, Loop)
    found = [f for f in verdict.nodes if f.node == "loop" and f.kind is Kind.undecided]
    assert any("threshold" in f.reason for f in found)


def test_texts_are_graphs() -> None:
    for text in (THEN, ELSE, BODY, SWAPPED, KEPT, runs(3)):
        assert parse_graph(text).outputs
