"""Products in a row become one where that saves work, near misses do not, and the numbers stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.passes import merge_linear as module
from verax.compiler.passes.affine import AffineMap
from verax.compiler.passes.base import RewriteFunction
from verax.compiler.passes.merge_linear import merge_linear
from verax.ir.graph import Graph
from verax.records.trace import Trace
from verax.reference import evaluate, promised

IMAGE, ROWS = (2, 6, 9, 7), (2, 3, 5, 12)


def conv(
    n: Net, x: str, outputs: int, kernel: Any = (1, 1), bias: bool = False, **more: Any
) -> str:
    inputs = n.b.types[x].dims[1]
    assert isinstance(inputs, int)
    weights = n.rng.standard_normal((outputs, inputs // more.get("groups", 1), *kernel))
    given = [n.constant(weights), n.weights(outputs)] if bias else [n.constant(weights)]
    return n.add("Conv", x, *given, **more)


def matmul(n: Net, x: str, outputs: int) -> str:
    inputs = n.b.types[x].dims[-1]
    assert isinstance(inputs, int)
    return n.add("MatMul", x, n.weights(inputs, outputs))


def gemm(n: Net, x: str, outputs: int, bias: bool = True, turned: bool = False) -> str:
    inputs = n.b.types[x].dims[-1]
    assert isinstance(inputs, int)
    shape = (outputs, inputs) if turned else (inputs, outputs)
    more = [n.weights(outputs)] if bias else []
    return n.add("Gemm", x, n.weights(*shape), *more, trans_b=turned)


def pads(n: Net, x: str) -> str:
    """3x3 with pads, without a bias before it."""
    return conv(n, conv(n, x, 16), 4, (3, 2), True, pads=((1, 1), (0, 1)), strides=(2, 1))


FOUND: dict[str, tuple[tuple[int, ...], Make, str]] = {
    "matrices": (ROWS, lambda n: matmul(n, matmul(n, n.x, 20), 4), "MatMul"),
    "a bias between": (
        ROWS,
        lambda n: matmul(n, n.add("Add", matmul(n, n.x, 20), n.weights(20)), 4),
        "MatMul Add",
    ),
    "Gemm and Gemm": (
        (7, 12), lambda n: gemm(n, gemm(n, n.x, 20, turned=True), 4), "MatMul Add"),
    "the bias of the second": (
        (7, 12), lambda n: gemm(n, matmul(n, n.x, 20), 4, turned=True), "Gemm"),
    "Gemm without a bias": (
        (7, 12), lambda n: gemm(n, gemm(n, n.x, 20, False), 4, False), "MatMul"),
    "1x1 behind 3x2": (
        IMAGE,
        lambda n: conv(n, conv(n, n.x, 40, (3, 2), pads=((1, 0), (0, 2)), strides=(1, 2)), 5),
        "Conv",
    ),
    "1x1 behind 3x2 with biases": (
        IMAGE,
        lambda n: conv(n, conv(n, n.x, 40, (3, 2), True, pads=((1, 0), (0, 2))), 5, bias=True),
        "Conv Add",
    ),
    "an Add behind 3x2": (
        IMAGE,
        lambda n: conv(n, n.add("Add", conv(n, n.x, 40, (3, 2)), n.weights(40, 1, 1)), 5),
        "Conv Add",
    ),
    "1x1 before a padded one": (IMAGE, lambda n: pads(n, n.x), "Conv"),
    "1x1 with a bias before one without pads": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, bias=True), 4, (2, 3), dilations=(2, 1)),
        "Conv Add"),
    "1x1 with strides, and 1x1": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, strides=(2, 3)), 4), "Conv"),
    "one axis": (
        (2, 6, 11), lambda n: conv(n, conv(n, n.x, 30, (3,), pads=((1, 1),)), 4, (1,)), "Conv"),
    "three in a row": (
        ROWS, lambda n: matmul(n, matmul(n, matmul(n, n.x, 20), 16), 4), "MatMul"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_is_merged_and_rounds(name: str) -> None:
    shape, make, wanted = FOUND[name]
    graph = of(make, shape)
    new, trace = merge_linear(graph)
    assert kinds(new) == wanted and trace.rewrites == (2 if "three" in name else 1)
    assert work(new) < work(graph)
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((1e-3, 0), (1, 8), (0, 3))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


@pytest.mark.parametrize("name", FOUND)
def test_nodes_may_be_called_as_their_values(name: str) -> None:
    """As PyTorch calls them: MobileNetV3's product took the name that its sum was to have."""
    shape, make, _ = FOUND[name]
    graph = of(make, shape)
    nodes = tuple(dataclasses.replace(n, name=n.outputs[0]) for n in graph.nodes)
    new, _ = merge_linear(dataclasses.replace(graph, nodes=nodes))
    assert kinds(new) == kinds(merge_linear(graph)[0])


