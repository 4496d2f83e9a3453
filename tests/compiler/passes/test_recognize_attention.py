"""Attention is found in its parts with every bit kept; near misses are left alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from tests.compiler.passes import written_out
from tests.compiler.passes.written_out import kinds
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes import recognize_attention as module
from verax.compiler.passes.recognize_attention import recognize_attention
from verax.ir.graph import Builder, Graph, Node
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.attention import Attention
from verax.ops.sums.softmax import Softmax
from verax.records.trace import Trace
from verax.reference import promised

BATCH, HEADS, ROWS, KEYS, FEATURES, VALUES = 2, 6, 7, 19, 5, 4


class Parts:
    """Attention being written out: q, k, v as [batch, heads, rows, features] unless told."""

    def __init__(self, q: str = "", k: str = "", v: str = "", dtype: str = "float32") -> None:
        self.b, self.dtype = Builder("net"), dtype
        shapes = {
            "q": q or f"{BATCH}, {HEADS}, {ROWS}, {FEATURES}",
            "k": k or f"{BATCH}, {HEADS}, {KEYS}, {FEATURES}",
            "v": v or f"{BATCH}, {HEADS}, {KEYS}, {VALUES}",
        }
        self.q, self.k, self.v = (self.input(n, s) for n, s in shapes.items())

    def input(self, name: str, shape: str, dtype: str = "") -> str:
        return self.b.input(name, TensorType.parse(f"{dtype or self.dtype}[{shape}]"))

    def number(self, value: float) -> str:
        return self.b.constant(np.array(value, self.dtype))

    def add(self, kind: str, *inputs: str | None, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def turn(self, x: str, *perm: int) -> str:
        return self.add("Transpose", x, perm=perm)

    def scores(self, turned: str = "") -> str:
        return self.add("MatMul", self.q, turned or self.turn(self.k, 0, 1, 3, 2))

    def scaled(self) -> str:
        return self.add("Mul", self.scores(), self.number(0.375))

    def end(self, scores: str, **softmax: object) -> str:
        shares = self.add("Softmax", scores, **{"axis": 3, **softmax})
        return self.add("MatMul", shares, self.v)

    def graph(self, *outputs: str) -> Graph:
        return self.b.graph(list(outputs))


Make = Callable[[], Graph]


def plain() -> Graph:
    p = Parts()
    return p.graph(p.end(p.scores()))


def scaled(kind: str = "Mul", factor: float = 0.3, first: bool = False) -> Make:
    def make() -> Graph:
        p = Parts()
        both = [p.scores(), p.number(factor)]
        return p.graph(p.end(p.add(kind, *(both[::-1] if first else both)), axis=-1))

    return make


def masked(shape: str, first: bool = False) -> Make:
    def make() -> Graph:
        p = Parts()
        both = [p.scaled(), p.input("mask", shape)]
        return p.graph(p.end(p.add("Add", *(both[::-1] if first else both))))

    return make


def chosen(inverted: bool = False, hidden: float = -math.inf, shape: str = "2, 1, 7, 19") -> Make:
    def make() -> Graph:
        p = Parts()
        number, scores = p.number(hidden), p.scaled()
        mask = p.input("mask", shape, "bool")
        pair = (number, scores) if inverted else (scores, number)
        return p.graph(p.end(p.add("Where", mask, *pair)))

    return make


def triangle(inverted: bool = False, offset: int = 0, mask: np.ndarray | None = None) -> Make:
    def make() -> Graph:
        p = Parts()
        seen = np.tri(ROWS, KEYS, offset, dtype=bool)[None] if mask is None else mask
        number, scores = p.number(-1e9), p.scaled()
        pair = (number, scores) if inverted else (scores, number)
        where = p.add("Where", p.b.constant(seen != inverted), *pair)
        return p.graph(p.end(where))

    return make


def inside(letters: str) -> Make:
    """Tensors of `letters` as [batch, rows, heads, features]."""

    def make() -> Graph:
        sizes = {"q": (ROWS, FEATURES), "k": (KEYS, FEATURES), "v": (KEYS, VALUES)}
        shapes = {n: f"{BATCH}, {HEADS}, {r}, {f}" for n, (r, f) in sizes.items()}
        shapes |= {
            n: f"{BATCH}, {sizes[n][0]}, {HEADS}, {sizes[n][1]}" for n in letters if n != "y"
        }
        p = Parts(**shapes)
        q = p.turn(p.q, 0, 2, 1, 3) if "q" in letters else p.q
        k = p.turn(p.k, 0, 2, 3, 1) if "k" in letters else p.turn(p.k, 0, 1, 3, 2)
        v = p.turn(p.v, 0, 2, 1, 3) if "v" in letters else p.v
        y = p.add("MatMul", p.add("Softmax", p.add("MatMul", q, k), axis=3), v)
        y = p.turn(y, 0, 2, 1, 3) if "y" in letters else y
        return p.graph(p.add("Relu", y))

    return make


def filled(zero: float = 0.0, tested: str = "shares") -> Make:
    """PyTorch's way to write what a query takes that sees nothing."""

    def make() -> Graph:
        p = Parts()
        mask = p.input("mask", "7, 19", "bool")
        scores = p.add("Where", mask, p.scaled(), p.number(-math.inf))
        shares = p.add("Softmax", scores, axis=3)
        test = p.add("IsNaN", {"shares": shares, "scores": scores}[tested])
        shares = p.add("Where", test, p.number(zero), shares)
        return p.graph(p.add("MatMul", shares, p.v))

    return make


