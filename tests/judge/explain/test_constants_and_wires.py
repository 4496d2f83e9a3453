"""Twelve wrong constants and twelve wrong wires: the node is named, and what is wrong with it.

Each is put into a small network, whose values are then judged as a subject's that can be watched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import verax.api  # noqa: F401  (registers every operator)
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import check
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner

Arrays = dict[str, np.ndarray]


def network() -> Graph:
    """A residual block with branches, a table of positions, and an attention."""
    random = np.random.default_rng(67)
    b = Builder("net")

    def constant(name: str, array: Any) -> str:
        return b.constant(np.asarray(array, np.float32), name)

    def normal(name: str, *shape: int) -> str:
        return constant(name, random.standard_normal(shape) / np.sqrt(shape[0]))

    def add(kind: str, inputs: list[str | None], name: str, **attributes: object) -> str:
        return str(b.add(REGISTRY[kind](**attributes), inputs, [name], name))

    same = {"pads": ((1, 1), (1, 1))}
    x = b.input("x", TensorType.parse("float32[3, 6, 6, 8]"))
    ids = b.input("ids", TensorType.parse("int64[3, 8]"))
    one = b.constant(np.array([1]), "axis")
    h = add("Conv", [x, normal("k1", 6, 6, 3, 3), normal("kb", 6)], "conv1", **same)
    stats = [constant(n, random.uniform(0.3, 1.7, 6)) for n in ("gamma", "beta", "mean", "var")]
    h = add("BatchNormalization", [h, *stats], "bn")
    h = add("Relu", [h], "relu1")
    g = add("Conv", [h, normal("k2", 6, 6, 3, 3)], "conv2", **same)
    h = add("Add", [g, h], "skip")
    low, high = b.add_all(REGISTRY["Split"](axis=1, num_outputs=2), [h], ["low", "high"], "split")
    d = add("Sub", [low, high], "sub")
    e = add("Sigmoid", [high], "gate")
    c = add("Concat", [d, e], "concat", axis=1)
    c = add("Mul", [c, constant("factor", [[[0.37]]])], "scale")
    c = add("Mul", [c, constant("rows", random.uniform(0.5, 2, (6, 1)))], "per_row")
    p = add("Pow", [add("Abs", [c], "abs"), constant("power", 1.5)], "pow")
    p = add("ReduceMean", [p, one], "rm", keepdims=0)
    t = add("Gather", [normal("table", 11, 8), ids], "embed", axis=0)
    t = add("ReduceMean", [t, one], "tm", keepdims=1)
    p = add("Add", [p, t], "positions")
    q, k, v = (add("MatMul", [p, normal(f"w{n}", 8, 8)], n) for n in "qkv")
    q = add("Add", [q, normal("qb", 8)], "qbias")
    s = add("MatMul", [q, add("Transpose", [k], "kt", perm=(0, 2, 1))], "scores")
    w = add("Where", [add("Greater", [s, constant("zero", 0.0)], "cond"),
                      add("Tanh", [s], "tanh"), add("Sin", [s], "sin")], "where")  # fmt: skip
    o = add("MatMul", [add("Softmax", [w], "softmax", axis=-1), v], "mixed")
    o = add("Div", [o, add("Add", [add("Abs", [q], "qabs"), constant("one", 1.0)], "plus")], "div")
    return b.graph([add("MatMul", [o, normal("wo", 8, 5)], "y")])


GRAPH = network()
INPUTS: Arrays = {
    "x": np.random.default_rng(5).standard_normal((3, 6, 6, 8)).astype(np.float32),
    "ids": np.random.default_rng(6).integers(0, 11, (3, 8)),
}


def judged(graph: Graph) -> Verdict:
    """What another network computes, judged as an answer to `GRAPH`."""
    inner = [v for n in GRAPH.nodes for v in n.outputs]
    values = promised(graph, INPUTS, keep=inner)
    return check(GRAPH, ArraysRunner(values, "recorded"), INPUTS, twice=False)


def constants(**changed: Callable[[np.ndarray], np.ndarray]) -> Graph:
    """The network with other numbers in some constants."""
    found = {k: f(GRAPH.constants[k].copy()).astype(np.float32) for k, f in changed.items()}
    return dataclasses.replace(GRAPH, constants={**GRAPH.constants, **found})


def wired(node: str, *inputs: str) -> Graph:
    """The network with a node that reads other values."""
    nodes = {n.outputs[0]: n for n in GRAPH.nodes}
    nodes[node] = dataclasses.replace(nodes[node], inputs=inputs)
    order: list[Any] = []
    known = {*GRAPH.inputs, *GRAPH.constants}
    while len(order) < len(GRAPH.nodes):
        n = next(n for n in nodes.values() if n not in order and known.issuperset(n.inputs))
        order.append(n)
        known.update(n.outputs)
    return dataclasses.replace(GRAPH, nodes=tuple(order))


def put(index: Any, change: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    def edit(array: np.ndarray) -> np.ndarray:
        array[index] = change(array[index])
        return array

    return edit


CONSTANTS: dict[str, tuple[Graph, str, str]] = {
    "one element of a bias": (constants(qb=put((3,), lambda v: v + 0.01)), "qbias", " at 3"),
    "a column times c": (constants(wo=put(np.s_[:, 2], lambda v: 1.01 * v)), "y", "2: 1.01 times"),
    "a square weight transposed": (constants(wk=lambda w: w.T), "k", "transposed"),
    "the sign of a factor": (constants(factor=lambda c: -c), "scale",
                             "'factor', is -0.37, not 0.37: the sign of the result"),
    "a mean that is shifted": (constants(mean=put((4,), lambda v: v + 0.1)), "bn", " at 4"),
    "gamma for beta": (
        constants(gamma=lambda g: GRAPH.constants["beta"], beta=lambda b: GRAPH.constants["gamma"]),
        "bn",
        "gamma and beta were exchanged",
    ),
    "a constant of a Mul": (constants(factor=lambda c: 1.02 * c), "scale", "0.3774, not 0.37"),
    "a constant of an Add": (constants(one=lambda c: 1.0017 * c), "plus", "1.0017, not 1"),
    "a power": (constants(power=lambda c: c + 0.01), "pow", "1.51, not 1.5"),
    "a channel of a weight zeroed": (
        constants(wq=put(np.s_[:, 5], lambda v: 0 * v)), "q", "5"
    ),
    "a row of a table": (constants(table=lambda t: np.roll(t, 1, 0)), "embed", "the row before"),
}  # fmt: skip

WIRES: dict[str, tuple[Graph, str, str]] = {
    "another node of this shape": (wired("gate", "low"), "gate", "'low'"),
    "a residual from one layer before": (wired("skip", "conv2", "bn"), "skip", "'bn'"),
    "a residual of the input": (wired("skip", "conv2", "x"), "skip", "'x'"),
    "a skip connection dropped": (wired("skip", "conv2", "conv2"), "skip", "first operand"),
    "operands of a Sub": (wired("sub", "high", "low"), "sub", "exchanged"),
    "operands of a Concat": (wired("concat", "gate", "sub"), "concat", "order"),
    "operands of a Where": (wired("where", "cond", "sin", "tanh"), "where", "exchanged"),
    "operands of a Div": (wired("div", "plus", "mixed"), "div", "exchanged"),
    "k for q": (wired("qbias", "k", "qb"), "qbias", "'k'"),
    "q for k": (wired("kt", "q"), "kt", "'q'"),
    "k for v": (wired("mixed", "softmax", "k"), "mixed", "'k'"),
    "the input before its bias": (wired("qabs", "q"), "qabs", "'q'"),
}


@pytest.mark.parametrize("name", [*CONSTANTS, *WIRES])
def test_node_and_cause_are_named(name: str) -> None:
    graph, node, words = {**CONSTANTS, **WIRES}[name]
    blame = judged(graph).blame
    assert [b.node for b in blame] == [node]
    told = [e.words for e in blame[0].explanations]
    assert told and words in told[0], (told, blame[0].structure)


@pytest.mark.parametrize(
    ("name", "other"), [("gamma", "gamma or variance"), ("beta", "beta or mean"),
                        ("mean", "beta or mean"), ("var", "gamma or variance")],
)  # fmt: skip
def test_what_gives_the_same_numbers_in_one_channel_is_named_too(name: str, other: str) -> None:
    """No input can tell them apart, whichever it was; the other channels are not accused."""
    number = 1.1 * GRAPH.constants[name][2]
    (blame,) = judged(constants(**{name: put((2,), lambda v: 1.1 * v)})).blame
    (found,) = blame.explanations
    assert f"{other} of one channel" in found.words and f"'{name}', is {number:.6g}" in found.words
    assert found.words.count(" at 2") == 2 and " at 1" not in found.words


def test_a_weight_in_float16_is_named_as_precision() -> None:
    verdict = judged(constants(k2=lambda k: k.astype(np.float16)))
    (precision,) = verdict.precisions
    assert verdict.kind is Kind.precision and not verdict.blame
    assert (precision.node, precision.format) == ("conv2", "fp16 weights")


def test_the_right_constants_and_wires_are_not_accused() -> None:
    verdict = judged(GRAPH)
    assert verdict.kind in (Kind.identical, Kind.rounding) and not verdict.blame
