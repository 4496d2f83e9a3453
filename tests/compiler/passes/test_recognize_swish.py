"""Swish and HardSwish are found in their parts, near misses are not, and the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.compiler.passes import recognize_swish as module
from verax.compiler.passes.patterns import (
    ONE,
    NodePattern,
    NumberPattern,
    Product,
    Rule,
    X,
    over,
    replace_matches,
)
from verax.compiler.passes.recognize_swish import recognize_swish
from verax.ir.graph import Graph
from verax.ir.operator import Operator
from verax.ops.pointwise.activation import HardSwish
from verax.ops.pointwise.activation_smooth import Swish
from verax.records.trace import Trace


def silu(n: Net) -> str:
    return n.add("Mul", n.x, n.add("Sigmoid", n.x))


def quick_gelu(n: Net, alpha: object = 1.702) -> str:
    return n.add("Mul", n.add("Sigmoid", n.add("Mul", n.x, alpha)), n.x)


def divided(n: Net, one: float = 1.0) -> str:
    return n.add("Div", n.x, n.add("Add", n.add("Exp", n.add("Neg", n.x)), one))


def written_sigmoid(n: Net) -> str:
    below = n.add("Add", 1.0, n.add("Exp", n.add("Mul", n.x, -1.0)))
    return n.add("Mul", n.x, n.add("Div", 1.0, below))


def hard(n: Net, alpha: float = 1 / 6, beta: float = 0.5) -> str:
    return n.add("Mul", n.x, n.add("HardSigmoid", n.x, alpha=alpha, beta=beta))


FOUND: dict[str, tuple[Make, Operator]] = {
    "SiLU": (silu, Swish()),
    "quick GELU": (quick_gelu, Swish(alpha=float(np.float32(1.702)))),
    "a negative alpha": (lambda n: quick_gelu(n, -0.5), Swish(alpha=-0.5)),
    "over 1 + exp": (divided, Swish()),
    "times 1 over 1 + exp": (written_sigmoid, Swish()),
    "HardSigmoid": (hard, HardSwish()),
    "HardSigmoid of a float32": (lambda n: hard(n, float(np.float32(1 / 6))), HardSwish()),
}


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_rounds(name: str) -> None:
    make, op = FOUND[name]
    graph = of(make)
    new, trace = recognize_swish(graph)
    assert [n.op for n in new.nodes] == [op] and trace.rewrites == 1
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((0.01, 0), (0.2, -3), (20, 0), (300, 0))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


@pytest.mark.parametrize("name", FOUND)
def test_infinite_numbers_are_no_mistake(name: str) -> None:
    graph = of(FOUND[name][0])
    x = drawn(graph, 4)["x"]
    x[0, 0, 0, :3] = [np.inf, -np.inf, np.nan]
    assert written_out.judged(graph, {"x": x}).kind.value != "mistake"


def clipped(n: Net) -> str:
    gate = n.add("Clip", n.add("Add", n.x, 3.0), 0.0, 6.0)
    return n.add("Div", n.add("Mul", n.x, gate), 6.0)


MISSED: dict[str, Make] = {
    "sigmoid of another value": lambda n: n.add("Mul", n.x, n.add("Sigmoid", n.add("Tanh", n.x))),
    "sigmoid times sigmoid": lambda n: n.add(
        "Mul", n.add("Sigmoid", n.x), n.add("Sigmoid", n.x)),
    "x plus sigmoid": lambda n: n.add("Add", n.x, n.add("Sigmoid", n.x)),
    "x over sigmoid": lambda n: n.add("Div", n.x, n.add("Sigmoid", n.x)),
    "an alpha for each": lambda n: quick_gelu(n, np.linspace(1, 2, 5)),
    "an alpha that is computed": lambda n: quick_gelu(n, n.add("Tanh", n.x)),
    "a shift inside": lambda n: n.add("Mul", n.x, n.add("Sigmoid", n.add("Add", n.x, 1.0))),
    "2 + exp": lambda n: divided(n, 2.0),
    "exp of x": lambda n: n.add("Div", n.x, n.add("Add", 1.0, n.add("Exp", n.x))),
    "HardSigmoid of slope 0.2": lambda n: hard(n, 0.2),
    "HardSigmoid of slope 0.1667": lambda n: hard(n, 0.1667),
    "HardSigmoid of offset 0.4": lambda n: hard(n, beta=0.4),
    "clip(x + 3), which is exact at -3": clipped,
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_swish(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


def test_why_the_clipped_form_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """HardSwish in its place is accused near -3, where x + 3 is exact."""

    def tempting(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
        gate = NodePattern(
            "Clip", NodePattern("Add", X, module.Is(3.0)), module.Is(0.0), module.Is(6.0)
        )
        rules = [
            Rule(Product(X, gate, module.Is(1 / 6)), lambda g, m: (HardSwish(), (m.bound["x"],)))
        ]
        return replace_matches(graph, limit, "recognize_swish", rules)

    graph = of(clipped)
    inputs = drawn(graph, 3, 1e-3, -2.999)
    written_out.assert_rounding(graph, inputs)
    written_out.plant(monkeypatch, "recognize_swish", tempting)
    written_out.assert_named(graph, inputs, "recognize_swish")


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_alone(dtype: str) -> None:
    assert recognize_swish(of(silu, dtype=dtype))[1].rewrites == 0


def test_a_gate_that_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    y = silu(n)
    gate = n.b.nodes[0].outputs[0]
    assert recognize_swish(n.b.graph([y, gate]))[1].rewrites == 0
    assert recognize_swish(n.b.graph([y, n.add("Tanh", gate)]))[1].rewrites == 0


def without_alpha(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    pattern = Product(X, NodePattern("Sigmoid", Product(X, NumberPattern("alpha"))))
    rules = [Rule(pattern, lambda graph, match: (Swish(), (match.bound["x"],)))]
    return replace_matches(graph, limit, "recognize_swish", rules)


def without_a_sign(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    pattern = Product(X, over(NodePattern("Add", ONE, NodePattern("Exp", X))))
    return replace_matches(
        graph, limit, "recognize_swish", [Rule(pattern, lambda graph, match: module._swish(match))]
    )


BROKEN = {
    "alpha": (without_alpha, quick_gelu),
    "the sign": (without_a_sign, MISSED["exp of x"]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = of(make)
    written_out.assert_rounding(graph, drawn(graph, 9))
    written_out.plant(monkeypatch, "recognize_swish", broken)
    written_out.assert_named(graph, drawn(graph, 9), "recognize_swish")
