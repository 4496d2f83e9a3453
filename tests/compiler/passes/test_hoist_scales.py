"""Scales move before transpositions with every bit kept, and attention is found behind them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.passes.fold_attention_scales import fold_attention_scales
from verax.compiler.passes.hoist_scales import hoist_scales
from verax.compiler.passes.recognize_attention import recognize_attention
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.ops.sums.attention import Attention
from verax.reference import promised

BATCH, HEADS, ROWS, KEYS, FEATURES, VALUES = 2, 3, 5, 7, 4, 6
ROOT = float(np.float32(0.59460356))


class Written:
    """Attention as PyTorch's exporter writes it, in parts that a test may change."""

    def __init__(self, root: float = ROOT, axis: int = 3) -> None:
        self.b, self.root, self.axis = Builder("net"), root, axis
        shapes = {"q": (BATCH, ROWS, HEADS, FEATURES), "k": (BATCH, KEYS, HEADS, FEATURES)}
        shapes["v"] = (BATCH, KEYS, HEADS, VALUES)
        self.q, self.k, self.v = (
            self.add("Transpose", self.b.input(n, TensorType.parse(f"float32{list(s)}")),
                     perm=(0, 2, 1, 3))
            for n, s in shapes.items()
        )  # fmt: skip

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        return self.b.add(REGISTRY[kind](**attributes), list(inputs))

    def number(self, value: float) -> str:
        return self.b.constant(np.array(value, np.float32))

    def reshaped(self, x: str, *sizes: int) -> str:
        return self.add("Reshape", x, self.b.constant(np.array(sizes)))

    def keys(self, *flat: int) -> str:
        flat = flat or (BATCH * HEADS, KEYS, FEATURES)
        turned = self.add("Transpose", self.reshaped(self.k, *flat), perm=(0, 2, 1))
        return self.reshaped(turned, BATCH, HEADS, FEATURES, KEYS)

    def scaled(self, x: str, root: float = 0.0) -> str:
        return self.add("Mul", x, self.number(root or self.root))

    def end(self, queries: str, keys: str, *outputs: str) -> Graph:
        shares = self.add("Softmax", self.add("MatMul", queries, keys), axis=self.axis)
        return self.b.graph([self.add("MatMul", shares, self.v), *outputs])


def exported(root: float = ROOT) -> Graph:
    w = Written(root)
    return w.end(w.scaled(w.q), w.scaled(w.keys()))


def scale_first() -> Graph:
    w = Written()
    w.k = w.scaled(w.k)
    return w.end(w.q, w.keys())


def number_first() -> Graph:
    w = Written()
    return w.end(w.q, w.add("Mul", w.number(ROOT), w.keys()))


def turned_once() -> Graph:
    w = Written()
    return w.end(w.scaled(w.q), w.scaled(w.add("Transpose", w.k, perm=(0, 1, 3, 2))))


FOUND: dict[str, Callable[[], Graph]] = {
    "as exported": exported,
    "scaled before": scale_first,
    "number first": number_first,
    "one transposition": turned_once,
}


def kinds(graph: Graph) -> list[str]:
    return [n.op.kind for n in graph.nodes]


@pytest.mark.parametrize("name", FOUND)
def test_attention_is_found_and_no_bit_changes(name: str) -> None:
    graph = FOUND[name]()
    feeds = draw_inputs(graph, 3)[0]
    wanted = promised(graph, feeds)[graph.outputs[0]]
    hoisted, trace = hoist_scales(graph)
    assert trace.rewrites == 1
    assert bits(promised(hoisted, feeds)[hoisted.outputs[0]]) == bits(wanted)
    found, _ = recognize_attention(hoisted)
    (op,) = [n.op for n in found.nodes if isinstance(n.op, Attention)]
    assert op.heads_inside == "qkv"
    for level in (0, 1):
        exe = compile(graph, Settings(level, threads=1))
        assert bits(exe.run(feeds)[graph.outputs[0]]) == bits(wanted)


def test_attention_scales_scores_once() -> None:
    found, _ = recognize_attention(hoist_scales(exported())[0])
    folded, trace = fold_attention_scales(found)
    assert (trace.rewrites, kinds(folded)) == (1, ["Attention"])
    (op,) = [n.op for n in folded.nodes]
    assert isinstance(op, Attention)
    assert op.scale == ROOT * ROOT


def test_scales_whose_product_is_no_usual_number_stay() -> None:
    found, _ = recognize_attention(hoist_scales(exported(1e-18))[0])
    folded, _ = fold_attention_scales(found)
    assert kinds(folded).count("Mul") == 1


@settings(max_examples=20, deadline=None)
@given(st.floats(-1e3, 1e3, width=32, allow_subnormal=False), st.integers(0, 99))
def test_any_number_scales_alike(root: float, seed: int) -> None:
    graph = exported(root or 1.0)
    feeds = draw_inputs(graph, seed)[0]
    hoisted, _ = hoist_scales(graph)
    wanted, given_ = (promised(g, feeds)[g.outputs[0]] for g in (graph, hoisted))
    assert bits(given_) == bits(wanted)


def read_elsewhere() -> Graph:
    w = Written()
    keys = w.scaled(w.keys())
    return w.end(w.q, keys, w.add("Exp", keys))


def no_shares() -> Graph:
    w = Written()
    return w.b.graph([w.add("MatMul", w.q, w.scaled(w.keys()))])


def a_factor_a_row() -> Graph:
    w = Written()
    factors = w.b.constant(np.arange(1, KEYS + 1, dtype=np.float32))
    return w.end(w.q, w.add("Mul", w.add("Transpose", w.k, perm=(0, 1, 3, 2)), factors))


@pytest.mark.parametrize("make", [read_elsewhere, no_shares, a_factor_a_row])
def test_what_is_another_is_left_alone(make: Callable[[], Graph]) -> None:
    graph = make()
    assert hoist_scales(graph)[1].rewrites == 0