def safe(low: float = -math.inf, kind: str = "ReduceMax", axis: int = 3, own: bool = True) -> Make:
    """Zeros for a row that is masked whole, as files of ours write it."""

    def make() -> Graph:
        p = Parts()
        unmasked = p.scaled()
        scores = p.add("Add", unmasked, p.input("mask", "2, 1, 7, 19"))
        axes = p.b.constant(np.array([axis]))
        top = p.add(kind, scores if own else unmasked, axes, keepdims=True)
        test = p.add("Equal", p.number(low), top)
        shares = p.add("Where", test, p.number(0.0), p.add("Softmax", scores, axis=3))
        return p.graph(p.add("MatMul", shares, p.v))

    return make


def safely(masked_to_zero: bool = True) -> Graph:
    """As PyTorch's attention is read."""
    p = Parts()
    scores = p.add("Add", p.scaled(), p.input("mask", "2, 1, 7, 19"))
    return p.graph(p.end(scores, masked_to_zero=masked_to_zero))


def known(truth: bool) -> Make:
    """As ONNX's Attention is expanded: no row is masked whole, and the mask is 0."""

    def make() -> Graph:
        p = Parts()
        zeros = p.b.constant(np.zeros((ROWS, KEYS), np.float32))
        shares = p.add("Softmax", p.add("Add", p.scaled(), zeros), axis=3)
        rows = np.zeros((ROWS, 1), bool)
        rows[2] = truth
        shares = p.add("Where", p.b.constant(rows), p.number(0.0), shares)
        return p.graph(p.add("MatMul", shares, p.v))

    return make


def gathered(p: Parts, x: str, index: list[int], axis: int = 1) -> str:
    return p.add("Gather", x, p.b.constant(np.array(index)), axis=axis)


def expanded(p: Parts, x: str, times: int = 3, behind: bool = True) -> str:
    batch, own, rows, features = p.b.types[x].shape
    wide = (batch, own, times, rows, features) if behind else (batch, times, own, rows, features)
    x = p.add("Unsqueeze", x, p.b.constant(np.array([2 if behind else 1])))
    x = p.add("Expand", x, p.b.constant(np.array(wide)))
    whole = np.array([batch, own * times, rows, features])
    return p.add("Reshape", x, p.b.constant(whole))


def shared(repeat: Callable[[Parts, str], str]) -> Make:
    def make() -> Graph:
        p = Parts(k="2, 2, 19, 5", v="2, 2, 19, 4")
        k, p.v = repeat(p, p.k), repeat(p, p.v)
        return p.graph(p.end(p.scores(p.turn(k, 0, 1, 3, 2))))

    return make


SIDE_BY_SIDE = [0, 0, 0, 1, 1, 1]


def one_for_all() -> Graph:
    p = Parts(q="4, 6, 7, 5", k="1, 1, 19, 5", v="4, 1, 19, 4")
    return p.graph(p.end(p.scores()))


def matrices() -> Graph:
    p = Parts("7, 5", "19, 5", "19, 4")
    scores = p.add("Mul", p.scores(p.turn(p.k, 1, 0)), p.number(0.5))
    return p.graph(p.end(scores, axis=1))


