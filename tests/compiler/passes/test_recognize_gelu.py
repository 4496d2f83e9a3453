"""Gelu is found in its parts, near misses are not, and the numbers stay."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import Make, Net, drawn, kinds, of

from verax.compiler.passes import recognize_gelu as module
from verax.compiler.passes.patterns import (
    ONE,
    NodePattern,
    NumberPattern,
    Product,
    Rule,
    X,
    replace_matches,
)
from verax.compiler.passes.recognize_gelu import HALF, recognize_gelu
from verax.ir.graph import Graph
from verax.ops.pointwise.activation_smooth import Gelu
from verax.records.trace import Trace

ROOT, STRETCH = math.sqrt(2), math.sqrt(2 / math.pi)


def gate(n: Net, argument: str, one: float = 1.0) -> str:
    return n.add("Add", n.add("Erf", argument), one)


def bert(n: Net, root: float = ROOT, one: float = 1.0, half: float = 0.5) -> str:
    y = n.add("Mul", n.x, gate(n, n.add("Div", n.x, root), one))
    return n.add("Mul", y, half)


def torch(n: Net) -> str:
    inner = n.add("Mul", n.x, 0.7071067811865476)
    return n.add("Mul", n.add("Mul", n.x, 0.5), gate(n, inner))


def halved(n: Net) -> str:
    return n.add("Mul", n.add("Div", gate(n, n.add("Mul", 0.70710677, n.x)), 2.0), n.x)


def tanh(n: Net, stretch: float = STRETCH, cubic: float = 0.044715, power: object = 3.0) -> str:
    inner = n.add("Add", n.x, n.add("Mul", cubic, n.add("Pow", n.x, power)))
    curve = n.add("Tanh", n.add("Mul", stretch, inner))
    return n.add("Mul", n.add("Mul", 0.5, n.x), n.add("Add", 1.0, curve))


def fast(n: Net) -> str:
    """As some write it: x c (1 + 0.044715 x x)."""
    square = n.add("Mul", n.add("Mul", n.x, 0.044715), n.x)
    curve = n.add("Mul", n.add("Mul", n.x, STRETCH), n.add("Add", 1.0, square))
    return n.add("Mul", 0.5, n.add("Mul", n.x, n.add("Add", n.add("Tanh", curve), 1.0)))


def torch_tanh(n: Net) -> str:
    cube = n.add("Mul", n.add("Mul", n.x, n.x), n.x)
    inner = n.add("Mul", n.add("Add", n.add("Mul", cube, 0.044715), n.x), STRETCH)
    return n.add("Mul", n.add("Mul", n.x, 0.5), n.add("Add", n.add("Tanh", inner), 1.0))


ERF: dict[str, Make] = {"as BERT": bert, "as torch.export": torch, "halved by division": halved}
TANH: dict[str, Make] = {"as GPT-2": tanh, "the other form": fast, "as torch.export": torch_tanh}
FOUND = [(m, "none") for m in ERF.values()] + [(m, "tanh") for m in TANH.values()]


@pytest.mark.parametrize("make, approximate", FOUND, ids=lambda v: getattr(v, "__name__", v))
def test_it_is_found_and_rounds(make: Make, approximate: str) -> None:
    graph = of(make)
    (node,), trace = (recognize_gelu(graph)[0].nodes, recognize_gelu(graph)[1])
    assert node.op == Gelu(approximate=approximate) and trace.rewrites == 1
    written_out.assert_rounding(graph, drawn(graph, 1), watch=(True, False))
    for seed, (size, shift) in enumerate(((0.4, 0), (0.3, -4), (6, 0))):
        written_out.assert_rounding(graph, drawn(graph, seed, size, shift))


@pytest.mark.parametrize("make, approximate", FOUND, ids=lambda v: getattr(v, "__name__", v))
def test_infinite_numbers_are_no_mistake(make: Make, approximate: str) -> None:
    """-inf times 0 is NaN by the parts' meaning: nothing is proven there."""
    graph = of(make)
    x = drawn(graph, 4)["x"]
    x[0, 0, 0, :3] = [np.inf, -np.inf, np.nan]
    assert written_out.judged(graph, {"x": x}).kind.value != "mistake"


