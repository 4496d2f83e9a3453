"""Einsum of many inputs as products of two: the same sum whatever the labels, with kernels."""

from __future__ import annotations

import numpy as np
import pytest

import verax
import verax.ops
from verax.compiler.passes.split_einsum import chain, split_einsum
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

assert verax.ops
CASES: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ab,bc,cd->ad", [(2, 3), (3, 5), (5, 7)]),
    ("ab,bc,cd,de->ae", [(9, 2), (2, 7), (7, 3), (3, 5)]),
    ("bij,bjk,bkl->bil", [(2, 3, 5), (2, 5, 7), (2, 7, 4)]),
    ("...ij,jk,...kl->...il", [(2, 3, 4, 5), (5, 6), (3, 6, 7)]),
    ("ai,bi,ci->abc", [(2, 7), (3, 7), (5, 7)]),
    ("a,b,c->cab", [(2,), (3,), (5,)]),
    ("ab,cd,e->", [(2, 3), (5, 4), (7,)]),
    ("ij,jk,kl", [(2, 3), (3, 5), (5, 4)]),
    ("ab,bc,c->a", [(3, 1), (5, 7), (1,)]),
]


def network(equation: str, shapes: list[tuple[int, ...]], dtype: str = "float32") -> Graph:
    b = Builder("net")
    types = [TensorType.parse(f"{dtype}[{', '.join(map(str, s))}]") for s in shapes]
    inputs = [b.input(f"x{i}", t) for i, t in enumerate(types)]
    return b.graph([b.add(REGISTRY["Einsum"](equation=equation), inputs, ["y"])])


def drawn(graph: Graph, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, 41])
    return {
        v: rng.standard_normal(graph.types[v].shape).astype(graph.types[v].dtype.numpy)
        for v in graph.inputs
    }


@pytest.mark.parametrize(("equation", "shapes"), CASES, ids=[c[0] for c in CASES])
def test_it_is_the_same_sum_and_native(equation: str, shapes: list[tuple[int, ...]]) -> None:
    graph = network(equation, shapes, "float64")
    given = drawn(graph, len(equation))
    made, trace = split_einsum(graph)
    assert trace.rewrites == 1
    assert {len(n.inputs) for n in made.nodes} == {2}
    want, got = promised(graph, given)["y"], promised(made, given)["y"]
    assert got.shape == want.shape
    beside = np.abs(got - want).max() / np.abs(want).max()
    assert beside < 1e-12  # float64 throughout: only the order differs
    exe = verax.compile(network(equation, shapes), opt_level=2, threads=1, cache=False)
    small = {v: a.astype(np.float32) for v, a in given.items()}
    assert "reference" not in str(exe.plan)
    assert exe.run(small)["y"].shape == want.shape


def test_the_cheapest_pair_comes_first() -> None:
    graph = network("ab,bc,cd->ad", [(50, 40), (40, 30), (30, 2)])
    steps = chain(graph, graph.nodes[0])
    assert steps == [(1, 2, "bc,cd->bd"), (0, 1, "ab,bd->ad")]


@pytest.mark.parametrize(
    ("equation", "shapes", "dtype"),
    [
        ("ij,jk->ik", [(2, 3), (3, 5)], "float32"),
        ("ii,ij,jk->ik", [(3, 3), (3, 5), (5, 2)], "float32"),
        ("ij,jk,kl->il", [(2, 3), (3, 5), (5, 7)], "int32"),
        ("ij,jk,kl->il", [(2, 3), (3, 5), (5, 7)], "float16"),
    ],
)
def test_what_stays_as_it_is(equation: str, shapes: list[tuple[int, ...]], dtype: str) -> None:
    assert split_einsum(network(equation, shapes, dtype))[1].rewrites == 0


def test_it_stops_after_as_many_as_it_may() -> None:
    assert split_einsum(network(*CASES[0]), limit=0)[1].rewrites == 0


def test_the_judge_calls_it_rounding() -> None:
    graph = network("bij,bjk,bkl->bil", [(2, 9, 40), (2, 40, 31), (2, 31, 7)])
    verdict = verax.check(graph, "verax:O2", seed=5)
    assert str(verdict.kind) == "rounding"