def work(graph: Graph) -> int:
    found = [module.linear_of(graph, node) for node in graph.nodes]
    return sum(module._work(graph, linear) for linear in found if linear is not None)


def through(make: Callable[[Net, str], str]) -> Make:
    """A value between that something else reads, or changes."""
    return lambda n: matmul(n, make(n, matmul(n, n.x, 20)), 4)


def positive(n: Net) -> str:
    """Paths that all agree: the mean over the values between was the better way."""
    weights = [np.abs(n.rng.standard_normal(s)) + 1 for s in ((12, 20), (20, 4))]
    return n.add("MatMul", n.add("MatMul", n.x, weights[0]), weights[1])


MISSED: dict[str, tuple[tuple[int, ...], Make]] = {
    "no work saved": (ROWS, lambda n: matmul(n, matmul(n, n.x, 3), 20)),
    "as much work as before": (ROWS, lambda n: matmul(n, matmul(n, n.x, 6), 12)),
    "an activation between": (ROWS, through(lambda n, h: n.add("Relu", h))),
    "a sum with itself between": (ROWS, through(lambda n, h: n.add("Add", h, h))),
    "a bias for each row": (ROWS, through(lambda n, h: n.add("Add", h, n.weights(5, 1)))),
    "weights that agree": (ROWS, positive),
    "a long sum": ((2, 3, 400), lambda n: matmul(n, matmul(n, n.x, 16), 4)),
    "computed weights": (
        (5, 5), lambda n: n.add("MatMul", matmul(n, n.x, 20), n.add(
            "Transpose", matmul(n, n.x, 20)))),
    "Gemm of a factor": (
        (7, 12), lambda n: n.add("Gemm", gemm(n, n.x, 20), n.weights(20, 4), alpha=0.5)),
    "a matrix for a bias": (
        (7, 12), lambda n: n.add("Gemm", gemm(n, n.x, 20), n.weights(20, 4), n.weights(7, 4))),
    "a bias before pads": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, bias=True), 4, (3, 3), pads=((1, 1), (0, 1)))),
    "a bias before pads by a rule": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, bias=True), 4, (3, 3), pads="SAME_UPPER")),
    "strides in the first 1x1": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, strides=(2, 1)), 4, (3, 3))),
    "strides in the second 1x1": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 40, (3, 2)), 5, strides=(2, 1))),
    "pads of the second 1x1": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 40, (3, 2)), 5, pads=((1, 0), (0, 0)))),
    "pads of the first 1x1": (
        IMAGE, lambda n: conv(n, conv(n, n.x, 16, pads=((0, 1), (0, 0))), 4, (3, 3))),
    "two of 3x3": (IMAGE, lambda n: conv(n, conv(n, n.x, 40, (3, 3)), 2, (3, 3))),
    "groups": (IMAGE, lambda n: conv(n, conv(n, n.x, 40, (3, 2), groups=2), 5)),
    "groups in the second": (IMAGE, lambda n: conv(n, conv(n, n.x, 40, (3, 2)), 4, groups=2)),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    shape, make = MISSED[name]
    graph = of(make, shape)
    new, trace = merge_linear(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


def test_what_is_read_elsewhere_stays() -> None:
    n = Net(ROWS)
    h = matmul(n, n.x, 20)
    y = matmul(n, h, 4)
    assert merge_linear(n.b.graph([y, h]))[1].rewrites == 0
    assert merge_linear(n.b.graph([y, n.add("Tanh", h)]))[1].rewrites == 0


@pytest.mark.parametrize("limit", range(4))
def test_it_stops_when_told_and_forgets_the_value_between(limit: int) -> None:
    graph = of(FOUND["three in a row"][1], ROWS)
    new, trace = merge_linear(graph, limit)
    assert trace.rewrites == min(limit, 2) and len(new.nodes) == 3 - trace.rewrites
    assert graph.outputs[0] in trace.values
    if limit:
        assert graph.nodes[0].outputs[0] not in trace.values


@given(st.integers(0, 2**20), st.sampled_from([m for _, m, _ in FOUND.values()]))
@settings(max_examples=25, deadline=None)
def test_in_whole_numbers_nothing_changes(seed: int, make: Make) -> None:
    """Weights and inputs are whole numbers, so that float64 sums are exact: the same function."""
    shape = next(s for s, m, _ in FOUND.values() if m is make)
    net = Net(shape)

    class Whole:
        def standard_normal(self, size: tuple[int, ...]) -> np.ndarray:
            return random.integers(-4, 5, size).astype(np.float64)

    random = np.random.default_rng(seed)
    net.rng = Whole()  # type: ignore[assignment]
    graph = net.b.graph([make(net)])
    new, _ = merge_linear(graph)
    x = {"x": random.integers(-9, 10, shape).astype(np.float32)}
    (a,), (b,) = (evaluate(g, x).values() for g in (graph, new))
    np.testing.assert_array_equal(a, b)


def test_it_is_faster_by_the_work_that_is_saved() -> None:
    """Not a timing: the compiled network multiplies less, and gives the promised bits."""
    graph = of(FOUND["1x1 behind 3x2"][1], IMAGE)
    calls = [str(compile_graph(graph, Settings(level, threads=1)).plan) for level in (1, 2)]
    assert len(calls[1].splitlines()) < len(calls[0].splitlines())


# --- broken twins


def twin(**functions: Any) -> RewriteFunction:
    """The pass with other functions in its file."""

    def broken(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
        with pytest.MonkeyPatch.context() as patch:
            for name, function in functions.items():
                patch.setattr(module, name, function)
            return merge_linear(graph, limit)

    return broken


BROKEN = {
    "the border": (
        {"_is_padded": lambda op: False}, (2, 6, 8, 8), MISSED["a bias before pads"][1]),
    "strides": ({"_strides": lambda op, linear: (1,)}, *MISSED["strides in the second 1x1"]),
    "the bias between": (
        {"affine_of": lambda graph, node: (node.inputs[0], AffineMap(
            None, np.ones(()), np.zeros(())))},
        *FOUND["a bias between"][:2]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    functions, shape, make = BROKEN[name]
    graph = of(make, shape)
    inputs = drawn(graph, 9)
    written_out.assert_rounding(graph, inputs)
    broken = twin(**functions)
    assert broken(graph)[1].rewrites == 1
    written_out.plant(monkeypatch, "merge_linear", broken)
    written_out.assert_named(graph, inputs, "merge_linear")


def test_why_weights_that_agree_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged all the same, they err beyond what the judge allows the two products."""
    graph = of(positive, (2, 50, 12))
    inputs = drawn(graph, 1)
    inputs["x"] -= inputs["x"].mean(-1, keepdims=True)
    written_out.assert_rounding(graph, inputs, watch=(False,))
    monkeypatch.setattr(module, "COHERENT", np.inf)
    assert merge_linear(graph)[1].rewrites == 1
    written_out.assert_named(graph, inputs, "merge_linear")


def long(n: Net) -> str:
    """Sums of 1500 products, and a mean of 24 of them that agree where all of x is positive."""
    first = n.rng.standard_normal((1500, 24))
    second = np.sign(first.sum(0))[:, None] * np.array([1.0, 1.1, 1.2])
    return n.add("MatMul", n.add("MatMul", n.x, first), second)


def test_why_long_sums_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged all the same, they err more than twice as much."""
    graph = of(long, (2, 30, 1500))
    inputs = drawn(graph, 1, 1, 5)
    assert merge_linear(graph)[1].rewrites == 0
    monkeypatch.setattr(module, "LONGER", np.inf)
    merged, trace = merge_linear(graph)
    assert trace.rewrites == 1
    (exact,) = evaluate(graph, inputs).values()
    errors = []
    for made in (graph, merged):
        (found,) = promised(made, inputs).values()
        errors.append(np.sqrt(np.mean((found - exact) ** 2)))
    assert errors[1] > 2 * errors[0]