def other_value(n: Net) -> str:
    inner = n.add("Div", n.add("Tanh", n.x), ROOT)
    return n.add("Mul", n.add("Mul", n.x, gate(n, inner)), 0.5)


MISSED: dict[str, Make] = {
    "0.7 for 0.7071": lambda n: n.add("Mul", n.add("Mul", n.x, 0.5),
                                      gate(n, n.add("Mul", n.x, 0.7))),
    "0.7071 for 0.70710677": lambda n: n.add("Mul", n.add("Mul", n.x, 0.5),
                                             gate(n, n.add("Mul", n.x, 0.7071))),
    "the float next to the root": lambda n: bert(
        n, float(np.nextafter(np.float32(ROOT), np.float32(2)))),
    "1.4 for the root": lambda n: bert(n, 1.4),
    "2 for the root": lambda n: bert(n, 2.0),
    "another one": lambda n: bert(n, one=1.0000001),
    "a half that is none": lambda n: bert(n, half=0.50000006),
    "half of the half": lambda n: bert(n, half=0.25),
    "erf of another value": other_value,
    "1 - erf": lambda n: n.add("Mul", n.add("Mul", n.x, 0.5), n.add(
        "Sub", 1.0, n.add("Erf", n.add("Div", n.x, ROOT)))),
    "erf of the reciprocal": lambda n: n.add("Mul", n.add("Mul", n.x, 0.5), gate(
        n, n.add("Div", 0.70710677, n.x))),
    "a root for each": lambda n: n.add("Mul", n.add("Mul", n.x, 0.5), gate(
        n, n.add("Div", n.x, np.full(5, ROOT)))),
    "tanh: exponent 2": lambda n: tanh(n, power=2.0),
    "tanh: exponent next to 3": lambda n: tanh(n, power=3.0000002),
    "tanh: 0.0447 for 0.044715": lambda n: tanh(n, cubic=0.0447),
    "tanh: 0.8 for sqrt(2 / pi)": lambda n: tanh(n, stretch=0.8),
    "tanh: 0.79788 for sqrt(2 / pi)": lambda n: tanh(n, stretch=0.79788),
    "erf in the place of tanh": lambda n: n.add("Mul", n.add("Mul", 0.5, n.x), gate(n, n.add(
        "Mul", STRETCH, n.add("Add", n.x, n.add("Mul", 0.044715, n.add("Pow", n.x, 3.0)))))),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = of(MISSED[name])
    new, trace = recognize_gelu(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
@pytest.mark.parametrize("make", [bert, tanh], ids=["erf", "tanh"])
def test_other_floats_are_left_alone(make: Make, dtype: str) -> None:
    assert recognize_gelu(of(make, dtype=dtype))[1].rewrites == 0


def test_what_is_read_elsewhere_keeps_its_parts() -> None:
    n = Net()
    y = bert(n)
    for node in n.b.nodes[:-1]:
        assert recognize_gelu(n.b.graph([y, node.outputs[0]]))[1].rewrites == 0
        reader = n.add("Relu", node.outputs[0])
        assert recognize_gelu(n.b.graph([y, reader]))[1].rewrites == 0


# --- broken twins


def any_argument(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """As Gelu whatever x is multiplied with inside."""
    inner = NodePattern("Erf", Product(X, NumberPattern("any")))
    pattern = Product(X, HALF, NodePattern("Add", inner, ONE))
    rules = [Rule(pattern, lambda graph, match: module._gelu(match, "none"))]
    return replace_matches(graph, limit, "recognize_gelu", rules)


def tanh_for_erf(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    rules = [Rule(module.GELU, lambda graph, match: module._gelu(match, "tanh"))]
    return replace_matches(graph, limit, "recognize_gelu", rules)


BROKEN = {
    "0.7 for 0.7071": (any_argument, MISSED["0.7 for 0.7071"]),
    "tanh for erf": (tanh_for_erf, bert),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = of(make)
    written_out.assert_rounding(graph, drawn(graph, 9))
    written_out.plant(monkeypatch, "recognize_gelu", broken)
    written_out.assert_named(graph, drawn(graph, 9), "recognize_gelu")