def three_axes() -> Graph:
    """As nn.MultiheadAttention has it: [rows, batch * heads, features]."""
    p = Parts("7, 6, 5", "19, 6, 5", "19, 6, 4")
    scores = p.add("MatMul", p.turn(p.q, 1, 0, 2), p.turn(p.k, 1, 2, 0))
    shares = p.add("Softmax", scores, axis=2)
    return p.graph(p.turn(p.add("MatMul", shares, p.turn(p.v, 1, 0, 2)), 1, 0, 2))


S = 0.375
FOUND: dict[str, tuple[Make, Attention, str]] = {
    "nothing but products": (plain, Attention(), ""),
    "a scale": (scaled(), Attention(scale=float(np.float32(0.3))), ""),
    "a scale on the left": (scaled(factor=-2.5, first=True), Attention(scale=-2.5), ""),
    "a power of two below": (scaled("Div", 8.0), Attention(scale=0.125), ""),
    "a division": (scaled("Div", 2.2360680), Attention(divisor=float(np.float32(2.236068))), ""),
    "a tiny power": (scaled("Div", 2.0**-126), Attention(scale=2.0**126), ""),
    "a mask for each key": (masked("2, 1, 1, 19"), Attention(scale=S), ""),
    "a mask on the left": (masked("6, 7, 19", True), Attention(scale=S), ""),
    "a mask for each query": (masked("7, 1"), Attention(scale=S), ""),
    "a mask of truths": (chosen(), Attention(scale=S), ""),
    "another number": (chosen(hidden=-1e4, shape="19"), Attention(scale=S, hidden=-1e4), ""),
    "what is hidden": (chosen(inverted=True), Attention(scale=S), "Not "),
    "the triangle": (triangle(), Attention(scale=S, hidden=-1e9, causal=True), ""),
    "the other triangle": (triangle(True), Attention(scale=S, hidden=-1e9, causal=True), ""),
    "all heads inside": (inside("qkvy"), Attention(heads_inside="qkvy"), ""),
    "some heads inside": (inside("ky"), Attention(heads_inside="ky"), ""),
    "queries' heads inside": (inside("qv"), Attention(heads_inside="qv"), ""),
    "0 for NaN": (filled(), Attention(scale=S, nan_to_zero=True), ""),
    "0 for masked rows": (safely, Attention(scale=S, masked_to_zero=True), ""),
    "0 for masked rows, written out": (safe(), Attention(scale=S, masked_to_zero=True), ""),
    "no row masked whole": (known(False), Attention(scale=S), ""),
    "gathered heads": (shared(lambda p, x: gathered(p, x, SIDE_BY_SIDE)), Attention(), ""),
    "expanded heads": (shared(expanded), Attention(), ""),
    "one for all": (one_for_all, Attention(), ""),
    "matrices": (matrices, Attention(scale=0.5), ""),
    "three axes": (three_axes, Attention(heads_inside="qkvy"), ""),
}
"""(the network, the operator, what is before it)."""


