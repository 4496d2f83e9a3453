"""Random networks of written-out normalisations, activations and attention: at O2 they round as
they did, whatever was recognised in them. Some hold near misses, which must make no difference."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import verax
from verax.base.option_groups.settings import Settings
from verax.campaign.network_sketch import Sketch, op
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Graph
from verax.records.verdict import Kind

SEEDS = range(8)
WIDTHS = (12, 20, 33)


class Written:
    """A random network of blocks on x [2, 7, width]."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng([seed, 41])
        self.s = Sketch(f"written{seed}", self.random)
        width = int(self.random.choice(WIDTHS))
        x = self.random.standard_normal((2, 7, width)) * self.random.uniform(0.5, 3)
        h = self.s.input("x", x.astype(np.float32))
        for _ in range(int(self.random.integers(2, 6))):
            h = self.one(BLOCKS)(self, h)
            if not self.s.tame(h):
                break
        self.graph, self.inputs = self.s.graph(), self.s.inputs

    def one(self, choices: list[Callable[..., str]]) -> Callable[..., str]:
        return choices[int(self.random.integers(len(choices)))]

    def add(self, kind: str, *values: object, **attributes: object) -> str:
        """A node; numbers become constants, and operands change places by chance."""
        given = [v if isinstance(v, str) else self.s.constant(np.asarray(v)) for v in values]
        if kind in ("Add", "Mul") and self.random.random() < 0.5:
            given.reverse()
        return self.s.add(op(kind, **attributes), given)

    def reduced(self, kind: str, x: str, axis: int = -1) -> str:
        return self.s.add(op(kind), [x, self.s.constant([axis], np.int64)])

    def near(self, value: float) -> float:
        """The number, or by chance another near it."""
        return value * 1.01 if self.random.random() < 0.1 else value


def square(w: Written, x: str) -> str:
    return w.add("Mul", x, x) if w.random.random() < 0.5 else w.add("Pow", x, w.near(2.0))


def over_root(w: Written, x: str, squared: str) -> str:
    guarded = w.add("Add", squared, w.near(1e-3))
    if w.random.random() < 0.5:
        return w.add("Mul", x, w.add("Rsqrt", guarded))
    return w.add("Div", x, w.add("Sqrt", guarded))


def layer_norm(w: Written, x: str) -> str:
    d = w.add("Sub", x, w.reduced("ReduceMean", x, int(w.random.choice([-1, -1, -1, 1]))))
    d = d if w.random.random() < 0.9 else w.add("Neg", d)
    unit = over_root(w, d, w.reduced("ReduceMean", w.add("Mul", d, d)))
    width = w.s.shape(x)[-1]
    scaled = w.add("Mul", unit, w.s.uniform(0.5, 1.5, width))
    return w.add("Add", scaled, w.s.uniform(-0.5, 0.5, width))


def rms_norm(w: Written, x: str) -> str:
    unit = over_root(w, x, w.reduced("ReduceMean", w.add("Mul", x, x)))
    return w.add("Mul", unit, w.s.uniform(0.5, 1.5, w.s.shape(x)[-1]))


def unit_length(w: Written, x: str) -> str:
    norm = w.reduced("ReduceL2", x, int(w.random.choice([1, 2])))
    return w.add("Mul", w.add("Div", x, w.add("Max", norm, 0.5)), 3.0)


def gelu(w: Written, x: str) -> str:
    e = w.add("Erf", w.add("Div", x, w.near(2**0.5)))
    return w.add("Mul", w.add("Mul", x, w.add("Add", e, 1.0)), w.near(0.5))


def gelu_tanh(w: Written, x: str) -> str:
    cube = w.add("Mul", w.add("Mul", x, w.add("Mul", x, x)), w.near(0.044715))
    curve = w.add("Tanh", w.add("Mul", w.add("Add", x, cube), (2 / np.pi) ** 0.5))
    return w.add("Mul", w.add("Mul", x, 0.5), w.add("Add", curve, 1.0))


def swish(w: Written, x: str) -> str:
    argument = x if w.random.random() < 0.5 else w.add("Mul", x, 1.702)
    return w.add("Mul", x, w.add("Sigmoid", argument))


def dense(w: Written, x: str) -> str:
    width = int(w.random.choice(WIDTHS))
    rows = w.s.shape(x)[-1]
    return w.add("MatMul", x, w.s.normal(rows, width, scale=rows**-0.5))


def softmax(w: Written, x: str) -> str:
    top = w.reduced("ReduceMax", x, -1 if w.random.random() < 0.9 else 1)
    e = w.add("Exp", w.add("Sub", x, top))
    return w.add("Div", e, w.reduced("ReduceSum", e))


def attention(w: Written, x: str) -> str:
    size = w.s.shape(x)[-1]
    q, k, v = (w.add("MatMul", x, w.s.normal(size, size, scale=size**-0.5)) for _ in range(3))
    scores = w.add("MatMul", q, w.s.add(op("Transpose", perm=(0, 2, 1)), [k]))
    scores = w.add("Mul", scores, size**-0.5)
    if w.random.random() < 0.5:
        scores = w.add("Add", scores, np.triu(np.full((7, 7), -1e4), 1))
    return w.add("Add", x, w.add("MatMul", softmax(w, scores), v))


def residual(w: Written, x: str) -> str:
    return w.add("Add", x, w.one(SMOOTH)(w, x))


SMOOTH = [gelu, gelu_tanh, swish]
BLOCKS = [layer_norm, rms_norm, unit_length, *SMOOTH, dense, attention, residual]


def names(graph: Graph) -> set[str]:
    return {note.partition(":")[0] for note in run_passes(graph, Settings(2))[1].notes}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_judge_calls_it_rounding(seed: int) -> None:
    made = Written(seed)
    for watch in (True, False):
        found = verax.check(made.graph, "verax:O2", made.inputs, watch=watch, explain=False)
        assert found.kind in (Kind.rounding, Kind.identical, Kind.undecided), found.reasons
        blind = "blind" in " ".join(found.reasons)
        assert found.kind is not Kind.undecided or blind, found.reasons


def test_all_patterns_are_among_them() -> None:
    found = set().union(*(names(Written(seed).graph) for seed in range(40)))
    wanted = ("layer_norm", "rms_norm", "lp_norm", "gelu", "swish", "softmax")
    assert {f"recognize_{name}" for name in wanted} <= found