def drawn(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    return draw_inputs(graph, seed)[0]


@pytest.mark.parametrize("name", FOUND)
def test_it_is_found_and_no_bit_changes(name: str) -> None:
    make, op, before = FOUND[name]
    graph = make()
    new, trace = recognize_attention(graph)
    left = [n for n in new.nodes if n.op.kind not in ("Relu", "Not")]
    assert [n.op for n in left] == [op] and trace.rewrites == 1
    assert kinds(new).startswith(f"{before}Attention")
    rng = np.random.default_rng(61)
    for size in (1.0, 30.0):
        feeds = {
            v: rng.random(t.shape) < 0.6
            if t.dtype == "bool"
            else (rng.standard_normal(t.shape) * size).astype(np.float32)
            for v, t in ((v, graph.types[v]) for v in graph.inputs)
        }
        for v in graph.inputs:
            if graph.types[v].dtype == "bool" and graph.types[v].rank > 1:
                feeds[v][..., :3, :] = False  # queries that see nothing
            elif v == "mask" and graph.types[v].rank > 1 and graph.types[v].dims[-2] == ROWS:
                feeds[v][..., 1::3, :] = -np.inf
        wanted = promised(graph, feeds)[graph.outputs[0]]
        assert bits(promised(new, feeds)[new.outputs[0]]) == bits(wanted)
        exe = compile(graph, Settings(opt_level=1, threads=1))
        assert bits(exe.run(feeds)[graph.outputs[0]]) == bits(wanted)
        assert any(op == n.op for n in exe.specialized.graph.nodes)
        assert not exe.plan.on_reference


def test_an_inverted_constant_mask_needs_no_node() -> None:
    seen = np.random.default_rng(5).random((7, 19)) < 0.5
    seen[:, 0] = True
    new, _ = recognize_attention(triangle(True, mask=seen)())
    assert kinds(new) == "Attention"


def after_softmax() -> Graph:
    p = Parts()
    shares = p.add("Mul", p.add("Softmax", p.scores(), axis=3), p.number(0.375))
    return p.graph(p.add("MatMul", shares, p.v))


def multiplied() -> Graph:
    p = Parts()
    return p.graph(p.end(p.add("Mul", p.scaled(), p.input("mask", "2, 1, 1, 19"))))


def masked_first() -> Graph:
    p = Parts()
    scores = p.add("Add", p.scores(), p.input("mask", "2, 1, 1, 19"))
    return p.graph(p.end(p.add("Mul", scores, p.number(0.375))))


def over(axis: int) -> Make:
    def make() -> Graph:
        p = Parts()
        return p.graph(p.end(p.scaled(), axis=axis))

    return make


def turned(*perm: int) -> Make:
    """The wrong axes of K exchanged, where all of them are equal."""

    def make() -> Graph:
        p = Parts(*["6, 6, 6, 6"] * 3)
        return p.graph(p.end(p.scores(p.turn(p.k, *perm))))

    return make


def not_turned() -> Graph:
    p = Parts(k="2, 6, 5, 19")
    return p.graph(p.end(p.scores(p.k)))


def many_scales() -> Graph:
    p = Parts()
    scales = p.b.constant(np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(6, 1, 1))
    return p.graph(p.end(p.add("Mul", p.scores(), scales)))


def widened() -> Graph:
    p = Parts("1, 6, 7, 5", "1, 6, 19, 5", "1, 6, 19, 4")
    return p.graph(p.end(p.add("Add", p.scores(), p.input("mask", "3, 1, 1, 19"))))


def in_turn(p: Parts, x: str) -> str:
    return gathered(p, x, [0, 1, 0, 1, 0, 1])


MISSED: dict[str, Make] = {
    "Softmax over the queries": over(2),
    "Softmax over the heads": over(1),
    "the scale behind Softmax": after_softmax,
    "a mask that multiplies": multiplied,
    "a mask before the scale": masked_first,
    "a mask that widens": widened,
    "keys not turned": not_turned,
    "batches turned": turned(3, 1, 2, 0),
    "three axes turned": turned(0, 3, 1, 2),
    "a scale for each head": many_scales,
    "a scale that is infinite": scaled(factor=math.inf),
    "a division by zero": scaled("Div", 0.0),
    "a number over the scores": scaled("Div", 3.0, first=True),
    "a number below it": scaled("Sub"),
    "hidden as NaN": chosen(hidden=math.nan),
    "-0 for NaN": filled(-0.0),
    "1 for NaN": filled(1.0),
    "a row masked whole": known(True),
    "0 where the maximum is 0": safe(low=0.0),
    "0 where the minimum is -inf": safe(kind="ReduceMin"),
    "0 where a key is hidden from all": safe(axis=2),
    "0 where scores are -inf without the mask": safe(own=False),
    "0 where the score is NaN": filled(tested="scores"),
}


@pytest.mark.parametrize("name", MISSED)
def test_a_near_miss_is_left_alone(name: str) -> None:
    graph = MISSED[name]()
    new, trace = recognize_attention(graph)
    assert trace.rewrites == 0 and kinds(new) == kinds(graph)


@pytest.mark.parametrize(
    "repeat",
    [
        in_turn,
        lambda p, x: gathered(p, x, [0, 0, 0, 0, 1, 1]),
        lambda p, x: gathered(p, x, [1, 1, 1, 0, 0, 0]),
        lambda p, x: expanded(p, x, behind=False),
    ],
)
def test_heads_shared_in_another_order_stay_repeated(repeat: Callable[[Parts, str], str]) -> None:
    graph = shared(repeat)()
    new, trace = recognize_attention(graph)
    assert trace.rewrites == 1 and kinds(new).count("Gather") == kinds(graph).count("Gather")
    assert kinds(new).count("Expand") == kinds(graph).count("Expand")
    feeds = drawn(graph, 4)
    wanted = promised(graph, feeds)[graph.outputs[0]]
    assert bits(promised(new, feeds)[new.outputs[0]]) == bits(wanted)


def test_another_triangle_stays_a_mask() -> None:
    for make in (triangle(offset=1), triangle(offset=-1), triangle(mask=np.tri(KEYS, ROWS).T > 0)):
        graph = make()
        (node,) = recognize_attention(graph)[0].nodes
        assert isinstance(node.op, Attention) and not node.op.causal and len(node.inputs) == 4


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_floats_are_left_alone(dtype: str) -> None:
    p = Parts(dtype=dtype)
    assert recognize_attention(p.graph(p.end(p.scaled())))[1].rewrites == 0


def test_sizes_that_are_not_known_are_left_alone() -> None:
    p = Parts(q="2, 6, n, 5")
    assert recognize_attention(p.graph(p.end(p.scaled())))[1].rewrites == 0


def test_what_is_read_elsewhere_keeps_its_parts() -> None:
    p = Parts()
    scores = p.add("Add", p.scaled(), p.input("mask", "7, 19"))
    y = p.end(scores)
    for node in p.b.nodes[1:-1]:
        assert recognize_attention(p.graph(y, node.outputs[0]))[1].rewrites == 0
    again = p.add("Relu", scores)
    assert recognize_attention(p.graph(y, again))[1].rewrites == 0


def test_a_transposition_that_is_read_elsewhere_stays_for_its_readers() -> None:
    p = Parts()
    turned = p.turn(p.k, 0, 1, 3, 2)
    graph = p.graph(p.end(p.scores(turned)), p.add("Relu", turned))
    assert kinds(recognize_attention(graph)[0]) == "Transpose Attention Relu"


def test_one_after_the_other_share_no_transposition() -> None:
    """The first one's result goes to the second one as its queries, turned twice."""
    p = Parts(v="2, 6, 19, 5")
    first = p.turn(p.end(p.scores()), 0, 2, 1, 3)
    p.q = p.turn(first, 0, 2, 1, 3)
    graph = p.graph(p.end(p.scores()))
    new, trace = recognize_attention(graph)
    assert trace.rewrites == 2 and "MatMul" not in kinds(new)
    feeds = drawn(graph, 9)
    wanted = promised(graph, feeds)[graph.outputs[0]]
    assert bits(promised(new, feeds)[new.outputs[0]]) == bits(wanted)
    assert recognize_attention(graph, 1)[1].rewrites == 1


# --- broken twins


def changed(graph: Graph, change: Callable[[Node], Node]) -> tuple[Graph, Trace]:
    return recognize_attention(dataclasses.replace(graph, nodes=tuple(map(change, graph.nodes))))


def of_any_axis(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Softmax over whatever axis."""
    last = Softmax(axis=-1)
    return changed(
        graph,
        lambda n: dataclasses.replace(n, op=last) if isinstance(n.op, Softmax) else n,
    )


def of_any_mask(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """A mask that is multiplied is taken for one that is added."""
    return changed(
        graph,
        lambda n: dataclasses.replace(n, op=Add()) if n.inputs[-1] == "mask" else n,
    )


def of_any_heads(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Heads that are repeated in whatever order."""
    with patch.object(module, "_gathers", lambda *_: True):
        return recognize_attention(graph, limit)


def of_any_triangle(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    with patch.object(module, "_is_triangle", lambda *_: True):
        return recognize_attention(graph, limit)


BROKEN = {
    "the axis": (of_any_axis, over(2)),
    "the mask": (of_any_mask, multiplied),
    "the heads": (of_any_heads, shared(in_turn)),
    "the triangle": (of_any_triangle, triangle(offset=3)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_twin_that_ignores_something_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, make = BROKEN[name]
    graph = make()
    written_out.assert_rounding(graph, drawn(graph, 9))
    written_out.plant(monkeypatch, "recognize_attention", broken)
    written_out.assert_named(graph, drawn(graph, 9), "recognize_attention")
